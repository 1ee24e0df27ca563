//! Bounds as the footer and the column index store them: typed, and cut short where they are long.
//!
//! # Invariants
//! A minimum that is cut is smaller, a maximum that is cut is greater, and both are marked as not
//! exact. Text stays text.
//!
//! # Source
//! Parquet format, `Statistics.is_min_value_exact`, `ColumnIndex.min_values`.

use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};

use super::bounds::{Bounds, ValueOrder};

/// Longest bounds that are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// In the footer.
    pub footer_bytes: usize,
    /// In the column index.
    pub index_bytes: usize,
}

impl Cut {
    /// As `properties` say.
    #[must_use]
    pub(crate) fn of(properties: &WriterProperties) -> Self {
        Self {
            footer_bytes: properties.statistics_truncate_length().unwrap_or(usize::MAX),
            index_bytes: properties.column_index_truncate_length().unwrap_or(usize::MAX),
        }
    }

    /// Bounds of a page for the column index.
    #[must_use]
    pub(crate) fn for_index(self, descr: &ColumnDescriptor, bounds: &Bounds) -> (Vec<u8>, Vec<u8>) {
        let (min, max) = cut(descr, bounds, self.index_bytes);
        (min.0, max.0)
    }
}

/// The bounds, at most `len` bytes each where that can be, and whether they were cut.
fn cut(
    descr: &ColumnDescriptor,
    bounds: &Bounds,
    len: usize,
) -> ((Vec<u8>, bool), (Vec<u8>, bool)) {
    let is_bytes =
        matches!(descr.physical_type(), Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY);
    let whole = |value: &Vec<u8>| (value.clone(), false);
    if !is_bytes || ValueOrder::of(descr) != ValueOrder::Bytes {
        return (whole(&bounds.min), whole(&bounds.max));
    }
    let is_text = descr.logical_type_ref() == Some(&LogicalType::String)
        || descr.converted_type() == ConvertedType::UTF8;
    let min = match bounds.min.len() > len {
        true => cut_min(&bounds.min, len, is_text).map(|min| (min, true)),
        false => None,
    };
    let max = match bounds.max.len() > len {
        true => cut_max(&bounds.max, len, is_text).map(|max| (max, true)),
        false => None,
    };
    (min.unwrap_or_else(|| whole(&bounds.min)), max.unwrap_or_else(|| whole(&bounds.max)))
}

/// The longest prefix of at most `len` bytes; of text, whole characters.
fn cut_min(value: &[u8], len: usize, is_text: bool) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok().filter(|_| is_text);
    let end = match text {
        Some(text) => (1..=len).rev().find(|end| text.is_char_boundary(*end))?,
        None => len,
    };
    Some(value[..end].to_vec())
}

/// A short value above all that begin like `value`.
fn cut_max(value: &[u8], len: usize, is_text: bool) -> Option<Vec<u8>> {
    let Some(text) = std::str::from_utf8(value).ok().filter(|_| is_text) else {
        let mut prefix = value[..len].to_vec();
        while let Some(last) = prefix.pop() {
            if last < u8::MAX {
                prefix.push(last + 1);
                return Some(prefix);
            }
        }
        return None;
    };
    let end = (1..=len).rev().find(|end| text.is_char_boundary(*end))?;
    let mut prefix = text[..end].to_owned();
    while let Some(last) = prefix.pop() {
        let next = char::from_u32(u32::from(last) + 1);
        // Not a longer one: readers with fixed room for bounds would not like it.
        if let Some(next) = next.filter(|next| next.len_utf8() == last.len_utf8()) {
            prefix.push(next);
            return Some(prefix.into_bytes());
        }
    }
    None
}

/// The statistics of a chunk; of its bounds, whether they are exact.
#[must_use]
pub(crate) fn statistics(
    descr: &ColumnDescPtr,
    bounds: Option<(&Bounds, bool)>,
    nulls: Option<u64>,
    nans: Option<u64>,
    limits: Cut,
) -> Statistics {
    let backwards = descr.sort_order().is_signed();
    macro_rules! typed {
        ($variant:ident, $read:expr) => {{
            let read = $read;
            let ((min, min_cut), (max, max_cut)) = match bounds {
                Some((bounds, is_exact)) => {
                    let (min, max) = cut(descr, bounds, limits.footer_bytes);
                    ((read(&min.0), min.1 || !is_exact), (read(&max.0), max.1 || !is_exact))
                }
                None => ((None, false), (None, false)),
            };
            let is_there = min.is_some() && max.is_some();
            Statistics::$variant(
                ValueStatistics::new(min, max, None, nulls, false)
                    .with_nan_count(nans)
                    .with_backwards_compatible_min_max(backwards)
                    .with_min_is_exact(is_there && !min_cut)
                    .with_max_is_exact(is_there && !max_cut),
            )
        }};
    }
    match descr.physical_type() {
        Physical::BOOLEAN => typed!(Boolean, |b: &[u8]| b.first().map(|b| *b != 0)),
        Physical::INT32 => typed!(Int32, |b: &[u8]| Some(i32::from_le_bytes(b.try_into().ok()?))),
        Physical::INT64 => typed!(Int64, |b: &[u8]| Some(i64::from_le_bytes(b.try_into().ok()?))),
        Physical::FLOAT => typed!(Float, |b: &[u8]| Some(f32::from_le_bytes(b.try_into().ok()?))),
        Physical::DOUBLE => typed!(Double, |b: &[u8]| Some(f64::from_le_bytes(b.try_into().ok()?))),
        Physical::INT96 => typed!(Int96, |b: &[u8]| {
            let word = |i: usize| Some(u32::from_le_bytes(b.get(i..i + 4)?.try_into().ok()?));
            let mut value = Int96::new();
            value.set_data(word(0)?, word(4)?, word(8)?);
            Some(value)
        }),
        Physical::BYTE_ARRAY => typed!(ByteArray, |b: &[u8]| Some(ByteArray::from(b.to_vec()))),
        Physical::FIXED_LEN_BYTE_ARRAY => {
            typed!(FixedLenByteArray, |b: &[u8]| {
                Some(FixedLenByteArray::from(ByteArray::from(b.to_vec())))
            })
        }
    }
}

/// The statistics of a chunk without bounds: a null count alone.
#[must_use]
pub(crate) fn without_bounds(descr: &ColumnDescPtr, found: &Statistics, limits: Cut) -> Statistics {
    statistics(descr, None, Some(found.null_count_opt().unwrap_or(0)), None, limits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cut_bounds_still_bound(value in prop::collection::vec(any::<u8>(), 2..40), len in 1..8_usize) {
            prop_assume!(value.len() > len);
            let min = cut_min(&value, len, false).unwrap();
            prop_assert!(min <= value && min.len() <= len);
            if let Some(max) = cut_max(&value, len, false) {
                prop_assert!(max > value && max.len() <= len);
            }
        }

        #[test]
        fn cut_text_is_text(value in "[a-c\u{e9}\u{20ac}\u{10ffff}\u{7f}]{2,20}", len in 1..9_usize) {
            prop_assume!(value.len() > len);
            if let Some(min) = cut_min(value.as_bytes(), len, true) {
                prop_assert!(std::str::from_utf8(&min).unwrap() <= value.as_str());
            }
            if let Some(max) = cut_max(value.as_bytes(), len, true) {
                prop_assert!(std::str::from_utf8(&max).unwrap() > value.as_str());
            }
        }
    }
}
