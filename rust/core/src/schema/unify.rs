//! One field that holds what many sources call by one name.
//!
//! ```text
//! m: struct<x: int32>            in a.parquet ─┐
//! m: struct<y: utf8, x: int64>   in b.parquet ─┼─▶ m: struct<x: int64, y: utf8?>
//! nothing                        in c.parquet ─┘   nullable, because c.parquet has none
//! ```
//!
//! # Invariants
//! Types are taken from the whole set at once, structs by name, lists and maps by place, leaves from
//! the closed table ([`supertype`]). What does not go together is collected, and the walk goes on, so
//! that all conflicts are reported at once. Variants come in the order of their sources' names; only the
//! order of struct fields depends on it.
//!
//! # Cost
//! Linear in the fields of the distinct schemas.
//!
//! # Not here
//! Which columns are asked for (`projection`), given schemas (`freeze`), values (`convert`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Metadata, TimeUnit};

use super::conflict::{self, Conflict};
use super::policy::{Allow, SchemaPolicy};
use super::same::{FIELD_ID, by_id, id_of, key_of};
use super::summary::{MEANING, SAYS};
use super::supertype::supertype;
use plait_base::type_text;

/// What one class of sources has.
#[derive(Clone, Copy)]
pub(super) struct Variant<'a> {
    /// Index of the class, in the order of names.
    pub(super) class: usize,
    pub(super) field: &'a Field,
}

/// The class of the given schema, which is none of the sources'.
pub(super) const GIVEN: usize = usize::MAX;

/// A class that lacks a field its parent could have.
#[derive(Clone, Copy)]
pub(super) struct Absent {
    pub(super) class: usize,
    /// Whether rows come of it, which are null then.
    pub(super) has_rows: bool,
}

pub(super) struct Unifier<'a> {
    pub(super) policy: &'a SchemaPolicy,
    /// Names of the classes' first sources.
    pub(super) names: &'a [String],
    pub(super) conflicts: Vec<Conflict>,
    path: Vec<String>,
}

impl<'a> Unifier<'a> {
    pub(super) fn new(policy: &'a SchemaPolicy, names: &'a [String]) -> Self {
        Self { policy, names, conflicts: Vec::new(), path: Vec::new() }
    }

