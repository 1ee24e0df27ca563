//! Lists, structs, maps and unions: the selection of rows becomes a selection of what is below
//! them.
//!
//! ```text
//! offsets 0 2 2 5     rows 2, 0     elements 2..5, 0..2     new offsets 0 3 5
//! ```
//!
//! # Invariants
//! A level below is gathered once, with runs of elements; no array is made a row.
//!
//! # Cost
//! 16 bytes a list that leaves, until the level below is copied.
//!
//! # Not here
//! Values without levels (`gather`).

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, FixedSizeListArray, GenericListArray,
    GenericListViewArray, MapArray, OffsetSizeTrait, PrimitiveArray, StructArray, UnionArray,
    downcast_primitive,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef, Fields, UnionFields, UnionMode};

use crate::levels::{Levels, invalid, is_dictionary, mixed, nulls_of, overflow, typed};
use crate::select::{Children, Selection, broken};
use crate::{dictionary, kernel};
use plait_base::Result;

/// The selected rows of nested arrays.
pub(crate) fn gather(
    values: &[&dyn Array],
    selection: &Selection,
    out: &DataType,
    levels: Levels,
) -> Result<ArrayRef> {
    let small = |large: &DataType| {
        values.first().is_some_and(|array| {
            std::mem::discriminant(array.data_type()) != std::mem::discriminant(large)
        })
    };
    match out {
        DataType::Struct(fields) => structs(values, selection, fields, levels),
        DataType::List(field) => lists::<i32, i32>(values, selection, field, levels),
        DataType::LargeList(field) if small(out) => {
            lists::<i32, i64>(values, selection, field, levels)
        }
        DataType::LargeList(field) => lists::<i64, i64>(values, selection, field, levels),
        DataType::ListView(field) => list_views::<i32, i32>(values, selection, field, levels),
        DataType::LargeListView(field) if small(out) => {
            list_views::<i32, i64>(values, selection, field, levels)
        }
        DataType::LargeListView(field) => list_views::<i64, i64>(values, selection, field, levels),
        DataType::FixedSizeList(field, size) => {
            fixed_size_lists(values, selection, field, *size, levels)
        }
        DataType::Map(field, ordered) => maps(values, selection, field, *ordered, levels),
        DataType::Union(fields, mode) => unions(values, selection, fields, *mode, levels),
        _ => Err(mixed()),
    }
}

fn structs(
    values: &[&dyn Array],
    selection: &Selection,
    fields: &Fields,
    levels: Levels,
) -> Result<ArrayRef> {
    let nulls = nulls_of(values, selection);
    let arrays = typed::<StructArray>(values)?;
    let column = |(i, field): (usize, &FieldRef)| {
        let below: Option<Vec<&dyn Array>> =
            arrays.iter().map(|array| array.columns().get(i).map(|column| &**column)).collect();
        levels.gather(&below.ok_or_else(mixed)?, selection, field.data_type())
    };
    let columns = fields.iter().enumerate().map(column).collect::<Result<_>>()?;
    let array = StructArray::try_new_with_length(fields.clone(), columns, nulls, selection.len());
    Ok(Arc::new(array.map_err(invalid)?))
}

/// Elements; dictionaries among them as plain values, if the output has none.
fn elements_below<'a>(
    arrays: impl Iterator<Item = &'a ArrayRef>,
    field: &FieldRef,
    levels: Levels,
) -> Result<Vec<Cow<'a, ArrayRef>>> {
    let expands = !is_dictionary(field.data_type());
    let below = |array: &'a ArrayRef| {
        let expands = expands && is_dictionary(array.data_type());
        let plain = if expands { dictionary::plain(array, levels)? } else { None };
        Ok(plain.map_or(Cow::Borrowed(array), Cow::Owned))
    };
    arrays.map(below).collect()
}

