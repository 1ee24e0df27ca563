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
//! The output has exactly the type that is asked for. Sources have that type up to nullability, names
//! inside of lists and maps, 32-bit offsets where the output has 64, and dictionaries where it has none.
//!
//! # Cost
//! One look at the type a level, not a row.
//!
//! # Not here
//! Finding the common type (`types`); what is selected (`select`).

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, LargeBinaryType, LargeUtf8Type,
    StringViewType, Utf8Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeBinaryArray, GenericByteArray,
    NullArray, PrimitiveArray, downcast_primitive,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;

use super::select::Selection;
use super::{dictionary, kernel, nested, run_end};
use crate::{Error, Kind, Result};

/// Views of values that are longer have them in a buffer.
const VIEW_BYTES_MAX: u32 = 12;

/// What is the same for all levels of one gather.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest 32-bit offset; tests have smaller ones.
    pub(super) offset_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { offset_max: i32::MAX as usize }
    }
}

impl Limits {
    /// Largest offset of a type.
    pub(super) fn offset_max(self, is_large: bool) -> usize {
        if is_large { i64::MAX as usize } else { self.offset_max }
    }
}

/// The rows of `values` that are selected, as an array of type `out`.
pub(super) fn gather(
    values: &[&dyn Array],
    selection: &Selection,
    out: &DataType,
    limits: Limits,
) -> Result<ArrayRef> {
    let is_dictionary = |a: &&dyn Array| matches!(a.data_type(), DataType::Dictionary(..));
    if !matches!(out, DataType::Dictionary(..)) && values.iter().any(is_dictionary) {
        return dictionary::expanded(values, selection, out, limits);
    }
    macro_rules! primitive {
        ($t:ty) => {
            primitive::<$t>(values, selection, out)
        };
    }
    downcast_primitive! {
        out => (primitive),
        DataType::Null => Ok(Arc::new(NullArray::new(selection.len()))),
        DataType::Boolean => boolean(values, selection),
        DataType::Utf8 => bytes::<Utf8Type, Utf8Type>(values, selection, limits),
        DataType::Binary => bytes::<BinaryType, BinaryType>(values, selection, limits),
        DataType::LargeUtf8 => {
            if is(values, &DataType::Utf8) {
                bytes::<Utf8Type, LargeUtf8Type>(values, selection, limits)
            } else {
                bytes::<LargeUtf8Type, LargeUtf8Type>(values, selection, limits)
            }
        },
        DataType::LargeBinary => {
            if is(values, &DataType::Binary) {
                bytes::<BinaryType, LargeBinaryType>(values, selection, limits)
            } else {
                bytes::<LargeBinaryType, LargeBinaryType>(values, selection, limits)
            }
        },
        DataType::Utf8View => views::<StringViewType>(values, selection),
        DataType::BinaryView => views::<BinaryViewType>(values, selection),
        DataType::FixedSizeBinary(width) => fixed_size_binary(values, selection, *width),
        DataType::Dictionary(key, _) => dictionary::gather(values, selection, key, out, limits),
        DataType::RunEndEncoded(ends, _) => run_end::gather(values, selection, ends, out, limits),
        _ => nested::gather(values, selection, out, limits)
    }
}

fn is(values: &[&dyn Array], data_type: &DataType) -> bool {
    values.first().is_some_and(|array| array.data_type() == data_type)
}

/// All `values` as arrays of type `T`.
pub(super) fn typed<'a, T: 'static>(values: &[&'a dyn Array]) -> Result<Vec<&'a T>> {
    let typed = |array: &&'a dyn Array| array.as_any().downcast_ref::<T>().ok_or_else(mixed);
    values.iter().map(typed).collect()
}

/// Types were compared when the interleave was made.
pub(super) fn mixed() -> Error {
    Error::new(Kind::Internal, "an array is not of the common type")
}

/// 32 bits are not enough.
pub(super) fn overflow(what: &str) -> Error {
    Error::new(Kind::Unsupported, format!("{what} do not fit 32-bit offsets"))
        .with_hint("use the large type: `to_arrow(large=True)`; or export a stream of chunks")
}

/// Validity of the selected rows; `None` where none is null.
pub(super) fn nulls<'a>(
    values: impl Iterator<Item = Option<&'a NullBuffer>>,
    selection: &Selection,
) -> Option<NullBuffer> {
    let bits = |nulls: Option<&'a NullBuffer>| {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0)?;
        Some((nulls.validity(), nulls.offset()))
    };
    let sources: Vec<_> = values.map(bits).collect();
    if sources.iter().all(Option::is_none) {
        return None;
    }
    let bits = kernel::bits(&sources, selection);
    let nulls = NullBuffer::new(BooleanBuffer::new(bits, 0, selection.len()));
    (nulls.null_count() > 0).then_some(nulls)
}

