//! What every type of array needs: the way to the level below, downcasts, validity, errors.
//!
//! # Invariants
//! [`Levels`] carries the function that copies a level, so that files of nested types do not import
//! the dispatch by type, which imports them.
//!
//! # Not here
//! The dispatch (`gather`).

use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;
use plait_base::{Error, Kind, Result};

use crate::kernel;
use crate::select::Selection;

/// Copies the selected rows of arrays as one array of a type.
pub(crate) type Gather = fn(&[&dyn Array], &Selection<'_>, &DataType, Levels) -> Result<ArrayRef>;

/// What is the same for all levels of one gather.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// Largest 32-bit offset; tests have smaller ones.
    pub(crate) small_offset_max: usize,
    /// Copies a level, of any type.
    pub(crate) gather: Gather,
}

impl Levels {
    /// Largest offset of a type.
    pub(crate) fn offset_max(self, is_large: bool) -> usize {
        if is_large { i64::MAX as usize } else { self.small_offset_max }
    }

    /// The rows of `values` that are selected, as an array of type `out`.
    pub(crate) fn gather(
        self,
        values: &[&dyn Array],
        selection: &Selection<'_>,
        out: &DataType,
    ) -> Result<ArrayRef> {
        (self.gather)(values, selection, out, self)
    }
}

pub(crate) fn is_dictionary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Dictionary(..))
}

/// All `values` as arrays of type `T`.
pub(crate) fn typed<'a, T: 'static>(values: &[&'a dyn Array]) -> Result<Vec<&'a T>> {
    let typed = |array: &&'a dyn Array| array.as_any().downcast_ref::<T>().ok_or_else(mixed);
    values.iter().map(typed).collect()
}

/// Types were compared when the interleave was made.
pub(crate) fn mixed() -> Error {
    Error::new(Kind::Internal, "an array is not of the common type")
}

/// 32 bits are not enough.
pub(crate) fn overflow(what: &str) -> Error {
    Error::new(Kind::Unsupported, format!("{what} do not fit 32-bit offsets"))
        .with_hint("use the large type: `to_arrow(large=True)`; or export a stream of chunks")
}

/// Validity of the selected rows; `None` where none is null.
pub(crate) fn nulls<'a>(
    values: impl Iterator<Item = Option<&'a NullBuffer>> + Clone,
    selection: &Selection,
) -> Option<NullBuffer> {
    if values.clone().all(|nulls| nulls.is_none_or(|nulls| nulls.null_count() == 0)) {
        return None;
    }
    let bits = |nulls: Option<&'a NullBuffer>| {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0)?;
        Some((nulls.validity(), nulls.offset()))
    };
    let sources: Vec<_> = values.map(bits).collect();
    let bits = kernel::bits(&sources, selection);
    let nulls = NullBuffer::new(BooleanBuffer::new(bits, 0, selection.len()));
    (nulls.null_count() > 0).then_some(nulls)
}

/// Validity of the selected rows of whole arrays.
pub(crate) fn nulls_of<A: Array + ?Sized>(
    values: &[&A],
    selection: &Selection,
) -> Option<NullBuffer> {
    nulls(values.iter().map(|array| array.nulls()), selection)
}

/// Values of a primitive type, without validity.
pub(crate) fn fixed<T: ArrowPrimitiveType>(
    arrays: &[&PrimitiveArray<T>],
    selection: &Selection,
) -> Buffer {
    let sources: Vec<_> = arrays.iter().map(|array| kernel::raw(array)).collect();
    kernel::fixed(&sources, size_of::<T::Native>(), selection)
}

/// What Arrow refuses is a source that breaks the promises of its own type.
pub(crate) fn invalid(error: arrow_schema::ArrowError) -> Error {
    Error::new(Kind::InvalidArgument, "an array breaks the rules of its type").with_cause(error)
}