    /// The field that holds `variants`; `None` when it is left out or in conflict.
    ///
    /// `fill` says what becomes of a field that a source lacks.
    pub(super) fn field(
        &mut self,
        variants: &[Variant<'_>],
        absent: &[Absent],
        fill: Allow,
    ) -> Option<FieldRef> {
        let first = variants.first()?;
        self.path.push(first.field.name().clone());
        let field = self.inside(first, variants, absent, fill);
        self.path.pop();
        field
    }

    fn inside(
        &mut self,
        first: &Variant<'_>,
        variants: &[Variant<'_>],
        absent: &[Absent],
        fill: Allow,
    ) -> Option<FieldRef> {
        match (absent.first(), fill) {
            (Some(_), Allow::Drop) => return None,
            (Some(absent), Allow::Error) => {
                let sides = [(first.class, says(first.field)), (absent.class, "absent".to_owned())];
                self.conflict(sides, conflict::MISSING);
                return None;
            }
            _ => {}
        }
        let loose = variants.iter().find(|v| v.field.is_nullable());
        let tight = variants.iter().find(|v| !v.field.is_nullable());
        if let (Some(a), Some(b), Allow::Error) = (loose, tight, self.policy.nullability) {
            let sides = [(a.class, "nullable".to_owned()), (b.class, "not null".to_owned())];
            self.conflict(sides, "differs in whether it may be null");
        }
        let ty = self.data_type(variants)?;
        let nulls = variants.iter().any(|v| only_nulls(v.field.data_type()));
        let shapeless =
            self.policy.lossy == Allow::Null && variants.iter().any(|v| *v.field.data_type() != ty);
        let nullable =
            loose.is_some() || nulls || shapeless || absent.iter().any(|absent| absent.has_rows);
        if variants.len() == 1
            && *first.field.data_type() == ty
            && first.field.is_nullable() == nullable
        {
            return Some(Arc::new(first.field.clone()));
        }
        let metadata = variants
            .iter()
            .skip(1)
            .fold(first.field.metadata().clone(), |all, v| common(&all, v.field.metadata()));
        Some(Arc::new(Field::new(first.field.name(), ty, nullable).with_metadata(metadata)))
    }

    /// The type that holds all types; `None` when left out or in conflict.
    fn data_type(&mut self, all: &[Variant<'_>]) -> Option<DataType> {
        use DataType as T;
        let known: Vec<_> =
            all.iter().copied().filter(|v| !only_nulls(v.field.data_type())).collect();
        let Some((&first, rest)) = known.split_first() else {
            let ty = |v: &Variant<'_>| v.field.data_type().clone();
            let same = all.first().filter(|a| all.iter().all(|b| ty(a) == ty(b)));
            return Some(same.map_or(T::Null, ty));
        };
        let nulls = all.iter().find(|v| only_nulls(v.field.data_type()));
        if let (Some(nulls), Allow::Error) = (nulls, self.policy.widen) {
            self.differ(first, *nulls, conflict::WIDENED);
            return None;
        }
        let meaning = |v: &Variant<'_>| v.field.metadata().get(MEANING).cloned();
        if let Some(odd) = rest.iter().find(|v| meaning(v) != meaning(&first)) {
            self.unlike(first, *odd);
            return None;
        }
        if rest.iter().all(|v| v.field.data_type() == first.field.data_type()) {
            return Some(first.field.data_type().clone());
        }
        if let Some(structs) = all_of(&known, |ty| match ty {
            T::Struct(fields) => Some(fields),
            _ => None,
        }) {
            return Some(T::Struct(self.structs(&structs)));
        }
        if let Some(items) = all_of(&known, list_item) {
            let item = self.placed(&items, Field::LIST_FIELD_DEFAULT_NAME)?;
            let hollow: Vec<_> =
                known.iter().map(|v| with_item(v.field.data_type(), hollow())).collect();
            let layout = hollow.iter().try_fold(T::Null, |a, b| supertype(&a, b))?;
            return Some(with_item(&layout, item));
        }
        if let Some(entries) = all_of(&known, |ty| match ty {
            T::Map(entries, sorted) => Some((entries, *sorted)),
            _ => None,
        }) {
            return self.maps(&entries);
        }
        self.leaves(&known)
    }

    fn structs(&mut self, structs: &[(usize, &Fields)]) -> Fields {
        let mut order: Vec<Vec<Variant<'_>>> = Vec::new();
        let mut place: HashMap<String, usize> = HashMap::new();
        let by_id = by_id(structs.iter().map(|(_, fields)| *fields));
        for (class, fields) in structs {
            for field in *fields {
                let at = *place.entry(key_of(field, self.policy, by_id)).or_insert_with(|| {
                    order.push(Vec::new());
                    order.len() - 1
                });
                if let Some(variants) = order.get_mut(at) {
                    if variants.last().is_some_and(|last| last.class == *class) {
                        self.path.push(field.name().clone());
                        self.twice(*class);
                        self.path.pop();
                        continue;
                    }
                    variants.push(Variant { class: *class, field });
                }
            }
        }
        if by_id {
            let firsts = order.iter().filter_map(|variants| variants.first());
            let named = firsts.map(|v| (v.field.name().clone(), *v)).collect();
            self.one_name_each(named);
        }
        let mut fields = Vec::with_capacity(order.len());
        for variants in order {
            let absent: Vec<Absent> = structs
                .iter()
                .filter(|(class, _)| variants.iter().all(|v| v.class != *class))
                // Structs without rows are rare; a field that may be null loses nothing.
                .map(|(class, _)| Absent { class: *class, has_rows: true })
                .collect();
            fields.extend(self.field(&variants, &absent, self.policy.struct_field));
        }
        if !by_id {
            self.remove_vague_ids(&mut fields, structs);
        }
        fields.into()
    }

    /// Removes ids by which a source, looked at alone, would match another field than its name says.
    fn remove_vague_ids(&self, fields: &mut [FieldRef], structs: &[(usize, &Fields)]) {
        for field in fields {
            let (name, id) = (self.policy.key(field.name()), id_of(field));
            let is_other = |of: &FieldRef| id_of(of) == id && self.policy.key(of.name()) != name;
            if id.is_some() && structs.iter().any(|(_, all)| all.iter().any(&is_other)) {
                Arc::make_mut(field).metadata_mut().remove(FIELD_ID);
            }
        }
    }

    /// Items of lists, keys and values of maps: one field by its place, whatever its name.
    fn placed(&mut self, fields: &[(usize, &FieldRef)], name: &str) -> Option<FieldRef> {
        let variants: Vec<_> =
            fields.iter().map(|(class, field)| Variant { class: *class, field }).collect();
        let field = self.field(&variants, &[], Allow::Null)?;
        if fields.iter().all(|(_, f)| f.name() == field.name()) {
            return Some(field);
        }
        Some(Arc::new(field.as_ref().clone().with_name(name)))
    }

    fn maps(&mut self, maps: &[(usize, (&FieldRef, bool))]) -> Option<DataType> {
        let mut keys = Vec::new();
        let mut values = Vec::new();
        for (class, (entries, _)) in maps {
            let DataType::Struct(fields) = entries.data_type() else { return None };
            let [key, value] = &fields[..] else { return None };
            keys.push((*class, key));
            values.push((*class, value));
        }
        let (_, (first, _)) = maps.first()?;
        let both = [self.placed(&keys, "key")?, self.placed(&values, "value")?];
        let same_name = maps.iter().all(|(_, (entries, _))| entries.name() == first.name());
        let entries = Field::new(
            if same_name { first.name() } else { "entries" },
            DataType::Struct(both.to_vec().into()),
            false,
        );
        Some(DataType::Map(Arc::new(entries), maps.iter().all(|(_, (_, sorted))| *sorted)))
    }

    fn leaves(&mut self, known: &[Variant<'_>]) -> Option<DataType> {
        let &first = known.first()?;
        let ty = |v: &Variant<'_>| v.field.data_type().clone();
        let mut all = ty(&first);
        for &next in known {
            if let Some(both) = supertype(&all, next.field.data_type()) {
                all = both;
                continue;
            }
            let loosely = self.loosely(known);
            if loosely.is_some() {
                return loosely;
            }
            let zones = known.iter().any(|v| is_zoned(v.field.data_type()))
                && known.iter().any(|v| is_naive(v.field.data_type()));
            if [self.policy.lossy, if zones { self.policy.zone } else { Allow::Error }]
                .contains(&Allow::Drop)
            {
                return None;
            }
            // The one it does not go with, or the last of those that it does not go with together.
            let mut before = known.iter().take_while(|v| v.class != next.class);
            let other = before.find(|v| supertype(v.field.data_type(), &ty(&next)).is_none());
            self.unlike(*other.unwrap_or(&first), next);
            return None;
        }
        if known.iter().any(|v| ty(v) != all) {
            match self.policy.widen {
                Allow::Drop => return None,
                Allow::Error => {
                    let odd = known.iter().find(|v| ty(v) != ty(&first));
                    self.differ(first, *odd.unwrap_or(&first), conflict::WIDENED);
                    return None;
                }
                _ => {}
            }
        }
        Some(all)
    }

    /// A type for types that do not go together, if the policy allows to lose or to check values.
    fn loosely(&self, known: &[Variant<'_>]) -> Option<DataType> {
        use DataType as T;
        let zone = self.policy.zone == Allow::Cast;
        let lossy = matches!(self.policy.lossy, Allow::Cast | Allow::Null);
        let types: Vec<&DataType> = known.iter().map(|v| plain(v.field.data_type())).collect();
        let any = |test: fn(&DataType) -> bool| types.iter().any(|ty| test(ty));
        let every = |test: fn(&DataType) -> bool| types.iter().all(|ty| test(ty));
        if every(is_instant) && (lossy || !any(T::is_date_like)) {
            let zoned = any(is_zoned);
            if zoned && any(|ty| !is_zoned(ty)) && !zone {
                return None;
            }
            let unit = |ty: &&DataType| match ty {
                T::Timestamp(unit, _) => Some(*unit),
                T::Date64 => Some(TimeUnit::Millisecond),
                _ => Some(TimeUnit::Second),
            };
            let unit = types.iter().filter_map(unit).max()?;
            return Some(T::Timestamp(unit, zoned.then(|| "UTC".into())));
        }
        if !lossy {
            return None;
        }
        if every(|ty| ty.is_numeric()) {
            if any(DataType::is_floating) {
                return Some(T::Float64);
            }
            if every(DataType::is_integer) {
                return Some(T::Int64);
            }
            let digits =
                |ty: &&DataType| if ty.is_integer() { T::Decimal128(20, 0) } else { (*ty).clone() };
            let all: Vec<DataType> = types.iter().map(digits).collect();
            return all.iter().try_fold(T::Null, |a, b| supertype(&a, b));
        }
        let scalar = |ty: &DataType| !ty.is_nested();
        if any(is_text) && types.iter().all(|ty| scalar(ty)) {
            return Some(if any(|ty| matches!(ty, T::LargeUtf8 | T::LargeBinary)) {
                T::LargeUtf8
            } else {
                T::Utf8
            });
        }
        // What cannot be cast at all: the first says what it is, the others are null.
        (self.policy.lossy == Allow::Null).then(|| known[0].field.data_type().clone())
    }

    fn differ(&mut self, a: Variant<'_>, b: Variant<'_>, why: &'static str) {
        self.conflict([a, b].map(|v| (v.class, says(v.field))), why);
    }

    /// Types or shapes that no type holds together.
    fn unlike(&mut self, a: Variant<'_>, b: Variant<'_>) {
        let nested = [a, b].iter().any(|v| v.field.data_type().is_nested());
        self.differ(a, b, if nested { conflict::SHAPES } else { conflict::TYPES });
    }

    /// Refuses fields that are different by their ids and one by their names.
    pub(super) fn one_name_each(&mut self, fields: Vec<(String, Variant<'_>)>) {
        let mut known: HashMap<String, Variant<'_>> = HashMap::new();
        for (name, first) in fields {
            let Some(other) = known.insert(self.policy.key(&name), first) else { continue };
            let sides = [other, first].map(|v| {
                let id = id_of(v.field).unwrap_or_default();
                (v.class, format!("field id {id}"))
            });
            self.conflict_of(&name, sides, conflict::IDS);
        }
    }

    pub(super) fn twice(&mut self, class: usize) {
        let side = (class, "one".to_owned());
        let other = (class, "another".to_owned());
        self.conflict([side, other], conflict::TWICE);
    }

    pub(super) fn conflict(&mut self, sides: [(usize, String); 2], why: &'static str) {
        let name = |class: usize| match self.names.get(class) {
            Some(name) => name.clone(),
            None => "the given schema".to_owned(),
        };
        let sides = sides.map(|(class, says)| (says, name(class)));
        self.conflicts.push(Conflict { column: self.path.join("."), why, sides });
    }

    /// Tells a conflict of a top-level column.
    pub(super) fn conflict_of(
        &mut self,
        column: &str,
        sides: [(usize, String); 2],
        why: &'static str,
    ) {
        self.path.push(column.to_owned());
        self.conflict(sides, why);
        self.path.pop();
    }
}

/// A field's type in words.
pub(super) fn says(field: &Field) -> String {
    field.metadata().get(SAYS).map_or_else(|| type_text(field.data_type()), ToString::to_string)
}

/// What `take` finds in each, if in all.
fn all_of<'t, T>(
    variants: &[Variant<'t>],
    take: impl Fn(&'t DataType) -> Option<T>,
) -> Option<Vec<(usize, T)>> {
    variants.iter().map(|v| Some((v.class, take(v.field.data_type())?))).collect()
}

/// The item of a list of any layout.
pub(super) fn list_item(ty: &DataType) -> Option<&FieldRef> {
    use DataType as T;
    match ty {
        T::List(item)
        | T::LargeList(item)
        | T::ListView(item)
        | T::LargeListView(item)
        | T::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

/// The same layout of a list with another item.
pub(super) fn with_item(list: &DataType, item: FieldRef) -> DataType {
    use DataType as T;
    match list {
        T::LargeList(_) => T::LargeList(item),
        T::ListView(_) => T::ListView(item),
        T::LargeListView(_) => T::LargeListView(item),
        T::FixedSizeList(_, n) => T::FixedSizeList(item, *n),
        _ => T::List(item),
    }
}

fn hollow() -> FieldRef {
    Arc::new(Field::new(Field::LIST_FIELD_DEFAULT_NAME, DataType::Null, true))
}

/// The type of a dictionary's values, however deep.
pub(super) fn plain(mut ty: &DataType) -> &DataType {
    while let DataType::Dictionary(_, values) = ty {
        ty = values;
    }
    ty
}

pub(super) fn only_nulls(ty: &DataType) -> bool {
    plain(ty).is_null()
}

fn is_zoned(ty: &DataType) -> bool {
    matches!(plain(ty), DataType::Timestamp(_, Some(_)))
}

fn is_naive(ty: &DataType) -> bool {
    matches!(plain(ty), DataType::Timestamp(_, None))
}

fn is_instant(ty: &DataType) -> bool {
    matches!(ty, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
}

fn is_text(ty: &DataType) -> bool {
    matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Entries on which both agree.
fn common(a: &Metadata, b: &Metadata) -> Metadata {
    if a == b {
        return a.clone();
    }
    let mut both = Metadata::new();
    for (key, value) in a {
        if b.get(key) == Some(value) {
            both.insert(key.clone(), value.clone());
        }
    }
    both
}

trait DateLike {
    fn is_date_like(&self) -> bool;
}

impl DateLike for DataType {
    fn is_date_like(&self) -> bool {
        matches!(self, DataType::Date32 | DataType::Date64)
    }
}
