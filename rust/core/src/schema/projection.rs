//! Which columns are asked for: names, members, elements, `*`.
//!
//! ```text
//! a            the column              m.x        of struct m (or of a list of structs) only x
//! a[1]         the list, whole         `a.b`.c    member c of the column named `a.b`
//! *            every column that is not named elsewhere in the list
//! ```
//!
//! # Invariants
//! Output order is the order of first mention. Duplicates collapse; `m` and `m.x` together are `m`.
//! Text that is a column's whole name is that column.
//!
//! # Not here
//! Types of what was not found (`freeze`).

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};

use super::policy::Policy;
use super::unify::{list_item, only_nulls, with_item};
use crate::error::{Error, Kind, Result};

/// A column that is asked for, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) name: String,
    /// Asked for as it is, not only some members.
    whole: bool,
    /// Asked for an element, which demands a list.
    element: bool,
    pub(super) members: Vec<Want>,
}

/// One place of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Everything that is not named.
    Star,
    Column(Want),
}

/// The columns that are asked for, in the order of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    pub(super) items: Vec<Item>,
    case: super::policy::Case,
}

enum Step {
    Name(String),
    Element,
}

impl Projection {
    /// Every column.
    #[must_use]
    pub fn all(policy: &Policy) -> Self {
        Self { items: vec![Item::Star], case: policy.case }
    }

    /// The columns that `texts` name; `is_column` knows the names of whole columns.
    ///
    /// # Errors
    /// [`Kind::InvalidPath`] for text that is not a path.
    pub fn parse(
        texts: &[String],
        policy: &Policy,
        is_column: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let mut items: Vec<Item> = Vec::new();
        for text in texts {
            if text == "*" && !is_column(text) {
                if !items.contains(&Item::Star) {
                    items.push(Item::Star);
                }
                continue;
            }
            let steps = if is_column(text) { vec![Step::Name(text.clone())] } else { steps(text)? };
            let mut siblings: Vec<Want> = Vec::new();
            for item in &items {
                if let Item::Column(want) = item {
                    siblings.push(want.clone());
                }
            }
            let at = add(&mut siblings, &steps, policy);
            let Some(want) = siblings.get(at).cloned() else { continue };
            let same = items.iter_mut().find_map(|item| match item {
                Item::Column(known) if policy.key(&known.name) == policy.key(&want.name) => {
                    Some(known)
                }
                _ => None,
            });
            match same {
                Some(known) => *known = want,
                None => items.push(Item::Column(want)),
            }
        }
        Ok(Self { items, case: policy.case })
    }

