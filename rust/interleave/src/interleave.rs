//! An [`Interleave`]: arrays with selectors, checked when it is made, copied when rows are wanted.
//!
//! # Invariants
//! Lazy operations touch selectors, never values.
//!
//! # Not here
//! Checking selectors (`lower`); copying (`gather`).

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, UInt32Array, UInt64Array, new_empty_array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, FieldRef};

use plait_base::{Error, Kind, Result, Run, Runs, SourceId, type_text};

use crate::chunks::Chunks;
use crate::levels::{self, Levels};
use crate::lower::{self, RowCost};
use crate::order::{self, Order};
use crate::select::Selection;
use crate::{dictionary, types};

/// The rows of `runs`, copied out of `values`: run sources are places in `values`.
///
/// All values have one type up to nullability, like those of an [`Interleave`]; the output has it.
///
/// ```
/// # use std::sync::Arc;
/// # use arrow_array::{ArrayRef, Int32Array, cast::AsArray, types::Int32Type};
/// use plait_interleave::gather;
/// use plait_base::{Run, SourceId};
/// let values: [ArrayRef; 2] =
///     [Arc::new(Int32Array::from(vec![1, 3, 5])), Arc::new(Int32Array::from(vec![2, 4]))];
/// let runs = [
///     Run { source: SourceId(0), start: 1, len: 2 },
///     Run { source: SourceId(1), start: 0, len: 1 },
/// ];
/// assert_eq!(gather(&values, &runs)?.as_primitive::<Int32Type>().values(), &[3, 5, 2]);
/// # plait_base::Result::<()>::Ok(())
/// ```
///
/// # Errors
/// `InvalidArgument` when types differ or a run leaves its array; `Unsupported` when 32-bit offsets
/// or keys do not suffice.
pub fn gather(values: &[ArrayRef], runs: &[Run]) -> Result<ArrayRef> {
    let first = values.first().ok_or_else(no_values)?;
    let lens = values.iter().map(|array| array.len()).collect();
    let selection = Selection::from_runs(runs, lens)?;
    let values_ref: Vec<&dyn Array> = values.iter().map(|array| &**array).collect();
    if are_alike(values) {
        return Levels::default().gather(&values_ref, &selection, first.data_type());
    }
    let field = field_of_all(values)?;
    Levels::default().gather(&values_ref, &selection, field.data_type())
}

/// An array that is not computed until it is asked for: row `i` is
/// `values[array_indices[i]][row_indices[i]]`.
///
/// ```
/// # use std::sync::Arc;
/// # use arrow_array::{ArrayRef, StringArray, UInt8Array, UInt64Array, cast::AsArray};
/// use plait_interleave::Interleave;
/// let values: Vec<ArrayRef> = vec![
///     Arc::new(StringArray::from(vec!["a", "b", "c"])),
///     Arc::new(StringArray::from(vec![Some("d"), None])),
/// ];
/// let arrays = Arc::new(UInt8Array::from(vec![1, 0, 0, 1]));
/// let rows = Arc::new(UInt64Array::from(vec![0, 2, 2, 1]));
/// let lazy = Interleave::try_new(values, arrays, rows)?.slice(1, 3)?;
/// assert_eq!((lazy.len(), lazy.null_count()?), (3, 1));
/// let texts = lazy.to_arrow()?;
/// assert_eq!(texts.as_string::<i32>().value(0), "c");
/// # plait_base::Result::<()>::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Interleave {
    values: Arc<[ArrayRef]>,
    field: FieldRef,
    order: Order,
}

/// What an [`Interleave`] is made of: an array, or another interleave, which is flattened.
#[derive(Clone, Debug)]
pub enum Value {
    /// Rows that are there.
    Array(FieldRef, ArrayRef),
    /// Rows that are selected from others.
    Interleave(Interleave),
}

impl From<ArrayRef> for Value {
    fn from(array: ArrayRef) -> Self {
        Self::Array(Arc::new(field_of(&array)), array)
    }
}

impl From<Interleave> for Value {
    fn from(interleave: Interleave) -> Self {
        Self::Interleave(interleave)
    }
}

