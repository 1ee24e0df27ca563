//! Where a column or field of the output comes from.
//!
//! ```text
//! a: struct ─┬─ x  take base          b: take base
//!            └─ y  take override
//! ```
//!
//! # Not here
//! Which layer owns what (`resolve`); making it (`combine`).

use arrow_schema::{Field, Fields};

/// A part taken whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supply {
    /// The layer, by its place in the plan.
    pub layer: usize,
    /// Its part.
    pub part: usize,
    /// The layer's struct above it, if that can be null where the combined struct is not.
    pub mask: Option<usize>,
}

/// Where a column or field of the output comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// From one layer.
    Take(Supply),
    /// A struct made here.
    Struct {
        /// Its fields in the output.
        fields: Fields,
        /// Where they come from.
        nodes: Vec<Node>,
        /// Layers that supply something below, each with its struct.
        above: Vec<(usize, usize)>,
        /// Whether it is null exactly where all fields are.
        by_fields: bool,
    },
}

impl Node {
    /// Calls `visit` for this node and all below it, with their paths.
    pub fn walk(
        &self,
        field: &Field,
        path: &mut Vec<String>,
        visit: &mut impl FnMut(&[String], &Self),
    ) {
        path.push(field.name().clone());
        visit(path, self);
        if let Self::Struct { fields, nodes, .. } = self {
            for (node, field) in nodes.iter().zip(fields) {
                node.walk(field, path, visit);
            }
        }
        path.pop();
    }

    /// Gives layers other numbers.
    pub(super) fn renumber(&mut self, numbers: &[usize]) {
        let number = |layer: &mut usize| {
            if let Some(other) = numbers.get(*layer) {
                *layer = *other;
            }
        };
        match self {
            Self::Take(supply) => number(&mut supply.layer),
            Self::Struct { nodes, above, .. } => {
                above.iter_mut().for_each(|(layer, _)| number(layer));
                nodes.iter_mut().for_each(|node| node.renumber(numbers));
            }
        }
    }
}
