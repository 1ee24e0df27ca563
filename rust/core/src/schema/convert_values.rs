//! The values of one field as those of another, as it was planned.
//!
//! # Invariants
//! What stays as it is shares its buffers. Values that nobody sees, below a null or between the
//! entries of lists, never count as misfits.
//!
//! # Cost
//! That of the casts (`cast`); structs, lists and maps are taken apart and put together, not copied.
//!
//! # Not here
//! What becomes of a field (`convert`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, MapArray, StructArray, new_null_array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};

use super::cast::{Misfit, cast};
use super::convert::{Convert, Member};
use super::unify::{list_item, with_item};

impl Convert {
    /// The values of `array` converted; those that do not fit are null and reported.
    pub(super) fn run(
        &self,
        array: &ArrayRef,
        misfits: &mut Vec<Misfit>,
    ) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Same => Ok(Arc::clone(array)),
            Self::Null(to) => Ok(new_null_array(to, array.len())),
            Self::Cast { to, exact } => cast(array, to, *exact, misfits),
            Self::Struct { fields, parts } => structs(array, fields, parts, misfits),
            Self::List { to, item } => list(array, to, item, misfits),
            Self::Map { to, key, value } => map(array, to, key, value, misfits),
        }
    }
}

fn structs(
    array: &ArrayRef,
    fields: &Fields,
    parts: &[Member],
    misfits: &mut Vec<Misfit>,
) -> Result<ArrayRef, ArrowError> {
    let structs = array.as_struct();
    let mut columns = Vec::with_capacity(parts.len());
    for (part, field) in parts.iter().zip(fields) {
        let Some(from) = part.from else {
            columns.push(new_null_array(field.data_type(), array.len()));
            continue;
        };
        let mut found = Vec::new();
        let column = part.convert.run(structs.column(from), &mut found)?;
        if part.never_null {
            nulls_of(&column, &mut found);
        }
        for mut misfit in found {
            if structs.is_valid(misfit.row) {
                misfit.path = format!(".{}{}", field.name(), misfit.path);
                misfits.push(misfit);
            }
        }
        columns.push(column);
    }
    let nulls = structs.nulls().cloned();
    if fields.is_empty() {
        return Ok(Arc::new(StructArray::new_empty_fields(array.len(), nulls)));
    }
    // Misfits may leave nulls where none may be: then the caller refuses the batch.
    let fit = |(f, c): (&FieldRef, &ArrayRef)| f.is_nullable() && holds(f, c);
    let loose = if misfits.is_empty() || fields.iter().zip(&columns).all(fit) {
        fields.clone()
    } else {
        fields.iter().zip(&columns).map(|(f, c)| loosened(f, c)).collect()
    };
    Ok(Arc::new(StructArray::try_new(loose, columns, nulls)?))
}

/// Whether the values are of the field's type, without nulls where there must be none.
fn holds(field: &Field, values: &ArrayRef) -> bool {
    values.data_type() == field.data_type()
        && (field.is_nullable() || values.logical_null_count() == 0)
}

/// Nulls of a column that must have none, as values that do not fit.
pub(super) fn nulls_of(column: &ArrayRef, misfits: &mut Vec<Misfit>) {
    if let Some(nulls) = column.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        let rows = (0..column.len()).filter(|row| nulls.is_null(*row));
        misfits.extend(rows.map(|row| Misfit {
            row,
            path: String::new(),
            value: "null".to_owned(),
        }));
    }
}

fn list(
    array: &ArrayRef,
    to: &DataType,
    item: &Convert,
    misfits: &mut Vec<Misfit>,
) -> Result<ArrayRef, ArrowError> {
    use arrow_array::{FixedSizeListArray, GenericListArray, GenericListViewArray};
    let Some(field) = list_item(to) else { return Ok(Arc::clone(array)) };
    let mut found = Vec::new();
    // The same layout with other items; then, where it differs, the other layout.
    macro_rules! rebuild {
        ($list:expr, $make:expr) => {{
            let list = $list;
            let values = item.run(list.values(), &mut found)?;
            let fits = holds(field, &values) || found.is_empty();
            let loose = if fits { Arc::clone(field) } else { loosened(field, &values) };
            let made: ArrayRef = Arc::new($make(list, loose, values)?);
            made
        }};
    }
    let made = match array.data_type() {
        DataType::List(_) => rebuild!(array.as_list::<i32>(), |l: &GenericListArray<i32>, f, v| {
            GenericListArray::try_new(f, l.offsets().clone(), v, l.nulls().cloned())
        }),
        DataType::LargeList(_) => {
            rebuild!(array.as_list::<i64>(), |l: &GenericListArray<i64>, f, v| {
                GenericListArray::try_new(f, l.offsets().clone(), v, l.nulls().cloned())
            })
        }
        DataType::FixedSizeList(..) => {
            rebuild!(array.as_fixed_size_list(), |l: &FixedSizeListArray, f, v| {
                FixedSizeListArray::try_new(f, l.value_length(), v, l.nulls().cloned())
            })
        }
        DataType::ListView(_) => {
            rebuild!(array.as_list_view::<i32>(), |l: &GenericListViewArray<i32>, f, v| {
                let (offsets, sizes) = (l.offsets().clone(), l.sizes().clone());
                GenericListViewArray::try_new(f, offsets, sizes, v, l.nulls().cloned())
            })
        }
        _ => rebuild!(array.as_list_view::<i64>(), |l: &GenericListViewArray<i64>, f, v| {
            let (offsets, sizes) = (l.offsets().clone(), l.sizes().clone());
            GenericListViewArray::try_new(f, offsets, sizes, v, l.nulls().cloned())
        }),
    };
    if !found.is_empty() {
        let ranges: Vec<(usize, usize)> = (0..array.len())
            .map(|row| entry_range(array, row).filter(|_| array.is_valid(row)).unwrap_or_default())
            .collect();
        misfits.extend(seen_in(&ranges, found, "[]"));
    }
    let same = std::mem::discriminant(made.data_type()) == std::mem::discriminant(to);
    if same { Ok(made) } else { arrow_cast::cast(&made, &with_item(to, item_of(&made, field))) }
}

