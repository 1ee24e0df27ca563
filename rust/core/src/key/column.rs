//! Values in, key bytes out, column by column.
//!
//! ```text
//! rows        7      null    -1         "b"     null    ""
//! present     true   false   true       present, then the same
//! values      7, -1                     dense: nulls take no place
//!
//! packed      a ──xor, shift──> │01 80000007│01 …      each column is or-ed into its bits
//! bytes       lengths ──> offsets ──> each column writes at its row's cursor and moves it on
//! ```
//!
//! # Invariants
//! Counts and types are checked before a byte is written; then every row's cursor ends where the
//! next row starts.
//!
//! # Cost
//! One loop a column, typed once; variable-width columns are read twice (lengths, then bytes).
//! Scratch: one cursor a row, and 16 or 32 bytes a decimal.
//!
//! # Not here
//! Arrow arrays (`arrow`); the bytes of one value (`number`); the way back (`decode`).

use arrow_buffer::i256;
use half::f16;

use super::keys::{ESCAPED, Keys, VALUE};
use super::number::{
    decimal_out_of_range, flip_sign, float16, float32, float64, half_of, int32, int64, int96,
    int128, int256, sign_extend,
};
use super::shape::{KeyColumn, KeyShape, KeyType, PACKED_BYTES_MAX};
use super::target::{BitRange, Target};
use plait_base::{Error, Kind, Result};

/// Bytes of a `u64`.
const NUMBER_BYTES_MAX: usize = 8;

/// Bytes behind a variable-width value.
const TERMINATOR_BYTES: usize = 2;

