//! The values of a column, as long as they are few; what they begin with, once they are many.
//!
//! ```text
//! whole      {api, web}                       at most 64 values of at most 256 bytes
//! prefixes   {GET /a, GET /b, POST /}         65th value of text or bytes: cut to a length that leaves 64
//! lost       {}                               65th number, or not even first letters are few
//! ```
//!
//! # Invariants
//! Every value that was added is in the set, or its prefix of the set's length is. Which of the
//! three forms it has depends on the values alone, not on their order or grouping.
//!
//! # Cost
//! A look-up among 64 a value; less for values that come in runs.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::schema::types::ColumnDescriptor;
use serde_json::{Value, json};

/// More values than this are not few, unless more were asked for.
const VALUES_MAX: usize = 64;

/// A longer value is not kept whole.
const VALUE_BYTES_MAX: usize = 256;

/// Longest prefix, in characters of text or bytes.
const PREFIX_MAX: usize = 64;

/// What values are, for readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Bytes,
    /// Whole numbers with sign.
    Int,
    /// Whole numbers without sign.
    UInt,
    /// Days since 1970-01-01.
    Date,
    /// True or false.
    Bool,
}

impl ValueKind {
    /// What the values of a leaf are; `None` if sets of them are not made.
    #[must_use]
    pub(crate) fn of(descr: &ColumnDescriptor) -> Option<Self> {
        let (logical, converted) = (descr.logical_type_ref(), descr.converted_type());
        match descr.physical_type() {
            Physical::BOOLEAN => Some(Self::Bool),
            Physical::INT32 | Physical::INT64 => match (logical, converted) {
                (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => Some(Self::Date),
                (Some(LogicalType::Integer(of)), _) => {
                    Some(if of.is_signed { Self::Int } else { Self::UInt })
                }
                (None, ConvertedType::UINT_8 | ConvertedType::UINT_16)
                | (None, ConvertedType::UINT_32 | ConvertedType::UINT_64) => Some(Self::UInt),
                (None, ConvertedType::NONE | ConvertedType::INT_8 | ConvertedType::INT_16)
                | (None, ConvertedType::INT_32 | ConvertedType::INT_64) => Some(Self::Int),
                _ => None,
            },
            Physical::BYTE_ARRAY => match (logical, converted) {
                (Some(LogicalType::String), _) | (None, ConvertedType::UTF8) => Some(Self::Text),
                (Some(LogicalType::Decimal(_)), _) | (_, ConvertedType::DECIMAL) => None,
                _ => Some(Self::Bytes),
            },
            Physical::FIXED_LEN_BYTE_ARRAY => match (logical, converted) {
                _ if descr.type_length() < 1 => None,
                (None, ConvertedType::NONE) | (Some(LogicalType::Uuid), _) => Some(Self::Bytes),
                _ => None,
            },
            Physical::INT96 | Physical::FLOAT | Physical::DOUBLE => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Int | Self::UInt => "int",
            Self::Date => "date",
            Self::Bool => "bool",
        }
    }

    fn has_prefixes(self) -> bool {
        matches!(self, Self::Text | Self::Bytes)
    }

    /// The first `length` characters or bytes of `value`.
    fn cut(self, value: &[u8], length: usize) -> &[u8] {
        let end = match self {
            // What is not UTF-8 is cut as bytes; it is marked when the set is written.
            Self::Text => match std::str::from_utf8(value) {
                Ok(text) => text.char_indices().nth(length).map(|(at, _)| at),
                Err(_) => Some(length),
            },
            _ => Some(length),
        };
        value.get(..end.unwrap_or(value.len())).unwrap_or(value)
    }

    fn show(self, value: &[u8]) -> Option<Value> {
        let array = |value: &[u8]| <[u8; 8]>::try_from(value).ok();
        let word = |value: &[u8]| <[u8; 4]>::try_from(value).ok();
        match self {
            Self::Text => std::str::from_utf8(value).ok().map(Value::from),
            Self::Bytes => Some(Value::from(BASE64.encode(value))),
            Self::Bool => value.first().map(|flag| Value::from(*flag != 0)),
            Self::UInt => word(value)
                .map(|word| Value::from(u32::from_le_bytes(word)))
                .or_else(|| array(value).map(|long| Value::from(u64::from_le_bytes(long)))),
            Self::Int | Self::Date => word(value)
                .map(|word| Value::from(i32::from_le_bytes(word)))
                .or_else(|| array(value).map(|long| Value::from(i64::from_le_bytes(long)))),
        }
    }
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueSet {
    kind: ValueKind,
    /// More values than this are not few.
    most: usize,
    values: BTreeSet<Vec<u8>>,
    /// How much of each value is kept; `None` = all.
    length: Option<usize>,
    is_lost: bool,
    has_nulls: bool,
}

impl ValueSet {
    /// No values; at most `most` will be few.
    #[must_use]
    pub(crate) fn new(kind: ValueKind, most: Option<u64>) -> Self {
        let most = most.map_or(VALUES_MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let values = BTreeSet::new();
        Self { kind, most, values, length: None, is_lost: false, has_nulls: false }
    }

    /// Adds a value, without length in front.
    pub(crate) fn add(&mut self, value: &[u8]) {
        if self.is_lost {
            return;
        }
        let value = self.length.map_or(value, |length| self.kind.cut(value, length));
        if self.values.contains(value) {
            return;
        }
        self.values.insert(value.to_vec());
        if self.values.len() > self.most || value.len() > VALUE_BYTES_MAX {
            self.shorten(PREFIX_MAX);
        }
    }

    /// Notes that a value is missing.
    pub(crate) fn add_null(&mut self) {
        self.has_nulls = true;
    }

    /// Adds the values of another set.
    pub(crate) fn add_all(&mut self, other: &Self) {
        self.has_nulls |= other.has_nulls;
        if other.is_lost {
            self.lose();
        }
        if self.is_lost {
            return;
        }
        if let Some(length) = other.length
            && self.length.is_none_or(|mine| mine > length)
        {
            self.shorten(length);
        }
        other.values.iter().for_each(|value| self.add(value));
    }

    /// Cuts values to the longest prefixes, at most `length` long, that are few.
    fn shorten(&mut self, length: usize) {
        let length = self.length.map_or(length, |now| now.min(length));
        if self.kind.has_prefixes() {
            for length in (1..=length).rev() {
                let cut = |value: &Vec<u8>| self.kind.cut(value, length).to_vec();
                let short: BTreeSet<Vec<u8>> = self.values.iter().map(cut).collect();
                if short.len() <= self.most {
                    (self.values, self.length) = (short, Some(length));
                    return;
                }
            }
        }
        self.lose();
    }

    fn lose(&mut self) {
        self.is_lost = true;
        self.values.clear();
    }

    /// The set as a member of `plait.zone_map`.
    #[must_use]
    pub(crate) fn to_json(&self) -> Value {
        let mut shown = json!({ "type": self.kind.name(), "nulls": self.has_nulls });
        let values: Option<Vec<Value>> = self.values.iter().map(|v| self.kind.show(v)).collect();
        // Text that is not UTF-8 has no place in JSON.
        let Some(mut values) = values.filter(|_| !self.is_lost) else { return shown };
        if !self.kind.has_prefixes() {
            // Bytes of numbers are not in the order of numbers.
            values.sort_by_key(|value| {
                value.as_i64().map_or(i128::from(value.as_u64().unwrap_or(0)), i128::from)
            });
        }
        match self.length {
            None => shown["values"] = Value::from(values),
            Some(length) => {
                shown["prefix_length"] = Value::from(length);
                shown["prefixes"] = Value::from(values);
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of<'a>(kind: ValueKind, values: impl IntoIterator<Item = &'a [u8]>) -> ValueSet {
        let mut set = ValueSet::new(kind, None);
        values.into_iter().for_each(|value| set.add(value));
        set
    }

    #[test]
    fn few_values_are_kept_whole_and_numbers_are_in_order() {
        let set = of(ValueKind::Text, [b"web".as_slice(), b"api", b"web"]);
        assert_eq!(
            set.to_json(),
            json!({"type": "text", "nulls": false, "values": ["api", "web"]})
        );
        let numbers: Vec<_> = [256_i32, -1, 3].iter().map(|n| n.to_le_bytes()).collect();
        let set = of(ValueKind::Int, numbers.iter().map(<[u8; 4]>::as_slice));
        assert_eq!(set.to_json()["values"], json!([-1, 3, 256]));
    }

    #[test]
    fn many_numbers_are_lost_and_text_that_is_none_is_left_out() {
        let numbers: Vec<_> = (0..65_i64).map(i64::to_le_bytes).collect();
        let set = of(ValueKind::Int, numbers.iter().map(<[u8; 8]>::as_slice));
        assert_eq!(set.to_json(), json!({"type": "int", "nulls": false}));
        let set = of(ValueKind::Text, [b"a".as_slice(), b"\xff"]);
        assert_eq!(set.to_json(), json!({"type": "text", "nulls": false}));
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let long = "\u{e9}".repeat(200);
        let set = of(ValueKind::Text, [long.as_bytes()]);
        assert_eq!(set.to_json()["prefix_length"], json!(64));
        assert_eq!(set.to_json()["prefixes"], json!(["\u{e9}".repeat(64)]));
    }

    proptest! {
        #[test]
        fn order_and_grouping_do_not_matter_and_nothing_is_missing(
            words in prop::collection::vec("[a-d\u{e9}]{0,5}", 0..300),
            split in 0..300_usize,
        ) {
            let bytes: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
            let at = split.min(bytes.len());
            let all = of(ValueKind::Text, bytes.iter().copied());
            let mut parts = of(ValueKind::Text, bytes[at..].iter().rev().copied());
            parts.add_all(&of(ValueKind::Text, bytes[..at].iter().copied()));
            prop_assert_eq!(&all, &parts);
            let distinct: BTreeSet<_> = words.iter().collect();
            prop_assert_eq!(all.length.is_none() && !all.is_lost, distinct.len() <= VALUES_MAX);
            if !all.is_lost {
                for word in &words {
                    let length = all.length.unwrap_or(usize::MAX);
                    let begin: String = word.chars().take(length).collect();
                    prop_assert!(all.values.contains(begin.as_bytes()));
                }
                prop_assert!(all.values.len() <= VALUES_MAX);
            }
        }
    }
}