impl Interleave {
    /// Interleaves `values`; selectors are unsigned integers of any width, without nulls.
    ///
    /// Who interleaves the same arrays many times passes an `Arc<[ArrayRef]>`, which is shared.
    ///
    /// # Errors
    /// `InvalidArgument` without values, when types differ by more than nullability, or when a
    /// selector is not one: signed, with nulls, or longer than the other.
    pub fn try_new(
        values: impl Into<Arc<[ArrayRef]>>,
        array_indices: ArrayRef,
        row_indices: ArrayRef,
    ) -> Result<Self> {
        let values = values.into();
        let order = Order::selectors(array_indices, row_indices)?;
        Ok(Self { field: field_of_all(&values)?, values, order })
    }

    /// The same with fields, which keep extension types; one for each of `values`.
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new).
    pub fn with_fields(
        fields: Vec<FieldRef>,
        values: impl Into<Arc<[ArrayRef]>>,
        array_indices: ArrayRef,
        row_indices: ArrayRef,
    ) -> Result<Self> {
        let order = Order::selectors(array_indices, row_indices)?;
        Ok(Self { field: common(&fields)?, values: values.into(), order })
    }

    /// Interleaves arrays and interleaves: these are flattened, so that no row is copied twice.
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new); and at once, not later, for rows that are not there, if any
    /// of `values` is an interleave.
    pub fn nested(
        values: Vec<Value>,
        array_indices: ArrayRef,
        row_indices: ArrayRef,
    ) -> Result<Self> {
        let outer = Order::selectors(array_indices, row_indices)?;
        let (mut fields, mut flat, mut bases) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_nested = false;
        for value in &values {
            bases.push(flat.len());
            match value {
                Value::Array(field, array) => {
                    fields.push(Arc::clone(field));
                    flat.push(Arc::clone(array));
                }
                Value::Interleave(inner) => {
                    is_nested = true;
                    fields.push(Arc::clone(&inner.field));
                    flat.extend(inner.values.iter().cloned());
                }
            }
        }
        let field = common(&fields)?;
        if !is_nested {
            return Ok(Self { values: flat.into(), field, order: outer });
        }
        let lens = values.iter().map(|value| match value {
            Value::Array(_, array) => array.len(),
            Value::Interleave(inner) => inner.len(),
        });
        let outer = outer.lowered(lens.collect(), RowCost::Other)?;
        let inner = |value: &Value| match value {
            Value::Array(..) => Ok(None),
            Value::Interleave(inner) => inner.selection().map(|s| Some(order::pairs(&s))),
        };
        let inner = values.iter().map(inner).collect::<Result<Vec<_>>>()?;
        let order = order::composed(&outer, &bases, &inner)?;
        Ok(Self { values: flat.into(), field, order })
    }

    /// Interleaves `values` by runs, whose sources are places in `values`.
    ///
    /// # Errors
    /// `InvalidArgument` without values, when types differ, or when a run leaves its array.
    pub fn from_runs(values: Vec<ArrayRef>, runs: &Runs) -> Result<Self> {
        let field = field_of_all(&values)?;
        let lens = values.iter().map(|array| array.len()).collect();
        Selection::from_runs(runs.as_slice(), lens)?;
        Ok(Self { values: values.into(), field, order: Order::runs(runs.clone()) })
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the rows.
    #[must_use]
    pub fn data_type(&self) -> &DataType {
        self.field.data_type()
    }

    /// The field of the rows: type, nullability, extension type.
    #[must_use]
    pub fn field(&self) -> &FieldRef {
        &self.field
    }

    /// The arrays that rows come from.
    #[must_use]
    pub fn values(&self) -> &[ArrayRef] {
        &self.values
    }

    /// Which of the values each row comes from.
    ///
    /// # Errors
    /// `InvalidArgument` for rows that are not there.
    pub fn array_indices(&self) -> Result<UInt32Array> {
        Ok(order::pairs(&self.selection()?).0.into())
    }

    /// Which row of its array each row is.
    ///
    /// # Errors
    /// `InvalidArgument` for rows that are not there.
    pub fn row_indices(&self) -> Result<UInt64Array> {
        Ok(order::pairs(&self.selection()?).1.into())
    }

    /// Checks now that every selected row is there.
    ///
    /// # Errors
    /// `InvalidArgument` for the first that is not.
    pub fn check_bounds(&self) -> Result<()> {
        self.selection().map(drop)
    }

    /// Where row `index` comes from: array and row.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such row, here or there.
    pub fn place(&self, index: usize) -> Result<(usize, usize)> {
        let one = self.slice(index, 1)?;
        let selection = one.selection()?;
        let mut place = None;
        selection.try_for_each(|array, row, _| {
            place = Some((array, row));
            Ok(())
        })?;
        place.ok_or_else(|| Error::new(Kind::Internal, "a row comes from nowhere"))
    }

    /// Rows `offset..offset + len`.
    ///
    /// # Errors
    /// `InvalidArgument` when they are not all there.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Self> {
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(Error::new(Kind::InvalidArgument, "slice is out of range")
                .with_got(format!("{offset} to {offset} + {len} of {} rows", self.len())));
        }
        Ok(self.with_order(self.order.slice(offset, len)))
    }

    /// The rows at `indices`: unsigned integers without nulls.
    ///
    /// # Errors
    /// `InvalidArgument` when `indices` is something else or leads to a row that is not there.
    pub fn take(&self, indices: &ArrayRef) -> Result<Self> {
        lower::check("indices", indices)?;
        Ok(self.with_order(self.order.take(indices)?))
    }

    /// The rows where `mask` is true, neither false nor null.
    ///
    /// # Errors
    /// `InvalidArgument` when `mask` has another length.
    pub fn filter(&self, mask: &BooleanArray) -> Result<Self> {
        if mask.len() != self.len() {
            return Err(Error::new(Kind::InvalidArgument, "`mask` has another length")
                .with_got(format!("{} for {} rows", mask.len(), self.len())));
        }
        Ok(self.with_order(self.order.filter(mask)?))
    }

    /// The rows of `self`, then those of `other`, which has the same values.
    ///
    /// # Errors
    /// `InvalidArgument` when the values are others: then interleave the two instead.
    pub fn concat(&self, other: &Self) -> Result<Self> {
        let same = Arc::ptr_eq(&self.values, &other.values)
            || self.values.len() == other.values.len()
                && self.values.iter().zip(other.values.iter()).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            return Err(Error::new(Kind::InvalidArgument, "interleaves have different values")
                .with_hint(
                    "interleave the two: an interleave of interleaves copies no row twice",
                ));
        }
        let field = types::common_field(&self.field, &other.field);
        let field = field.ok_or_else(|| types_differ(&self.field, &other.field, 1))?;
        let order = self.order.concat(&other.order)?;
        Ok(Self { values: Arc::clone(&self.values), field, order })
    }

    /// Number of rows that are null; values are not looked at, their validity is.
    ///
    /// # Errors
    /// `InvalidArgument` for rows that are not there.
    pub fn null_count(&self) -> Result<usize> {
        let selection = self.selection()?;
        let expands = !matches!(self.data_type(), DataType::Dictionary(..));
        let logical = |array: &ArrayRef| match array.data_type() {
            DataType::Dictionary(..) if expands => array.logical_nulls(),
            _ => array.nulls().cloned(),
        };
        let nulls: Vec<Option<NullBuffer>> = self.values.iter().map(logical).collect();
        let nulls = levels::nulls(nulls.iter().map(Option::as_ref), &selection);
        Ok(nulls.map_or(0, |nulls| nulls.null_count()))
    }

    /// The selectors as runs, if every value array is consumed front to back, no row twice: a
    /// merge.
    ///
    /// # Errors
    /// `InvalidArgument` for rows that are not there.
    pub fn runs(&self) -> Result<Option<Runs>> {
        let mut next = vec![0_usize; self.values.len()];
        let mut runs = Runs::default();
        let mut is_merge = true;
        self.selection()?.try_for_each(|array, start, len| {
            is_merge &= start >= next[array];
            next[array] = start + len;
            let source = u32::try_from(array).unwrap_or(u32::MAX);
            runs.push(SourceId(source), start as u64, len as u64);
            Ok(())
        })?;
        Ok(is_merge.then_some(runs))
    }

    /// The rows, copied.
    ///
    /// # Errors
    /// `InvalidArgument` for rows that are not there; `Unsupported` when 32-bit offsets, the keys
    /// of a dictionary or run ends do not suffice: [`to_large`](Self::to_large) and
    /// [`chunks`](Self::chunks) help.
    pub fn to_arrow(&self) -> Result<ArrayRef> {
        self.materialise(self.data_type(), Levels::default())
    }

    /// The rows, copied, with 64-bit offsets at every level.
    ///
    /// # Errors
    /// As [`to_arrow`](Self::to_arrow); maps keep their 32-bit offsets.
    pub fn to_large(&self) -> Result<(FieldRef, ArrayRef)> {
        let data_type = types::large(self.data_type());
        let array = self.materialise(&data_type, Levels::default())?;
        Ok((Arc::new(self.field.as_ref().clone().with_data_type(data_type)), array))
    }

    /// The rows in chunks of at most `rows_max` rows and, unless a single row is larger,
    /// `bytes_max` bytes; 32-bit offsets always suffice.
    ///
    /// # Errors
    /// `InvalidArgument` for rows that are not there.
    pub fn chunks(&self, rows_max: usize, bytes_max: usize) -> Result<Chunks> {
        self.chunks_with(rows_max, bytes_max, Levels::default())
    }

    pub(crate) fn chunks_with(
        &self,
        rows_max: usize,
        bytes_max: usize,
        levels: Levels,
    ) -> Result<Chunks> {
        let selection = self.selection()?;
        let mut values = self.values.to_vec();
        let out = self.data_type().clone();
        if !matches!(out, DataType::Dictionary(..)) {
            // Once, not a chunk.
            for array in &mut values {
                if let Some(plain) = dictionary::plain(array, levels)? {
                    *array = plain;
                }
            }
        }
        Ok(Chunks::new(values, selection, out, rows_max, bytes_max, levels))
    }

    pub(crate) fn materialise(&self, out: &DataType, levels: Levels) -> Result<ArrayRef> {
        let are_null =
            self.field.is_nullable() && self.values.iter().any(|array| array.null_count() > 0);
        let cost = RowCost::of(self.data_type(), are_null);
        let selection = self.order.lowered(self.lens(), cost)?;
        if selection.len() == 0 {
            return Ok(new_empty_array(out));
        }
        let values: Vec<&dyn Array> = self.values.iter().map(|array| &**array).collect();
        levels.gather(&values, &selection, out)
    }

    fn selection(&self) -> Result<Selection<'_>> {
        self.order.lowered(self.lens(), RowCost::Other)
    }

    fn lens(&self) -> Vec<usize> {
        self.values.iter().map(|array| array.len()).collect()
    }

    fn with_order(&self, order: Order) -> Self {
        Self { values: Arc::clone(&self.values), field: Arc::clone(&self.field), order }
    }
}

