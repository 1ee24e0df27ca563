//! Which bytes? The types, directions and null placement of a key's columns.
//!
//! ```text
//! service: text, ts: int64 descending     widths: marker + variable, marker + 8
//! a: int32, b: int64                      1+4 + 1+8 = 14 bytes: packs into a u128
//! zorder(a: int64, b: text)               2*8 + 1 + marker + variable
//! ```
//!
//! # Invariants
//! Every type of a shape has a total order and a known width; the rest is refused by
//! [`KeyType::from_arrow`]. Columns have different names, and ranks one to eight bytes: upheld by
//! [`KeyShape::try_new`].
//!
//! # Not here
//! The bytes themselves (`column`, `decode`).

use std::collections::HashSet;
use std::fmt;

use arrow_schema::DataType;

use super::curve::Curve;
use super::shown::ShownAs;
use super::sort_column::Nulls;
use plait_base::{Error, Kind, Result, type_text};

/// Keys of at most this many bytes are held as `u128`.
pub(super) const PACKED_BYTES_MAX: usize = 16;

/// A column of a curve is a number of 64 bits.
pub(super) const COORDINATE_BYTES: usize = 8;

/// Ranks are held as `u64`.
const RANK_BYTES_MAX: u8 = 8;

/// Decimals of more digits take 32 bytes instead of 16.
const DECIMAL128_DIGITS_MAX: u8 = 38;

/// Scales beyond this are damage, and would print as endless zeros.
const SCALE_MAX: u32 = 128;

/// How a key column's values are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// Only nulls.
    Null,
    /// `false` before `true`.
    Boolean,
    /// Signed, up to 32 bits; also dates and times of day.
    Int32,
    /// Signed, 64 bits; also timestamps and durations.
    Int64,
    /// Unsigned, up to 32 bits.
    UInt32,
    /// Unsigned, 64 bits.
    UInt64,
    /// Half precision.
    Float16,
    /// Single precision.
    Float32,
    /// Double precision.
    Float64,
    /// Decimal of at most 38 digits.
    Decimal128 {
        /// Digits after the point.
        scale: i32,
    },
    /// Decimal of at most 76 digits.
    Decimal256 {
        /// Digits after the point.
        scale: i32,
    },
    /// Parquet's legacy timestamp: julian day, then nanoseconds of the day.
    Int96,
    /// Strings and binary, by unsigned bytes.
    Bytes {
        /// Whether people read it as UTF-8; changes no byte.
        text: bool,
    },
    /// A number that stands for a value or for null while rows are merged (see
    /// [`Ranks`](super::Ranks)). It has no marker and is never stored.
    Rank {
        /// Bytes of every rank, 1 to 8.
        bytes: u8,
    },
}