    /// Whether columns that are not named are asked for, too.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.items.contains(&Item::Star)
    }

    pub(super) fn want(&self, name: &str) -> Option<&Want> {
        self.items.iter().find_map(|item| match item {
            Item::Column(want) if self.same(&want.name, name) => Some(want),
            _ => None,
        })
    }

    fn same(&self, a: &str, b: &str) -> bool {
        match self.case {
            super::policy::Case::Exact => a == b,
            super::policy::Case::Insensitive => a.to_lowercase() == b.to_lowercase(),
        }
    }

    /// Of the fields of one source those that are asked for.
    ///
    /// # Errors
    /// [`Kind::ProjectionError`] when a path demands another form than a field has.
    pub(super) fn prune(&self, fields: &Fields, policy: &Policy) -> Result<Vec<FieldRef>> {
        let mut kept = Vec::new();
        for field in fields {
            match self.want(field.name()) {
                Some(want) => kept.push(prune(field, want, policy, want.name.clone())?),
                None if self.is_open() => kept.push(Arc::clone(field)),
                None => {}
            }
        }
        Ok(kept)
    }

    /// The leaves of `schema`, counted depth first, that must be read: those asked for, and of a
    /// group of which nothing is asked the first, which tells where the group is null.
    #[must_use]
    pub fn leaves(&self, schema: &Schema) -> Vec<usize> {
        let (mut next, mut leaves) = (0, Vec::new());
        for field in schema.fields() {
            match self.want(field.name()) {
                Some(want) => self.select(field.data_type(), want, &mut next, &mut leaves),
                None if self.is_open() => take_all(field.data_type(), &mut next, &mut leaves),
                None => next += count(field.data_type()),
            }
        }
        leaves
    }

    fn select(&self, ty: &DataType, want: &Want, next: &mut usize, leaves: &mut Vec<usize>) {
        if want.whole || want.members.is_empty() {
            return take_all(ty, next, leaves);
        }
        if let Some(item) = list_item(ty) {
            return self.select(item.data_type(), want, next, leaves);
        }
        let DataType::Struct(fields) = ty else { return take_all(ty, next, leaves) };
        let (first, before) = (*next, leaves.len());
        for field in fields {
            match want.members.iter().find(|member| self.same(&member.name, field.name())) {
                Some(member) => self.select(field.data_type(), member, next, leaves),
                None => *next += count(field.data_type()),
            }
        }
        if leaves.len() == before && *next > first {
            leaves.push(first);
        }
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

fn prune(field: &FieldRef, want: &Want, policy: &Policy, path: String) -> Result<FieldRef> {
    let form = |demands: &str| {
        Error::new(Kind::ProjectionError, format!("path demands {demands}"))
            .with_column(path.as_str())
            .with_got(format!("type `{}`", field.data_type()))
            .with_hint("ask for the column itself")
    };
    if only_nulls(field.data_type()) {
        return Ok(Arc::clone(field));
    }
    let item = list_item(field.data_type());
    if want.element && item.is_none() {
        return Err(form("a list"));
    }
    if want.members.is_empty() {
        return Ok(Arc::clone(field));
    }
    if let Some(item) = item {
        let inner = Want { element: false, ..want.clone() };
        let item = prune(item, &inner, policy, path)?;
        let ty = with_item(field.data_type(), item);
        return Ok(Arc::new(field.as_ref().clone().with_data_type(ty)));
    }
    let DataType::Struct(fields) = field.data_type() else {
        return Err(form("a struct"));
    };
    let mut kept = Vec::new();
    for member in fields {
        let key = policy.key(member.name());
        match want.members.iter().find(|want| policy.key(&want.name) == key) {
            Some(want) => kept.push(prune(member, want, policy, format!("{path}.{}", want.name))?),
            None if want.whole => kept.push(Arc::clone(member)),
            None => {}
        }
    }
    let ty = DataType::Struct(kept.into());
    Ok(Arc::new(field.as_ref().clone().with_data_type(ty)))
}

/// Adds a path to `wants`; the place of its first name.
fn add(wants: &mut Vec<Want>, steps: &[Step], policy: &Policy) -> usize {
    let Some((Step::Name(name), rest)) = steps.split_first() else { return usize::MAX };
    let key = policy.key(name);
    let at = wants.iter().position(|want| policy.key(&want.name) == key).unwrap_or_else(|| {
        let name = name.clone();
        wants.push(Want { name, whole: false, element: false, members: Vec::new() });
        wants.len() - 1
    });
    if let Some(want) = wants.get_mut(at) {
        let elements = rest.iter().take_while(|step| matches!(step, Step::Element)).count();
        want.element |= elements > 0;
        match rest.get(elements..).unwrap_or_default() {
            [] => want.whole = true,
            members => {
                add(&mut want.members, members, policy);
            }
        }
    }
    at
}

fn steps(text: &str) -> Result<Vec<Step>> {
    let bad = |why: &str| {
        Error::new(Kind::InvalidPath, format!("path of a column {why}"))
            .with_column(text)
            .with_hint("write `a`, `a.b`, `a[1]`, or put a name with dots between backticks")
    };
    let mut steps = Vec::new();
    let mut rest = text;
    loop {
        if let Some(quoted) = rest.strip_prefix('`') {
            let (name, after) =
                quoted.split_once('`').ok_or_else(|| bad("has an open backtick"))?;
            steps.push(Step::Name(name.to_owned()));
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            if name.is_empty() {
                return Err(bad("has an empty name"));
            }
            steps.push(Step::Name(name.to_owned()));
            rest = after;
        }
        while let Some(index) = rest.strip_prefix('[') {
            let (index, after) = index.split_once(']').ok_or_else(|| bad("has an open bracket"))?;
            if index.is_empty() || !index.bytes().all(|b| b.is_ascii_digit()) {
                return Err(bad("has an index that is not a number"));
            }
            steps.push(Step::Element);
            rest = after;
        }
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None if rest.is_empty() => return Ok(steps),
            None => return Err(bad("goes on behind a name")),
        }
    }
}

