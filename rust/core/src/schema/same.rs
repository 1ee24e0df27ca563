//! Which fields of many sources are the same field?
//!
//! ```text
//! every source   a #1, b #2  │  b #1, c #2        by id: a is b, b is c
//! else           a #1, b #2  │  b, c              by name
//! ```
//!
//! # Invariants
//! Ids decide only where every field has one and none has another's: writers that number nothing, or all
//! alike, are matched by name. A field of the target that has no id is matched by name even then. What
//! decides and what adapts ask here, so they cannot disagree.
//!
//! # Not here
//! Items of lists, keys and values of maps: they match by place (`unify`).

use std::collections::{HashMap, HashSet};

use arrow_schema::{Field, Fields};

use super::policy::SchemaPolicy;

/// Metadata that holds a field id.
pub const FIELD_ID: &str = "PARQUET:field_id";

/// Whether fields are matched by their ids.
pub(super) fn by_id<'a>(sources: impl IntoIterator<Item = &'a Fields>) -> bool {
    let mut any = false;
    for fields in sources {
        let mut ids = HashSet::with_capacity(fields.len());
        for field in fields {
            if !field.metadata().get(FIELD_ID).is_some_and(|id| ids.insert(id)) {
                return false;
            }
        }
        any |= !fields.is_empty();
    }
    any
}

/// What a field is looked for under.
pub(super) fn key_of(field: &Field, policy: &SchemaPolicy, by_id: bool) -> String {
    match id_of(field).filter(|_| by_id) {
        Some(id) => key_of_id(id),
        None => policy.key(field.name()),
    }
}

/// The key of the field with this id.
pub(super) fn key_of_id(id: &str) -> String {
    format!("#{id}")
}

/// The id of a field.
pub(super) fn id_of(field: &Field) -> Option<&str> {
    field.metadata().get(FIELD_ID).map(String::as_str)
}

/// For every field of `to` the place of the same field in `from`.
#[must_use]
pub fn matched(from: &Fields, to: &Fields) -> Vec<Option<usize>> {
    members(from, to, &SchemaPolicy::default())
}

/// For every field of the struct `to` the place of the same field in the struct `from`.
pub(super) fn members(from: &Fields, to: &Fields, policy: &SchemaPolicy) -> Vec<Option<usize>> {
    let mut seen = HashSet::new();
    let are_distinct = to.iter().filter_map(|field| id_of(field)).all(|id| seen.insert(id));
    let ids: HashMap<&str, usize> = if are_distinct && by_id([from]) {
        from.iter().enumerate().filter_map(|(at, field)| Some((id_of(field)?, at))).collect()
    } else {
        HashMap::new()
    };
    let by_ids = !ids.is_empty();
    let mut places: Vec<Option<usize>> =
        to.iter().map(|field| ids.get(id_of(field)?).copied()).collect();
    let taken: HashSet<usize> = places.iter().flatten().copied().collect();
    let mut names: HashMap<String, usize> = HashMap::with_capacity(from.len());
    for (at, field) in from.iter().enumerate().filter(|(at, _)| !taken.contains(at)) {
        names.entry(policy.key(field.name())).or_insert(at);
    }
    for (place, field) in places.iter_mut().zip(to) {
        if !by_ids || id_of(field).is_none() {
            *place = names.get(&policy.key(field.name())).copied();
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use super::*;

    fn fields(all: &[(&str, Option<&str>)]) -> Fields {
        let field = |(name, id): &(&str, Option<&str>)| {
            let mut field = Field::new(*name, DataType::Int32, true);
            if let Some(id) = id {
                field.metadata_mut().insert(FIELD_ID, *id);
            }
            field
        };
        all.iter().map(field).collect::<Vec<_>>().into()
    }

    #[test]
    fn ids_speak_where_every_field_has_its_own() {
        let policy = SchemaPolicy::default();
        let numbered = fields(&[("a", Some("1")), ("b", Some("2"))]);
        let renamed = fields(&[("b", Some("1"))]);
        assert_eq!(members(&numbered, &renamed, &policy), [Some(0)]);
        assert_eq!(members(&numbered, &fields(&[("b", None)]), &policy), [Some(1)]);
        let partly = fields(&[("b", Some("1")), ("a", None)]);
        assert_eq!(members(&numbered, &partly, &policy), [Some(0), None], "`a` is `b` by now");
        let alike = fields(&[("b", Some("0")), ("a", Some("0"))]);
        assert_eq!(members(&numbered, &alike, &policy), [Some(1), Some(0)]);
    }
}
