//! How the values of one field become those of another.
//!
//! ```text
//! struct<y, x: int32>  ─▶  struct<x: int64, y, z>     Struct [ Cast(#1), Same(#0), Null ]
//! list<int32>          ─▶  list<int64>                List  ( Cast )
//! ```
//!
//! # Invariants
//! A plan is a pure function of two types. What stays as it is shares its buffers. Every cast is
//! checked: a value that the other type does not hold exactly is reported with its position, and is never
//! another value. Values that nobody sees, below a null or between the entries of lists, never count.
//!
//! # Cost
//! Lossless casts: one pass and a comparison of null counts. Others: two passes.
//!
//! # Not here
//! Which type it becomes (`unify`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, MapArray, StructArray, new_null_array};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, TimeUnit};

use super::policy::{Allow, SchemaPolicy};
use super::same::members;
use super::supertype::supertype;
use super::unify::{list_item, only_nulls, with_item};
use plait_base::type_text;

/// What becomes of the values of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Convert {
    /// They stay.
    Same,
    /// All are null.
    Null(DataType),
    /// They are cast; `exact`: the type holds them all.
    Cast { to: DataType, exact: bool },
    /// Field by field.
    Struct { fields: Fields, parts: Vec<Member> },
    /// Item by item, then to another layout.
    List { to: DataType, item: Box<Convert> },
    /// Keys and values.
    Map { to: DataType, key: Box<Convert>, value: Box<Convert> },
}

/// One field of a struct: from which it is made, if any, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    from: Option<usize>,
    convert: Convert,
    /// Nulls are refused, because they may come and must not.
    never_null: bool,
}

impl Convert {
    /// Whether there is nothing for the member at `path`.
    pub(super) fn lacks(&self, path: &[usize]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        match self {
            Self::Struct { parts, .. } => parts
                .get(*first)
                .is_some_and(|part| part.from.is_none() || part.convert.lacks(rest)),
            _ => false,
        }
    }
}

/// A value that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    pub(super) row: usize,
    /// Path below the field.
    pub(super) path: String,
    pub(super) value: String,
}

/// What a plan may do.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) policy: &'a SchemaPolicy,
    /// Fields that the target has no place for are refused.
    pub(super) refuse_extra: bool,
}

/// Why a field does not become another: the path below it, what the source has.
pub(super) type Refusal = (String, String);

