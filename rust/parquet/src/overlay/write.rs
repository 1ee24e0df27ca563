//! Row groups of the output, leaf by leaf, each in the cheapest form that is right.
//!
//! ```text
//! leaf of one layer      row group lines up ─▶ chunk: bytes as they are
//!                        otherwise          ─▶ pages as they are, values where pages are cut
//! leaf under a struct    validity of the struct is that of the leaf's layer ─▶ as above
//! of several layers      otherwise          ─▶ decoded, overlaid, encoded
//! ```
//!
//! # Invariants
//! Row groups are those of the layer that supplies most bytes. Chunks are written in leaf order.
//!
//! # Cost
//! One page where bytes are copied; the encoded leaves of one column of one row group where a
//! struct is made anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatchReader};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer};
use arrow_schema::Schema;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use parquet::column::writer::ColumnCloseResult;
use plait_core::Runs;
use plait_core::overlay::{FieldPath, LayerSpec, Overlay, Plan};
use plait_core::packed_runs::PackedRuns;
use plait_core::{Error, Kind, Result};

use super::layer::{Columns, FileLayer};
use super::shape::{OutputColumn, Shape, witness_leaf};
use crate::check::is_true;
use crate::chunk::{self, OpenedChunk};
use crate::leaf::OutputLeaf;
use crate::options::Tier;
use crate::page::{guard, unwrap_error};
use crate::report::Copied;
use crate::runtime::Context;
use crate::sink::{Group, Output, append, complete};
use crate::source::RowGroupOf;
use crate::spill::Waiting;
use crate::weave::{LeafRows, WeaveContext, weave};

/// What is needed to write row groups.
pub(super) struct OverlayWriter<'a> {
    pub(super) plan: &'a Plan,
    /// In the order in which they were given.
    pub(super) layers: &'a [Arc<FileLayer>],
    /// Declared paths of each layer, in the same order.
    pub(super) paths: &'a [Vec<FieldPath>],
    pub(super) precedence: &'a [i64],
    pub(super) shape: &'a Shape,
    pub(super) leaves: &'a [OutputLeaf],
    pub(super) weaving: &'a WeaveContext,
    pub(super) waiting: &'a Arc<Waiting>,
    pub(super) tiers: &'a [Tier],
    pub(super) context: &'a Context,
    pub(super) copied: BTreeMap<&'static str, Copied>,
}

