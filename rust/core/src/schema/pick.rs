//! Which field of every source is meant by a name that is asked for?
//!
//! ```text
//! asked for          a.parquet          b.parquet
//! new          ──▶   old  #2      ═     new  #2        one column by its id, called `new`
//! m.new        ──▶   m.old  #7    ═     m.new  #7      likewise inside of structs and lists
//! ```
//!
//! # Invariants
//! Fields are matched first, by id where ids decide, and names are looked up in what was matched. A name
//! is the field that the given schema calls so, else the field that its first source calls so, else the
//! one field that any source calls so. A name that is several fields is a conflict, and two names that
//! are one field are refused. What reads, adapts and decides asks here, so they cannot disagree.
//!
//! # Cost
//! Linear in the fields of the distinct schemas for each name.
//!
//! # Not here
//! The text of names (`projection`); which fields are the same (`same`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use serde::{Deserialize, Serialize};

use super::conflict::{self, Conflict};
use super::policy::SchemaPolicy;
use super::projection::{Item, Projection, Want};
use super::same::{FIELD_ID, by_id, id_of, key_of_id};
use super::unify::{list_item, only_nulls, with_item};
use plait_base::{Error, Kind, Result, type_text};

/// A column or member that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pick {
    /// What the output calls it.
    pub(super) name: String,
    /// Its id, if ids decide.
    id: Option<String>,
    /// What sources without ids call it, as names are compared.
    key: String,
    /// Asked for as it is, not only some members.
    pub(super) whole: bool,
    /// Asked for elements of so many levels, which demands lists.
    elements: usize,
    pub(super) members: Vec<Pick>,
}

/// One place of the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PickItem {
    /// Everything that is not named.
    Star,
    Column(Pick),
}

/// What is asked for of every source, in the order of the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Picks {
    pub(super) items: Vec<PickItem>,
}

/// The fields among which a name is looked up: columns, or members of one struct.
#[derive(Clone)]
pub(super) struct Level<'a> {
    /// Of every class that has such fields.
    sources: Vec<(usize, &'a Fields)>,
    /// Of the given schema.
    given: Option<&'a Fields>,
    /// Whether ids decide.
    by_id: bool,
    /// Whether these are columns: there ids decide for all sources or for none.
    is_top: bool,
}

/// A field by its id, and what sources call it.
struct Known<'a> {
    id: &'a str,
    /// The name in the first class that has it.
    name: &'a str,
    class: usize,
    names: Vec<&'a str>,
}

/// Looks names up.
pub(super) struct Lookup<'a> {
    pub(super) policy: &'a SchemaPolicy,
    /// Names of the classes' first sources.
    pub(super) names: &'a [String],
    pub(super) conflicts: Vec<Conflict>,
}

impl<'a> Level<'a> {
    /// The columns of all classes.
    pub(super) fn columns(sources: Vec<(usize, &'a Fields)>, given: Option<&'a Fields>) -> Self {
        let by_id = by_id(sources.iter().map(|(_, fields)| *fields));
        Self { sources, given, by_id, is_top: true }
    }

    /// Whether ids decide.
    pub(super) fn is_by_id(&self) -> bool {
        self.by_id
    }

    fn given(&self, name: &str, policy: &SchemaPolicy) -> Option<&'a FieldRef> {
        let key = policy.key(name);
        self.given?.iter().find(|field| policy.key(field.name()) == key)
    }

    /// All fields by their ids, in the order first seen, but those that the given schema names.
    fn known(&self) -> Vec<Known<'a>> {
        let given: Vec<&str> =
            self.given.into_iter().flatten().filter_map(|field| id_of(field)).collect();
        let mut all: Vec<Known<'a>> = Vec::new();
        let mut place: HashMap<&str, usize> = HashMap::new();
        for (class, fields) in &self.sources {
            for field in *fields {
                let Some(id) = id_of(field).filter(|id| !given.contains(id)) else { continue };
                let name = field.name().as_str();
                let at = *place.entry(id).or_insert_with(|| {
                    all.push(Known { id, name, class: *class, names: Vec::new() });
                    all.len() - 1
                });
                if let Some(known) = all.get_mut(at) {
                    known.names.push(name);
                }
            }
        }
        all
    }

    /// The members of the field that `pick` is.
    fn below(&self, pick: &Pick, policy: &SchemaPolicy) -> Self {
        let members = |fields: &'a Fields| {
            let at = pick.place(fields, policy)?;
            struct_below(fields.get(at)?.data_type())
        };
        let sources: Vec<(usize, &'a Fields)> = self
            .sources
            .iter()
            .copied()
            .filter_map(|(class, fields)| Some((class, members(fields)?)))
            .collect();
        let given = self.given(&pick.name, policy).and_then(|f| struct_below(f.data_type()));
        let by_id = by_id(sources.iter().map(|(_, fields)| *fields));
        Self { sources, given, by_id, is_top: false }
    }
}