fn item_of(list: &ArrayRef, otherwise: &FieldRef) -> FieldRef {
    list_item(list.data_type()).map_or_else(|| Arc::clone(otherwise), Arc::clone)
}

fn loosened(field: &FieldRef, values: &ArrayRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(values.data_type().clone()).with_nullable(true))
}

/// Where the entries of one row lie among all.
fn entry_range(array: &ArrayRef, row: usize) -> Option<(usize, usize)> {
    fn range<T: TryInto<usize>>(start: T, end: T) -> Option<(usize, usize)> {
        Some((start.try_into().ok()?, end.try_into().ok()?))
    }
    match array.data_type() {
        DataType::List(_) => {
            let offsets = array.as_list::<i32>().offsets();
            range(*offsets.get(row)?, *offsets.get(row + 1)?)
        }
        DataType::LargeList(_) => {
            let offsets = array.as_list::<i64>().offsets();
            range(*offsets.get(row)?, *offsets.get(row + 1)?)
        }
        DataType::FixedSizeList(_, n) => {
            let n = usize::try_from(*n).ok()?;
            Some((row * n, row * n + n))
        }
        DataType::ListView(_) => {
            let list = array.as_list_view::<i32>();
            let start = *list.offsets().get(row)?;
            range(start, start + *list.sizes().get(row)?)
        }
        DataType::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            let start = *list.offsets().get(row)?;
            range(start, start + *list.sizes().get(row)?)
        }
        DataType::Map(..) => {
            let offsets = array.as_map().offsets();
            range(*offsets.get(row)?, *offsets.get(row + 1)?)
        }
        _ => None,
    }
}

/// Misfits among entries as misfits of the rows that hold them; others nobody sees.
fn seen_in<'a>(
    ranges: &'a [(usize, usize)],
    found: Vec<Misfit>,
    step: &'a str,
) -> impl Iterator<Item = Misfit> + 'a {
    found.into_iter().filter_map(move |misfit| {
        let row = ranges.iter().position(|(start, end)| (*start..*end).contains(&misfit.row))?;
        Some(Misfit { row, path: format!("{step}{}", misfit.path), ..misfit })
    })
}

fn map(
    array: &ArrayRef,
    to: &DataType,
    key: &Convert,
    value: &Convert,
    misfits: &mut Vec<Misfit>,
) -> Result<ArrayRef, ArrowError> {
    let (map, DataType::Map(entries, sorted)) = (array.as_map(), to) else {
        return Ok(Arc::clone(array));
    };
    let DataType::Struct(fields) = entries.data_type() else { return Ok(Arc::clone(array)) };
    let (mut in_keys, mut in_values) = (Vec::new(), Vec::new());
    let keys = key.run(map.keys(), &mut in_keys)?;
    let values = value.run(map.values(), &mut in_values)?;
    let fit = fields.iter().zip([&keys, &values]).all(|(f, v)| holds(f, v));
    let shown = !in_keys.is_empty() || !in_values.is_empty();
    let broken = shown && !fit;
    let ranges: Vec<(usize, usize)> = (0..array.len())
        .map(|row| entry_range(array, row).filter(|_| array.is_valid(row)).unwrap_or_default())
        .collect();
    misfits.extend(seen_in(&ranges, in_keys, ".key"));
    misfits.extend(seen_in(&ranges, in_values, ".value"));
    let (fields, entries) = if broken {
        let loose: Fields =
            fields.iter().zip([&keys, &values]).map(|(f, v)| loosened(f, v)).collect();
        let ty = DataType::Struct(loose.clone());
        (loose, Arc::new(entries.as_ref().clone().with_data_type(ty)))
    } else {
        (fields.clone(), Arc::clone(entries))
    };
    let pairs = StructArray::try_new(fields, vec![keys, values], None)?;
    let made =
        MapArray::try_new(entries, map.offsets().clone(), pairs, map.nulls().cloned(), *sorted)?;
    Ok(Arc::new(made))
}