impl OverlayWriter<'_> {
    fn layer(&self, layer: usize) -> &Arc<FileLayer> {
        &self.layers[self.plan.layers[layer].place]
    }

    fn count(&mut self, tier: &'static str, rows: u64, bytes: u64) {
        let copied = self.copied.entry(tier).or_default();
        copied.rows += rows;
        copied.bytes += bytes;
    }

    /// Writes the rows `start..start + rows` as one row group.
    pub(super) fn row_group(&mut self, output: &mut Output, start: u64, rows: u64) -> Result<()> {
        let arrow = Arc::clone(&self.plan.schema);
        let factory = output.arrow_writers(Arc::new(Schema::new(arrow.fields().clone())));
        let shape = self.shape;
        output.write_group(rows, |group| {
            for (place, root) in shape.roots.iter().enumerate() {
                self.context.check_cancelled()?;
                self.root(group, &factory, place, root, start, rows)?;
            }
            Ok(())
        })?;
        self.context.counters().add_rows_written(rows);
        Ok(())
    }

    fn root(
        &mut self,
        group: &mut Group<'_>,
        factory: &ArrowRowGroupWriterFactory,
        place: usize,
        root: &OutputColumn,
        start: u64,
        rows: u64,
    ) -> Result<()> {
        let keeps = match root.is_combined {
            true => self.witness(root, start, rows)?,
            false => vec![true; root.leaves.len()],
        };
        let mut made = Vec::new();
        if keeps.iter().any(|keeps| !keeps) {
            made = self.encode(factory, place, root, start, rows)?;
        }
        let mut made = made.into_iter();
        for (leaf, keeps) in root.leaves.clone().zip(keeps) {
            let encoded = made.next();
            if keeps {
                self.copy(group, leaf, start, rows)?;
                continue;
            }
            let mut chunk =
                encoded.ok_or_else(|| Error::new(Kind::Internal, "a leaf was not encoded"))?;
            let close = chunk.close_mut();
            let descr = close.metadata.column_descr_ptr();
            close.column_index =
                close.column_index.take().filter(|columns| is_true(&descr, columns));
            *close = self.weaving.float_order(leaf).apply(close.clone())?;
            let bytes = chunk.close().bytes_written;
            chunk.append_to_row_group(group).map_err(unwrap_error)?;
            self.count("value", rows, bytes);
        }
        Ok(())
    }

    /// Copies a leaf: its chunk, or else its pages.
    fn copy(&mut self, group: &mut Group<'_>, place: usize, start: u64, rows: u64) -> Result<()> {
        let out = &self.shape.leaves[place];
        let leaf = &self.leaves[place];
        let layer = Arc::clone(self.layer(out.from.0));
        let in_layer = |e: Error| e.with_prefix(&format!("layer `{}`", layer.name));
        let span = layer.span(start, rows).filter(|span| {
            out.is_same
                && self.tiers.contains(&Tier::Chunk)
                && layer.has_as_is(span.file, out.from.1)
        });
        if let Some(span) = span {
            let source = &layer.files[span.file];
            let from = RowGroupOf { source, index: span.row_group };
            let (cache, verify) = (&*self.weaving.cache, self.weaving.verify_pages);
            let opened = chunk::open(from, leaf, verify, self.waiting, cache, self.context);
            let opened = opened.map_err(in_layer)?;
            if let Some(OpenedChunk { chunk, close }) = opened {
                let close = complete(self.weaving, leaf, from, close).map_err(in_layer)?;
                let bytes = close.bytes_written;
                let close = self.weaving.float_order(place).apply(close)?;
                group.append_column(&chunk, close).map_err(unwrap_error)?;
                self.count("chunk", rows, bytes);
                return Ok(());
            }
        }
        let mut runs = Runs::default();
        for (file, first, rows) in layer.pieces(start..start + rows) {
            runs.push(layer.files[file].id, first, rows);
        }
        let mut steps = PackedRuns::default();
        steps.extend(runs.as_slice())?;
        let chunks = weave(self.weaving, leaf, &mut [LeafRows::same(&steps)], self.waiting, None)
            .map_err(in_layer)?;
        for chunk in chunks {
            let bytes = chunk.close.metadata.compressed_size().max(0).unsigned_abs();
            let (kept, is_united) = (chunk.verbatim, chunk.is_united);
            append(group, chunk, self.weaving.float_order(place))?;
            self.count("page", kept.rows, kept.bytes);
            let rest = if is_united { "dict" } else { "value" };
            let (rows, bytes) = (rows.saturating_sub(kept.rows), bytes.saturating_sub(kept.bytes));
            self.count(rest, rows, bytes);
        }
        Ok(())
    }

    /// Which leaves of a combined column may be copied: those whose structs are there exactly where
    /// their own layer has them.
    fn witness(&self, root: &OutputColumn, start: u64, rows: u64) -> Result<Vec<bool>> {
        let leaves = &self.shape.leaves[root.leaves.clone()];
        if leaves.iter().all(|leaf| !leaf.is_same) || by_fields(self.plan) {
            return Ok(vec![false; leaves.len()]);
        }
        let mut same: BTreeMap<(usize, usize), bool> = BTreeMap::new();
        for place in root.structs.clone() {
            let above = &self.shape.structs[place];
            let mut bits = Vec::with_capacity(above.len());
            for &(layer, of) in above {
                bits.push((layer, self.validity(layer, of, start, rows)?));
            }
            let combined = any(&bits);
            for (layer, bits) in bits {
                same.insert((place, layer), bits == combined);
            }
        }
        let keeps = |leaf: &super::shape::OutLeaf| {
            let mut under = leaf.under.iter();
            leaf.is_same && under.all(|(place, _)| same.get(&(*place, leaf.from.0)) == Some(&true))
        };
        Ok(leaves.iter().map(keeps).collect())
    }

    /// Where a struct of a layer is there, with everything above it; none if that is everywhere.
    fn validity(
        &self,
        layer: usize,
        of: usize,
        start: u64,
        rows: u64,
    ) -> Result<Option<BooleanBuffer>> {
        let places = &self.plan.layers[layer].structs[of];
        let file = self.layer(layer);
        let names = names(&self.plan.layers[layer].schema, places);
        let leaf = witness_leaf(file, places)?;
        let reader = file.reader(
            Columns::Leaves(vec![leaf]),
            start..start + rows,
            self.context.budget().layer(self.layers.len()),
            self.context,
        )?;
        let mut bits = BooleanBufferBuilder::new(0);
        let mut has_nulls = false;
        for batch in reader {
            let batch = batch.map_err(Error::from_arrow)?;
            let mut valid: Option<NullBuffer> = None;
            let mut array: Option<ArrayRef> = None;
            for name in &names {
                let next = match &array {
                    None => batch.column_by_name(name),
                    Some(array) => {
                        array.as_struct_opt().and_then(|array| array.column_by_name(name))
                    }
                };
                let next = next.cloned();
                let next =
                    next.ok_or_else(|| Error::new(Kind::Internal, "a struct is not there"))?;
                valid = NullBuffer::union(valid.as_ref(), next.nulls());
                array = Some(next);
            }
            match valid {
                Some(valid) => {
                    has_nulls |= valid.null_count() > 0;
                    bits.append_buffer(valid.inner());
                }
                None => bits.append_n(batch.num_rows(), true),
            }
        }
        if bits.len() as u64 != rows {
            return Err(Error::new(Kind::CorruptSource, "a column has another number of rows")
                .with_column(names.join(".")));
        }
        Ok(has_nulls.then(|| bits.finish()))
    }

    /// Decodes, overlays and encodes one column.
    fn encode(
        &self,
        factory: &ArrowRowGroupWriterFactory,
        place: usize,
        root: &OutputColumn,
        start: u64,
        rows: u64,
    ) -> Result<Vec<ArrowColumnChunk>> {
        let field = self.plan.schema.field(place);
        let overlay = self.overlay_of(field.name(), start, rows)?;
        let mut writers = factory.create_column_writers(0).map_err(unwrap_error)?;
        let mut writers: Vec<_> = writers.drain(root.leaves.clone()).collect();
        for batch in overlay {
            let batch = batch.map_err(Error::from_arrow)?;
            self.context.check_cancelled()?;
            let write = || {
                let columns = compute_leaves(field, batch.column(1))?;
                writers.iter_mut().zip(&columns).try_for_each(|(writer, leaf)| writer.write(leaf))
            };
            guard(write)?.map_err(unwrap_error)?;
        }
        let close = |writer: ArrowColumnWriter| {
            let mut chunk = writer.close()?;
            if !tells_null_pages(chunk.close()) {
                chunk.close_mut().column_index = None;
            }
            Ok(chunk)
        };
        writers.into_iter().map(|writer| close(writer).map_err(unwrap_error)).collect()
    }

    /// The overlay of one column of some rows.
    fn overlay_of(&self, name: &str, start: u64, rows: u64) -> Result<Overlay> {
        let mut specs = Vec::new();
        let mut readers: Vec<Box<dyn RecordBatchReader + Send>> = Vec::new();
        let sizes = self.context.budget().layer(self.layers.len());
        for plan in &self.plan.layers {
            let layer = &self.layers[plan.place];
            let paths = self.paths[plan.place].iter();
            let paths: Vec<_> = paths.filter(|path| path.names()[0] == name).cloned().collect();
            let Some(column) = layer.schema.fields().find(name).map(|(column, _)| column) else {
                continue;
            };
            if paths.is_empty() {
                continue;
            }
            let columns = Columns::Roots(vec![plan.index, column]);
            let reader = layer.reader(columns, start..start + rows, sizes, self.context)?;
            specs.push(LayerSpec {
                name: layer.name.clone(),
                schema: reader.schema(),
                paths: Some(paths),
                precedence: self.precedence[plan.place],
            });
            readers.push(Box::new(reader));
        }
        let mut options = self.plan.options.clone();
        options.row_number = None;
        options.check_unused = true;
        options.batch_rows = None;
        Overlay::try_new(Plan::try_new(&specs, options)?, readers)
    }
}