/// Members in the order asked for; those that no source has are null if `unknown` allows it, and are
/// told by `missing` otherwise.
pub(super) fn complete(
    field: &Field,
    want: &Want,
    policy: &Policy,
    path: &str,
    unknown: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Field> {
    if want.members.is_empty() || only_nulls(field.data_type()) {
        return Ok(field.clone());
    }
    if let Some(item) = list_item(field.data_type()) {
        let item = complete(item, want, policy, path, unknown)?;
        let ty = with_item(field.data_type(), Arc::new(item));
        return Ok(field.clone().with_data_type(ty));
    }
    let DataType::Struct(fields) = field.data_type() else { return Ok(field.clone()) };
    let mut members: Vec<FieldRef> = Vec::new();
    for member in &want.members {
        let key = policy.key(&member.name);
        let path = format!("{path}.{}", member.name);
        match fields.iter().find(|f| policy.key(f.name()) == key) {
            Some(found) => members.push(Arc::new(complete(found, member, policy, &path, unknown)?)),
            None => {
                unknown(&path)?;
                members.push(Arc::new(Field::new(&member.name, DataType::Null, true)));
            }
        }
    }
    if want.whole {
        let named: Vec<String> = members.iter().map(|m| policy.key(m.name())).collect();
        let mut all: Vec<FieldRef> = fields.to_vec();
        all.extend(members.into_iter().zip(named).filter_map(|(member, key)| {
            fields.iter().all(|f| policy.key(f.name()) != key).then_some(member)
        }));
        members = all;
    }
    Ok(field.clone().with_data_type(DataType::Struct(members.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Result<Projection> {
        let texts: Vec<String> = texts.iter().map(|t| (*t).to_owned()).collect();
        Projection::parse(&texts, &Policy::default(), |name| name == "x.y")
    }

    fn schema() -> Schema {
        let int = |name: &str| Field::new(name, DataType::Int64, true);
        let of = |fields: Vec<Field>| DataType::Struct(fields.into());
        let item = Field::new("item", of(vec![int("b"), int("c")]), true);
        Schema::new(vec![
            int("k"),
            Field::new("m", of(vec![int("x"), int("y")]), true),
            Field::new("l", DataType::List(Arc::new(item)), true),
        ])
    }

    #[test]
    fn duplicates_collapse_and_the_whole_contains_its_members() {
        assert_eq!(parse(&["a", "b", "a"]).unwrap(), parse(&["a", "b"]).unwrap());
        let leaves = |texts: &[&str]| parse(texts).unwrap().leaves(&schema());
        assert_eq!(leaves(&["m.x"]), [1]);
        assert_eq!(leaves(&["m.y", "m"]), [1, 2]);
        assert_eq!(leaves(&["l.c", "k"]), [0, 4]);
        assert_eq!(leaves(&["l[1]"]), [3, 4]);
        assert_eq!(leaves(&["m.z"]), [1], "a member that is not there: the first tells the nulls");
        assert_eq!(leaves(&["*", "m.y"]), [0, 2, 3, 4]);
        assert_eq!(leaves(&[]), [] as [usize; 0]);
    }

    #[test]
    fn forms_are_held_against_types() {
        for text in ["k.a", "k[0]", "m.x.z", "m[0]"] {
            let projection = parse(&[text]).unwrap();
            let e = projection.prune(schema().fields(), &Policy::default()).unwrap_err();
            assert_eq!(e.kind(), Kind::ProjectionError, "{text}");
            assert!(e.to_string().contains("type"), "{e}");
        }
    }

    #[test]
    fn a_whole_name_is_a_column_and_bad_paths_are_refused() {
        let names = |p: &Projection| match p.items.as_slice() {
            [Item::Column(want)] => (want.name.clone(), want.members.len()),
            _ => panic!("{p:?}"),
        };
        assert_eq!(names(&parse(&["x.y"]).unwrap()), ("x.y".to_owned(), 0));
        assert_eq!(names(&parse(&["`a.b`.c"]).unwrap()), ("a.b".to_owned(), 1));
        for text in ["", ".", "a.", "a[", "a[x]", "a[]", "`a", "a]", "a[1]b"] {
            if text != "a]" {
                assert_eq!(parse(&[text]).unwrap_err().kind(), Kind::InvalidPath, "{text}");
            }
        }
    }
}