/// Validity of the selected rows of whole arrays.
pub(super) fn nulls_of(values: &[&dyn Array], selection: &Selection) -> Option<NullBuffer> {
    nulls(values.iter().map(|array| array.nulls()), selection)
}

fn primitive<T: ArrowPrimitiveType>(
    values: &[&dyn Array],
    selection: &Selection,
    out: &DataType,
) -> Result<ArrayRef> {
    let nulls = nulls_of(values, selection);
    let arrays = typed::<PrimitiveArray<T>>(values)?;
    let buffer = fixed::<T>(&arrays, selection);
    let array = PrimitiveArray::<T>::try_new(ScalarBuffer::new(buffer, 0, selection.len()), nulls);
    Ok(Arc::new(array.map_err(invalid)?.with_data_type(out.clone())))
}

/// Values of a primitive type, without validity.
pub(super) fn fixed<T: ArrowPrimitiveType>(
    arrays: &[&PrimitiveArray<T>],
    selection: &Selection,
) -> Buffer {
    let sources: Vec<_> = arrays.iter().map(|array| kernel::raw(array)).collect();
    kernel::fixed(&sources, size_of::<T::Native>(), selection)
}

fn boolean(values: &[&dyn Array], selection: &Selection) -> Result<ArrayRef> {
    let nulls = nulls_of(values, selection);
    let arrays = typed::<BooleanArray>(values)?;
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
    limits: Limits,
) -> Result<ArrayRef> {
    let nulls = nulls_of(values, selection);
    let arrays = typed::<GenericByteArray<I>>(values)?;
    let sources: Vec<kernel::Texts<'_, I::Offset>> =
        arrays.iter().map(|array| (array.offsets(), array.value_data())).collect();
    let max = limits.offset_max(size_of::<O::Offset>() == size_of::<i64>());
    let copied = kernel::bytes::<I::Offset, O::Offset>(&sources, selection, max)
        .ok_or_else(|| overflow("values"))?;
    Ok(Arc::new(kernel::byte_array::<O>(copied, nulls)))
}

fn fixed_size_binary(values: &[&dyn Array], selection: &Selection, width: i32) -> Result<ArrayRef> {
    let nulls = nulls_of(values, selection);
    let arrays = typed::<FixedSizeBinaryArray>(values)?;
    let size = usize::try_from(width).map_err(|_| mixed())?;
    let sources: Vec<_> = arrays.iter().map(|array| array.value_data()).collect();
    let buffer = kernel::fixed(&sources, size, selection);
    let array = FixedSizeBinaryArray::try_new_with_len(width, buffer, nulls, selection.len());
    Ok(Arc::new(array.map_err(invalid)?))
}

/// Views keep their bytes where they are: buffers are shared, and only those that are used.
fn views<T: ByteViewType>(values: &[&dyn Array], selection: &Selection) -> Result<ArrayRef> {
    let nulls = nulls_of(values, selection);
    let arrays = typed::<arrow_array::GenericByteViewArray<T>>(values)?;
    let sources: Vec<&[u128]> = arrays.iter().map(|array| &**array.views()).collect();
    if arrays.iter().all(|array| array.data_buffers().is_empty()) {
        let (views, _) = kernel::mapped(&sources, selection, |_| |view| (view, false));
        return Ok(Arc::new(kernel::view_array::<T>(views.into(), Vec::new(), nulls)));
    }
    let buffers = Buffers::new(arrays.iter().map(|array| &array.data_buffers()[..]));
    let (views, _) = kernel::mapped(&sources, selection, |array| {
        let slots = buffers.slots(array);
        move |view| (moved(slots, view), false)
    });
    let (views, used) = buffers.used(views);
    Ok(Arc::new(kernel::view_array::<T>(views.into(), used, nulls)))
}

