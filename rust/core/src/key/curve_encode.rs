//! The part of a key that a curve takes.
//!
//! ```text
//! index              nulls   values that coordinates do not say
//! 8 bytes a column │ 1     │ marker, value, as in any key
//! ```
//!
//! # Invariants
//! Keys are equal only where all values are: what an index leaves out follows behind it. A curve that
//! is walked backwards has all bytes of its part complemented.
//!
//! # Cost
//! Eight bytes a row and column for coordinates.
//!
//! # Not here
//! The index (`curve_index`); the way back (`curve_decode`).

use super::column::CheckedColumn;
use super::curve_index::indexes;
use super::keys::pack;
use super::shape::{CurvePart, PACKED_BYTES_MAX};
use super::target::Target;
use plait_base::{Error, Kind, Result};

/// The columns of a curve, with their values.
pub(super) struct CurveColumns<'a> {
    pub(super) part: CurvePart<'a>,
    pub(super) columns: &'a [CheckedColumn<'a>],
}

impl CurveColumns<'_> {
    /// The columns whose values follow behind.
    fn followed(&self) -> impl Iterator<Item = &CheckedColumn<'_>> {
        self.columns.iter().filter(|column| !column.column.ty.is_whole_in_coordinate())
    }

    /// Adds the bytes of each row to `lengths`.
    pub(super) fn add_lengths(&self, lengths: &mut [usize]) {
        lengths.iter_mut().for_each(|length| *length += self.part.head_bytes());
        self.followed().for_each(|column| column.add_lengths(lengths));
    }

    /// Writes the part of each of `rows` rows.
    pub(super) fn write(&self, rows: usize, to: &mut Target) -> Result<()> {
        let named = |column: &CheckedColumn<'_>, e: Error| e.with_column(&column.column.name);
        let mut coordinates = Vec::with_capacity(self.columns.len());
        let mut marks = vec![0; rows];
        for (i, column) in self.columns.iter().enumerate() {
            coordinates.push(column.coordinates(rows).map_err(|e| named(column, e))?);
            column.mark_nulls(1 << i, &mut marks);
        }
        if !self.part.has_marks() && marks.iter().any(|mark| *mark != 0) {
            return Err(unexpected_null());
        }
        let Target::Bytes { cursors, data, .. } = to else {
            return Err(Error::new(Kind::Internal, "keys of a curve are packed by columns"));
        };
        let (starts, left_out) = (cursors.clone(), self.part.shared().len());
        indexes(self.part.curve.kind, &coordinates, rows, |row, index| {
            let (cursor, index) = (cursors[row], &index[left_out..]);
            data[cursor..cursor + index.len()].copy_from_slice(index);
            cursors[row] = cursor + index.len();
        });
        if self.part.has_marks() {
            for (cursor, mark) in cursors.iter_mut().zip(marks) {
                data[*cursor] = mark;
                *cursor += 1;
            }
        }
        for column in self.followed() {
            column.write(to).map_err(|e| named(column, e))?;
        }
        if let (true, Target::Bytes { cursors, data, .. }) = (self.part.curve.descending, to) {
            for (start, end) in starts.iter().zip(cursors.iter()) {
                data[*start..*end].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        Ok(())
    }
}

/// The coordinates of a column whose nulls have no place.
///
/// # Errors
/// A null; values that do not fit.
pub(super) fn packed_coordinates(column: &CheckedColumn<'_>, rows: usize) -> Result<Vec<u64>> {
    match rows > 0 && column.has_null() {
        true => Err(unexpected_null()),
        false => column.coordinates(rows),
    }
}

/// Writes an index behind what packed keys have, a row of each of `coordinates`.
pub(super) fn write_packed(part: CurvePart<'_>, coordinates: &[Vec<u64>], to: &mut Target) {
    let Target::Packed { keys, used } = to else {
        debug_assert!(false, "keys that are no numbers are written whole");
        return;
    };
    let bits = 8 * part.index_bytes().min(PACKED_BYTES_MAX) as u32;
    let ones = u128::MAX.checked_shl(u128::BITS - bits).unwrap_or(0);
    let mask = if part.curve.descending { ones } else { 0 };
    let (rows, left_out) = (keys.len(), part.shared().len());
    indexes(part.curve.kind, coordinates, rows, |row, index| {
        let index = pack(&index[left_out..]) ^ mask;
        keys[row] |= index.checked_shr(*used).unwrap_or(0);
    });
    *used += bits;
}

fn unexpected_null() -> Error {
    Error::new(Kind::Internal, "a column of a curve has nulls that its file does not tell of")
}
