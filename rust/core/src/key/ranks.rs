//! Ranks: numbers that stand for the values of one merge, so that keys get short.
//!
//! ```text
//! stored   01 63 70 75 00 00 │ 01 7F FF FF FF 96 …      what files, reports and messages hold
//! ranked   2A                │ 00 51 80                 what is compared
//!          └ rank among all   └ distance from the smallest
//! ```
//!
//! Null has a rank too, before or behind all others, so ranks need no marker.
//!
//! # Invariants
//! Ranked keys compare as stored ones do, column by column, so prefixes, successors and ranges mean
//! the same. A ranked key never leaves the process: [`Ranks::translate`] gives the stored one.
//!
//! # Cost
//! The distinct values. Translating is linear in the key.
//!
//! # Not here
//! Where values come from (`plait_parquet::ranks`).

use std::sync::Arc;

use super::coordinate::coordinates;
use super::curve_decode::curve_len;
use super::curve_index::indexes;
use super::encode::encode;
use super::field::{Field, number, split_field, unescape};
use super::keys::KeyBytes;
use super::range::prefix_len;
use super::shape::{CurveForm, CurvePart, KeyColumn, KeyShape, KeyType};
use super::sort_column::Nulls;
use super::values::{Column, Values};
use plait_base::{Error, Kind, Result};

/// What the ranks of one column stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankOf {
    /// The column has no ranks, but its key bytes.
    Stored,
    /// All values of a byte string column, ascending, each once.
    Values(Arc<KeyBytes>),
    /// The numbers `base..=base + span` (see [`numbers`](super::numbers)).
    Numbers {
        /// The smallest.
        base: u64,
        /// Distance of the greatest.
        span: u64,
    },
}

/// The ranked form of the keys of one merge, and the way back.
///
/// ```
/// use plait_core::key::{KeyBytes, KeyColumn, KeyShape, KeyType, Nulls, RankOf, Ranks};
/// let ty = KeyType::Bytes { text: true };
/// let column = KeyColumn { name: "a".to_owned(), ty, descending: false, nulls: Nulls::Last };
/// let mut values = KeyBytes::default();
/// ["cpu", "disk"].iter().for_each(|value| values.push(value.as_bytes()));
/// let stored = KeyShape::try_new(vec![column])?;
/// let ranks = Ranks::try_new(stored, vec![(RankOf::Values(values.into()), true)])?;
/// assert_eq!(ranks.find(0, b"disk"), Some(1));
/// assert_eq!(ranks.translate(&[1])?, b"\x01disk\0\0");
/// assert_eq!(ranks.translate(&[2])?, b"\x02");
/// # Ok::<(), plait_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Ranks {
    stored: KeyShape,
    shape: KeyShape,
    columns: Vec<Numbering>,
}

/// How the numbers of one column are given out.
#[derive(Debug)]
struct Numbering {
    of: RankOf,
    /// Number of the smallest value: 1 when null is 0.
    first: u64,
    null: Option<u64>,
}

impl Ranks {
    /// The ranks of keys of shape `stored`, with what stands behind each column and whether it may
    /// be null. Columns as they are stored need not be known to have nulls; those of a curve have no
    /// ranks, but if none of them may be null, keys do not say which are, and leave out what all
    /// indexes begin with where all numbers are known to lie in a range.
    ///
    /// # Errors
    /// [`Kind::Internal`] when columns are missing, when byte strings have no values or others
    /// have, and when there are more numbers than 64 bits hold.
    pub fn try_new(stored: KeyShape, columns: Vec<(RankOf, bool)>) -> Result<Self> {
        if columns.len() != stored.columns().len() {
            return Err(misfit("number of columns differs from the key's"));
        }
        let mut numberings = Vec::new();
        let mut ranked = Vec::new();
        let own = columns.get(stored.plain().len()..).unwrap_or_default();
        let curve_form = match stored.curve_part() {
            Some(part) if own.iter().all(|(_, has_null)| !has_null) => {
                CurveForm::Short { shared: shared_bytes(part, own)? }
            }
            _ => CurveForm::Stored,
        };
        for (i, (column, (of, has_null))) in stored.columns().iter().zip(columns).enumerate() {
            if i >= stored.plain().len() {
                let of = if curve_form == CurveForm::Stored { RankOf::Stored } else { of };
                ranked.push(column.clone());
                numberings.push(Numbering { of, first: 0, null: None });
                continue;
            }
            let values = match (&of, column.ty) {
                (RankOf::Stored, _) => 0,
                (RankOf::Values(values), KeyType::Bytes { .. }) => values.len() as u128,
                (RankOf::Numbers { span, .. }, ty) if number_bytes(ty).is_some() => {
                    u128::from(*span) + 1
                }
                _ => return Err(misfit("ranks do not fit the type of a key column")),
            };
            let ty = match &of {
                RankOf::Stored => column.ty,
                _ => KeyType::Rank { bytes: bytes_of(values + u128::from(has_null)) },
            };
            let null_is_least = has_null && (column.nulls == Nulls::First) != column.descending;
            numberings.push(Numbering {
                of,
                first: u64::from(null_is_least),
                null: has_null.then_some(if null_is_least { 0 } else { values as u64 }),
            });
            ranked.push(KeyColumn { ty, ..column.clone() });
        }
        let shape = KeyShape::try_new(ranked)?.with_curve(stored.curve())?;
        let shape = match stored.curve() {
            Some(_) => shape.with_curve_form(curve_form),
            None => shape,
        };
        Ok(Self { stored, shape, columns: numberings })
    }