impl KeyType {
    /// The key type of an Arrow type; of a dictionary or run-end encoded one, that of its values.
    ///
    /// # Errors
    /// [`Kind::UnsupportedKey`] when the type has no total order.
    pub fn from_arrow(data_type: &DataType) -> Result<Self> {
        Ok(match data_type {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Boolean,
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Date32
            | DataType::Time32(_) => Self::Int32,
            DataType::Int64
            | DataType::Date64
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Duration(_) => Self::Int64,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => Self::UInt32,
            DataType::UInt64 => Self::UInt64,
            DataType::Float16 => Self::Float16,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => {
                let scale = i32::from(*scale);
                if *precision <= DECIMAL128_DIGITS_MAX {
                    Self::Decimal128 { scale }
                } else {
                    Self::Decimal256 { scale }
                }
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Bytes { text: true },
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Bytes { text: false },
            DataType::Dictionary(_, values) => Self::from_arrow(values)?,
            DataType::RunEndEncoded(_, values) => Self::from_arrow(values.data_type())?,
            DataType::Interval(_)
            | DataType::List(_)
            | DataType::ListView(_)
            | DataType::FixedSizeList(..)
            | DataType::LargeList(_)
            | DataType::LargeListView(_)
            | DataType::Struct(_)
            | DataType::Union(..)
            | DataType::Map(..) => {
                return Err(Error::new(Kind::UnsupportedKey, "type of a sort column has no order")
                    .with_got(format!("`{}`", type_text(data_type)))
                    .with_hint("sort by another column, or by a leaf of this one"));
            }
        })
    }

    /// Bytes of every value, if all have as many; without the marker.
    #[must_use]
    pub fn width(self) -> Option<usize> {
        Some(match self {
            Self::Null => 0,
            Self::Boolean => 1,
            Self::Float16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 => 8,
            Self::Int96 => 12,
            Self::Decimal128 { .. } => 16,
            Self::Decimal256 { .. } => 32,
            Self::Rank { bytes } => usize::from(bytes),
            Self::Bytes { .. } => return None,
        })
    }

    /// Bytes in front of every value.
    pub(super) fn marker_bytes(self) -> usize {
        usize::from(!matches!(self, Self::Rank { .. }))
    }

    /// Whether the coordinate of a value, a number of 64 bits, says which value it is.
    pub(super) fn is_whole_in_coordinate(self) -> bool {
        match self {
            Self::Null
            | Self::Boolean
            | Self::Int32
            | Self::Int64
            | Self::UInt32
            | Self::UInt64
            | Self::Float16
            | Self::Float32
            | Self::Float64 => true,
            Self::Decimal128 { .. }
            | Self::Decimal256 { .. }
            | Self::Int96
            | Self::Bytes { .. }
            | Self::Rank { .. } => false,
        }
    }

    fn scale(self) -> i32 {
        match self {
            Self::Decimal128 { scale } | Self::Decimal256 { scale } => scale,
            _ => 0,
        }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean => f.write_str("boolean"),
            Self::Int32 => f.write_str("int32"),
            Self::Int64 => f.write_str("int64"),
            Self::UInt32 => f.write_str("uint32"),
            Self::UInt64 => f.write_str("uint64"),
            Self::Float16 => f.write_str("float16"),
            Self::Float32 => f.write_str("float32"),
            Self::Float64 => f.write_str("float64"),
            Self::Decimal128 { scale } => write!(f, "decimal128(scale {scale})"),
            Self::Decimal256 { scale } => write!(f, "decimal256(scale {scale})"),
            Self::Int96 => f.write_str("int96"),
            Self::Bytes { text: true } => f.write_str("text"),
            Self::Bytes { text: false } => f.write_str("binary"),
            Self::Rank { bytes } => write!(f, "rank of {bytes} bytes"),
        }
    }
}

/// One column of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyColumn {
    /// Dotted path, for messages.
    pub name: String,
    /// How values are encoded.
    pub ty: KeyType,
    /// Whether greater values come first.
    pub descending: bool,
    /// Where nulls go.
    pub nulls: Nulls,
}

impl KeyColumn {
    /// First byte of a null.
    pub(super) fn null_marker(&self) -> u8 {
        match self.nulls {
            Nulls::First => 0x00,
            Nulls::Last => 0x02,
        }
    }

    /// What the bytes of a value are combined with: complemented when descending.
    pub(crate) fn mask(&self) -> u8 {
        if self.descending { 0xFF } else { 0x00 }
    }
}

/// The columns of a key, first the most significant.
///
/// Keys are bytes whose order is that of the rows, whatever the columns, directions and nulls:
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int64Array, StringArray};
/// use arrow_schema::DataType;
/// use plait_core::key::{KeyColumn, KeyShape, KeyType, Nulls, encode_arrow};
///
/// let column = |name: &str, data_type: &DataType, descending| {
///     let ty = KeyType::from_arrow(data_type)?;
///     Ok(KeyColumn { name: name.into(), ty, descending, nulls: Nulls::Last })
/// };
/// let shape = KeyShape::try_new(vec![
///     column("user", &DataType::Utf8, false)?,
///     column("time", &DataType::Int64, true)?, // the newest first
/// ])?;
/// let user: ArrayRef = Arc::new(StringArray::from(vec!["ann", "ann", "bob"]));
/// let time: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, Some(9)]));
/// let keys = encode_arrow(&shape, &[user, time])?;
/// let key = |row| keys.to_bytes(&shape, row);
/// assert!(key(0) < key(1) && key(1) < key(2));
/// # plait_core::Result::<()>::Ok(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct KeyShape {
    columns: Vec<KeyColumn>,
    curve: Option<Curve>,
    curve_form: CurveForm,
    fixed_width: Option<usize>,
    /// By column, as far as it was said.
    shown: Vec<ShownAs>,
}

