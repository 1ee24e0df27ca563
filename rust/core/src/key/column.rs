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
//! Whole keys (`encode`) and the part of a curve (`curve_encode`); Arrow arrays (`arrow`); the bytes
//! of one value (`number`); the way back (`field`).

use arrow_buffer::i256;
use half::f16;

use super::coordinate::{coordinates, null_coordinate};
use super::keys::{ESCAPED, VALUE};
use super::number::{
    decimal_out_of_range, flip_sign, float16, float32, float64, half_of, int32, int64, int96,
    int128, int256, sign_extend,
};
use super::shape::{KeyColumn, KeyType, PACKED_BYTES_MAX};
use super::target::{BitRange, Target};
use super::values::{Column, Values};
use plait_base::{Error, Kind, Result};

/// Bytes of a `u64`.
const NUMBER_BYTES_MAX: usize = 8;

/// Bytes behind a variable-width value.
const TERMINATOR_BYTES: usize = 2;

/// A checked column: as many values as rows that are present.
pub(super) struct CheckedColumn<'a> {
    pub(super) column: &'a KeyColumn,
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
    pub(super) fn try_new(column: &'a KeyColumn, rows: usize, from: &Column<'a>) -> Result<Self> {
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

    /// Writes marker and value a row.
    pub(super) fn write(&self, to: &mut Target) -> Result<()> {
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

    /// The coordinates of `rows` rows on a curve, nulls included.
    pub(super) fn coordinates(&self, rows: usize) -> Result<Vec<u64>> {
        let values = coordinates(self.column.ty, self.values)?;
        if let Present::All = self.present {
            return Ok(values);
        }
        let mut all = vec![null_coordinate(self.column); rows];
        self.for_each(rows, |row, at| {
            if let Some(i) = at {
                all[row] = values[i];
            }
        });
        Ok(all)
    }

    /// Whether a row has no value, if there are rows.
    pub(super) fn has_null(&self) -> bool {
        !matches!(self.present, Present::All)
    }

    /// Sets `mark` for the rows without a value.
    pub(super) fn mark_nulls(&self, mark: u8, marks: &mut [u8]) {
        if self.has_null() {
            self.for_each(marks.len(), |row, at| {
                marks[row] |= if at.is_none() { mark } else { 0 };
            });
        }
    }

    /// Adds the bytes of each row to `lengths`.
    pub(super) fn add_lengths(&self, lengths: &mut [usize]) {
        let fixed = self.column.ty.marker_bytes() + self.column.ty.width().unwrap_or(0);
        lengths.iter_mut().for_each(|length| *length += fixed);
        if let (KeyType::Bytes { .. }, Values::Bytes(values)) = (self.column.ty, self.values) {
            self.for_each(lengths.len(), |row, at| {
                lengths[row] += at.map_or(0, |i| escaped_len(values[i]));
            });
        }
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
