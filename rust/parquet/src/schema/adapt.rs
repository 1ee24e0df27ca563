//! How one leaf of one source becomes one leaf of the output.
//!
//! ```text
//! source   optional group a { required x }                definition levels 0 1
//! output   optional group a { optional x }                                  0 2      Def([0, 2])
//!
//! output   optional group a { optional x; optional y }    y is absent in the source:
//!          take x, cap its levels at 1 (`a` is there), map them   0 1       Identity
//! ```
//!
//! # Invariants
//! Nodes of a source and of the output are matched one to one along a path, repeated with
//! repeated, so repetition levels never change. A definition level says how many optional and
//! repeated nodes of the path are there; the output's level counts the same nodes of the output,
//! and those that are optional only in the output as there.
//!
//! # Not here
//! Which nodes match (`tree`); applying maps and casts to pages (the leaf readers).

use parquet::basic::{Repetition, Type as PhysicalType};
use parquet::schema::types::SchemaDescriptor;
use plait_core::{Error, Kind, Result};

use super::cast::{Cast, cast};
use super::summary::{NodePlace, repetition};
use super::tree::Node;

/// The output's definition level for every definition level of a source's leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LevelMap {
    /// Levels stay as they are.
    Identity,
    /// Level `v` becomes the `v`-th entry.
    Def(Vec<i16>),
}

impl LevelMap {
    /// The output's level for level `def`.
    #[must_use]
    pub(crate) fn apply(&self, def: i16) -> i16 {
        match self {
            Self::Identity => def,
            Self::Def(levels) => {
                usize::try_from(def).ok().and_then(|v| levels.get(v)).copied().unwrap_or(def)
            }
        }
    }

    /// Whether no level changes.
    #[must_use]
    pub(crate) fn is_identity(&self) -> bool {
        *self == Self::Identity
    }
}

/// How to make an output leaf from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeafAdapter {
    /// The same physical type and the same values.
    Same {
        /// The source's leaf.
        leaf: usize,
        /// What becomes of definition levels.
        levels: LevelMap,
    },
    /// Values are cast.
    Cast {
        /// The source's leaf.
        leaf: usize,
        /// What becomes of definition levels.
        levels: LevelMap,
        /// What becomes of values.
        cast: Cast,
    },
    /// Not in the source: levels of a sibling tell where the nulls go, and there are no values.
    Missing {
        /// A leaf of the source below the nearest group that is there; `None` when there is no
        /// such group: then every row is one entry of levels 0.
        sibling: Option<usize>,
        /// Entries of the sibling with a greater repetition level are left out.
        rep_keep: i16,
        /// Definition levels of the sibling are cut down to this one, then mapped.
        def_cap: i16,
        /// What becomes of the definition levels up to `def_cap`.
        levels: LevelMap,
    },
}

impl LeafAdapter {
    /// The source's leaf to read, for levels at least.
    #[must_use]
    pub(crate) fn leaf(&self) -> Option<usize> {
        match self {
            Self::Same { leaf, .. } | Self::Cast { leaf, .. } => Some(*leaf),
            Self::Missing { sibling, .. } => *sibling,
        }
    }

    /// Whether the source's pages can be copied as they are.
    #[must_use]
    pub(crate) fn is_verbatim(&self) -> bool {
        matches!(self, Self::Same { levels: LevelMap::Identity, .. })
    }
}

/// The adapters of one class of sources, one for each output leaf below `root`.
pub(super) fn adapters(
    root: &Node,
    class: usize,
    source: &SchemaDescriptor,
) -> Result<Vec<LeafAdapter>> {
    let mut out = Vec::new();
    for child in &root.children {
        walk(&mut vec![child], class, source, &mut out)?;
    }
    Ok(out)
}

fn walk(
    path: &mut Vec<&Node>,
    class: usize,
    source: &SchemaDescriptor,
    out: &mut Vec<LeafAdapter>,
) -> Result<()> {
    let Some(node) = path.last().copied() else { return Ok(()) };
    if node.ty.is_primitive() {
        out.push(adapter(path, node, class, source)?);
        return Ok(());
    }
    for child in &node.children {
        path.push(child);
        walk(path, class, source, out)?;
        path.pop();
    }
    Ok(())
}

fn adapter(
    path: &[&Node],
    node: &Node,
    class: usize,
    source: &SchemaDescriptor,
) -> Result<LeafAdapter> {
    let parts: Vec<&NodePlace> = path.iter().map_while(|node| node.place(class)).collect();
    let there: Vec<Repetition> = parts.iter().map(|part| repetition(&part.ty)).collect();
    let output: Vec<Repetition> = path.iter().map(|node| repetition(&node.ty)).collect();
    let levels = level_map(&there, &output);
    let missing = |sibling, levels| LeafAdapter::Missing {
        sibling,
        rep_keep: count(&there, |r| r == Repetition::REPEATED),
        def_cap: count(&there, |r| r != Repetition::REQUIRED),
        levels,
    };
    let Some(deepest) = parts.last() else { return Ok(missing(None, LevelMap::Identity)) };
    if parts.len() == path.len() {
        let leaf = deepest.leaf;
        let ends = deepest.stored.as_ref().zip(node.stored.as_ref());
        return match ends.and_then(|(from, to)| cast(from, to)) {
            Some(None) => Ok(LeafAdapter::Same { leaf, levels }),
            Some(Some(cast)) => Ok(LeafAdapter::Cast { leaf, levels, cast }),
            None => Err(Error::new(Kind::Internal, "no cast between types that were merged")
                .with_column(node.ty.name())),
        };
    }
    // The least repeated has the fewest entries to skip; fixed widths have the smallest pages.
    let sibling = (deepest.leaf..deepest.leaf + deepest.leaves).min_by_key(|leaf| {
        source.columns().get(*leaf).map(|column| {
            (column.max_rep_level(), column.physical_type() == PhysicalType::BYTE_ARRAY)
        })
    });
    Ok(missing(sibling, levels))
}

/// The map from definition levels of the nodes that are `there` to those of `output`, whose first
/// nodes they match.
fn level_map(there: &[Repetition], output: &[Repetition]) -> LevelMap {
    let before = |i: usize| count(output.get(..i).unwrap_or(output), |r| r != Repetition::REQUIRED);
    let nullable = there.iter().enumerate().filter(|(_, r)| **r != Repetition::REQUIRED);
    let levels: Vec<i16> = nullable.map(|(i, _)| before(i)).chain([before(there.len())]).collect();
    if levels.iter().zip(0i16..).all(|(level, v)| *level == v) {
        LevelMap::Identity
    } else {
        LevelMap::Def(levels)
    }
}

fn count(nodes: &[Repetition], which: impl Fn(Repetition) -> bool) -> i16 {
    i16::try_from(nodes.iter().filter(|r| which(**r)).count()).unwrap_or(i16::MAX)
}