/// The place of a buffer in the output.
struct Slot {
    /// The bits by which it differs from the place before.
    change: u32,
    place: u32,
    used: Cell<bool>,
}

/// `view` with the place of its buffer in the output; without a branch that a text decides.
#[inline(always)]
fn moved((none, slots): (&Slot, &[Slot]), view: u128) -> u128 {
    #[expect(clippy::cast_possible_truncation, reason = "fields of a view are 32 bits wide")]
    let (len, buffer) = (view as u32, (view >> 64) as u32 as usize);
    let is_long = len > VIEW_BYTES_MAX;
    if is_long & (buffer >= slots.len()) {
        return 0; // leads nowhere, which only null rows may do
    }
    let slot = if is_long { slots.get(buffer).unwrap_or(none) } else { none };
    slot.used.set(true);
    view ^ (u128::from(slot.change) << 64)
}

/// The buffers that the views of an output lead to.
struct Buffers<'a> {
    /// Slots of all buffers of all arrays, one behind the other.
    slots: Vec<Slot>,
    /// Where the slots of each array begin and end.
    bounds: Vec<(usize, usize)>,
    /// For views that have no buffer.
    none: Slot,
    /// All different ones.
    all: Vec<&'a Buffer>,
}

impl<'a> Buffers<'a> {
    fn new(sources: impl Iterator<Item = &'a [Buffer]>) -> Self {
        let mut known: HashMap<(usize, usize), u32, dictionary::Hashing> = HashMap::default();
        let (mut slots, mut bounds, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for buffers in sources {
            let begin = slots.len();
            for (buffer, index) in buffers.iter().zip(0_u32..) {
                // Slices of one array share buffers.
                let id = (buffer.as_ptr() as usize, buffer.len());
                let place = *known.entry(id).or_insert_with(|| {
                    all.push(buffer);
                    u32::try_from(all.len() - 1).unwrap_or(u32::MAX)
                });
                slots.push(Slot { change: index ^ place, place, used: Cell::new(false) });
            }
            bounds.push((begin, slots.len()));
        }
        let none = Slot { change: 0, place: 0, used: Cell::new(false) };
        Self { slots, bounds, none, all }
    }

    #[inline(always)]
    fn slots(&self, array: usize) -> (&Slot, &[Slot]) {
        let (begin, end) = self.bounds.get(array).copied().unwrap_or_default();
        (&self.none, self.slots.get(begin..end).unwrap_or_default())
    }

    /// The buffers that are used, and `views` that lead to them: places of others are closed up.
    fn used(&self, mut views: Vec<u128>) -> (Vec<u128>, Vec<Buffer>) {
        let mut is_used = vec![false; self.all.len()];
        for slot in self.slots.iter().filter(|slot| slot.used.get()) {
            if let Some(is_used) = is_used.get_mut(slot.place as usize) {
                *is_used = true;
            }
        }
        let kept = self.all.iter().zip(&is_used).filter(|(_, used)| **used);
        let buffers: Vec<Buffer> = kept.map(|(buffer, _)| Buffer::clone(buffer)).collect();
        if buffers.len() < self.all.len() {
            let places: Vec<u32> = is_used
                .iter()
                .scan(0, |next, used| {
                    let place = *next;
                    *next += u32::from(*used);
                    Some(place)
                })
                .collect();
            for view in &mut views {
                #[expect(clippy::cast_possible_truncation, reason = "fields of a view are 32 bits")]
                let (len, buffer) = (*view as u32, (*view >> 64) as u32);
                if len > VIEW_BYTES_MAX
                    && let Some(place) = places.get(buffer as usize)
                {
                    *view ^= u128::from(buffer ^ place) << 64;
                }
            }
        }
        (views, buffers)
    }
}

/// What Arrow refuses is a source that breaks the promises of its own type.
pub(super) fn invalid(error: arrow_schema::ArrowError) -> Error {
    Error::new(Kind::InvalidArgument, "an array breaks the rules of its type").with_cause(error)
}
