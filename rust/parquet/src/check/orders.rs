//! The column orders of a footer that is about to be written.
//!
//! ```text
//! … │ column_orders: list of { 1: TYPE_ORDER {} } or { 2: IEEE_754_TOTAL_ORDER {} } │ …
//!                               1C 00 00              2C 00 00
//! ```
//!
//! # Invariants
//! The length of the footer stays what it is: both orders take three bytes.
//!
//! # Not here
//! Which order holds (`encode::floats`).

use std::collections::BTreeSet;
use std::ops::Range;

use plait_core::{Error, Kind, Result};

use crate::thrift::{Reader, Stop, TYPE_LIST, TYPE_STRUCT};

/// A struct that is the first field, as the compact protocol begins it.
const FIRST_FIELD: u8 = 1 << 4 | TYPE_STRUCT;
/// A struct that is the second field.
const SECOND_FIELD: u8 = 2 << 4 | TYPE_STRUCT;
/// Length of the footer, and magic bytes.
const TRAILER_BYTES: usize = 8;

/// Declares the type-defined order for the columns `leaves` in a file that ends with `tail`.
///
/// # Errors
/// [`Kind::Internal`] if these are not the columns of a footer.
pub(crate) fn declare_type_defined(tail: &mut [u8], leaves: &BTreeSet<usize>) -> Result<()> {
    let place = footer_in(tail)?;
    let footer = tail.get_mut(place).ok_or_else(broken)?;
    let places = places(footer).map_err(|_| broken())?;
    for leaf in leaves {
        let byte = places.get(*leaf).and_then(|place| footer.get_mut(*place));
        match byte {
            Some(byte) if matches!(*byte, FIRST_FIELD | SECOND_FIELD) => *byte = FIRST_FIELD,
            _ => return Err(broken()),
        }
    }
    Ok(())
}

fn broken() -> Error {
    Error::new(Kind::Internal, "a footer has no column orders to change")
}

/// Where the footer is in the last bytes of a file.
///
/// # Errors
/// [`Kind::Internal`].
pub(super) fn footer_in(tail: &[u8]) -> Result<Range<usize>> {
    let end = tail.len().checked_sub(TRAILER_BYTES).ok_or_else(broken)?;
    let len = tail.get(end..end + 4).and_then(|len| len.try_into().ok());
    let len = len.map(u32::from_le_bytes).and_then(|len| usize::try_from(len).ok());
    Ok(len.and_then(|len| end.checked_sub(len)).ok_or_else(broken)?..end)
}

/// Where the order of each column is named.
fn places(footer: &[u8]) -> Result<Vec<usize>, Stop> {
    let mut reader = Reader::new(footer);
    let (mut last, mut places) = (0, Vec::new());
    while let Some((id, kind)) = reader.field(&mut last)? {
        if (id, kind) != (7, TYPE_LIST) {
            reader.skip(kind)?;
            continue;
        }
        let (_, count) = reader.list()?;
        for _ in 0..count {
            places.push(reader.position());
            reader.skip(TYPE_STRUCT)?;
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::basic::ColumnOrder;
    use parquet::file::metadata::ParquetMetaDataReader;

    use super::*;
    use crate::page::testing::file;

    #[test]
    fn orders_of_columns_are_changed_in_place() {
        let schema = "message m { required int64 k; optional float f; optional double d; }";
        let bytes = file(schema, &[10], |p| p);
        let orders = |bytes: &[u8]| {
            let bytes = Bytes::copy_from_slice(bytes);
            let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
            metadata.file_metadata().column_orders().unwrap().clone()
        };
        assert_eq!(orders(&bytes)[1..], [ColumnOrder::IEEE_754_TOTAL_ORDER; 2]);
        let mut changed = bytes.clone();
        declare_type_defined(&mut changed, &BTreeSet::from([2])).unwrap();
        assert_eq!(changed.len(), bytes.len());
        let after = orders(&changed);
        assert_eq!(after[1], ColumnOrder::IEEE_754_TOTAL_ORDER);
        assert!(matches!(after[2], ColumnOrder::TYPE_DEFINED_ORDER(_)), "{:?}", after[2]);
        assert!(declare_type_defined(&mut changed, &BTreeSet::from([3])).is_err());
        assert!(declare_type_defined(&mut [1, 2, 3], &BTreeSet::new()).is_err());
    }
}