fn lists<I: OffsetSizeTrait, O: OffsetSizeTrait>(
    values: &[&dyn Array],
    selection: &Selection,
    field: &FieldRef,
    levels: Levels,
) -> Result<ArrayRef> {
    let nulls = nulls_of(values, selection);
    let arrays = typed::<GenericListArray<I>>(values)?;
    let below = elements_below(arrays.iter().map(|array| array.values()), field, levels)?;
    let below: Vec<&dyn Array> = below.iter().map(|array| &***array).collect();
    let general = || {
        let offsets: Vec<&[I]> = arrays.iter().map(|array| array.value_offsets()).collect();
        let (offsets, taken) = elements(&below, selection, &offsets, O::IS_LARGE, levels)?;
        Ok((offsets, levels.gather(&below, &taken, field.data_type())?))
    };
    let have_nulls = below.iter().any(|array| array.null_count() > 0);
    // Elements of fixed width without nulls are bytes: one pass over the offsets finds and copies
    // them.
    macro_rules! wide {
        ($t:ty) => {{
            let raw = typed::<PrimitiveArray<$t>>(&below)?;
            let sources: Vec<kernel::Texts<'_, I>> = arrays
                .iter()
                .zip(&raw)
                .map(|(array, values)| (array.offsets(), kernel::raw(values)))
                .collect();
            let width = size_of::<<$t as ArrowPrimitiveType>::Native>();
            let max = levels.offset_max(O::IS_LARGE);
            let copied = kernel::elements::<I, O>(&sources, width, selection, max);
            let (offsets, buffer) = copied.ok_or_else(|| overflow("elements of lists"))?;
            Ok((offsets, plain::<$t>(buffer, field.data_type())?))
        }};
    }
    let copied: Result<(OffsetBuffer<O>, ArrayRef)> = if have_nulls {
        general()
    } else {
        downcast_primitive! { field.data_type() => (wide), _ => general() }
    };
    let (offsets, taken) = copied?;
    let array = GenericListArray::<O>::try_new(Arc::clone(field), offsets, taken, nulls);
    Ok(Arc::new(array.map_err(invalid)?))
}

/// The values of `buffer`, without nulls.
fn plain<T: ArrowPrimitiveType>(buffer: Buffer, data_type: &DataType) -> Result<ArrayRef> {
    let count = buffer.len() / size_of::<T::Native>();
    let values = PrimitiveArray::<T>::try_new(ScalarBuffer::new(buffer, 0, count), None);
    Ok(Arc::new(values.map_err(invalid)?.with_data_type(data_type.clone())))
}

/// Offsets of the lists that leave, and their elements.
fn elements<I: OffsetSizeTrait, O: OffsetSizeTrait>(
    below: &[&dyn Array],
    selection: &Selection,
    offsets: &[&[I]],
    is_large: bool,
    levels: Levels,
) -> Result<(OffsetBuffer<O>, Selection<'static>)> {
    let lens = below.iter().map(|array| array.len()).collect();
    let max = levels.offset_max(is_large);
    let found = selection.below::<I, O>(offsets, lens, max)?;
    let (offsets, taken) = found.ok_or_else(|| overflow("elements of lists"))?;
    Ok((kernel::offsets(offsets).ok_or_else(|| broken("lists"))?, taken))
}

fn maps(
    values: &[&dyn Array],
    selection: &Selection,
    field: &FieldRef,
    ordered: bool,
    levels: Levels,
) -> Result<ArrayRef> {
    let nulls = nulls_of(values, selection);
    let arrays = typed::<MapArray>(values)?;
    let below: Vec<&dyn Array> = arrays.iter().map(|array| array.entries() as &dyn Array).collect();
    let offsets: Vec<&[i32]> = arrays.iter().map(|array| array.value_offsets()).collect();
    let (offsets, taken) = elements(&below, selection, &offsets, false, levels)?;
    let entries = levels.gather(&below, &taken, field.data_type())?;
    let entries = entries.as_any().downcast_ref::<StructArray>().ok_or_else(mixed)?.clone();
    let array = MapArray::try_new(Arc::clone(field), offsets, entries, nulls, ordered);
    Ok(Arc::new(array.map_err(invalid)?))
}

