//! A layer before it is read, and what a plan takes of it.
//!
//! # Not here
//! Which layer supplies what (`resolve`); the plan of all layers (`plan`).

use std::collections::HashSet;

use arrow_schema::{Fields, SchemaRef};
use plait_base::{Error, Kind, Result};

use super::path::{FieldPath, dotted};

/// When a combined struct is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StructValidity {
    /// Where any layer that supplies something below it has it.
    #[default]
    Any,
    /// Where any of its fields is not null, whatever the layers say.
    AllChildren,
}

/// What is known of a layer before it is read.
#[derive(Clone, Debug)]
pub struct LayerSpec {
    /// Its name in messages.
    pub name: String,
    /// Its schema.
    pub schema: SchemaRef,
    /// What it owns; `None` is every column but its index.
    pub paths: Option<Vec<FieldPath>>,
    /// The greater, the stronger; equal: the later layer.
    pub precedence: i64,
}

/// One layer of a plan.
#[derive(Clone, Debug)]
pub struct LayerPlan {
    /// Its name in messages.
    pub name: String,
    /// Its place among the layers as they were given.
    pub place: usize,
    /// Its schema.
    pub schema: SchemaRef,
    /// Column of the index.
    pub index: usize,
    /// Column of the row numbers, if they are compared.
    pub row_number: Option<usize>,
    /// Columns and fields that are taken whole, each by its places from the root.
    pub parts: Vec<Vec<usize>>,
    /// Structs whose validity counts, likewise.
    pub structs: Vec<Vec<usize>>,
}

impl LayerPlan {
    /// Whether anything is taken from it.
    #[must_use]
    pub fn supplies(&self) -> bool {
        !self.parts.is_empty()
    }
}

/// Puts the layer's name before the sentence.
pub(super) fn in_layer(error: Error, layer: &str) -> Error {
    error.with_prefix(&format!("layer `{layer}`"))
}

/// Refuses a name twice in one level.
pub(super) fn check_names(fields: &Fields, above: &[String]) -> Result<()> {
    let mut seen = HashSet::new();
    match fields.iter().find(|field| !seen.insert(field.name())) {
        None => Ok(()),
        Some(field) => {
            let mut path = above.to_vec();
            path.push(field.name().clone());
            Err(Error::new(Kind::DuplicateField, "a name occurs twice").with_column(dotted(&path)))
        }
    }
}
