//! Arrow arrays in, the same key bytes out.
//!
//! ```text
//! dictionary ── keys ──┐
//! run-end ── runs ─────┼─> rows that are present, and where their values are ─> Values ─> encode
//! plain array ─────────┘
//! ```
//!
//! # Invariants
//! A row of a dictionary is null when its key is, or when the value it points to is.
//!
//! # Cost
//! Plain fixed-width arrays without nulls are borrowed; all others are gathered once, before
//! `encode`. Strings are gathered as references.
//!
//! # Not here
//! The byte format (`column`).

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, RunEndIndexType, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RunArray};
use arrow_buffer::i256;
use arrow_schema::{DataType, TimeUnit};
use half::f16;

use super::encode::encode;
use super::keys::Keys;
use super::shape::{KeyColumn, KeyShape, KeyType};
use super::values::{Column, Values};
use plait_base::{Error, Kind, Result, type_text};

/// The keys of the rows of `arrays`, one array a column of `shape`.
///
/// # Errors
/// [`Kind::UnsupportedKey`] when an array's type has no order; [`Kind::Internal`] when arrays do
/// not fit the shape or each other; [`Kind::CorruptSource`] when a decimal is out of range.
pub fn encode_arrow(shape: &KeyShape, arrays: &[ArrayRef]) -> Result<Keys> {
    if arrays.len() != shape.columns().len() {
        return Err(Error::new(Kind::Internal, "number of arrays differs from the key's columns")
            .with_got(format!("{} for {}", arrays.len(), shape.columns().len())));
    }
    let rows = arrays.first().map_or(0, |array| array.len());
    let mut leaves = Vec::with_capacity(arrays.len());
    for (column, array) in shape.columns().iter().zip(arrays) {
        let leaf = if array.len() == rows {
            check_type(column, array.data_type()).and_then(|()| Leaf::try_new(array))
        } else {
            Err(Error::new(Kind::Internal, "arrays of a key differ in length")
                .with_got(format!("{} for {rows} rows", array.len())))
        };
        leaves.push(leaf.map_err(|e| e.with_column(&column.name))?);
    }
    // Byte strings are slices of slices, so owner and view live in two lists.
    let dense: Vec<Dense<'_>> = leaves.iter().map(Leaf::gather).collect::<Result<_>>()?;
    let columns: Vec<Column<'_>> = leaves
        .iter()
        .zip(&dense)
        .map(|(leaf, dense)| Column { present: leaf.present.as_deref(), values: dense.view() })
        .collect();
    encode(shape, rows, &columns)
}

/// Decimals may differ in width, byte strings in being text; a null array fits every column.
fn check_type(column: &KeyColumn, data_type: &DataType) -> Result<()> {
    use KeyType as T;
    let found = KeyType::from_arrow(data_type)?;
    let fits = match (column.ty, found) {
        (_, T::Null) | (T::Bytes { .. }, T::Bytes { .. }) => true,
        (
            T::Decimal128 { scale } | T::Decimal256 { scale },
            T::Decimal128 { scale: found } | T::Decimal256 { scale: found },
        ) => scale == found,
        (expected, found) => expected == found,
    };
    if fits {
        return Ok(());
    }
    Err(Error::new(Kind::Internal, "array does not fit the key column").with_got(format!(
        "{} for {}",
        type_text(data_type),
        column.ty
    )))
}

/// The array that holds the values, and where in it those of the rows are.
struct Leaf<'a> {
    array: &'a dyn Array,
    /// Which rows have a value; `None`: all.
    present: Option<Vec<bool>>,
    /// Index of each present row's value; `None`: the array as it is.
    at: Option<Vec<usize>>,
}