impl Rules<'_> {
    /// How `from` becomes `to`.
    pub(super) fn plan(&self, from: &DataType, to: &DataType) -> Result<Convert, Refusal> {
        use DataType as T;
        if from == to {
            return Ok(Convert::Same);
        }
        if only_nulls(from) {
            return Ok(Convert::Null(to.clone()));
        }
        let lossy = self.policy.lossy;
        let refused = || (String::new(), from.to_string());
        match (from, to) {
            (T::Struct(old), T::Struct(new)) => return self.structs(old, new),
            (T::Map(old, _), T::Map(new, _)) => {
                let pair = |entries: &FieldRef| match entries.data_type() {
                    T::Struct(f) => Some((f.first()?.clone(), f.get(1)?.clone())),
                    _ => None,
                };
                let (Some((k, v)), Some((key, value))) = (pair(old), pair(new)) else {
                    return Err(refused());
                };
                let key = Box::new(self.plan(k.data_type(), key.data_type())?);
                self.nullable(&v, &value)?;
                let value = Box::new(self.plan(v.data_type(), value.data_type())?);
                return Ok(Convert::Map { to: to.clone(), key, value });
            }
            _ => {}
        }
        if let (Some(old), Some(new)) = (list_item(from), list_item(to)) {
            let item = Box::new(self.plan(old.data_type(), new.data_type())?);
            self.nullable(old, new)?;
            if !can_cast_types(&with_item(from, Arc::clone(new)), to) {
                return Err(refused());
            }
            return Ok(Convert::List { to: to.clone(), item });
        }
        if from.is_nested() || to.is_nested() {
            return if lossy == Allow::Null {
                Ok(Convert::Null(to.clone()))
            } else {
                Err(refused())
            };
        }
        let exact = supertype(from, to).as_ref() == Some(to);
        let zones = matches!((from, to), (T::Timestamp(_, a), T::Timestamp(_, b)) if a.is_some() != b.is_some());
        let allowed = exact
            || if zones {
                self.policy.zone == Allow::Cast
            } else {
                matches!(lossy, Allow::Cast | Allow::Null)
            };
        let possible = || match (from, to) {
            (T::Timestamp(..), T::Timestamp(..)) => true,
            _ => can_cast_types(from, to),
        };
        if allowed && possible() {
            return Ok(Convert::Cast { to: to.clone(), exact });
        }
        if lossy == Allow::Null { Ok(Convert::Null(to.clone())) } else { Err(refused()) }
    }

    fn structs(&self, old: &Fields, new: &Fields) -> Result<Convert, Refusal> {
        let mut used = vec![false; old.len()];
        let mut parts = Vec::with_capacity(new.len());
        for (field, place) in new.iter().zip(members(old, new, self.policy)) {
            let below = |(path, says): Refusal| match path.as_str() {
                "" => (field.name().clone(), says),
                path => (format!("{}.{path}", field.name()), says),
            };
            let Some(from) = place else {
                if !field.is_nullable() {
                    return Err((field.name().clone(), "absent".to_owned()));
                }
                let convert = Convert::Null(field.data_type().clone());
                parts.push(Member { from: None, convert, never_null: false });
                continue;
            };
            if let (Some(used), Some(of)) = (used.get_mut(from), old.get(from)) {
                *used = true;
                let never_null = self.nullable(of, field).map_err(below)?;
                let convert = self.plan(of.data_type(), field.data_type()).map_err(below)?;
                parts.push(Member { from: Some(from), convert, never_null });
            }
        }
        if self.refuse_extra
            && let Some((field, _)) = old.iter().zip(&used).find(|(_, used)| !**used)
        {
            return Err((
                field.name().clone(),
                format!("a field of type {}", type_text(field.data_type())),
            ));
        }
        let same = old == new && parts.iter().enumerate().all(|(i, part)| part.is_take(i));
        Ok(if same { Convert::Same } else { Convert::Struct { fields: new.clone(), parts } })
    }

    /// Whether nulls may come where none may be.
    pub(super) fn nullable(&self, from: &Field, to: &Field) -> Result<bool, Refusal> {
        let may_come = from.is_nullable() || only_nulls(from.data_type());
        if to.is_nullable() || !may_come {
            return Ok(false);
        }
        if self.policy.nullability == Allow::Cast {
            Ok(true)
        } else {
            Err((String::new(), "nullable".to_owned()))
        }
    }
}

impl Member {
    fn is_take(&self, at: usize) -> bool {
        self.from == Some(at) && self.convert == Convert::Same && !self.never_null
    }
}

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

    /// Whether nothing but nulls of the null type gets another type, and all stays in its place; `from`
    /// is what it is planned for.
    pub(super) fn only_fills(&self, from: &DataType) -> bool {
        use DataType as T;
        match (self, from) {
            (Self::Same | Self::Null(_), _) => true,
            (Self::Struct { fields, parts }, T::Struct(old)) => {
                old.len() == parts.len()
                    && parts.iter().zip(fields).zip(old).enumerate().all(
                        |(i, ((part, new), old))| {
                            part.from == Some(i)
                                && new.name() == old.name()
                                && part.convert.only_fills(old.data_type())
                        },
                    )
            }
            (Self::List { to, item }, from) => match (list_item(from), list_item(to)) {
                (Some(old), Some(new)) => {
                    with_item(from, Arc::clone(new)) == *to && item.only_fills(old.data_type())
                }
                _ => false,
            },
            (Self::Map { to: T::Map(_, sorted), key, value }, T::Map(entries, own)) => {
                let T::Struct(pair) = entries.data_type() else { return false };
                let [k, v] = &pair[..] else { return false };
                sorted == own && key.only_fills(k.data_type()) && value.only_fills(v.data_type())
            }
            _ => false,
        }
    }

    /// One or two words for people.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Same => "take",
            Self::Null(_) => "null",
            Self::Cast { exact: true, .. } => "cast",
            Self::Cast { .. } => "checked cast",
            Self::Struct { .. } => "adapt struct",
            Self::List { .. } => "adapt list",
            Self::Map { .. } => "adapt map",
        }
    }
}

