//! What many sources say of their columns, small enough to send around.
//!
//! ```text
//! a.parquet  (x int32, y utf8) ─┐
//! c.parquet  (x int32, y utf8) ─┼─ merge ─▶ (x int32, y utf8)  first a.parquet, 2 sources, rows
//! b.parquet  (x int64)         ─┘           (x int64)          first b.parquet, 1 source, no rows
//! ```
//!
//! # Invariants
//! [`Summary::merge`] is associative, commutative and idempotent but for counts: it unites sets, and
//! takes the least name. Nothing else is known of a source, so nothing else can matter.
//!
//! # Cost
//! One entry for each distinct list of columns, not for each source.
//!
//! # Not here
//! Deciding (`freeze`).

use std::collections::BTreeMap;
use std::collections::HashMap;

use arrow_schema::{Fields, Schema};

/// Metadata of a source's field: what its values are beyond their Arrow type, where the source's format
/// says more. Fields go together only if they have the same meaning; none is one of them.
pub const MEANING: &str = "plait.meaning";
/// Metadata of a source's field: its type in the words of the source's format, for messages.
pub const SAYS: &str = "plait.says";

/// Sources whose columns are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Their columns.
    pub fields: Fields,
    /// The least of their names.
    pub first: String,
    /// How many they are.
    pub sources: u64,
    /// Whether any of them has rows.
    pub has_rows: bool,
}

/// What sources say of their columns. Equal however the sources were ordered or grouped.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    classes: Vec<Class>,
    place: HashMap<Fields, usize>,
}

impl Summary {
    /// What one source says; metadata of the schema itself says nothing of columns.
    #[must_use]
    pub fn of(schema: &Schema, name: &str, has_rows: bool) -> Self {
        let mut summary = Self::default();
        summary.add(Class {
            fields: schema.fields().clone(),
            first: name.to_owned(),
            sources: 1,
            has_rows,
        });
        summary
    }

    /// Adds sources of one class.
    pub fn add(&mut self, class: Class) {
        if let Some(known) = self.place.get(&class.fields).and_then(|i| self.classes.get_mut(*i)) {
            known.sources += class.sources;
            known.has_rows |= class.has_rows;
            if class.first < known.first {
                known.first = class.first;
            }
            return;
        }
        self.place.insert(class.fields.clone(), self.classes.len());
        self.classes.push(class);
    }

    /// What both say.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        for class in other.classes {
            self.add(class);
        }
        self
    }

    /// The classes by the least name of their sources.
    #[must_use]
    pub fn classes(&self) -> Vec<&Class> {
        let mut sorted: Vec<&Class> = self.classes.iter().collect();
        sorted.sort_by(|a, b| a.first.cmp(&b.first));
        sorted
    }

    /// Number of sources.
    #[must_use]
    pub fn sources(&self) -> u64 {
        self.classes.iter().map(|class| class.sources).sum()
    }

    /// In how many sources every top-level column is.
    #[must_use]
    pub fn seen(&self) -> BTreeMap<&str, u64> {
        let mut seen = BTreeMap::new();
        for class in &self.classes {
            for field in &class.fields {
                *seen.entry(field.name().as_str()).or_default() += class.sources;
            }
        }
        seen
    }
}

impl PartialEq for Summary {
    fn eq(&self, other: &Self) -> bool {
        self.classes() == other.classes()
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;

    fn one(name: &str, column: &str, has_rows: bool) -> Summary {
        let field = Field::new(column, DataType::Int32, true);
        Summary::of(&Schema::new(vec![field]), name, has_rows)
    }

    #[test]
    fn grouping_and_order_do_not_matter() {
        let (a, b, c) = (one("a", "x", false), one("b", "y", true), one("c", "x", true));
        let left = a.clone().merge(b.clone()).merge(c.clone());
        let right = c.merge(b.merge(a));
        assert_eq!(left, right);
        assert_eq!(left.sources(), 3);
        let classes = left.classes();
        assert_eq!(
            (classes[0].first.as_str(), classes[0].sources, classes[0].has_rows),
            ("a", 2, true)
        );
        assert_eq!(left.seen(), BTreeMap::from([("x", 2), ("y", 1)]));
    }
}