fn fixed_size_lists(
    values: &[&dyn Array],
    selection: &Selection,
    field: &FieldRef,
    size: i32,
    levels: Levels,
) -> Result<ArrayRef> {
    let nulls = nulls_of(values, selection);
    let arrays = typed::<FixedSizeListArray>(values)?;
    let each = usize::try_from(size).map_err(|_| mixed())?;
    let below = elements_below(arrays.iter().map(|array| array.values()), field, levels)?;
    let below: Vec<&dyn Array> = below.iter().map(|array| &***array).collect();
    let lens = below.iter().map(|array| array.len()).collect();
    let elements = || {
        let mut children = Children::new(lens).with_room(selection.ranges());
        let each_run = |array, start, len| children.push(array, start * each, len * each);
        selection.try_for_each(each_run)?;
        Ok(children.finish())
    };
    // Lists of numbers are wide values: a row is one copy.
    macro_rules! wide {
        ($t:ty) => {{
            let arrays = typed::<PrimitiveArray<$t>>(&below)?;
            let has_nulls = below.iter().any(|array| array.null_count() > 0);
            let nulls = if has_nulls { nulls_of(&below, &elements()?) } else { None };
            let raw: Vec<_> = arrays.iter().map(|array| kernel::raw(array)).collect();
            let width = each * size_of::<<$t as ArrowPrimitiveType>::Native>();
            let buffer = kernel::fixed(&raw, width, selection);
            let count = selection.len().checked_mul(each).ok_or_else(|| overflow("elements"))?;
            let values = ScalarBuffer::new(buffer, 0, count);
            let taken = PrimitiveArray::<$t>::try_new(values, nulls).map_err(invalid)?;
            Arc::new(taken.with_data_type(field.data_type().clone())) as ArrayRef
        }};
    }
    let taken = downcast_primitive! {
        field.data_type() => (wide),
        _ => levels.gather(&below, &elements()?, field.data_type())?
    };
    let array = FixedSizeListArray::try_new_with_length(
        Arc::clone(field),
        size,
        taken,
        nulls,
        selection.len(),
    );
    Ok(Arc::new(array.map_err(invalid)?))
}

/// Lists that may share elements: they are copied, or taken over whole where that is less.
fn list_views<I: OffsetSizeTrait, O: OffsetSizeTrait>(
    values: &[&dyn Array],
    selection: &Selection,
    field: &FieldRef,
    levels: Levels,
) -> Result<ArrayRef> {
    let nulls = nulls_of(values, selection);
    let arrays = typed::<GenericListViewArray<I>>(values)?;
    let below = elements_below(arrays.iter().map(|array| array.values()), field, levels)?;
    let below: Vec<&dyn Array> = below.iter().map(|array| &***array).collect();
    let lens: Vec<usize> = below.iter().map(|array| array.len()).collect();
    let mut used = vec![false; lens.len()];
    let mut copied = 0_usize;
    selection.try_for_each(|array, start, len| {
        let sizes = arrays.get(array).and_then(|a| a.sizes().get(start..start + len));
        copied += sizes.ok_or_else(mixed)?.iter().map(|size| size.as_usize()).sum::<usize>();
        used[array] = true;
        Ok(())
    })?;
    let whole = lens.iter().zip(&used).filter(|(_, used)| **used).map(|(len, _)| len).sum();

    let share = copied > whole;
    let have_nulls = below.iter().any(|array| array.null_count() > 0);
    if !share && !have_nulls {
        macro_rules! wide {
            ($t:ty) => {{
                let raw = typed::<PrimitiveArray<$t>>(&below)?;
                let sources: Vec<kernel::Views<'_, I>> = arrays
                    .iter()
                    .zip(&raw)
                    .map(|(a, values)| (&a.offsets()[..], &a.sizes()[..], kernel::raw(values)))
                    .collect();
                if copied > levels.offset_max(O::IS_LARGE) {
                    return Err(overflow("elements of lists"));
                }
                let width = size_of::<<$t as ArrowPrimitiveType>::Native>();
                let lists = kernel::list_views::<I, O>(&sources, width, selection, copied);
                let (offsets, sizes, buffer) = lists.ok_or_else(|| broken("lists"))?;
                let taken = plain::<$t>(buffer, field.data_type())?;
                return listed(field, offsets, sizes, taken, nulls);
            }};
        }
        downcast_primitive! { field.data_type() => (wide), _ => {} }
    }
    let mut children = Children::new(lens.clone()).with_room(selection.len());
    let mut bases = Vec::new();
    if share {
        for (array, (len, used)) in lens.iter().zip(&used).enumerate() {
            bases.push(children.len());
            children.push(array, 0, if *used { *len } else { 0 })?;
        }
    }
    let mut offsets: Vec<O> = Vec::with_capacity(selection.len());
    let mut sizes: Vec<O> = Vec::with_capacity(selection.len());
    selection.try_for_each(|array, start, len| {
        let from = arrays.get(array).ok_or_else(mixed)?;
        let rows = from.offsets()[start..start + len].iter().zip(&from.sizes()[start..start + len]);
        for (offset, size) in rows {
            let (offset, size) = (offset.as_usize(), size.as_usize());
            if share {
                offsets.push(O::usize_as(bases[array] + offset));
            } else {
                offsets.push(O::usize_as(children.len()));
                children.push(array, offset, size)?;
            }
            sizes.push(O::usize_as(size));
        }
        Ok(())
    })?;
    if children.len() > levels.offset_max(O::IS_LARGE) {
        return Err(overflow("elements of lists"));
    }
    let taken = levels.gather(&below, &children.finish(), field.data_type())?;
    listed(field, offsets, sizes, taken, nulls)
}

