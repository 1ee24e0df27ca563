//! One output batch from the pieces of all layers.
//!
//! ```text
//! pieces of one layer ─ one: shared ─┬─▶ parts ─ mask ─▶ fields ─▶ structs ─▶ batch
//!                     └ more: joined ┘
//! ```
//!
//! # Invariants
//! The validity of a combined struct is that of its layers, put together 64 rows at a time. A part
//! is copied only when it comes in several pieces.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer};
use arrow_schema::{ArrowError, Field};

use super::feed::Piece;
use super::mask::Mask;
use super::node::{Node, Supply};
use super::path::dotted;
use super::plan::Plan;
use plait_base::{Error, Kind, Result};

/// Rows of one layer in one piece.
struct LayerRows {
    parts: Vec<ArrayRef>,
    structs: Vec<Option<NullBuffer>>,
    masks: Vec<Option<Mask>>,
}

/// The batch of `rows` rows made of `index` and the pieces of each layer.
pub(super) fn batch(
    plan: &Plan,
    index: ArrayRef,
    pieces: Vec<Vec<Piece>>,
    rows: usize,
) -> Result<RecordBatch> {
    let layers: Vec<LayerRows> = pieces.into_iter().map(joined).collect::<Result<_>>()?;
    let mut columns = Vec::with_capacity(plan.roots.len() + 1);
    columns.push(index);
    for (node, field) in plan.roots.iter().zip(plan.schema.fields().iter().skip(1)) {
        let made = made(node, field, &layers, rows, false);
        columns.push(made.map_err(|e| e.with_column(dotted(&[field.name()])))?.array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(&plan.schema), columns, &options)
        .map_err(contradicts)
}

fn contradicts(error: ArrowError) -> Error {
    Error::new(Kind::CorruptSource, "a layer's values contradict its schema")
        .with_cause(error)
        .with_hint("a field that is not nullable may hold nulls")
}

fn joined(mut pieces: Vec<Piece>) -> Result<LayerRows> {
    let (parts, structs) = match pieces.len() {
        1 => match pieces.pop() {
            Some(piece) => (piece.parts, piece.structs),
            None => (Vec::new(), Vec::new()),
        },
        _ => (join_parts(&pieces)?, join_structs(&pieces)),
    };
    let masks = structs.iter().map(Mask::new).collect();
    Ok(LayerRows { parts, structs, masks })
}

fn join_parts(pieces: &[Piece]) -> Result<Vec<ArrayRef>> {
    let count = pieces.first().map_or(0, |piece| piece.parts.len());
    let join = |part: usize| {
        let arrays: Vec<&dyn Array> =
            pieces.iter().filter_map(|p| Some(p.parts.get(part)?.as_ref())).collect();
        arrow_select::concat::concat(&arrays).map_err(|e| {
            Error::new(Kind::Unsupported, "batches of a layer cannot be joined")
                .with_cause(e)
                .with_hint("pass a smaller batch_rows")
        })
    };
    (0..count).map(join).collect()
}

fn join_structs(pieces: &[Piece]) -> Vec<Option<NullBuffer>> {
    let count = pieces.first().map_or(0, |piece| piece.structs.len());
    let join = |place: usize| {
        let valid = || {
            pieces
                .iter()
                .map(|piece| (piece.rows, piece.structs.get(place).and_then(Option::as_ref)))
        };
        if valid().all(|(_, valid)| valid.is_none()) {
            return None;
        }
        let mut bits = BooleanBufferBuilder::new(pieces.iter().map(|piece| piece.rows).sum());
        for (rows, valid) in valid() {
            match valid {
                Some(valid) => bits.append_buffer(valid.inner()),
                None => bits.append_n(rows, true),
            }
        }
        Some(NullBuffer::new(bits.finish()))
    };
    (0..count).map(join).collect()
}

/// An array of the output, and where it is there if whoever asks makes validity of it.
struct BuiltArray {
    array: ArrayRef,
    valid: Option<NullBuffer>,
}

/// Makes the array of `node`. A field that is not nullable has no nulls of its own: where it is not
/// there, its struct is not either.
fn made(
    node: &Node,
    field: &Field,
    layers: &[LayerRows],
    rows: usize,
    asks: bool,
) -> Result<BuiltArray> {
    let lost = || Error::new(Kind::Internal, "a part of a layer is not there");
    match node {
        Node::Take(Supply { layer, part, mask }) => {
            let layer = layers.get(*layer).ok_or_else(lost)?;
            let array = layer.parts.get(*part).ok_or_else(lost)?;
            let mask = mask.and_then(|place| layer.masks.get(place)).and_then(Option::as_ref);
            let masked = match mask {
                Some(mask) if asks || field.is_nullable() => mask.apply(array)?,
                _ => Arc::clone(array),
            };
            let valid = if asks { masked.logical_nulls() } else { None };
            let array = if field.is_nullable() { masked } else { Arc::clone(array) };
            Ok(BuiltArray { array, valid })
        }
        Node::Struct { fields, nodes, above, by_fields } => {
            let mut columns = Vec::with_capacity(nodes.len());
            let mut there = Vec::new();
            for (node, field) in nodes.iter().zip(fields) {
                let BuiltArray { array, valid } = made(node, field, layers, rows, *by_fields)
                    .map_err(|e| e.with_column(dotted(&[field.name()])))?;
                columns.push(array);
                there.push(valid);
            }
            let valid = if *by_fields {
                any(there.into_iter())
            } else {
                any(above.iter().map(|(layer, place)| {
                    layers
                        .get(*layer)
                        .and_then(|layer| layer.structs.get(*place))
                        .cloned()
                        .flatten()
                }))
            };
            let build = |columns, valid| {
                StructArray::try_new_with_length(fields.clone(), columns, valid, rows)
            };
            let bare = match (&valid, field.is_nullable()) {
                (Some(_), false) => build(columns.clone(), None).ok(),
                _ => None,
            };
            let array = match bare {
                Some(array) => array,
                None => build(columns, valid.clone()).map_err(contradicts)?,
            };
            Ok(BuiltArray { array: Arc::new(array), valid })
        }
    }
}

/// Where any of `parts` is valid; none if that is everywhere.
fn any(parts: impl Iterator<Item = Option<NullBuffer>>) -> Option<NullBuffer> {
    let mut valid: Option<BooleanBuffer> = None;
    let mut is_shared = None;
    for part in parts {
        let part = part.filter(|part| part.null_count() > 0)?;
        valid = Some(match valid {
            None => {
                is_shared = Some(part.clone());
                part.into_inner()
            }
            // Layers that were split off one file hold the very same bits.
            Some(known) if known.ptr_eq(part.inner()) => known,
            Some(known) => {
                is_shared = None;
                &known | part.inner()
            }
        });
    }
    is_shared.or_else(|| valid.map(NullBuffer::new)).filter(|valid| valid.null_count() > 0)
}