impl<'a> Leaf<'a> {
    fn try_new(array: &'a ArrayRef) -> Result<Self> {
        // Each layer of encoding maps rows to rows of the array below it.
        let mut leaf: &'a dyn Array = array.as_ref();
        let mut below: Option<Vec<Option<usize>>> = None;
        loop {
            let (next, map) = if let Some(dictionary) = leaf.as_any_dictionary_opt() {
                let values: &'a ArrayRef = dictionary.values();
                (values, dictionary_map(dictionary))
            } else if let Some(runs) = leaf.as_run_opt::<Int16Type>() {
                run_map(runs)
            } else if let Some(runs) = leaf.as_run_opt::<Int32Type>() {
                run_map(runs)
            } else if let Some(runs) = leaf.as_run_opt::<Int64Type>() {
                run_map(runs)
            } else {
                break;
            };
            below = Some(match below {
                None => map,
                Some(above) => above
                    .into_iter()
                    .map(|row| row.and_then(|row| map.get(row).copied().flatten()))
                    .collect(),
            });
            leaf = next.as_ref();
        }
        let nulls = leaf.nulls().filter(|nulls| nulls.null_count() > 0);
        if leaf.data_type() == &DataType::Null {
            return Ok(Self {
                array: leaf,
                present: Some(vec![false; array.len()]),
                at: Some(vec![]),
            });
        }
        let rows: Vec<Option<usize>> = match (below, nulls) {
            (None, None) => return Ok(Self { array: leaf, present: None, at: None }),
            (None, Some(nulls)) => {
                nulls.iter().enumerate().map(|(row, valid)| valid.then_some(row)).collect()
            }
            (Some(below), None) => below,
            (Some(mut below), Some(nulls)) => {
                for row in &mut below {
                    *row = row.filter(|row| nulls.is_valid(*row));
                }
                below
            }
        };
        if rows.iter().flatten().any(|row| *row >= leaf.len()) {
            return Err(Error::new(Kind::CorruptSource, "dictionary key is out of range"));
        }
        let present = rows.iter().map(Option::is_some).collect();
        Ok(Self {
            array: leaf,
            present: Some(present),
            at: Some(rows.into_iter().flatten().collect()),
        })
    }

    fn gather(&self) -> Result<Dense<'a>> {
        use DataType as D;
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        Ok(match self.array.data_type() {
            D::Null => Dense::None,
            D::Boolean => {
                let values = self.array.as_boolean().values();
                Dense::Boolean(self.pick(|i| values.value(i)))
            }
            D::Int8 => Dense::Int32(self.widen::<Int8Type, _>(i32::from)),
            D::Int16 => Dense::Int32(self.widen::<Int16Type, _>(i32::from)),
            D::Int32 => Dense::Int32(self.plain::<Int32Type>()),
            D::Date32 => Dense::Int32(self.plain::<Date32Type>()),
            D::Time32(Second) => Dense::Int32(self.plain::<Time32SecondType>()),
            D::Time32(Millisecond) => Dense::Int32(self.plain::<Time32MillisecondType>()),
            D::Int64 => Dense::Int64(self.plain::<Int64Type>()),
            D::Date64 => Dense::Int64(self.plain::<Date64Type>()),
            D::Time64(Microsecond) => Dense::Int64(self.plain::<Time64MicrosecondType>()),
            D::Time64(Nanosecond) => Dense::Int64(self.plain::<Time64NanosecondType>()),
            D::Timestamp(Second, _) => Dense::Int64(self.plain::<TimestampSecondType>()),
            D::Timestamp(Millisecond, _) => Dense::Int64(self.plain::<TimestampMillisecondType>()),
            D::Timestamp(Microsecond, _) => Dense::Int64(self.plain::<TimestampMicrosecondType>()),
            D::Timestamp(Nanosecond, _) => Dense::Int64(self.plain::<TimestampNanosecondType>()),
            D::Duration(Second) => Dense::Int64(self.plain::<DurationSecondType>()),
            D::Duration(Millisecond) => Dense::Int64(self.plain::<DurationMillisecondType>()),
            D::Duration(Microsecond) => Dense::Int64(self.plain::<DurationMicrosecondType>()),
            D::Duration(Nanosecond) => Dense::Int64(self.plain::<DurationNanosecondType>()),
            D::UInt8 => Dense::Int32(self.widen::<UInt8Type, _>(i32::from)),
            D::UInt16 => Dense::Int32(self.widen::<UInt16Type, _>(i32::from)),
            D::UInt32 => Dense::Int32(self.widen::<UInt32Type, _>(u32::cast_signed)),
            D::UInt64 => Dense::Int64(self.widen::<UInt64Type, _>(u64::cast_signed)),
            D::Float16 => Dense::Half(self.plain::<Float16Type>()),
            D::Float32 => Dense::Float(self.plain::<Float32Type>()),
            D::Float64 => Dense::Double(self.plain::<Float64Type>()),
            D::Decimal32(..) => Dense::Int32(self.plain::<Decimal32Type>()),
            D::Decimal64(..) => Dense::Int64(self.plain::<Decimal64Type>()),
            D::Decimal128(..) => Dense::Int128(self.plain::<Decimal128Type>()),
            D::Decimal256(..) => Dense::Int256(self.plain::<Decimal256Type>()),
            D::Utf8 => {
                let values = self.array.as_string::<i32>();
                Dense::Bytes(self.pick(|i| values.value(i).as_bytes()))
            }
            D::LargeUtf8 => {
                let values = self.array.as_string::<i64>();
                Dense::Bytes(self.pick(|i| values.value(i).as_bytes()))
            }
            D::Utf8View => {
                let values = self.array.as_string_view();
                Dense::Bytes(self.pick(|i| values.value(i).as_bytes()))
            }
            D::Binary => {
                let values = self.array.as_binary::<i32>();
                Dense::Bytes(self.pick(|i| values.value(i)))
            }
            D::LargeBinary => {
                let values = self.array.as_binary::<i64>();
                Dense::Bytes(self.pick(|i| values.value(i)))
            }
            D::BinaryView => {
                let values = self.array.as_binary_view();
                Dense::Bytes(self.pick(|i| values.value(i)))
            }
            D::FixedSizeBinary(_) => {
                let values = self.array.as_fixed_size_binary();
                Dense::Bytes(self.pick(|i| values.value(i)))
            }
            other => {
                return Err(Error::new(Kind::Internal, "array of a key has no encoding")
                    .with_got(format!("{other}")));
            }
        })
    }

    fn pick<V>(&self, value: impl Fn(usize) -> V) -> Vec<V> {
        match &self.at {
            None => (0..self.array.len()).map(value).collect(),
            Some(at) => at.iter().map(|i| value(*i)).collect(),
        }
    }

    fn plain<T: ArrowPrimitiveType>(&self) -> Cow<'a, [T::Native]> {
        let values: &'a [T::Native] = self.array.as_primitive::<T>().values();
        match &self.at {
            None => Cow::Borrowed(values),
            Some(at) => Cow::Owned(at.iter().map(|i| values[*i]).collect()),
        }
    }

    fn widen<T: ArrowPrimitiveType, V: Clone>(&self, to: impl Fn(T::Native) -> V) -> Cow<'a, [V]> {
        let values: &[T::Native] = self.array.as_primitive::<T>().values();
        Cow::Owned(self.pick(|i| to(values[i])))
    }
}