impl Lookup<'_> {
    /// The fields that `projection` names; `is_static` knows names that are not of sources.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] when two names are one field.
    pub(super) fn picks(
        &mut self,
        projection: &Projection,
        columns: &Level<'_>,
        is_static: impl Fn(&str) -> bool,
    ) -> Result<Picks> {
        let mut items = Vec::with_capacity(projection.items.len());
        let mut known: HashMap<String, &str> = HashMap::new();
        for item in &projection.items {
            let Item::Column(want) = item else {
                items.push(PickItem::Star);
                continue;
            };
            let pick = self.pick(want, columns, "", is_static(&want.name))?;
            one_name(&mut known, want, &pick)?;
            items.push(PickItem::Column(pick));
        }
        Ok(Picks { items })
    }

    /// The key of a field of the given schema.
    pub(super) fn given_key(&mut self, field: &Field, columns: &Level<'_>) -> String {
        match id_of(field) {
            Some(id) if columns.by_id => key_of_id(id),
            None if columns.by_id => {
                let (name, members) = (field.name().clone(), Vec::new());
                let want = Want { name, whole: true, elements: 0, members };
                self.named(&want, columns, field.name(), false).column_key()
            }
            _ => self.policy.key(field.name()),
        }
    }

    /// `exact`: no other name than the one that is asked for will do.
    fn pick(&mut self, want: &Want, level: &Level<'_>, above: &str, exact: bool) -> Result<Pick> {
        let path = dotted(above, &want.name);
        let mut pick = self.named(want, level, &path, exact);
        if want.members.is_empty() {
            return Ok(pick);
        }
        let below = level.below(&pick, self.policy);
        let mut known: HashMap<String, &str> = HashMap::new();
        for member in &want.members {
            let found = self.pick(member, &below, &path, false)?;
            one_name(&mut known, member, &found)?;
            pick.members.push(found);
        }
        Ok(pick)
    }

    /// The field that `want` names, without its members.
    fn named(&mut self, want: &Want, level: &Level<'_>, path: &str, exact: bool) -> Pick {
        let policy = self.policy;
        let key = policy.key(&want.name);
        let pick = |name: &str, id: Option<&str>, key: String| Pick {
            name: name.to_owned(),
            id: id.map(str::to_owned),
            key,
            whole: want.whole,
            elements: want.elements,
            members: Vec::new(),
        };
        let given = level.given(&want.name, policy);
        let given_id = given.and_then(|field| id_of(field));
        match (given, given_id) {
            (Some(field), Some(id)) if level.by_id || !level.is_top => {
                return pick(field.name(), Some(id), key);
            }
            // Its id, or none, says nothing where names decide.
            (Some(field), _) if !level.by_id || !level.is_top => {
                return pick(field.name(), None, key);
            }
            _ => {}
        }
        let called = |name: &str| given.map_or_else(|| name.to_owned(), |f| f.name().clone());
        if !level.by_id {
            let fields = || level.sources.iter().flat_map(|(_, fields)| fields.iter());
            let first = fields().find(|field| policy.key(field.name()) == key);
            return pick(first.map_or(want.name.as_str(), |f| f.name().as_str()), None, key);
        }
        let known = level.known();
        let is_first = |known: &&Known<'_>| policy.key(known.name) == key;
        let is_any = |known: &&Known<'_>| known.names.iter().any(|name| policy.key(name) == key);
        let mut found: Vec<&Known<'_>> = known.iter().filter(is_first).collect();
        if found.is_empty() && !exact {
            found = known.iter().filter(is_any).collect();
        }
        match found.as_slice() {
            [] => pick(&called(&want.name), None, key),
            [one] => {
                let is_own = policy.key(one.name) == key;
                pick(&called(if is_own { one.name } else { want.name.as_str() }), Some(one.id), key)
            }
            [one, other, ..] => {
                let side = |known: &Known<'_>| {
                    let source = self.names.get(known.class).cloned().unwrap_or_default();
                    (format!("field id {}", known.id), source)
                };
                let sides = [side(one), side(other)];
                let column = path.to_owned();
                self.conflicts.push(Conflict { column, why: conflict::IDS, sides });
                pick(&called(&want.name), None, key)
            }
        }
    }
}

/// Refuses a second name of one field.
fn one_name<'w>(known: &mut HashMap<String, &'w str>, want: &'w Want, pick: &Pick) -> Result<()> {
    match known.insert(pick.column_key(), &want.name) {
        None => Ok(()),
        Some(other) => {
            Err(Error::new(Kind::InvalidArgument, "two names in `columns` are one field")
                .with_column(want.name.as_str())
                .with_got(format!("`{other}` and `{}`, {}", want.name, pick.says()))
                .with_hint("ask for it by one of its names"))
        }
    }
}