/// In which form keys have the part of their curve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum CurveForm {
    /// The whole index, and a byte that says which columns are null: all keys that are stored.
    #[default]
    Stored,
    /// No column is null, and all indexes begin with the same bytes, which are left out: keys inside
    /// of a merge.
    Short {
        /// These bytes, as of a curve that is walked forwards.
        shared: Vec<u8>,
    },
}

/// The part of a key that its curve takes.
#[derive(Clone, Copy)]
pub(super) struct CurvePart<'a> {
    pub(super) curve: Curve,
    pub(super) form: &'a CurveForm,
    pub(super) columns: &'a [KeyColumn],
}

impl<'a> CurvePart<'a> {
    /// What all indexes begin with, if it is left out.
    pub(super) fn shared(&self) -> &'a [u8] {
        match self.form {
            CurveForm::Stored => &[],
            CurveForm::Short { shared } => shared,
        }
    }

    /// Bytes of the index: as many as the coordinates have, but for those that are left out.
    pub(super) fn index_bytes(&self) -> usize {
        (self.columns.len() * COORDINATE_BYTES).saturating_sub(self.shared().len())
    }

    /// Whether a byte says which columns are null.
    pub(super) fn has_marks(&self) -> bool {
        *self.form == CurveForm::Stored
    }

    /// Bytes of the index and of what says which columns are null.
    pub(super) fn head_bytes(&self) -> usize {
        self.index_bytes() + usize::from(self.has_marks())
    }

    /// The columns whose values follow behind, since their coordinates do not say them.
    pub(super) fn followed(&self) -> impl Iterator<Item = &'a KeyColumn> {
        self.columns.iter().filter(|column| !column.ty.is_whole_in_coordinate())
    }

    /// Bytes of the part in every key, if all have as many.
    fn width(&self) -> Option<usize> {
        let behind: Option<usize> = self.followed().map(|column| width(column.ty)).sum();
        behind.map(|behind| self.head_bytes() + behind)
    }
}

/// Bytes of a column that is no part of a curve, with its marker.
fn width(ty: KeyType) -> Option<usize> {
    ty.width().map(|width| ty.marker_bytes() + width)
}

/// Shapes are equal when their keys are, however these are shown.
impl PartialEq for KeyShape {
    fn eq(&self, other: &Self) -> bool {
        (&self.columns, self.curve, &self.curve_form)
            == (&other.columns, other.curve, &other.curve_form)
    }
}

impl Eq for KeyShape {}

impl KeyShape {
    /// The shape of keys made of `columns`; no columns give the empty key, equal for all rows.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] when a name appears twice; [`Kind::UnsupportedKey`] when a
    /// decimal's scale is out of all reason; [`Kind::Internal`] for ranks of no or too many bytes.
    pub fn try_new(columns: Vec<KeyColumn>) -> Result<Self> {
        let mut names = HashSet::new();
        for column in &columns {
            if !names.insert(&column.name) {
                return Err(Error::new(Kind::InvalidArgument, "key column is named twice")
                    .with_column(&column.name));
            }
            if column.ty.scale().unsigned_abs() > SCALE_MAX {
                return Err(Error::new(Kind::UnsupportedKey, "scale of a decimal is out of range")
                    .with_column(&column.name)
                    .with_got(column.ty.scale().to_string()));
            }
            if matches!(column.ty, KeyType::Rank { bytes } if bytes == 0 || bytes > RANK_BYTES_MAX)
            {
                return Err(Error::new(Kind::Internal, "ranks of a key column have a wrong width")
                    .with_column(&column.name));
            }
        }
        Ok(Self { columns, ..Self::default() }.measured())
    }

    /// The same columns, the last of them taken as one by `curve`.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] when these are too few or too many; [`Kind::Internal`] when one of
    /// them descends by itself or has ranks.
    pub fn with_curve(self, curve: Option<Curve>) -> Result<Self> {
        if let Some(curve) = curve {
            curve.check(self.columns.len())?;
            let is_odd = |c: &&KeyColumn| c.descending || matches!(c.ty, KeyType::Rank { .. });
            let own = self.columns.get(curve.start..).unwrap_or_default();
            if let Some(column) = own.iter().find(is_odd) {
                return Err(Error::new(Kind::Internal, "column does not fit its curve")
                    .with_column(&column.name));
            }
        }
        Ok(Self { curve, ..self }.measured())
    }