fn dictionary_map(dictionary: &dyn arrow_array::array::AnyDictionaryArray) -> Vec<Option<usize>> {
    let keys = dictionary.keys();
    if dictionary.values().is_empty() {
        return vec![None; keys.len()];
    }
    let at = dictionary.normalized_keys().into_iter();
    match keys.nulls() {
        None => at.map(Some).collect(),
        Some(nulls) => at.zip(nulls.iter()).map(|(at, valid)| valid.then_some(at)).collect(),
    }
}

fn run_map<R: RunEndIndexType>(array: &RunArray<R>) -> (&ArrayRef, Vec<Option<usize>>) {
    let runs = array.run_ends();
    let mut map = Vec::with_capacity(runs.len());
    if !runs.is_empty() {
        let first = runs.get_start_physical_index();
        for (run, end) in (first..).zip(runs.sliced_values()) {
            map.resize(arrow_buffer::ArrowNativeType::as_usize(end), Some(run));
        }
    }
    (array.values(), map)
}

/// Values of present rows, borrowed where the array has them side by side.
enum Dense<'a> {
    None,
    Boolean(Vec<bool>),
    Int32(Cow<'a, [i32]>),
    Int64(Cow<'a, [i64]>),
    Int128(Cow<'a, [i128]>),
    Int256(Cow<'a, [i256]>),
    Half(Cow<'a, [f16]>),
    Float(Cow<'a, [f32]>),
    Double(Cow<'a, [f64]>),
    Bytes(Vec<&'a [u8]>),
}

impl Dense<'_> {
    fn view(&self) -> Values<'_> {
        match self {
            Self::None => Values::None,
            Self::Boolean(values) => Values::Boolean(values),
            Self::Int32(values) => Values::Int32(values),
            Self::Int64(values) => Values::Int64(values),
            Self::Int128(values) => Values::Int128(values),
            Self::Int256(values) => Values::Int256(values),
            Self::Half(values) => Values::Half(values),
            Self::Float(values) => Values::Float(values),
            Self::Double(values) => Values::Double(values),
            Self::Bytes(values) => Values::Bytes(values),
        }
    }
}
