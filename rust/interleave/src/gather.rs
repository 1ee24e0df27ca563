//! One array out of selected rows of many: types that have their values in place.
//!
//! ```text
//! type of the output ─┬─ numbers, times, decimals ─▶ kernel::fixed     validity ─▶ kernel::bits
//!                     ├─ booleans ─────────────────▶ kernel::bits
//!                     ├─ text, binary ─────────────▶ kernel::bytes     views ─▶ kernel::views
//!                     ├─ dictionaries ─▶ dictionary   run ends ─▶ run_end
//!                     └─ lists, structs, maps, unions ─▶ nested ─▶ here, a level below
//! ```
//!
//! # Invariants
//! The output has exactly the type that is asked for. Sources have that type up to nullability,
//! names inside of lists and maps, 32-bit offsets where the output has 64, and dictionaries where
//! it has none.
//!
//! # Cost
//! One look at the type a level, not a row.
//!
//! # Not here
//! Finding the common type (`types`); what is selected (`select`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, LargeBinaryType, LargeUtf8Type,
    StringViewType, Utf8Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeBinaryArray, GenericByteArray,
    GenericByteViewArray, NullArray, PrimitiveArray, downcast_primitive,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_data::ByteView;
use arrow_schema::DataType;

use crate::kernel::VIEW_BYTES_MAX;
use crate::levels::{Levels, fixed, invalid, is_dictionary, mixed, nulls_of, overflow, typed};
use crate::select::Selection;
use crate::{dictionary, kernel, nested, run_end, unite};
use plait_base::{Error, Kind, Result};

impl Default for Levels {
    fn default() -> Self {
        Self { small_offset_max: i32::MAX as usize, gather }
    }
}

/// The rows of `values` that are selected, as an array of type `out`.
pub(crate) fn gather(
    values: &[&dyn Array],
    selection: &Selection,
    out: &DataType,
    levels: Levels,
) -> Result<ArrayRef> {
    match of_type(values, selection, out, levels) {
        // Dictionaries among others are no arrays of the type, which is noticed before anything is
        // copied: asking each array first would cost all those who have none.
        Err(e)
            if e.kind() == Kind::Internal
                && !is_dictionary(out)
                && values.iter().any(|array| is_dictionary(array.data_type())) =>
        {
            dictionary::expanded(values, selection, out, levels)
        }
        made => made,
    }
}

/// The same of arrays that all are of type `out` up to nullability, names and offsets.
fn of_type(
    values: &[&dyn Array],
    selection: &Selection,
    out: &DataType,
    levels: Levels,
) -> Result<ArrayRef> {
    macro_rules! primitive {
        ($t:ty) => {
            primitive::<$t>(values, selection, out)
        };
    }
    downcast_primitive! {
        out => (primitive),
        DataType::Null => Ok(Arc::new(NullArray::new(selection.len()))),
        DataType::Boolean => boolean(values, selection),
        DataType::Utf8 => bytes::<Utf8Type, Utf8Type>(values, selection, levels),
        DataType::Binary => bytes::<BinaryType, BinaryType>(values, selection, levels),
        DataType::LargeUtf8 => {
            if is(values, &DataType::Utf8) {
                bytes::<Utf8Type, LargeUtf8Type>(values, selection, levels)
            } else {
                bytes::<LargeUtf8Type, LargeUtf8Type>(values, selection, levels)
            }
        },
        DataType::LargeBinary => {
            if is(values, &DataType::Binary) {
                bytes::<BinaryType, LargeBinaryType>(values, selection, levels)
            } else {
                bytes::<LargeBinaryType, LargeBinaryType>(values, selection, levels)
            }
        },
        DataType::Utf8View => views::<StringViewType>(values, selection),
        DataType::BinaryView => views::<BinaryViewType>(values, selection),
        DataType::FixedSizeBinary(width) => fixed_size_binary(values, selection, *width),
        DataType::Dictionary(key, _) => dictionary::gather(values, selection, key, out, levels),
        DataType::RunEndEncoded(ends, _) => run_end::gather(values, selection, ends, out, levels),
        _ => nested::gather(values, selection, out, levels)
    }
}

fn is(values: &[&dyn Array], data_type: &DataType) -> bool {
    values.first().is_some_and(|array| array.data_type() == data_type)
}

fn primitive<T: ArrowPrimitiveType>(
    values: &[&dyn Array],
    selection: &Selection,
    out: &DataType,
) -> Result<ArrayRef> {
    let arrays = typed::<PrimitiveArray<T>>(values)?;
    let nulls = nulls_of(&arrays, selection);
    let buffer = fixed::<T>(&arrays, selection);
    let array = PrimitiveArray::<T>::try_new(ScalarBuffer::new(buffer, 0, selection.len()), nulls);
    Ok(Arc::new(array.map_err(invalid)?.with_data_type(out.clone())))
}

fn boolean(values: &[&dyn Array], selection: &Selection) -> Result<ArrayRef> {
    let arrays = typed::<BooleanArray>(values)?;
    let nulls = nulls_of(&arrays, selection);
    let sources: Vec<kernel::Bits<'_>> = arrays
        .iter()
        .map(|array| Some((array.values().values(), array.values().offset())))
        .collect();
    let bits = kernel::bits(&sources, selection);
    Ok(Arc::new(BooleanArray::new(BooleanBuffer::new(bits, 0, selection.len()), nulls)))
}

