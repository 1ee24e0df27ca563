//! How large a page becomes when it is decoded, found before memory is taken for it.
//!
//! ```text
//! counts    num_values                        four bytes an id, two bytes of levels
//! prefixes  DELTA_BYTE_ARRAY: 1 MB + a b c    every value repeats what it shares with the last one
//! ```
//!
//! # Invariants
//! Nothing is reserved by a number that the page states. Damaged lengths are left to the decoder,
//! which refuses them.
//!
//! # Cost
//! Nothing for most pages; about a nanosecond a value for shared prefixes.
//!
//! # Source
//! Parquet format, Encodings, "Delta encoding (`DELTA_BINARY_PACKED = 5`)" and "Delta Strings".

use parquet::basic::Encoding;
use parquet::schema::types::ColumnDescriptor;
use plait_core::{Error, Kind, Result};

use super::header::PageHeader;
use crate::runtime::{Budget, MemoryStage};

/// Bytes that an entry of a page takes at most besides its value: an id, two levels, a row's start.
const ENTRY_BYTES: u64 = 8;

/// Refuses a page that becomes too large when it is decoded. `unpacked` is its body,
/// for the leaf `descr`.
///
/// # Errors
/// [`Kind::MemoryLimit`].
pub(super) fn check_expansion(
    header: &PageHeader,
    unpacked: &[u8],
    descr: &ColumnDescriptor,
    budget: Budget,
) -> Result<()> {
    let limit = budget.limit_bytes() as u64;
    let expanded_max = budget.bytes(MemoryStage::ExpandedPage) as u64;
    let values = u64::from(header.num_values());
    if values.saturating_mul(ENTRY_BYTES) > limit {
        return Err(beyond("page has more values than fit the memory limit")
            .with_got(format!("{values} values, memory_limit {limit}")));
    }
    let bytes = header.expanded_len(unpacked, descr);
    if bytes > unpacked.len() as u64 && bytes > expanded_max {
        return Err(beyond("page repeats shared prefixes beyond the memory limit")
            .with_got(format!("{bytes} bytes of values, memory_limit {limit}")));
    }
    Ok(())
}

impl PageHeader {
    /// About the bytes of the values of a page of the leaf `descr` that is not of ids: values that
    /// share prefixes are longer than their page.
    pub(crate) fn expanded_len(&self, unpacked: &[u8], descr: &ColumnDescriptor) -> u64 {
        let len = unpacked.len() as u64;
        if self.data_encoding() != Some(Encoding::DELTA_BYTE_ARRAY) {
            return len;
        }
        let Some(start) = self.values_start(unpacked, descr.max_rep_level(), descr.max_def_level())
        else {
            return len;
        };
        let body = unpacked.get(start..).unwrap_or_default();
        len.saturating_add(sum_of_deltas(body, self.num_values()).unwrap_or(0))
    }
}

fn beyond(what: &str) -> Error {
    Error::new(Kind::MemoryLimit, what)
        .with_hint("raise memory_limit, or rewrite the file with smaller pages")
}

/// The sum of the first `count_max` numbers that `bytes` holds in DELTA_BINARY_PACKED; negative
/// ones count as nothing. `None` if the bytes end early.
fn sum_of_deltas(bytes: &[u8], count_max: u32) -> Option<u64> {
    let mut at = 0;
    let block = varint(bytes, &mut at)?;
    let minis = varint(bytes, &mut at)?;
    let count = varint(bytes, &mut at)?.min(u64::from(count_max));
    let mut value = zigzag(varint(bytes, &mut at)?);
    let per_mini = block.checked_div(minis)?;
    if count == 0 || per_mini == 0 || minis > block {
        return Some(0);
    }
    let mut sum = value.max(0).unsigned_abs();
    let mut left = count - 1;
    while left > 0 {
        let least = zigzag(varint(bytes, &mut at)?);
        let widths = bytes.get(at..at.checked_add(usize::try_from(minis).ok()?)?)?;
        at += widths.len();
        for width in widths {
            if left == 0 {
                break;
            }
            let width = usize::from(*width).min(64);
            let len = usize::try_from(per_mini).ok()?.checked_mul(width)?.div_ceil(8);
            let packed = bytes.get(at..at.checked_add(len)?)?;
            at += len;
            for place in 0..per_mini.min(left) {
                let bit = usize::try_from(place).ok()? * width;
                let delta = least.wrapping_add(bits(packed, bit, width).cast_signed());
                // Lengths are numbers of 32 bits, which wrap.
                value = i64::from((value.wrapping_add(delta)) as i32);
                sum = sum.saturating_add(value.max(0).unsigned_abs());
            }
            left -= per_mini.min(left);
        }
    }
    Some(sum)
}

/// `width` bits from bit `start` on, the lowest first.
fn bits(packed: &[u8], start: usize, width: usize) -> u64 {
    let tail = packed.get(start / 8..).unwrap_or_default();
    let mut word = [0; 16];
    let len = tail.len().min(9);
    word[..len].copy_from_slice(&tail[..len]);
    let word = u128::from_le_bytes(word) >> (start % 8);
    (word & ((1_u128 << width) - 1)) as u64
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use parquet::column::page::Page;
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use proptest::prelude::*;
    use std::sync::Arc;

    use super::*;

    /// The data page that the parquet crate makes of `values`, and the sum of shared prefixes.
    fn written(values: &[Vec<u8>]) -> (Vec<u8>, u64) {
        let schema = parse_message_type("message m { required binary b; }").unwrap();
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BYTE_ARRAY)
            .build();
        let mut bytes = Vec::new();
        let mut file =
            SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties)).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> = values.iter().map(|v| ByteArray::from(v.clone())).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        file.close().unwrap();
        let shared = values.windows(2).map(|pair| {
            let both = pair[0].data().iter().zip(pair[1].data());
            both.take_while(|(a, b)| a == b).count() as u64
        });
        let shared = shared.sum();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let group = reader.get_row_group(0).unwrap();
        let mut pages = group.get_column_page_reader(0).unwrap();
        let Page::DataPage { buf, encoding, .. } = pages.get_next_page().unwrap().unwrap() else {
            panic!("one page of version 1");
        };
        assert_eq!(encoding, Encoding::DELTA_BYTE_ARRAY);
        (buf.to_vec(), shared)
    }

    #[test]
    fn shared_prefixes_of_sorted_names_are_summed() {
        let values: Vec<Vec<u8>> =
            (0..1000).map(|i| format!("service-{:05}/host", i * 7).into_bytes()).collect();
        let (body, shared) = written(&values);
        assert_eq!(sum_of_deltas(&body, 1000), Some(shared));
        assert!(shared > 9 * 999);
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_writer(
            values in prop::collection::vec(prop::collection::vec(0..2_u8, 0..300), 1..400),
        ) {
            let (body, shared) = written(&values);
            prop_assert_eq!(sum_of_deltas(&body, values.len() as u32), Some(shared));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = sum_of_deltas(&bytes, u32::MAX);
        }
    }
}
