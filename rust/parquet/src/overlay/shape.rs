//! The schema of the output file, and where each of its leaves may be copied from.
//!
//! ```text
//! column of one layer        its own Parquet type, cut down to the fields that are taken
//! column of several layers   the type of its Arrow field; a leaf may be copied where its own type
//!                            is the very same
//! ```
//!
//! # Invariants
//! A leaf that may be copied has the physical and logical type, the nesting and the levels of its
//! source. Whether its levels still hold in a combined struct is asked per row group (`witness`).

use std::sync::Arc;

use arrow_schema::Schema;
use parquet::arrow::ArrowSchemaConverter;
use parquet::basic::Repetition;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use plait_core::overlay::{Node, Plan, Supply};
use plait_core::{Error, Kind, Result};

use super::layer::FileLayer;
use crate::page::unwrap_error;

/// A leaf of the output.
#[derive(Clone, Debug)]
pub(super) struct OutLeaf {
    /// Layer of the plan and leaf there.
    pub(super) from: (usize, usize),
    /// Whether its type is that of the source.
    pub(super) is_same: bool,
    /// Combined structs above it, as places in [`Shape::structs`], each with the layer's struct.
    pub(super) under: Vec<(usize, usize)>,
}

/// A column of the output.
pub(super) struct OutputColumn {
    /// Its leaves in the output.
    pub(super) leaves: std::ops::Range<usize>,
    /// Whether several layers supply it.
    pub(super) is_combined: bool,
    /// Its structs in [`Shape::structs`].
    pub(super) structs: std::ops::Range<usize>,
}

/// The output's schema and its leaves.
pub(super) struct Shape {
    pub(super) schema: TypePtr,
    pub(super) descr: Arc<SchemaDescriptor>,
    pub(super) roots: Vec<OutputColumn>,
    pub(super) leaves: Vec<OutLeaf>,
    /// Every combined struct: layers that supply something below, each with its struct.
    pub(super) structs: Vec<Vec<(usize, usize)>>,
}

pub(super) fn shape(plan: &Plan, layers: &[Arc<FileLayer>]) -> Result<Shape> {
    let made = guarded_conversion(&Schema::new(plan.schema.fields().clone()))?;
    let mut types = Vec::new();
    let mut roots = Vec::new();
    let (mut leaves, mut structs) = (Vec::new(), Vec::new());
    for (place, field) in plan.schema.fields().iter().enumerate() {
        let (first, first_struct) = (leaves.len(), structs.len());
        let node = match place.checked_sub(1) {
            None => None,
            Some(root) => plan.roots.get(root),
        };
        let only = match node {
            None => Some(0),
            Some(node) => only_layer(node).filter(|_| !by_fields(node)),
        };
        match only {
            Some(layer) => {
                let source = &layers[plan.layers[layer].place];
                let own = root_type(source, plan, layer, node)?;
                let mut found = Vec::new();
                let ty = cut(&own, node, plan, layers, &mut found)?;
                types.push(if ty.name() == field.name() { ty } else { made_type(&made, place)? });
                leaves.extend(found.into_iter().map(|from| OutLeaf {
                    from,
                    is_same: true,
                    under: Vec::new(),
                }));
            }
            None => {
                types.push(made_type(&made, place)?);
                if let Some(node) = node {
                    combined(node, &mut Vec::new(), plan, layers, &mut leaves, &mut structs)?;
                }
            }
        }
        roots.push(OutputColumn {
            leaves: first..leaves.len(),
            is_combined: only.is_none(),
            structs: first_struct..structs.len(),
        });
    }
    let name = layers
        .first()
        .map_or("schema", |layer| layer.files.first().map_or("schema", |s| s.schema().name()));
    let schema = Type::group_type_builder(name).with_fields(types).build().map_err(unwrap_error)?;
    let schema = Arc::new(schema);
    let descr = Arc::new(SchemaDescriptor::new(Arc::clone(&schema)));
    if descr.num_columns() != leaves.len() {
        return Err(Error::new(Kind::Internal, "leaves of the output do not add up")
            .with_got(format!("{} of {}", leaves.len(), descr.num_columns())));
    }
    for (place, leaf) in leaves.iter_mut().enumerate() {
        let (layer, source_leaf) = leaf.from;
        let stored = &layers[plan.layers[layer].place].descr;
        leaf.is_same = *stored.column(source_leaf) == *descr.column(place);
    }
    Ok(Shape { schema, descr, roots, leaves, structs })
}

fn guarded_conversion(schema: &Schema) -> Result<SchemaDescriptor> {
    ArrowSchemaConverter::new().convert(schema).map_err(unwrap_error)
}

fn made_type(made: &SchemaDescriptor, place: usize) -> Result<TypePtr> {
    let fields = made.root_schema().get_fields();
    fields.get(place).cloned().ok_or_else(lost)
}

fn lost() -> Error {
    Error::new(Kind::Internal, "the schema of a file is not that of its columns")
}

/// The layer that supplies all of `node`, if it is one.
fn only_layer(node: &Node) -> Option<usize> {
    match node {
        Node::Take(Supply { layer, .. }) => Some(*layer),
        Node::Struct { above, .. } => match above.as_slice() {
            [(layer, _)] => Some(*layer),
            _ => None,
        },
    }
}

fn by_fields(node: &Node) -> bool {
    matches!(node, Node::Struct { by_fields: true, .. })
}