fn cast(
    array: &ArrayRef,
    to: &DataType,
    exact: bool,
    misfits: &mut Vec<Misfit>,
) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let there = |array: &ArrayRef, to: &DataType| match (array.data_type(), to) {
        (DataType::Timestamp(_, zone), DataType::Timestamp(unit, other)) if zone != other => {
            // Instants stay the same, so the zone is only a label.
            let same = DataType::Timestamp(*unit, zone.clone());
            relabel(&cast_with_options(array, &same, &options)?, other.clone())
        }
        // Other types receive instants in UTC, written as an offset: names of zones need a database.
        (DataType::Timestamp(_, Some(_)), to) if !matches!(to, DataType::Timestamp(..)) => {
            cast_with_options(&relabel(array, Some("+00:00".into()))?, to, &options)
        }
        (from, DataType::Timestamp(unit, Some(zone)))
            if !matches!(from, DataType::Timestamp(..)) =>
        {
            let offset = DataType::Timestamp(*unit, Some("+00:00".into()));
            relabel(&cast_with_options(array, &offset, &options)?, Some(Arc::clone(zone)))
        }
        _ => cast_with_options(array, to, &options),
    };
    let made = there(array, to)?;
    let lost = made.logical_null_count() != array.logical_null_count();
    if exact && !lost {
        return Ok(made);
    }
    let (before, after) = (array.logical_nulls(), made.logical_nulls());
    let null =
        |nulls: &Option<arrow_buffer::NullBuffer>, i| nulls.as_ref().is_some_and(|n| n.is_null(i));
    let mut bad: Vec<usize> =
        (0..array.len()).filter(|i| null(&after, *i) && !null(&before, *i)).collect();
    if !exact {
        let back = there(&made, array.data_type())?;
        let plain = |array: &ArrayRef| match array.data_type() {
            DataType::Dictionary(_, values) => cast_with_options(array, values, &options),
            _ => Ok(Arc::clone(array)),
        };
        let same = arrow_ord::cmp::not_distinct(&plain(array)?, &plain(&back)?)?;
        bad.extend((0..array.len()).filter(|i| !same.value(*i)));
        bad.sort_unstable();
        bad.dedup();
    }
    if bad.is_empty() {
        return Ok(made);
    }
    let shown = match array.data_type() {
        DataType::Timestamp(_, Some(_)) => relabel(array, None)?,
        _ => Arc::clone(array),
    };
    let formatter = ArrayFormatter::try_new(&shown, &FormatOptions::default())?;
    // A time too far away to be written as one is written as its number.
    let number = |row: usize| -> Result<String, ArrowError> {
        let number = cast_with_options(&shown.slice(row, 1), &DataType::Int64, &options)?;
        ArrayFormatter::try_new(&number, &FormatOptions::default())?.value(0).try_to_string()
    };
    for row in &bad {
        let shown = formatter.value(*row).try_to_string();
        let value = shown.or_else(|_| number(*row))?;
        misfits.push(Misfit { row: *row, path: String::new(), value });
    }
    let mut kept = arrow_buffer::BooleanBufferBuilder::new(array.len());
    kept.append_n(array.len(), true);
    for row in bad {
        kept.set_bit(row, false);
    }
    let mask = arrow_array::BooleanArray::new(!&kept.finish(), None);
    arrow_select::nullif::nullif(&made, &mask)
}

fn relabel(array: &ArrayRef, zone: Option<Arc<str>>) -> Result<ArrayRef, ArrowError> {
    let DataType::Timestamp(unit, _) = array.data_type() else { return Ok(Arc::clone(array)) };
    Ok(match unit {
        TimeUnit::Second => {
            Arc::new(array.as_primitive::<TimestampSecondType>().clone().with_timezone_opt(zone))
        }
        TimeUnit::Millisecond => Arc::new(
            array.as_primitive::<TimestampMillisecondType>().clone().with_timezone_opt(zone),
        ),
        TimeUnit::Microsecond => Arc::new(
            array.as_primitive::<TimestampMicrosecondType>().clone().with_timezone_opt(zone),
        ),
        TimeUnit::Nanosecond => Arc::new(
            array.as_primitive::<TimestampNanosecondType>().clone().with_timezone_opt(zone),
        ),
    })
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