    /// The shape of the same keys in another form.
    pub(super) fn with_curve_form(self, curve_form: CurveForm) -> Self {
        Self { curve_form, ..self }.measured()
    }

    fn measured(mut self) -> Self {
        let plain: Option<usize> = self.plain().iter().map(|column| width(column.ty)).sum();
        let curve = self.curve_part().map_or(Some(0), |part| part.width());
        self.fixed_width = plain.zip(curve).map(|(plain, curve)| plain + curve);
        self
    }

    /// The same shape, with what the values of each column stand for in messages.
    #[must_use]
    pub fn with_shown(self, shown: Vec<ShownAs>) -> Self {
        Self { shown, ..self }
    }

    /// What the values of column `i` stand for in messages.
    pub(super) fn shown(&self, i: usize) -> ShownAs {
        self.shown.get(i).copied().unwrap_or_default()
    }

    /// The shape of the first `count` parts.
    ///
    /// # Errors
    /// None: fewer columns are as right as all of them.
    pub fn leading(&self, count: usize) -> Result<Self> {
        if count >= self.parts() {
            return Ok(self.clone());
        }
        let leading = Self::try_new(self.columns.iter().take(count).cloned().collect())?;
        Ok(leading.with_shown(self.shown.clone()))
    }

    /// The columns, first the most significant; those of a curve are the last ones.
    #[must_use]
    pub fn columns(&self) -> &[KeyColumn] {
        &self.columns
    }