/// Places from the root of a part; the index is a column.
fn places<'a>(plan: &'a Plan, supply: &Supply) -> Result<&'a [usize]> {
    let parts = plan.layers.get(supply.layer).map(|layer| &layer.parts);
    parts.and_then(|parts| parts.get(supply.part)).map(Vec::as_slice).ok_or_else(lost)
}

fn root_type(
    source: &FileLayer,
    plan: &Plan,
    layer: usize,
    node: Option<&Node>,
) -> Result<(usize, TypePtr)> {
    let place = match node {
        None => plan.layers.get(layer).map(|plan| plan.index),
        Some(node) => first_place(node, plan),
    };
    let fields = source.descr.root_schema().get_fields();
    let place = place.ok_or_else(lost)?;
    Ok((place, fields.get(place).cloned().ok_or_else(lost)?))
}

fn first_place(node: &Node, plan: &Plan) -> Option<usize> {
    match node {
        Node::Take(supply) => places(plan, supply).ok()?.first().copied(),
        Node::Struct { nodes, .. } => nodes.first().and_then(|node| first_place(node, plan)),
    }
}

/// Leaves of the field at `places` of a file: the first, and how many.
fn leaf_range(file: &FileLayer, places: &[usize]) -> Result<(usize, usize)> {
    let mut level = file.descr.root_schema();
    let mut first = 0;
    for place in places {
        let fields = match level.is_group() {
            true => level.get_fields(),
            false => return Err(lost()),
        };
        first += fields.iter().take(*place).map(|field| count(field)).sum::<usize>();
        level = fields.get(*place).ok_or_else(lost)?;
    }
    Ok((first, count(level)))
}

fn count(ty: &Type) -> usize {
    match ty.is_group() {
        true => ty.get_fields().iter().map(|field| count(field)).sum(),
        false => 1,
    }
}

/// The type of a column of one layer, cut down to what is taken; notes its leaves.
fn cut(
    (place, own): &(usize, TypePtr),
    node: Option<&Node>,
    plan: &Plan,
    layers: &[Arc<FileLayer>],
    leaves: &mut Vec<(usize, usize)>,
) -> Result<TypePtr> {
    let mut add = |layer: usize, places: &[usize]| -> Result<()> {
        let (first, count) = leaf_range(&layers[plan.layers[layer].place], places)?;
        leaves.extend((first..first + count).map(|leaf| (layer, leaf)));
        Ok(())
    };
    match node {
        None => {
            add(0, &[*place])?;
            Ok(Arc::clone(own))
        }
        Some(Node::Take(supply)) => {
            add(supply.layer, places(plan, supply)?)?;
            Ok(Arc::clone(own))
        }
        Some(Node::Struct { nodes, fields, .. }) => {
            if !own.is_group() {
                return Err(lost());
            }
            let mut types = Vec::with_capacity(nodes.len());
            for (node, field) in nodes.iter().zip(fields) {
                let find = |ty: &&TypePtr| ty.name() == field.name();
                let below = own.get_fields().iter().find(find).ok_or_else(lost)?;
                types.push(cut(&(0, Arc::clone(below)), Some(node), plan, layers, leaves)?);
            }
            let info = own.get_basic_info();
            let id = info.has_id().then(|| info.id());
            let ty = Type::group_type_builder(own.name())
                .with_repetition(if info.has_repetition() {
                    info.repetition()
                } else {
                    Repetition::OPTIONAL
                })
                .with_converted_type(info.converted_type())
                .with_logical_type(info.logical_type_ref().cloned())
                .with_fields(types)
                .with_id(id)
                .build();
            ty.map(Arc::new).map_err(unwrap_error)
        }
    }
}

/// Notes the leaves of a column of several layers, and its structs.
fn combined(
    node: &Node,
    under: &mut Vec<(usize, Vec<(usize, usize)>)>,
    plan: &Plan,
    layers: &[Arc<FileLayer>],
    leaves: &mut Vec<OutLeaf>,
    structs: &mut Vec<Vec<(usize, usize)>>,
) -> Result<()> {
    match node {
        Node::Take(supply) => {
            let own = |above: &(usize, Vec<(usize, usize)>)| {
                let found = above.1.iter().find(|(layer, _)| *layer == supply.layer);
                found.map(|(_, place)| (above.0, *place))
            };
            let under: Vec<(usize, usize)> = under.iter().filter_map(own).collect();
            let file = &layers[plan.layers[supply.layer].place];
            let (first, count) = leaf_range(file, places(plan, supply)?)?;
            leaves.extend((first..first + count).map(|leaf| OutLeaf {
                from: (supply.layer, leaf),
                is_same: true,
                under: under.clone(),
            }));
            Ok(())
        }
        Node::Struct { nodes, above, .. } => {
            structs.push(above.clone());
            under.push((structs.len() - 1, above.clone()));
            for node in nodes {
                combined(node, under, plan, layers, leaves, structs)?;
            }
            under.pop();
            Ok(())
        }
    }
}

/// The leaf that is cheapest to read below the struct at `places`.
pub(super) fn witness_leaf(file: &FileLayer, places: &[usize]) -> Result<usize> {
    let (first, count) = leaf_range(file, places)?;
    let repeats = |leaf: usize| file.descr.column(leaf).max_rep_level() > 0;
    let leaves = first..first + count;
    leaves.min_by_key(|&leaf| (repeats(leaf), file.leaf_bytes(leaf))).ok_or_else(lost)
}