/// Whether pages without values can be recognised. Arrow's writer takes a page for one without
/// values if it has as many nulls as rows, which a page of lists may well have besides its values.
fn tells_null_pages(close: &ColumnCloseResult) -> bool {
    let Some(index) = &close.column_index else { return true };
    let pages = usize::try_from(index.num_pages()).unwrap_or(usize::MAX);
    let has_values = |page: usize| {
        let levels = index.definition_level_histogram(page);
        levels.is_none_or(|levels| levels.last().is_some_and(|values| *values > 0))
    };
    let descr = close.metadata.column_descr();
    descr.max_rep_level() == 0
        || !(0..pages).any(|page| index.is_null_page(page) && has_values(page))
}

fn by_fields(plan: &Plan) -> bool {
    plan.options.struct_validity == plait_core::overlay::StructValidity::AllChildren
}

fn any(bits: &[(usize, Option<BooleanBuffer>)]) -> Option<BooleanBuffer> {
    let mut all: Option<BooleanBuffer> = None;
    for (_, bits) in bits {
        let bits = bits.as_ref()?;
        all = Some(match all {
            None => bits.clone(),
            Some(known) => &known | bits,
        });
    }
    all.filter(|all| all.count_set_bits() < all.len())
}

/// Names of the fields at `places`.
fn names(schema: &Schema, places: &[usize]) -> Vec<String> {
    let mut names = Vec::with_capacity(places.len());
    let mut fields = schema.fields().clone();
    for place in places {
        let Some(field) = fields.get(*place).cloned() else { break };
        names.push(field.name().clone());
        fields = match field.data_type() {
            arrow_schema::DataType::Struct(fields) => fields.clone(),
            _ => break,
        };
    }
    names
}