fn dotted(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}

impl Picks {
    /// Whether columns that are not named are asked for, too.
    pub(super) fn is_open(&self) -> bool {
        self.items.contains(&PickItem::Star)
    }

    /// What is asked for of the column with this key.
    pub(super) fn column(&self, key: &str) -> Option<&Pick> {
        self.items.iter().find_map(|item| match item {
            PickItem::Column(pick) if pick.column_key() == key => Some(pick),
            _ => None,
        })
    }

    /// Of a column what is asked for; none if nothing is.
    ///
    /// # Errors
    /// [`Kind::ProjectionError`] when a path demands another form than the column has.
    pub(super) fn prune(
        &self,
        field: &FieldRef,
        key: &str,
        policy: &SchemaPolicy,
    ) -> Result<Option<FieldRef>> {
        match self.column(key) {
            Some(pick) => pick.prune(field, policy, &pick.name).map(Some),
            None => Ok(self.is_open().then(|| Arc::clone(field))),
        }
    }

    /// The leaves of `schema`, counted depth first, that must be read: those asked for, and of a
    /// group of which nothing is asked the first, which tells where the group is null. `key`: the key
    /// of a column, none if it is left out.
    pub(super) fn leaves(
        &self,
        schema: &Schema,
        policy: &SchemaPolicy,
        key: impl Fn(&Field) -> Option<String>,
    ) -> Vec<usize> {
        let (mut next, mut leaves) = (0, Vec::new());
        for field in schema.fields() {
            let Some(key) = key(field.as_ref()) else {
                next += count(field.data_type());
                continue;
            };
            match self.column(&key) {
                Some(pick) => pick.leaves(field.data_type(), policy, &mut next, &mut leaves),
                None if self.is_open() => take_all(field.data_type(), &mut next, &mut leaves),
                None => next += count(field.data_type()),
            }
        }
        leaves
    }
}

impl Pick {
    /// The key of the column.
    pub(super) fn column_key(&self) -> String {
        self.id.as_deref().map_or_else(|| self.key.clone(), key_of_id)
    }

    fn says(&self) -> String {
        self.id.as_ref().map_or_else(|| "one name".to_owned(), |id| format!("field id {id}"))
    }

    /// Its place among the members of a struct.
    fn place(&self, fields: &Fields, policy: &SchemaPolicy) -> Option<usize> {
        match &self.id {
            Some(id) if by_id([fields]) => {
                fields.iter().position(|f| id_of(f) == Some(id.as_str()))
            }
            _ => fields.iter().position(|f| policy.key(f.name()) == self.key),
        }
    }

    /// Of `field` what is asked for, by the names of the output; `path` is what messages call it.
    fn prune(&self, field: &FieldRef, policy: &SchemaPolicy, path: &str) -> Result<FieldRef> {
        let ty = self.inside(field.data_type(), policy, path)?;
        let is_named = policy.key(field.name()) == policy.key(&self.name);
        if is_named && ty == *field.data_type() {
            return Ok(Arc::clone(field));
        }
        let name = if is_named { field.name() } else { &self.name };
        Ok(Arc::new(field.as_ref().clone().with_name(name).with_data_type(ty)))
    }

    fn inside(&self, ty: &DataType, policy: &SchemaPolicy, path: &str) -> Result<DataType> {
        let form = |demands: &str| {
            Error::new(Kind::ProjectionError, format!("path demands {demands}"))
                .with_column(path)
                .with_got(format!("type `{}`", type_text(ty)))
                .with_hint("ask for the column itself")
        };
        if only_nulls(ty) {
            return Ok(ty.clone());
        }
        let item = list_item(ty);
        let mut level = ty;
        for depth in 0..self.elements {
            level = match list_item(level) {
                Some(item) => item.data_type(),
                None if depth == 0 => return Err(form("a list")),
                None => return Err(form(&format!("lists of {} levels", self.elements))),
            };
        }
        if self.members.is_empty() {
            return Ok(ty.clone());
        }
        if let Some(item) = item {
            let items = Self { elements: 0, ..self.clone() };
            let inside = items.inside(item.data_type(), policy, path)?;
            return Ok(with_item(ty, Arc::new(item.as_ref().clone().with_data_type(inside))));
        }
        let DataType::Struct(fields) = ty else { return Err(form("a struct")) };
        let mut picked: HashMap<usize, &Self> = HashMap::with_capacity(self.members.len());
        for member in &self.members {
            picked.extend(member.place(fields, policy).map(|at| (at, member)));
        }
        let mut kept: Vec<FieldRef> = Vec::new();
        for (at, field) in fields.iter().enumerate() {
            match picked.get(&at) {
                Some(pick) => {
                    let member = pick.prune(field, policy, &dotted(path, &pick.name))?;
                    kept.push(pick.unnumbered(member));
                }
                None if self.whole => kept.push(Arc::clone(field)),
                None => {}
            }
        }
        Ok(DataType::Struct(kept.into()))
    }

