//! A schema that was decided, as a value: where every column comes from, and the name of it all.
//!
//! # Invariants
//! The fingerprint names the schema, with nullability and metadata. What is restored from its parts
//! is what was sent.
//!
//! # Not here
//! Deciding (`freeze`); making batches (`adapter`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::{Field, Fields, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::pick::Picks;
use super::policy::SchemaPolicy;
use super::projection::OutputColumn;
use super::same::{key_of, members};
use super::selection::Selection;
use plait_base::{Error, Kind, Result};

/// Where a column of the output comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Origin {
    /// A column of the sources, by the name (or field id) that it is looked for under.
    Source(String),
    /// The static column of this name.
    Static(String),
    /// No source has it.
    Nowhere,
}

/// One schema, decided once; see [`freeze`](super::freeze()).
#[derive(Clone, Debug)]
pub struct Frozen {
    pub(super) schema: SchemaRef,
    pub(super) policy: SchemaPolicy,
    pub(super) decision: Decision,
    /// The columns of the output, if they are not those of the schema.
    pub(super) selection: Option<Arc<Selection>>,
}

/// What was decided with the schema: a value that can be written, sent and read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub(super) origins: Vec<Origin>,
    pub(super) picks: Picks,
    pub(super) by_id: bool,
    /// Columns that the policy leaves out.
    pub(super) dropped: BTreeSet<String>,
    /// Whether a column that the schema does not have is left out, or refused.
    pub(super) closed: bool,
    pub(super) fingerprint: String,
    /// The columns of the output, if some have other names than in the schema.
    pub(super) shown: Option<Vec<OutputColumn>>,
}

impl Frozen {
    /// What was frozen elsewhere, from its parts.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the schema is not the one that was decided on.
    pub fn restore(schema: SchemaRef, policy: SchemaPolicy, decision: Decision) -> Result<Self> {
        let is_whole = decision.origins.len() == schema.fields().len();
        if !is_whole || fingerprint(schema.fields()) != decision.fingerprint {
            return Err(Error::new(Kind::Internal, "frozen schema is not the one that was sent"));
        }
        let shown = decision.shown.as_deref();
        let selection = Selection::of(shown, &decision.picks, &schema, &policy)?;
        Ok(Self { schema, policy, decision, selection })
    }

    /// The schema of every batch: always this very object.
    #[must_use]
    pub fn output(&self) -> &SchemaRef {
        self.selection.as_ref().map_or(&self.schema, |selection| selection.schema())
    }

    /// The columns that sources are adapted to, by the names of sources; that of every batch, unless
    /// columns get other names.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What was decided with the schema, but for the policy.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// 32 hexadecimal digits that name the schema of batches, with nullability and metadata.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        let own = &self.decision.fingerprint;
        self.selection.as_ref().map_or(own, |selection| selection.fingerprint())
    }

    /// Leaves of a source, depth first, that its adapter needs.
    #[must_use]
    pub fn leaves(&self, source: &Schema) -> Vec<usize> {
        let Decision { picks, dropped, .. } = &self.decision;
        picks.leaves(source, &self.policy, |field| {
            let key = self.key(field);
            (!dropped.contains(&key)).then_some(key)
        })
    }

    /// For every column the place of the one in `source` that it is taken from.
    #[must_use]
    pub fn places(&self, source: &Fields) -> Vec<Option<usize>> {
        let mut places = HashMap::with_capacity(source.len());
        for (place, field) in source.iter().enumerate() {
            places.entry(self.key(field)).or_insert(place);
        }
        let place = |origin: &Origin| match origin {
            Origin::Source(key) => places.get(key).copied(),
            Origin::Static(_) | Origin::Nowhere => None,
        };
        self.decision.origins.iter().map(place).collect()
    }

    /// The same for the fields of a struct, from a source's struct `from` to the schema's struct `to`.
    #[must_use]
    pub fn members(&self, from: &Fields, to: &Fields) -> Vec<Option<usize>> {
        members(from, to, &self.policy)
    }

    pub(super) fn key(&self, field: &Field) -> String {
        key_of(field, &self.policy, self.decision.by_id)
    }
}