/// The values of a column that are not null, in row order.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// No values: every row is null, whatever the type.
    None,
    /// For [`KeyType::Boolean`].
    Boolean(&'a [bool]),
    /// For [`KeyType::Int32`], [`KeyType::UInt32`] (same bits) and decimals (unscaled).
    Int32(&'a [i32]),
    /// For [`KeyType::Int64`], [`KeyType::UInt64`] (same bits) and decimals (unscaled).
    Int64(&'a [i64]),
    /// For decimals (unscaled).
    Int128(&'a [i128]),
    /// For decimals (unscaled).
    Int256(&'a [i256]),
    /// For [`KeyType::Int96`], as in Parquet: nanoseconds, then julian day, both little-endian.
    Int96(&'a [[u8; 12]]),
    /// For [`KeyType::Float16`].
    Half(&'a [f16]),
    /// For [`KeyType::Float32`].
    Float(&'a [f32]),
    /// For [`KeyType::Float64`].
    Double(&'a [f64]),
    /// For [`KeyType::Bytes`], decimals (unscaled, two's complement, big-endian, any length) and
    /// [`KeyType::Float16`] (2 bytes, little-endian).
    Bytes(&'a [&'a [u8]]),
    /// For [`KeyType::Rank`], and for every type of at most eight bytes (see
    /// [`numbers`](super::numbers)).
    Numbers(&'a [u64]),
}

impl Values<'_> {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Boolean(values) => values.len(),
            Self::Int32(values) => values.len(),
            Self::Int64(values) => values.len(),
            Self::Int128(values) => values.len(),
            Self::Int256(values) => values.len(),
            Self::Int96(values) => values.len(),
            Self::Half(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Double(values) => values.len(),
            Self::Bytes(values) => values.len(),
            Self::Numbers(values) => values.len(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::None => "no",
            Self::Boolean(_) => "boolean",
            Self::Int32(_) => "int32",
            Self::Int64(_) => "int64",
            Self::Int128(_) => "int128",
            Self::Int256(_) => "int256",
            Self::Int96(_) => "int96",
            Self::Half(_) => "float16",
            Self::Float(_) => "float32",
            Self::Double(_) => "float64",
            Self::Bytes(_) => "byte string",
            Self::Numbers(_) => "number",
        }
    }
}

/// One column of consecutive rows.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Which rows have a value; `None`: all, or none with [`Values::None`].
    pub present: Option<&'a [bool]>,
    /// The values of those rows.
    pub values: Values<'a>,
}

/// The keys of `rows` rows.
///
/// # Errors
/// [`Kind::Internal`] when columns do not fit the shape or the row count; [`Kind::CorruptSource`]
/// when a decimal or a half-precision float has an impossible length or is out of range.
///
/// ```
/// use plait_core::key::{Column, KeyColumn, KeyShape, KeyType, Nulls, Values, encode};
/// let (name, ty) = ("ts".to_owned(), KeyType::Int32);
/// let ts = KeyColumn { name, ty, descending: false, nulls: Nulls::Last };
/// let shape = KeyShape::try_new(vec![ts])?;
/// let column = Column { present: Some(&[true, false]), values: Values::Int32(&[-5]) };
/// let keys = encode(&shape, 2, &[column])?;
/// assert_eq!(keys.to_bytes(&shape, 0), [0x01, 0x7F, 0xFF, 0xFF, 0xFB]);
/// assert_eq!(keys.to_bytes(&shape, 1), [0x02, 0, 0, 0, 0]);
/// # Ok::<(), plait_core::Error>(())
/// ```
pub fn encode(shape: &KeyShape, rows: usize, columns: &[Column<'_>]) -> Result<Keys> {
    if columns.len() != shape.columns().len() {
        return Err(Error::new(Kind::Internal, "number of columns differs from the key's")
            .with_got(format!("{} for {}", columns.len(), shape.columns().len())));
    }
    if let Some(mut packing) = Packing::try_new(shape, rows) {
        for column in columns {
            packing.push(column)?;
        }
        return packing.finish();
    }
    let mut checked = Vec::with_capacity(columns.len());
    for (ty, column) in shape.columns().iter().zip(columns) {
        checked
            .push(CheckedColumn::try_new(ty, rows, column).map_err(|e| e.with_column(&ty.name))?);
    }
    let mut target = Target::bytes(lengths(rows, &checked));
    for column in &checked {
        column.write(&mut target).map_err(|e| e.with_column(&column.column.name))?;
    }
    Ok(target.finish())
}

/// Keys that are packed column by column, so that no two columns need be held at once.
pub struct Packing<'a> {
    shape: &'a KeyShape,
    columns: usize,
    rows: usize,
    target: Target,
}

impl<'a> Packing<'a> {
    /// Keys of `rows` rows without a column yet; `None` if they do not fit a `u128`.
    #[must_use]
    pub fn try_new(shape: &'a KeyShape, rows: usize) -> Option<Self> {
        let target = Target::Packed { keys: vec![0; rows], used: 0 };
        shape.packs().then_some(Self { shape, columns: 0, rows, target })
    }

    /// Adds the next column.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn push(&mut self, column: &Column<'_>) -> Result<()> {
        let Some(ty) = self.shape.columns().get(self.columns) else {
            return Err(self.miscounted());
        };
        self.columns += 1;
        CheckedColumn::try_new(ty, self.rows, column)
            .and_then(|column| column.write(&mut self.target))
            .map_err(|e| e.with_column(&ty.name))
    }

    /// The keys.
    ///
    /// # Errors
    /// [`Kind::Internal`] when a column is missing.
    pub fn finish(self) -> Result<Keys> {
        if self.columns == self.shape.columns().len() {
            return Ok(self.target.finish());
        }
        Err(self.miscounted())
    }

    fn miscounted(&self) -> Error {
        Error::new(Kind::Internal, "number of columns differs from the key's").with_got(format!(
            "{} for {}",
            self.columns,
            self.shape.columns().len()
        ))
    }
}

/// A checked column: as many values as rows that are present.
struct CheckedColumn<'a> {
    column: &'a KeyColumn,
    present: Present<'a>,
    values: Values<'a>,
}

#[derive(Clone, Copy)]
enum Present<'a> {
    All,
    None,
    Some(&'a [bool]),
}

impl<'a> CheckedColumn<'a> {
    fn try_new(column: &'a KeyColumn, rows: usize, from: &Column<'a>) -> Result<Self> {
        let values = from.values;
        let (present, expected) = match (from.present, &values) {
            (Some(present), _) if present.len() != rows => {
                return Err(Error::new(Kind::Internal, "null flags do not cover the rows")
                    .with_got(format!("{} for {rows} rows", present.len())));
            }
            (Some(present), _) => match present.iter().filter(|present| **present).count() {
                0 => (Present::None, 0),
                count if count == rows => (Present::All, count),
                count => (Present::Some(present), count),
            },
            (None, Values::None) => (Present::None, 0),
            (None, _) => (Present::All, rows),
        };
        if values.len() != expected {
            return Err(Error::new(
                Kind::Internal,
                "number of values differs from rows that have one",
            )
            .with_got(format!("{} values for {expected} rows", values.len())));
        }
        if matches!(column.ty, KeyType::Rank { .. }) && expected < rows {
            return Err(Error::new(Kind::Internal, "a rank stands for nulls too, and is missing"));
        }
        Ok(Self { column, present, values })
    }

    /// Calls `each` with the row and the index of its value, or without one.
    #[inline(always)]
    fn for_each(&self, rows: usize, mut each: impl FnMut(usize, Option<usize>)) {
        match self.present {
            Present::All => (0..rows).for_each(|row| each(row, Some(row))),
            Present::None => (0..rows).for_each(|row| each(row, None)),
            Present::Some(present) => {
                let mut dense = 0;
                for (row, present) in present.iter().enumerate() {
                    if *present {
                        each(row, Some(dense));
                        dense += 1;
                    } else {
                        each(row, None);
                    }
                }
            }
        }
    }

    fn write(&self, to: &mut Target) -> Result<()> {
        use KeyType as T;
        use Values as V;
        match (self.column.ty, self.values) {
            // Columns without values have one type's loop for each width.
            (T::Null, V::None) => self.fixed::<0>(to, |_| []),
            (T::Boolean, V::None) => self.fixed::<1>(to, |_| [0]),
            (T::Float16, V::None) => self.fixed::<2>(to, |_| [0; 2]),
            (T::Int32 | T::UInt32 | T::Float32, V::None) => self.fixed::<4>(to, |_| [0; 4]),
            (T::Int64 | T::UInt64 | T::Float64, V::None) => self.fixed::<8>(to, |_| [0; 8]),
            (T::Int96, V::None) => self.fixed::<12>(to, |_| [0; 12]),
            (T::Decimal128 { .. }, V::None) => self.fixed::<16>(to, |_| [0; 16]),
            (T::Decimal256 { .. }, V::None) => self.fixed::<32>(to, |_| [0; 32]),
            (T::Bytes { .. }, V::None) => self.variable(to, &[]),

            (T::Boolean, V::Boolean(v)) => self.fixed(to, |i| [u8::from(v[i])]),
            (T::Int32, V::Int32(v)) => self.fixed(to, |i| int32(v[i])),
            (T::Int64, V::Int64(v)) => self.fixed(to, |i| int64(v[i])),
            // Unsigned values travel as signed ones of the same bits.
            (T::UInt32, V::Int32(v)) => self.fixed(to, |i| v[i].to_be_bytes()),
            (T::UInt64, V::Int64(v)) => self.fixed(to, |i| v[i].to_be_bytes()),
            (T::Float16, V::Half(v)) => self.fixed(to, |i| float16(v[i])),
            (T::Float32, V::Float(v)) => self.fixed(to, |i| float32(v[i])),
            (T::Float64, V::Double(v)) => self.fixed(to, |i| float64(v[i])),
            (T::Int96, V::Int96(v)) => self.fixed(to, |i| int96(v[i])),
            (T::Float16, V::Bytes(v)) => {
                let v: Vec<f16> = v.iter().map(|bytes| half_of(bytes)).collect::<Result<_>>()?;
                self.fixed(to, |i| float16(v[i]));
            }

            (T::Decimal128 { .. }, V::Int32(v)) => self.fixed(to, |i| int128(i128::from(v[i]))),
            (T::Decimal128 { .. }, V::Int64(v)) => self.fixed(to, |i| int128(i128::from(v[i]))),
            (T::Decimal128 { .. }, V::Int128(v)) => self.fixed(to, |i| int128(v[i])),
            (T::Decimal128 { .. }, V::Int256(v)) => {
                let narrow = |v: &i256| v.to_i128().ok_or_else(decimal_out_of_range);
                let v: Vec<i128> = v.iter().map(narrow).collect::<Result<_>>()?;
                self.fixed(to, |i| int128(v[i]));
            }
            (T::Decimal128 { .. }, V::Bytes(v)) => {
                let v: Vec<[u8; 16]> = v.iter().map(|b| sign_extend(b)).collect::<Result<_>>()?;
                self.fixed(to, |i| flip_sign(v[i]));
            }
            (T::Decimal256 { .. }, V::Int32(v)) => {
                self.fixed(to, |i| int256(i256::from_i128(i128::from(v[i]))));
            }
            (T::Decimal256 { .. }, V::Int64(v)) => {
                self.fixed(to, |i| int256(i256::from_i128(i128::from(v[i]))));
            }
            (T::Decimal256 { .. }, V::Int128(v)) => {
                self.fixed(to, |i| int256(i256::from_i128(v[i])));
            }
            (T::Decimal256 { .. }, V::Int256(v)) => self.fixed(to, |i| int256(v[i])),
            (T::Decimal256 { .. }, V::Bytes(v)) => {
                let v: Vec<[u8; 32]> = v.iter().map(|b| sign_extend(b)).collect::<Result<_>>()?;
                self.fixed(to, |i| flip_sign(v[i]));
            }

            (T::Bytes { .. }, V::Bytes(v)) => self.variable(to, v),
            (ty, V::Numbers(v)) if ty.width().is_some_and(|width| width <= NUMBER_BYTES_MAX) => {
                self.numbers(to, v);
            }
            (ty, values) => {
                return Err(Error::new(Kind::Internal, "values do not fit the key column")
                    .with_got(format!("{} values for {ty}", values.name())));
            }
        }
        Ok(())
    }

    /// Writes marker and `W` bytes a row.
    #[inline(always)]
    fn fixed<const W: usize>(&self, to: &mut Target, value: impl Fn(usize) -> [u8; W]) {
        match to {
            Target::Packed { keys, used } => {
                let place = BitRange::of(self.column, used);
                self.for_each(keys.len(), |row, at| {
                    keys[row] |= place.bits(at.map(|i| {
                        let mut padded = [0; PACKED_BYTES_MAX];
                        if let Some(low) = padded.last_chunk_mut() {
                            *low = value(i);
                        }
                        u128::from_be_bytes(padded)
                    }));
                });
            }
            Target::Bytes { cursors, data, .. } => {
                let null = self.column.null_marker();
                let mask = self.column.mask();
                self.for_each(cursors.len(), |row, at| {
                    let cursor = cursors[row];
                    cursors[row] = cursor + 1 + W;
                    let to = &mut data[cursor..cursor + 1 + W];
                    match at {
                        Some(i) => {
                            to[0] = VALUE;
                            to[1..].copy_from_slice(&value(i).map(|byte| byte ^ mask));
                        }
                        None => to[0] = null, // zeros are there already
                    }
                });
            }
        }
    }

    /// Writes a marker, unless values are ranks, and the low bytes of a number a row.
    fn numbers(&self, to: &mut Target, values: &[u64]) {
        match to {
            Target::Packed { keys, used } => {
                let place = BitRange::of(self.column, used);
                match self.present {
                    Present::All => place.put(keys, values),
                    _ => self.for_each(keys.len(), |row, at| {
                        keys[row] |= place.bits(at.map(|i| u128::from(values[i])));
                    }),
                }
            }
            Target::Bytes { cursors, data, .. } => {
                let null = self.column.null_marker();
                let flip = if self.column.descending { u64::MAX } else { 0 };
                let width = self.column.ty.width().unwrap_or(0).min(NUMBER_BYTES_MAX);
                let marker = self.column.ty.marker_bytes();
                self.for_each(cursors.len(), |row, at| {
                    let cursor = cursors[row];
                    cursors[row] = cursor + marker + width;
                    let (to, low) = data[cursor..cursor + marker + width].split_at_mut(marker);
                    if let Some(first) = to.first_mut() {
                        *first = if at.is_some() { VALUE } else { null };
                    }
                    if let Some(i) = at {
                        let bytes = (values[i] ^ flip).to_be_bytes();
                        low.copy_from_slice(&bytes[NUMBER_BYTES_MAX - width..]);
                    }
                });
            }
        }
    }

    /// Writes marker, escaped value and terminator a row.
    fn variable(&self, to: &mut Target, values: &[&[u8]]) {
        let Target::Bytes { cursors, data, .. } = to else {
            debug_assert!(false, "a variable-width column is never packed");
            return;
        };
        let null = self.column.null_marker();
        let descending = self.column.descending;
        self.for_each(cursors.len(), |row, at| {
            let cursor = cursors[row];
            let Some(i) = at else {
                data[cursor] = null;
                cursors[row] = cursor + 1;
                return;
            };
            data[cursor] = VALUE;
            let to = &mut data[cursor + 1..];
            let written = escape(to, values[i]);
            if descending {
                to[..written].iter_mut().for_each(|byte| *byte = !*byte);
            }
            cursors[row] = cursor + 1 + written;
        });
    }
}

/// Bytes of every key.
fn lengths(rows: usize, checked: &[CheckedColumn<'_>]) -> Vec<usize> {
    let fixed = |column: &CheckedColumn<'_>| {
        column.column.ty.marker_bytes() + column.column.ty.width().unwrap_or(0)
    };
    let mut lengths = vec![checked.iter().map(fixed).sum(); rows];
    for column in checked {
        if let (KeyType::Bytes { .. }, Values::Bytes(values)) = (column.column.ty, column.values) {
            column
                .for_each(rows, |row, at| lengths[row] += at.map_or(0, |i| escaped_len(values[i])));
        }
    }
    lengths
}

fn escaped_len(value: &[u8]) -> usize {
    value.len() + value.iter().filter(|byte| **byte == 0).count() + TERMINATOR_BYTES
}

/// Writes `value` and its terminator, and returns their length; `to` holds zeros.
fn escape(to: &mut [u8], value: &[u8]) -> usize {
    // `contains` searches a word at a time; most values stop here.
    if !value.contains(&0) {
        to[..value.len()].copy_from_slice(value);
        return value.len() + TERMINATOR_BYTES;
    }
    let mut at = 0;
    for (i, part) in value.split(|byte| *byte == 0).enumerate() {
        if i > 0 {
            to[at + 1] = ESCAPED;
            at += 2;
        }
        to[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    at + TERMINATOR_BYTES
}

#[cfg(test)]
mod tests {
    use super::super::sort_column::Nulls;
    use super::*;

    fn shape(ty: KeyType) -> KeyShape {
        let column = KeyColumn { name: "a".into(), ty, descending: false, nulls: Nulls::Last };
        KeyShape::try_new(vec![column]).unwrap()
    }

    #[test]
    fn counts_and_types_that_do_not_fit_are_internal_errors() {
        let int = shape(KeyType::Int32);
        let all = |values| Column { present: None, values };
        let some = |present, values| Column { present: Some(present), values };
        for (rows, columns) in [
            (1, vec![]),
            (2, vec![all(Values::Int32(&[1]))]),
            (1, vec![all(Values::Int64(&[1]))]),
            (1, vec![some(&[true], Values::None)]),
            (1, vec![some(&[true, false], Values::Int32(&[1]))]),
            (2, vec![some(&[true, false], Values::Int32(&[1, 2]))]),
            (1, vec![some(&[false], Values::Boolean(&[]))]),
        ] {
            let error = encode(&int, rows, &columns).unwrap_err();
            assert_eq!(error.kind(), Kind::Internal, "{error}");
        }
    }

    #[test]
    fn a_column_without_values_is_all_null() {
        for ty in [KeyType::Null, KeyType::Float64, KeyType::Bytes { text: true }] {
            let shape = shape(ty);
            let keys =
                encode(&shape, 2, &[Column { present: None, values: Values::None }]).unwrap();
            let mut null = vec![0x02];
            null.resize(1 + ty.width().unwrap_or(0), 0);
            assert_eq!([keys.to_bytes(&shape, 0), keys.to_bytes(&shape, 1)], [null.clone(), null]);
        }
    }

    #[test]
    fn no_columns_make_all_rows_equal() {
        let shape = KeyShape::try_new(vec![]).unwrap();
        assert_eq!(encode(&shape, 3, &[]).unwrap(), Keys::Packed(vec![0; 3]));
    }

    #[test]
    fn decimals_that_cannot_be_are_corrupt() {
        let decimal = shape(KeyType::Decimal128 { scale: 2 });
        let key = |bytes: &[u8]| {
            let values = [bytes];
            let column = Column { present: None, values: Values::Bytes(&values) };
            encode(&decimal, 1, &[column]).map(|keys| keys.to_bytes(&decimal, 0))
        };
        assert_eq!(key(&[0xFF; 20]).unwrap(), key(&[0xFF]).unwrap());
        let mut wide = vec![0x00; 4];
        wide.extend([0x80; 16]);
        for bytes in [&[][..], &wide, &[0x01; 17]] {
            assert_eq!(key(bytes).unwrap_err().kind(), Kind::CorruptSource, "{bytes:02X?}");
        }
        let half = shape(KeyType::Float16);
        let column = Column { present: None, values: Values::Bytes(&[&[1]]) };
        assert_eq!(encode(&half, 1, &[column]).unwrap_err().kind(), Kind::CorruptSource);
    }
}