    /// How many prefixes keys have: a curve counts as one column.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.plain().len() + usize::from(self.curve.is_some())
    }

    /// The columns that have bytes of their own: all but those of a curve.
    #[must_use]
    pub fn plain(&self) -> &[KeyColumn] {
        let end = self.curve.map_or(self.columns.len(), |curve| curve.start);
        self.columns.get(..end).unwrap_or(&self.columns)
    }

    /// The curve that takes the columns behind [`plain`](Self::plain), if there is one.
    #[must_use]
    pub(crate) fn curve(&self) -> Option<Curve> {
        self.curve
    }

    /// The part of a key that the curve takes.
    pub(super) fn curve_part(&self) -> Option<CurvePart<'_>> {
        let curve = self.curve?;
        let columns = self.columns.get(curve.start..)?;
        Some(CurvePart { curve, form: &self.curve_form, columns })
    }

    /// Bytes of every key, markers included, if all have as many.
    #[must_use]
    pub fn fixed_width(&self) -> Option<usize> {
        self.fixed_width
    }

    /// Whether keys fit a `u128`.
    #[must_use]
    pub fn packs(&self) -> bool {
        self.fixed_width.is_some_and(|width| width <= PACKED_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Field, IntervalUnit};

    use super::super::curve::CurveKind;
    use super::*;

    fn column(name: &str, ty: KeyType) -> KeyColumn {
        KeyColumn { name: name.to_owned(), ty, descending: false, nulls: Nulls::Last }
    }

    #[test]
    fn types_without_an_order_are_refused_by_name() {
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        for data_type in [
            DataType::Interval(IntervalUnit::MonthDayNano),
            DataType::List(Arc::clone(&item)),
            DataType::Struct(vec![Arc::clone(&item)].into()),
            DataType::Dictionary(
                Box::new(DataType::Int8),
                Box::new(DataType::List(Arc::clone(&item))),
            ),
        ] {
            let error = KeyType::from_arrow(&data_type).unwrap_err();
            assert_eq!(error.kind(), Kind::UnsupportedKey);
        }
        let error = KeyType::from_arrow(&DataType::Interval(IntervalUnit::DayTime)).unwrap_err();
        assert!(error.to_string().contains("day_time_interval"), "{error}");
    }

    #[test]
    fn decimals_are_as_wide_as_their_precision_asks() {
        let ty = |data_type| KeyType::from_arrow(&data_type).unwrap();
        assert_eq!(ty(DataType::Decimal256(38, 2)), KeyType::Decimal128 { scale: 2 });
        assert_eq!(ty(DataType::Decimal256(39, 2)), KeyType::Decimal256 { scale: 2 });
        assert_eq!(ty(DataType::Decimal32(9, -1)), KeyType::Decimal128 { scale: -1 });
    }

    #[test]
    fn keys_of_sixteen_bytes_pack_and_longer_ones_do_not() {
        let shape = |types: &[KeyType]| {
            let columns = types.iter().enumerate().map(|(i, t)| column(&i.to_string(), *t));
            KeyShape::try_new(columns.collect()).unwrap()
        };
        let sixteen = shape(&[KeyType::Int32, KeyType::Int64, KeyType::Boolean]);
        assert_eq!((sixteen.fixed_width(), sixteen.packs()), (Some(16), true));
        let seventeen = shape(&[KeyType::Decimal128 { scale: 0 }]);
        assert_eq!((seventeen.fixed_width(), seventeen.packs()), (Some(17), false));
        let ranks = shape(&[KeyType::Rank { bytes: 8 }, KeyType::Rank { bytes: 8 }]);
        assert_eq!((ranks.fixed_width(), ranks.packs()), (Some(16), true));
        let text = shape(&[KeyType::Int32, KeyType::Bytes { text: true }]);
        assert_eq!((text.fixed_width(), text.packs()), (None, false));
        assert_eq!((shape(&[]).fixed_width(), shape(&[]).packs()), (Some(0), true));
    }

    #[test]
    fn a_curve_is_as_wide_as_its_coordinates_and_what_they_do_not_say() {
        let curve = |start| Curve { kind: CurveKind::ZOrder, start, descending: false };
        let shape = |types: &[KeyType], start| {
            let columns = types.iter().enumerate().map(|(i, t)| column(&i.to_string(), *t));
            KeyShape::try_new(columns.collect()).unwrap().with_curve(Some(curve(start)))
        };
        let pair = shape(&[KeyType::Int64, KeyType::Float32], 0).unwrap();
        assert_eq!((pair.fixed_width(), pair.packs(), pair.parts()), (Some(17), false, 1));
        let short = |shared: &[u8]| {
            pair.clone().with_curve_form(CurveForm::Short { shared: shared.to_vec() })
        };
        assert_eq!((short(&[]).fixed_width(), short(&[]).packs()), (Some(16), true));
        assert_eq!(short(&[1, 2, 3]).fixed_width(), Some(13));
        assert_ne!(pair, short(&[]));
        let money = KeyType::Decimal128 { scale: 2 };
        let more = shape(&[KeyType::Int32, KeyType::Boolean, money], 1).unwrap();
        assert_eq!((more.fixed_width(), more.parts()), (Some(5 + 17 + 17), 2));
        assert_eq!(more.leading(1).unwrap().fixed_width(), Some(5));
        assert_eq!(more.leading(2).unwrap(), more);
        let text = shape(&[KeyType::Int32, KeyType::Bytes { text: true }], 0).unwrap();
        assert_eq!((text.fixed_width(), text.plain().len()), (None, 0));
        let one = shape(&[KeyType::Int32, KeyType::Int32], 1).unwrap_err();
        assert_eq!(one.kind(), Kind::InvalidArgument);
        let rank = shape(&[KeyType::Int32, KeyType::Rank { bytes: 2 }], 0).unwrap_err();
        assert_eq!(rank.kind(), Kind::Internal);
    }

    #[test]
    fn a_shape_that_makes_no_sense_is_refused() {
        let twice = vec![column("a", KeyType::Null), column("a", KeyType::Int32)];
        assert_eq!(KeyShape::try_new(twice).unwrap_err().kind(), Kind::InvalidArgument);
        let scale = vec![column("a", KeyType::Decimal128 { scale: i32::MIN })];
        assert_eq!(KeyShape::try_new(scale).unwrap_err().kind(), Kind::UnsupportedKey);
        for bytes in [0, 9] {
            let rank = vec![column("a", KeyType::Rank { bytes })];
            assert_eq!(KeyShape::try_new(rank).unwrap_err().kind(), Kind::Internal);
        }
    }
}
