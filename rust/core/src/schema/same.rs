//! Which fields of many sources are the same field?
//!
//! ```text
//! every source   a #1, b #2  │  b #1, c #2        by id: a is b, b is c
//! else           a #1, b #2  │  b, c              by name
//! ```
//!
//! # Invariants
//! Ids speak only where every field has one and none has another's: writers that number nothing, or all
//! alike, are matched by name. What decides and what adapts ask here, so they cannot disagree.
//!
//! # Not here
//! Items of lists, keys and values of maps: they match by place (`unify`).

use std::collections::{HashMap, HashSet};

use arrow_schema::{Field, Fields};

use super::policy::Policy;

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
pub(super) fn key_of(field: &Field, policy: &Policy, by_id: bool) -> String {
    match field.metadata().get(FIELD_ID).filter(|_| by_id) {
        Some(id) => format!("#{id}"),
        None => policy.key(field.name()),
    }
}

/// For every field of the struct `to` the place of the same field in the struct `from`.
pub(super) fn members(from: &Fields, to: &Fields, policy: &Policy) -> Vec<Option<usize>> {
    let by_id = by_id([from, to]);
    let mut places = HashMap::with_capacity(from.len());
    for (place, field) in from.iter().enumerate() {
        places.entry(key_of(field, policy, by_id)).or_insert(place);
    }
    to.iter().map(|field| places.get(&key_of(field, policy, by_id)).copied()).collect()
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
        let policy = Policy::default();
        let numbered = fields(&[("a", Some("1")), ("b", Some("2"))]);
        let renamed = fields(&[("b", Some("1"))]);
        assert_eq!(members(&numbered, &renamed, &policy), [Some(0)]);
        assert_eq!(members(&numbered, &fields(&[("b", None)]), &policy), [Some(1)]);
        let alike = fields(&[("b", Some("0")), ("a", Some("0"))]);
        assert_eq!(members(&numbered, &alike, &policy), [Some(1), Some(0)]);
    }
}
