//! Values in, key bytes out, column by column.
//!
//! ```text
//! rows        7      null    -1         "b"     null    ""
//! present     true   false   true       present, then the same
//! values      7, -1                     dense: nulls take no place
//!
//! packed      a ──shift──> │01 80000007│01 …      each column is or-ed into its bits
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
//! Arrow arrays (`arrow`); the way back (`decode`).

use arrow_buffer::i256;
use half::f16;

use super::keys::{KeyBytes, Keys};
use super::shape::{KeyColumn, KeyShape, KeyType};
use crate::{Error, Kind, Result};

/// First byte of everything that is not null.
pub(super) const VALUE: u8 = 0x01;

/// Follows a zero byte that belongs to the value.
pub(super) const ESCAPED: u8 = 0x01;

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
    let mut lanes = Vec::with_capacity(columns.len());
    for (ty, column) in shape.columns().iter().zip(columns) {
        lanes.push(Lane::try_new(ty, rows, column).map_err(|e| e.with_column(&ty.name))?);
    }
    let mut target = if shape.packs() {
        Target::Packed { keys: vec![0; rows], used: 0 }
    } else {
        Target::bytes(shape, rows, &lanes)
    };
    for lane in &lanes {
        lane.write(&mut target).map_err(|e| e.with_column(&lane.column.name))?;
    }
    Ok(target.finish())
}

/// A checked column: as many values as rows that are present.
struct Lane<'a> {
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

impl<'a> Lane<'a> {
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
        let null = self.column.null_marker();
        let mask = self.column.mask();
        match to {
            Target::Packed { keys, used } => {
                let shift = *used;
                let null = u128::from(null) << 120;
                self.for_each(keys.len(), |row, at| {
                    let bits = at.map_or(null, |i| {
                        let mut padded = [0; 16];
                        padded[0] = VALUE;
                        for (to, from) in padded[1..].iter_mut().zip(value(i)) {
                            *to = from ^ mask;
                        }
                        u128::from_be_bytes(padded)
                    });
                    keys[row] |= bits >> shift;
                });
                *used += 8 * (1 + W as u32);
            }
            Target::Bytes { cursors, data, .. } => {
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

/// Where columns are written, one after the other.
enum Target {
    Packed { keys: Vec<u128>, used: u32 },
    Bytes { offsets: Vec<usize>, cursors: Vec<usize>, data: Vec<u8> },
}

impl Target {
    fn bytes(shape: &KeyShape, rows: usize, lanes: &[Lane<'_>]) -> Self {
        let markers_and_fixed = |lane: &Lane<'_>| 1 + lane.column.ty.width().unwrap_or(0);
        let every_row = lanes.iter().map(markers_and_fixed).sum();
        let mut cursors = vec![every_row; rows];
        if shape.fixed_width().is_none() {
            for lane in lanes {
                if let (KeyType::Bytes { .. }, Values::Bytes(values)) =
                    (lane.column.ty, lane.values)
                {
                    lane.for_each(rows, |row, at| {
                        cursors[row] += at.map_or(0, |i| escaped_len(values[i]));
                    });
                }
            }
        }
        // Lengths become starts in place.
        let mut offsets = Vec::with_capacity(rows + 1);
        let mut end = 0;
        offsets.push(0);
        for cursor in &mut cursors {
            let start = end;
            end += *cursor;
            *cursor = start;
            offsets.push(end);
        }
        Self::Bytes { offsets, cursors, data: vec![0; end] }
    }

    fn finish(self) -> Keys {
        match self {
            Self::Packed { keys, .. } => Keys::Packed(keys),
            Self::Bytes { offsets, cursors, data } => {
                debug_assert!(offsets[1..] == cursors, "a row ends where the next one starts");
                Keys::Bytes(KeyBytes::from_parts(offsets, data))
            }
        }
    }
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

fn int32(value: i32) -> [u8; 4] {
    (value.cast_unsigned() ^ (1 << 31)).to_be_bytes()
}

fn int64(value: i64) -> [u8; 8] {
    (value.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

fn int128(value: i128) -> [u8; 16] {
    flip_sign(value.to_be_bytes())
}

fn int256(value: i256) -> [u8; 32] {
    flip_sign(value.to_be_bytes())
}

pub(super) fn flip_sign<const W: usize>(mut bytes: [u8; W]) -> [u8; W] {
    if let Some(first) = bytes.first_mut() {
        *first ^= 0x80;
    }
    bytes
}

fn int96(bytes: [u8; 12]) -> [u8; 12] {
    let mut reversed = bytes;
    reversed.reverse(); // day, then nanoseconds, both big-endian
    flip_sign(reversed)
}

pub(super) fn float16(value: f16) -> [u8; 2] {
    let value = if value.is_nan() { f16::NAN } else { value };
    let bits = if value == f16::ZERO { 0 } else { value.to_bits() };
    (if bits >> 15 == 0 { bits | 1 << 15 } else { !bits }).to_be_bytes()
}

pub(super) fn float32(value: f32) -> [u8; 4] {
    // Only one NaN, above infinity; adding 0.0 turns -0.0 into 0.0.
    let bits = if value.is_nan() { 0x7FC0_0000 } else { (value + 0.0).to_bits() };
    (if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }).to_be_bytes()
}

pub(super) fn float64(value: f64) -> [u8; 8] {
    let bits = if value.is_nan() { 0x7FF8 << 48 } else { (value + 0.0).to_bits() };
    (if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }).to_be_bytes()
}

fn half_of(bytes: &[u8]) -> Result<f16> {
    let bytes = bytes.try_into().map_err(|_| {
        Error::new(Kind::CorruptSource, "half-precision float does not have 2 bytes")
            .with_got(format!("{} bytes", bytes.len()))
    })?;
    Ok(f16::from_le_bytes(bytes))
}

fn decimal_out_of_range() -> Error {
    Error::new(Kind::CorruptSource, "decimal has more digits than its type allows")
}

/// Brings big-endian two's complement of any length to `W` bytes.
fn sign_extend<const W: usize>(bytes: &[u8]) -> Result<[u8; W]> {
    let Some(first) = bytes.first() else {
        return Err(Error::new(Kind::CorruptSource, "decimal has no bytes"));
    };
    let sign = if first >> 7 == 1 { 0xFF } else { 0x00 };
    let (extra, low) = bytes.split_at(bytes.len().saturating_sub(W));
    let sign_is_kept = low.first().is_some_and(|byte| byte >> 7 == sign >> 7);
    if !sign_is_kept || extra.iter().any(|byte| *byte != sign) {
        return Err(decimal_out_of_range());
    }
    let mut wide = [sign; W];
    wide[W - low.len()..].copy_from_slice(low);
    Ok(wide)
}

#[cfg(test)]
mod tests {
    use super::super::order::Nulls;
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