    /// The shape of ranked keys.
    #[must_use]
    pub fn shape(&self) -> &KeyShape {
        &self.shape
    }

    /// The shape of stored keys.
    #[must_use]
    pub fn stored(&self) -> &KeyShape {
        &self.stored
    }

    /// What the ranks of column `column` stand for.
    #[must_use]
    pub fn of(&self, column: usize) -> &RankOf {
        self.columns.get(column).map_or(&RankOf::Stored, |numbering| &numbering.of)
    }

    /// The rank of the smallest value of column `column`; the others follow.
    #[must_use]
    pub fn first(&self, column: usize) -> u64 {
        self.columns.get(column).map_or(0, |numbering| numbering.first)
    }

    /// Whether column `column` is one of a curve whose keys have no place for a null. Its numbers have
    /// no ranks: those that are reported say only where all of them lie.
    #[must_use]
    pub fn lacks_null(&self, column: usize) -> bool {
        let part = self.shape.curve_part();
        part.is_some_and(|part| !part.has_marks() && column >= part.curve.start)
    }

    /// The rank of null in column `column`, if it has one.
    #[must_use]
    pub fn null(&self, column: usize) -> Option<u64> {
        self.columns.get(column)?.null
    }

    /// The rank of a byte string of column `column`, if it has one.
    #[must_use]
    pub fn find(&self, column: usize, value: &[u8]) -> Option<u64> {
        let numbering = self.columns.get(column)?;
        let RankOf::Values(values) = &numbering.of else { return None };
        let (mut low, mut high) = (0, values.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match values.get(middle).cmp(value) {
                std::cmp::Ordering::Equal => return Some(numbering.first + middle as u64),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The stored key that the ranked `key` stands for.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when `key` is no key of [`shape`](Self::shape), or has a rank that
    /// stands for nothing.
    pub fn translate(&self, key: &[u8]) -> Result<Vec<u8>> {
        let mut stored = Vec::with_capacity(key.len());
        let mut start = 0;
        for (i, numbering) in self.columns.iter().enumerate().take(self.stored.plain().len()) {
            let end = prefix_len(&self.shape, key, i + 1)?;
            let field = key.get(start..end).unwrap_or_default();
            start = end;
            let Some(column) = self.stored.columns().get(i) else { continue };
            let rank = number(field, column.mask());
            if let RankOf::Stored = numbering.of {
                stored.extend_from_slice(field);
                continue;
            }
            let one = |values| {
                let shape = KeyShape::try_new(vec![column.clone()])?;
                let key = encode(&shape, 1, &[Column { present: None, values }])?;
                Ok::<_, Error>(key.to_bytes(&shape, 0))
            };
            let nothing = || {
                Error::new(Kind::CorruptSource, "rank of a key stands for no value")
                    .with_column(&column.name)
            };
            if numbering.null == Some(rank) {
                stored.extend(one(Values::None)?);
                continue;
            }
            let place = rank.checked_sub(numbering.first).ok_or_else(nothing)?;
            stored.extend(match &numbering.of {
                RankOf::Values(values) if place < values.len() as u64 => {
                    one(Values::Bytes(&[values.get(place as usize)]))?
                }
                RankOf::Numbers { base, span } if place <= *span => {
                    one(Values::Numbers(&[base.wrapping_add(place)]))?
                }
                _ => return Err(nothing()),
            });
        }
        if let (Some(ranked), Some(part)) = (self.shape.curve_part(), self.stored.curve_part()) {
            let own = key.get(start..).unwrap_or_default();
            let len = curve_len(ranked, own)?;
            start += len;
            let (index, behind) = own.split_at_checked(ranked.index_bytes()).unwrap_or_default();
            stored.extend(ranked.shared().iter().map(|byte| byte ^ part.curve.mask()));
            stored.extend_from_slice(index);
            if !ranked.has_marks() {
                stored.push(part.curve.mask());
            }
            stored.extend_from_slice(behind.get(..len - index.len()).unwrap_or_default());
        }
        if start == key.len() {
            return Ok(stored);
        }
        Err(Error::new(Kind::CorruptSource, "key is longer than its columns"))
    }

    /// The ranked key of the stored `key`; `None` if one of its values has no rank.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when `key` is no key of [`stored`](Self::stored).
    pub fn rank(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut ranked = Vec::new();
        let mut rest = key;
        for (i, (column, numbering)) in self.stored.plain().iter().zip(&self.columns).enumerate() {
            let (field, after) = split_field(column, rest)?;
            let stored = rest.get(..rest.len() - after.len()).unwrap_or_default();
            rest = after;
            let rank = match (&numbering.of, field) {
                (RankOf::Stored, _) => {
                    ranked.extend_from_slice(stored);
                    continue;
                }
                (_, Field::Null) => numbering.null,
                (RankOf::Numbers { base, span }, Field::Fixed(bytes)) => {
                    let place = number(bytes, column.mask()).wrapping_sub(*base);
                    (place <= *span).then(|| numbering.first + place)
                }
                (_, Field::Variable(bytes)) => self.find(i, &unescape(column, bytes)),
                (RankOf::Values(_), Field::Fixed(_)) => None,
            };
            let Some(rank) = rank else { return Ok(None) };
            let Some(KeyColumn { ty: KeyType::Rank { bytes }, .. }) = self.shape.columns().get(i)
            else {
                return Err(misfit("ranks do not fit the type of a key column"));
            };
            let flip = if column.descending { u64::MAX } else { 0 };
            let bytes = size_of::<u64>() - usize::from(*bytes);
            ranked.extend_from_slice(&(rank ^ flip).to_be_bytes()[bytes..]);
        }
        if let (Some(shape), Some(part)) = (self.shape.curve_part(), self.stored.curve_part()) {
            let len = curve_len(part, rest)?;
            let (own, after) = rest.split_at_checked(len).unwrap_or_default();
            rest = after;
            let (index, behind) = own.split_at_checked(part.index_bytes()).unwrap_or_default();
            let shared = shape.shared().iter().map(|byte| byte ^ part.curve.mask());
            let (left_out, index) = index.split_at_checked(shared.len()).unwrap_or_default();
            ranked.extend_from_slice(index);
            match (shape.has_marks(), behind.split_first()) {
                (true, _) => ranked.extend_from_slice(behind),
                (false, Some((marks, behind)))
                    if *marks == part.curve.mask() && shared.eq(left_out.iter().copied()) =>
                {
                    ranked.extend_from_slice(behind);
                }
                (false, _) => return Ok(None),
            }
        }
        if rest.is_empty() {
            return Ok(Some(ranked));
        }
        Err(Error::new(Kind::CorruptSource, "key is longer than its columns"))
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        let values = |numbering: &Numbering| match &numbering.of {
            RankOf::Values(values) => values.memory_size(),
            _ => 0,
        };
        self.columns.iter().map(values).sum()
    }
}

/// Bytes of the numbers of a type, if its values are such.
fn number_bytes(ty: KeyType) -> Option<usize> {
    match ty {
        KeyType::Null | KeyType::Bytes { .. } | KeyType::Rank { .. } => None,
        _ => ty.width().filter(|width| *width <= size_of::<u64>()),
    }
}

/// What the indexes of all rows begin with whose numbers are in these ranges: where the coordinates
/// of a column share their first bits, so do the cells of all rows.
fn shared_bytes(part: CurvePart<'_>, columns: &[(RankOf, bool)]) -> Result<Vec<u8>> {
    let (mut levels, mut corner) = (u64::BITS, Vec::new());
    for (column, (of, _)) in part.columns.iter().zip(columns) {
        let RankOf::Numbers { base, span } = of else { return Ok(Vec::new()) };
        let ends = [*base, base.wrapping_add(*span)];
        let ends = coordinates(column.ty, Values::Numbers(&ends))?;
        let [low, high] = ends.as_slice() else { return Ok(Vec::new()) };
        levels = levels.min((low ^ high).leading_zeros());
        corner.push(vec![*low]);
    }
    let bytes = levels as usize * corner.len() / 8;
    let mut shared = Vec::new();
    indexes(part.curve.kind, &corner, 1, |_, index| shared.extend_from_slice(&index[..bytes]));
    Ok(shared)
}

/// Bytes that hold `count` numbers from 0 on.
fn bytes_of(count: u128) -> u8 {
    let bits = u128::BITS - count.saturating_sub(1).leading_zeros();
    bits.div_ceil(8).max(1) as u8 // more than 8 are refused by the shape
}

fn misfit(what: &str) -> Error {
    Error::new(Kind::Internal, what)
}
