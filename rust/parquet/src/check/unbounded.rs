//! Bounds of floats that the footer must not have, because not all row groups have some.
//!
//! ```text
//! row group   0         1      2              0      1      2
//! bounds      -1 … 2    none   0 … 9    ──▶   none   none   none
//! ```
//!
//! # Invariants
//! A column has bounds in all row groups with values, or in none: DataFusion takes the bounds that
//! are there for those of the file.
//!
//! # Cost
//! The footer is decoded and encoded again, only where bounds go.
//!
//! # Not here
//! Which chunks have bounds (`encode::floats`).

use std::collections::BTreeSet;

use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataOptions,
    ParquetMetaDataReader, ParquetMetaDataWriter,
};
use plait_core::Result;

use super::orders::footer_in;
use crate::encode::statistics::{Cut, statistics};
use crate::page::unwrap_error;

/// Of `leaves`, those with bounds in some row groups and without bounds in another one with values.
pub(crate) fn partly_bounded(
    metadata: &ParquetMetaData,
    leaves: &BTreeSet<usize>,
) -> BTreeSet<usize> {
    let chunks = |leaf| metadata.row_groups().iter().map(move |group| group.column(leaf));
    let lacks = |leaf: usize| chunks(leaf).any(|chunk| has_values(chunk) && !has_bounds(chunk));
    let has = |leaf: usize| chunks(leaf).any(has_bounds);
    leaves.iter().copied().filter(|leaf| lacks(*leaf) && has(*leaf)).collect()
}

fn has_bounds(chunk: &ColumnChunkMetaData) -> bool {
    chunk.statistics().is_some_and(|known| known.min_bytes_opt().is_some())
        || chunk.column_index_offset().is_some()
}

fn has_values(chunk: &ColumnChunkMetaData) -> bool {
    let nulls = chunk.statistics().and_then(|known| known.null_count_opt());
    nulls.and_then(|nulls| i64::try_from(nulls).ok()) != Some(chunk.num_values())
}

/// Takes the bounds of the columns `leaves` out of the footer of a file that ends with `tail`;
/// their column indexes are not found any more.
///
/// # Errors
/// [`Kind::Internal`] if `tail` does not end with a footer.
pub(crate) fn drop_bounds(tail: &mut Vec<u8>, leaves: &BTreeSet<usize>) -> Result<()> {
    if leaves.is_empty() {
        return Ok(());
    }
    let place = footer_in(tail)?;
    let footer = tail.get(place.clone()).unwrap_or_default();
    let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
    let metadata = ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options))
        .map_err(unwrap_error)?;
    let mut builder: ParquetMetaDataBuilder = metadata.into_builder();
    for group in builder.take_row_groups() {
        let mut group = group.into_builder();
        let chunks = group.take_columns().into_iter().enumerate();
        let chunks = chunks.map(|(leaf, chunk)| match leaves.contains(&leaf) {
            true => unbounded(chunk),
            false => Ok(chunk),
        });
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        builder =
            builder.add_row_group(group.set_column_metadata(chunks).build().map_err(unwrap_error)?);
    }
    let mut made = Vec::new();
    ParquetMetaDataWriter::new(&mut made, &builder.build()).finish().map_err(unwrap_error)?;
    tail.truncate(place.start);
    tail.extend(made);
    Ok(())
}

fn unbounded(chunk: ColumnChunkMetaData) -> Result<ColumnChunkMetaData> {
    let descr = chunk.column_descr_ptr();
    let whole = Cut { footer_bytes: usize::MAX, index_bytes: usize::MAX };
    let counts = chunk.statistics().map(|known| (known.null_count_opt(), known.nan_count_opt()));
    let builder = chunk.into_builder().set_column_index_offset(None).set_column_index_length(None);
    let builder = match counts {
        Some((nulls, nans)) => builder.set_statistics(statistics(&descr, None, nulls, nans, whole)),
        None => builder,
    };
    builder.build().map_err(unwrap_error)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::page::testing::file;

    #[test]
    fn bounds_of_some_columns_go_and_all_else_stays() {
        let schema = "message m { required int64 k; optional float f; optional double d; }";
        let before = file(schema, &[10, 20], |p| p);
        let mut after = before.clone();
        drop_bounds(&mut after, &BTreeSet::from([1])).unwrap();
        let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
        let read = |bytes: &[u8]| {
            let reader = ParquetMetaDataReader::new().with_metadata_options(Some(options.clone()));
            reader.parse_and_finish(&Bytes::copy_from_slice(bytes)).unwrap()
        };
        let (old, new) = (read(&before), read(&after));
        assert_eq!(new.file_metadata(), old.file_metadata());
        for (old, new) in old.row_groups().iter().zip(new.row_groups()) {
            assert_eq!((new.column(0), new.column(2)), (old.column(0), old.column(2)));
            assert!(has_bounds(old.column(1)) && !has_bounds(new.column(1)));
            let nulls = |chunk: &ColumnChunkMetaData| chunk.statistics().unwrap().null_count_opt();
            assert_eq!(nulls(new.column(1)), nulls(old.column(1)));
            assert_eq!(new.column(1).num_values(), old.column(1).num_values());
        }
        assert_eq!(partly_bounded(&old, &BTreeSet::from([1, 2])), BTreeSet::new());
        assert!(drop_bounds(&mut vec![1, 2, 3], &BTreeSet::from([1])).is_err());
    }
}