fn bytes<I: ByteArrayType, O: ByteArrayType>(
    values: &[&dyn Array],
    selection: &Selection,
    levels: Levels,
) -> Result<ArrayRef> {
    let arrays = typed::<GenericByteArray<I>>(values)?;
    let nulls = nulls_of(&arrays, selection);
    let sources: Vec<kernel::Texts<'_, I::Offset>> =
        arrays.iter().map(|array| (array.offsets(), array.value_data())).collect();
    let max = levels.offset_max(size_of::<O::Offset>() == size_of::<i64>());
    let copied = kernel::bytes::<I::Offset, O::Offset>(&sources, selection, max);
    let (offsets, values) = copied.ok_or_else(|| overflow("values"))?;
    Ok(Arc::new(kernel::byte_array::<O>(offsets, values, nulls)))
}

fn fixed_size_binary(values: &[&dyn Array], selection: &Selection, width: i32) -> Result<ArrayRef> {
    let arrays = typed::<FixedSizeBinaryArray>(values)?;
    let nulls = nulls_of(&arrays, selection);
    let size = usize::try_from(width).map_err(|_| mixed())?;
    let sources: Vec<_> = arrays.iter().map(|array| array.value_data()).collect();
    let buffer = kernel::fixed(&sources, size, selection);
    let array = FixedSizeBinaryArray::try_new_with_len(width, buffer, nulls, selection.len());
    Ok(Arc::new(array.map_err(invalid)?))
}

/// Views keep their bytes where they are: buffers are shared, and only those that are used.
fn views<T: ByteViewType>(values: &[&dyn Array], selection: &Selection) -> Result<ArrayRef> {
    let arrays = typed::<GenericByteViewArray<T>>(values)?;
    let nulls = nulls_of(&arrays, selection);
    if arrays.iter().all(|array| array.data_buffers().is_empty()) {
        let sources: Vec<&[u8]> =
            arrays.iter().map(|array| array.views().inner().as_slice()).collect();
        let views = kernel::fixed(&sources, size_of::<u128>(), selection);
        let views = ScalarBuffer::new(views, 0, selection.len());
        return Ok(Arc::new(kernel::view_array::<T>(views, Vec::new(), nulls)));
    }
    let sources: Vec<kernel::ViewSource<'_>> = arrays
        .iter()
        .map(|array| kernel::ViewSource {
            views: array.views(),
            buffers: array.data_buffers().len(),
        })
        .collect();
    let mut buffers = Buffers::default();
    let copied = kernel::views(&sources, selection, |array, old| {
        let buffer = arrays.get(array).and_then(|array| array.data_buffers().get(old));
        // There are fewer buffers than 32 bits number: each array has as many places.
        buffer.map_or(0, |buffer| u32::try_from(old).unwrap_or(0) ^ buffers.number(buffer))
    });
    let (mut views, lead_nowhere) = copied.ok_or_else(too_many_buffers)?;
    if lead_nowhere {
        views = buffers.without_strays(views, nulls.as_ref())?;
    }
    Ok(Arc::new(kernel::view_array::<T>(views.into(), buffers.used, nulls)))
}

fn too_many_buffers() -> Error {
    Error::new(Kind::Unsupported, "more buffers of views than 32 bits count")
}

/// The buffers that the views of an output lead to, each once however many arrays have it.
#[derive(Default)]
struct Buffers {
    used: Vec<Buffer>,
    seen: HashMap<(usize, usize), u32, unite::Hashing>,
}

impl Buffers {
    /// `views`, of which those of null rows that lead to none of the buffers are emptied.
    ///
    /// # Errors
    /// `InvalidArgument` for such a view of a row that is not null.
    #[cold]
    fn without_strays(
        &self,
        mut views: Vec<u128>,
        nulls: Option<&NullBuffer>,
    ) -> Result<Vec<u128>> {
        for (i, view) in views.iter_mut().enumerate().filter(|(_, view)| !self.have(**view)) {
            if nulls.is_none_or(|nulls| nulls.is_valid(i)) {
                let what = "a view leads outside of its buffers";
                return Err(Error::new(Kind::InvalidArgument, what).with_row(i as u64));
            }
            *view = 0;
        }
        Ok(views)
    }

    /// Whether `view` is short or has its bytes in one of the buffers; others are those of null
    /// rows, or of broken arrays.
    fn have(&self, view: u128) -> bool {
        let view = ByteView::from(view);
        let end = u64::from(view.offset) + u64::from(view.length);
        let buffer = self.used.get(view.buffer_index as usize);
        view.length <= VIEW_BYTES_MAX || buffer.is_some_and(|buffer| end <= buffer.len() as u64)
    }

    fn number(&mut self, buffer: &Buffer) -> u32 {
        let id = (buffer.as_ptr() as usize, buffer.len());
        *self.seen.entry(id).or_insert_with(|| {
            self.used.push(buffer.clone());
            // There are fewer than places, which fit.
            u32::try_from(self.used.len() - 1).unwrap_or(0)
        })
    }
}
