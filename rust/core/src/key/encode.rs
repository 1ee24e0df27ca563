//! Columns in, keys out.
//!
//! ```text
//! column ─┐ packed   or-ed into the keys one by one
//! column ─┼─ bytes   lengths of all, then written one by one
//! curve  ─┘          coordinates of its columns, then one index a row
//! ```
//!
//! # Not here
//! What a column writes (`column`) and a curve (`curve_encode`).

use super::column::CheckedColumn;
use super::curve_encode::{CurveColumns, packed_coordinates, write_packed};
use super::keys::Keys;
use super::shape::KeyShape;
use super::target::Target;
use super::values::Column;
use plait_base::{Error, Kind, Result};

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
    let (plain, own) = checked.split_at(shape.plain().len().min(checked.len()));
    let mut lengths = vec![0; rows];
    plain.iter().for_each(|column| column.add_lengths(&mut lengths));
    let curve = shape.curve_part().map(|part| CurveColumns { part, columns: own });
    if let Some(curve) = &curve {
        curve.add_lengths(&mut lengths);
    }
    let mut target = Target::bytes(lengths);
    for column in plain {
        column.write(&mut target).map_err(|e| e.with_column(&column.column.name))?;
    }
    if let Some(curve) = &curve {
        curve.write(rows, &mut target)?;
    }
    Ok(target.finish())
}

/// Keys that are packed column by column, so that no two columns need be held at once.
pub struct Packing<'a> {
    shape: &'a KeyShape,
    columns: usize,
    rows: usize,
    target: Target,
    /// Of the columns of a curve so far.
    coordinates: Vec<Vec<u64>>,
}

impl<'a> Packing<'a> {
    /// Keys of `rows` rows without a column yet; `None` if they do not fit a `u128`.
    #[must_use]
    pub fn try_new(shape: &'a KeyShape, rows: usize) -> Option<Self> {
        let target = Target::Packed { keys: vec![0; rows], used: 0 };
        let coordinates = Vec::new();
        shape.packs().then_some(Self { shape, columns: 0, rows, target, coordinates })
    }

    /// Adds the next column.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn push(&mut self, column: &Column<'_>) -> Result<()> {
        let Some(ty) = self.shape.columns().get(self.columns) else {
            return Err(self.miscounted());
        };
        let is_plain = self.columns < self.shape.plain().len();
        self.columns += 1;
        let checked = CheckedColumn::try_new(ty, self.rows, column);
        let added = checked.and_then(|column| match is_plain {
            true => column.write(&mut self.target),
            false => {
                self.coordinates.push(packed_coordinates(&column, self.rows)?);
                Ok(())
            }
        });
        added.map_err(|e| e.with_column(&ty.name))
    }

    /// The keys.
    ///
    /// # Errors
    /// [`Kind::Internal`] when a column is missing.
    pub fn finish(self) -> Result<Keys> {
        if self.columns == self.shape.columns().len() {
            let Self { shape, mut target, coordinates, .. } = self;
            if let Some(part) = shape.curve_part() {
                write_packed(part, &coordinates, &mut target);
            }
            return Ok(target.finish());
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

#[cfg(test)]
mod tests {
    use super::super::shape::{KeyColumn, KeyType};
    use super::super::sort_column::Nulls;
    use super::super::values::Values;
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