/// Lists that may share elements, out of offsets and sizes.
fn listed<O: OffsetSizeTrait>(
    field: &FieldRef,
    offsets: Vec<O>,
    sizes: Vec<O>,
    taken: ArrayRef,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let (field, offsets, sizes) = (Arc::clone(field), offsets.into(), sizes.into());
    let array = GenericListViewArray::<O>::try_new(field, offsets, sizes, taken, nulls);
    Ok(Arc::new(array.map_err(invalid)?))
}

fn unions(
    values: &[&dyn Array],
    selection: &Selection,
    fields: &UnionFields,
    mode: UnionMode,
    levels: Levels,
) -> Result<ArrayRef> {
    let arrays = typed::<UnionArray>(values)?;
    let ids: Vec<&[u8]> = arrays.iter().map(|a| a.type_ids().inner().as_slice()).collect();
    let ids = kernel::fixed(&ids, size_of::<i8>(), selection);
    let ids = ScalarBuffer::<i8>::new(ids, 0, selection.len());
    if mode == UnionMode::Sparse {
        let column = |(id, field): (i8, &FieldRef)| {
            let below: Vec<&dyn Array> = arrays.iter().map(|array| &**array.child(id)).collect();
            levels.gather(&below, selection, field.data_type())
        };
        let columns = fields.iter().map(column).collect::<Result<Vec<_>>>()?;
        let array = kernel::sparse_union(fields, &ids, &columns).ok_or_else(|| broken("unions"))?;
        return Ok(Arc::new(array));
    }
    let mut children: Vec<Option<Children>> = Vec::new();
    children.resize_with(1 + i8::MAX as usize, || None);
    for (id, _) in fields.iter() {
        let lens = arrays.iter().map(|array| array.child(id).len()).collect();
        let place = usize::try_from(id).ok().and_then(|id| children.get_mut(id));
        *place.ok_or_else(mixed)? = Some(Children::new(lens));
    }
    let mut offsets: Vec<i32> = Vec::with_capacity(selection.len());
    selection.try_for_each(|array, start, len| {
        let from = arrays.get(array).ok_or_else(mixed)?;
        let places = from.offsets().ok_or_else(mixed)?;
        for row in start..start + len {
            let id = usize::try_from(from.type_ids()[row]).map_err(|_| broken("unions"))?;
            let below = children.get_mut(id).and_then(Option::as_mut);
            let below = below.ok_or_else(|| broken("unions"))?;
            let place = usize::try_from(places[row]).map_err(|_| broken("unions"))?;
            if below.len() > levels.small_offset_max {
                return Err(overflow("values of unions"));
            }
            offsets.push(i32::try_from(below.len()).unwrap_or(i32::MAX));
            below.push(array, place, 1)?;
        }
        Ok(())
    })?;
    let column = |(id, field): (i8, &FieldRef)| {
        let below: Vec<&dyn Array> = arrays.iter().map(|array| &**array.child(id)).collect();
        let taken = usize::try_from(id).ok().and_then(|id| children.get_mut(id)?.take());
        levels.gather(&below, &taken.ok_or_else(mixed)?.finish(), field.data_type())
    };
    let columns = fields.iter().map(column).collect::<Result<_>>()?;
    let array = UnionArray::try_new(fields.clone(), ids, Some(offsets.into()), columns);
    Ok(Arc::new(array.map_err(invalid)?))
}