fn field_of(array: &ArrayRef) -> Field {
    let nullable = is_nullable(array, has_hidden_nulls(array.data_type()));
    Field::new("", array.data_type().clone(), nullable)
}

/// Whether arrays without validity may have nulls.
fn has_hidden_nulls(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(data_type, T::Null | T::Dictionary(..) | T::RunEndEncoded(..) | T::Union(..))
}

fn is_nullable(array: &ArrayRef, hidden: bool) -> bool {
    array.nulls().is_some() || hidden && array.is_nullable()
}

/// Whether all are of one type.
fn are_alike(values: &[ArrayRef]) -> bool {
    let Some((first, rest)) = values.split_first() else { return true };
    let first = first.data_type();
    rest.iter().all(|array| types::are_equal(array.data_type(), first))
}

/// The field of all `values`.
fn field_of_all(values: &[ArrayRef]) -> Result<FieldRef> {
    let first = values.first().ok_or_else(no_values)?;
    // One field is enough where types are equal, which is quick to see.
    if are_alike(values) {
        let hidden = has_hidden_nulls(first.data_type());
        let nullable = values.iter().any(|array| is_nullable(array, hidden));
        return Ok(Arc::new(Field::new("", first.data_type().clone(), nullable)));
    }
    common(&values.iter().map(|array| Arc::new(field_of(array))).collect::<Vec<_>>())
}

/// The field of all `fields`.
fn common(fields: &[FieldRef]) -> Result<FieldRef> {
    let (first, rest) = fields.split_first().ok_or_else(no_values)?;
    rest.iter().enumerate().try_fold(Arc::clone(first), |field, (i, next)| {
        types::common_field(&field, next).ok_or_else(|| types_differ(&field, next, i + 1))
    })
}

fn types_differ(first: &Field, other: &Field, at: usize) -> Error {
    let shown = |field: &Field| match field.extension_type_name() {
        Some(name) => format!("`{}` (extension `{name}`)", type_text(field.data_type())),
        None => format!("`{}`", type_text(field.data_type())),
    };
    Error::new(Kind::InvalidArgument, "values are of different types")
        .with_got(format!("{} before {} at array {at}", shown(first), shown(other)))
        .with_hint("cast them to one type first")
}

fn no_values() -> Error {
    Error::new(Kind::InvalidArgument, "`values` is empty")
        .with_hint("pass at least one array: its type is the type of the rows")
}