    /// The field without an id that decides nothing: of what is left, ids could seem to.
    fn unnumbered(&self, field: FieldRef) -> FieldRef {
        if self.id.is_some() || id_of(&field).is_none() {
            return field;
        }
        let mut field = field.as_ref().clone();
        field.metadata_mut().remove(FIELD_ID);
        Arc::new(field)
    }

    fn leaves(
        &self,
        ty: &DataType,
        policy: &SchemaPolicy,
        next: &mut usize,
        leaves: &mut Vec<usize>,
    ) {
        if self.whole || self.members.is_empty() {
            return take_all(ty, next, leaves);
        }
        if let Some(item) = list_item(ty) {
            return self.leaves(item.data_type(), policy, next, leaves);
        }
        let DataType::Struct(fields) = ty else { return take_all(ty, next, leaves) };
        let mut picked: HashMap<usize, &Self> = HashMap::with_capacity(self.members.len());
        for member in &self.members {
            picked.extend(member.place(fields, policy).map(|at| (at, member)));
        }
        let (first, before) = (*next, leaves.len());
        for (at, field) in fields.iter().enumerate() {
            match picked.get(&at) {
                Some(member) => member.leaves(field.data_type(), policy, next, leaves),
                None => *next += count(field.data_type()),
            }
        }
        if leaves.len() == before && *next > first {
            leaves.push(first);
        }
    }

    /// Members in the order asked for; those that no source has are null if `unknown` allows it.
    pub(super) fn complete(
        &self,
        field: &Field,
        policy: &SchemaPolicy,
        path: &str,
        unknown: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Field> {
        if self.members.is_empty() || only_nulls(field.data_type()) {
            return Ok(field.clone());
        }
        if let Some(item) = list_item(field.data_type()) {
            let item = self.complete(item, policy, path, unknown)?;
            let ty = with_item(field.data_type(), Arc::new(item));
            return Ok(field.clone().with_data_type(ty));
        }
        let DataType::Struct(fields) = field.data_type() else { return Ok(field.clone()) };
        let mut members: Vec<FieldRef> = Vec::new();
        for member in &self.members {
            let key = policy.key(&member.name);
            let path = dotted(path, &member.name);
            match fields.iter().find(|f| policy.key(f.name()) == key) {
                Some(found) => {
                    members.push(Arc::new(member.complete(found, policy, &path, unknown)?));
                }
                None => {
                    unknown(&path)?;
                    members.push(Arc::new(Field::new(&member.name, DataType::Null, true)));
                }
            }
        }
        if self.whole {
            let named: Vec<String> = members.iter().map(|m| policy.key(m.name())).collect();
            let mut all: Vec<FieldRef> = fields.to_vec();
            all.extend(members.into_iter().zip(named).filter_map(|(member, key)| {
                fields.iter().all(|f| policy.key(f.name()) != key).then_some(member)
            }));
            members = all;
        }
        Ok(field.clone().with_data_type(DataType::Struct(members.into())))
    }

    /// The field that stands for what no source has.
    pub(super) fn nothing(&self) -> Field {
        let ty = if self.members.is_empty() {
            DataType::Null
        } else {
            DataType::Struct(self.members.iter().map(Self::nothing).collect())
        };
        Field::new(&self.name, ty, true)
    }
}

/// The members of a struct, or of the structs in a list.
fn struct_below(ty: &DataType) -> Option<&Fields> {
    match (ty, list_item(ty)) {
        (DataType::Struct(fields), _) => Some(fields),
        (_, Some(item)) => struct_below(item.data_type()),
        _ => None,
    }
}

fn take_all(ty: &DataType, next: &mut usize, leaves: &mut Vec<usize>) {
    let end = *next + count(ty);
    leaves.extend(*next..end);
    *next = end;
}

/// Leaves of a Parquet column of this type.
fn count(ty: &DataType) -> usize {
    match ty {
        DataType::Struct(fields) => fields.iter().map(|f| count(f.data_type())).sum(),
        DataType::Map(entries, _) => count(entries.data_type()),
        DataType::Dictionary(_, values) => count(values),
        _ => list_item(ty).map_or(1, |item| count(item.data_type())),
    }
}

#[cfg(test)]
mod tests;
