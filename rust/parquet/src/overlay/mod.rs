//! Overlays Parquet files into one: leaves are copied as bytes from the layer that owns them.
//!
//! ```text
//! footers ─▶ plan ─▶ index columns equal? ─▶ row groups ─┬─ chunk   bytes as they are
//!            (core)  (decoded, nothing else)             ├─ page    pages as they are
//!                                                        └─ value   decoded, overlaid, encoded
//!                                    sink ─▶ output: temp file ─ sync ─ rename
//! ```
//!
//! # Invariants
//! The rows, values and validity of the output are those of `plait_core::overlay` over the same
//! files, whatever was copied how. Nothing has a visible name before all rows were compared and the
//! file is whole and durable. Sources are never written.
//!
//! # Cost
//! A copy of the bytes that are taken, and the decoding of all index columns. A struct of several
//! layers is decoded only in row groups where its layers disagree on where it is.
//!
//! # Not here
//! Which layer supplies what (`plait_core::overlay`).

mod layer;
pub(crate) mod options;
mod shape;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatchReader;
use arrow_schema::Schema;
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::file::metadata::KeyValue;
use plait_core::overlay::{FieldPath, LayerSpec, Overlay, Plan};
use plait_core::stream::Reader;
use plait_core::{Error, Kind, Result};
use serde::Serialize;

use crate::files::check_unchanged;
use crate::json::from_json;
use crate::leaf::{LocationCache, OutputLeaf};
use crate::options::{MergeOptions, VerifyPages, check_memory_limit};
use crate::output::Target;
use crate::properties::{encodings, properties, type_defined_floats};
use crate::report::Copied;
use crate::runtime::{Budget, Context, MemoryStage};
use crate::schema::{LeafAdapter, LevelMap, describes_one_file};
use crate::sink::Output;
use crate::source::Source;
use crate::spill::{ScratchFiles, Waiting};
use crate::store::{Completed, Stores};
use crate::weave::{LeafFooters, Tiers, WeaveContext};

use layer::{Columns, FileLayer};
use options::{Check, OverlayFilesOptions, OverlayOptions};
use shape::Shape;

/// What an overlay of files did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OverlayReport {
    /// The output.
    pub path: String,
    /// Its rows.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// Its row groups.
    pub row_groups: usize,
    /// Which layer gave each column or field: path and name.
    pub supplied: Vec<(String, String)>,
    /// Rows, shared out among leaves, and stored bytes by copy tier.
    pub copied: BTreeMap<&'static str, Copied>,
    /// Seconds by stage: comparing index columns, writing, publishing, all.
    pub time: OverlayTimes,
}

/// Seconds by stage.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct OverlayTimes {
    /// Comparing index columns.
    pub check_s: f64,
    /// Copying and encoding.
    pub write_s: f64,
    /// Making durable and renaming.
    pub publish_s: f64,
    /// All.
    pub wall_s: f64,
}

/// Overlays record batches as `options`, JSON, say: one reader a layer.
///
/// # Errors
/// [`Kind::InvalidArgument`] for other options, or another number of layers; as
/// [`Plan::try_new`](plait_core::overlay::Plan::try_new).
pub fn overlay(options: &str, readers: Vec<Reader>) -> Result<Overlay> {
    let options: OverlayOptions = from_json(options)?;
    if options.layers.len() != readers.len() {
        let (paths, streams) = (options.layers.len(), readers.len());
        let what = "layers and streams are not equally many";
        return Err(Error::new(Kind::InvalidArgument, what)
            .with_got(format!("paths of {paths} layers, {streams} streams")));
    }
    let specs = options.layers.iter().zip(&readers).map(|(layer, reader)| {
        let (name, precedence) = (layer.name.clone(), layer.precedence);
        Ok(LayerSpec { name, schema: reader.schema(), paths: layer.paths()?, precedence })
    });
    let specs = specs.collect::<Result<Vec<_>>>()?;
    Overlay::try_new(Plan::try_new(&specs, options.options()?)?, readers)
}

/// Overlays files as `options` say, with layers and output in `stores`.
///
/// # Errors
/// Every [`Kind`]; whatever it is, no output is visible and no source changed.
pub(crate) fn overlay_files(
    options: &OverlayFilesOptions,
    stores: &Stores,
    context: &Context,
) -> Result<OverlayReport> {
    let outcome = attempt(options, stores, context);
    context.buffers().release_idle();
    outcome
}

/// What is known before the first row is read.
struct PreparedOverlay {
    layers: Vec<Arc<FileLayer>>,
    paths: Vec<Vec<FieldPath>>,
    precedence: Vec<i64>,
    plan: Plan,
    shape: Shape,
}

fn attempt(
    options: &OverlayFilesOptions,
    stores: &Stores,
    context: &Context,
) -> Result<OverlayReport> {
    let started = Instant::now();
    check_memory_limit(options.memory_limit)?;
    let prepared = prepare(options, stores, context)?;
    let mut times = OverlayTimes::default();
    let mut check = || -> Result<()> {
        let started = Instant::now();
        check_rows(&prepared, context)?;
        times.check_s = started.elapsed().as_secs_f64();
        Ok(())
    };
    // Footers tell how many rows there are: layers of different lengths fail at once.
    let rows = rows_of(&prepared);
    let mut read = prepared.plan.layers.iter().map(|plan| prepared.layers[plan.place].rows());
    if options.check == Check::Upfront || read.any(|other| other != rows) {
        check()?;
    }
    let target = Target::open(&options.out, stores, context)?;
    let made = free_name(&target, options).and_then(|name| {
        let writing = Instant::now();
        let (output, copied) = write(&prepared, options, &target, &name, context)?;
        if options.check == Check::After {
            check()?;
        }
        times.write_s = writing.elapsed().as_secs_f64();
        publish(&prepared, output, &target, &name, context)
            .map(|(bytes, row_groups)| (name, copied, bytes, row_groups))
    });
    let (name, mut copied, bytes, row_groups) = made.inspect_err(|_| target.abandon())?;
    times.wall_s = started.elapsed().as_secs_f64();
    times.publish_s = (times.wall_s - times.write_s - times.check_s).max(0.0);
    let leaves = (prepared.shape.leaves.len() as u64).max(1);
    copied.values_mut().for_each(|tier| tier.rows /= leaves);
    Ok(OverlayReport {
        path: target.location(&name),
        rows: rows_of(&prepared),
        bytes,
        row_groups,
        supplied: prepared.plan.explain(),
        copied,
        time: times,
    })
}

fn rows_of(prepared: &PreparedOverlay) -> u64 {
    let first = prepared.plan.layers.first().map(|plan| plan.place);
    first.and_then(|place| prepared.layers.get(place)).map_or(0, |layer| layer.rows())
}

fn prepare(
    options: &OverlayFilesOptions,
    stores: &Stores,
    context: &Context,
) -> Result<PreparedOverlay> {
    let mut layers: Vec<Arc<FileLayer>> = Vec::new();
    let mut specs = Vec::new();
    let mut first_id = 0;
    for of in &options.overlay.layers {
        let layer = FileLayer::open(&of.name, &of.files, first_id, stores, context)?;
        first_id += layer.files.len();
        specs.push(LayerSpec {
            name: of.name.clone(),
            schema: Arc::clone(&layer.schema),
            paths: of.paths()?,
            precedence: of.precedence,
        });
        layers.push(Arc::new(layer));
    }
    let plan = Plan::try_new(&specs, options.overlay.options()?)?;
    let mut paths = Vec::with_capacity(specs.len());
    for (place, spec) in specs.iter().enumerate() {
        let index = plan.layers.iter().find(|plan| plan.place == place).map(|plan| plan.index);
        paths.push(match &spec.paths {
            Some(paths) => paths.clone(),
            None => {
                let columns = spec.schema.fields().iter().enumerate();
                let columns = columns.filter(|(column, _)| Some(*column) != index);
                columns
                    .map(|(_, field)| FieldPath::try_new(vec![field.name().clone()]))
                    .collect::<Result<_>>()?
            }
        });
    }
    let shape = shape::shape(&plan, &layers)?;
    let precedence = specs.iter().map(|spec| spec.precedence).collect();
    Ok(PreparedOverlay { layers, paths, precedence, plan, shape })
}

/// Compares the index columns of all layers that the plan reads.
fn check_rows(prepared: &PreparedOverlay, context: &Context) -> Result<()> {
    let mut specs = Vec::new();
    let mut readers: Vec<Box<dyn RecordBatchReader + Send>> = Vec::new();
    let sizes = context.budget().layer(prepared.layers.len());
    for plan in &prepared.plan.layers {
        let layer = &prepared.layers[plan.place];
        let columns = std::iter::once(plan.index).chain(plan.row_number).collect();
        let reader = layer.reader(Columns::Roots(columns), 0..layer.rows(), sizes, context)?;
        specs.push(LayerSpec {
            name: layer.name.clone(),
            schema: reader.schema(),
            paths: Some(Vec::new()),
            precedence: prepared.precedence[plan.place],
        });
        readers.push(Box::new(reader));
    }
    let mut options = prepared.plan.options.clone();
    options.check_unused = true;
    options.batch_rows = None;
    let overlay = Overlay::try_new(Plan::try_new(&specs, options)?, readers)?;
    for batch in overlay {
        batch.map_err(Error::from_arrow)?;
    }
    Ok(())
}

/// The output's name, which nothing has yet.
fn free_name(target: &Target, options: &OverlayFilesOptions) -> Result<String> {
    let Some(name) = target.file_name() else {
        return Err(Error::new(Kind::InvalidArgument, "the output of an overlay is one file")
            .with_path(&options.out)
            .with_hint("give a path that ends in `.parquet`"));
    };
    match target.exists(name)? {
        false => Ok(name.to_owned()),
        true => Err(Error::new(Kind::OutputExists, "the output is there already")
            .with_path(target.location(name))
            .with_hint("remove it or write elsewhere")),
    }
}

/// Writes all row groups; what was copied how.
fn write(
    prepared: &PreparedOverlay,
    options: &OverlayFilesOptions,
    target: &Target,
    name: &str,
    context: &Context,
) -> Result<(Output, BTreeMap<&'static str, Copied>)> {
    let PreparedOverlay { layers, plan, shape, .. } = prepared;
    let sources: Arc<Vec<Arc<Source>>> =
        Arc::new(layers.iter().flat_map(|layer| layer.files.iter().cloned()).collect());
    let leaves = output_leaves(prepared, sources.len());
    let budget = Budget::of(options.memory_limit);
    let metadata = metadata(prepared, &sources);
    let merge = MergeOptions::default();
    let floats = Arc::new(type_defined_floats(&sources, &leaves, &options.copy_tiers)?);
    let tiers = Tiers::of(&options.copy_tiers);
    let encodings = encodings(&merge, &sources, &leaves)?;
    let properties = properties(&merge, &encodings, &leaves, Vec::new(), metadata)?;
    let weaving = WeaveContext {
        footers: Arc::new(LeafFooters::of(&sources, &leaves, &properties, tiers)?),
        asks: Arc::default(),
        type_defined: Arc::clone(&floats),
        properties,
        sources,
        cache: Arc::new(LocationCache::new(context, budget.bytes(MemoryStage::PageLocations))),
        context: context.clone(),
        packers: Arc::default(),
        encodings: None,
        zstd: None,
        unions: Arc::default(),
        carried: Arc::default(),
        tiers,
        asked_dictionary: None,
        verify_pages: VerifyPages::Checksum,
        server_side_copy: false,
        page_version: None,
    };
    let waiting_bytes = budget.bytes(MemoryStage::OverlayChunks);
    let scratch = ScratchFiles::new(&target.scratch(), context);
    let waiting = Arc::new(Waiting::new(&scratch, waiting_bytes, 0));
    let mut output = Output::create(target.create(name)?, &shape.schema, &weaving.properties)?
        .with_type_defined(&floats);
    let mut writer = write::OverlayWriter {
        plan,
        layers,
        paths: &prepared.paths,
        precedence: &prepared.precedence,
        shape,
        leaves: &leaves,
        weaving: &weaving,
        waiting: &waiting,
        tiers: &options.copy_tiers,
        context,
        copied: BTreeMap::new(),
    };
    for span in &lead(prepared).spans {
        writer.row_group(&mut output, span.start, span.rows)?;
    }
    let copied = writer.copied;
    Ok((output, copied))
}

/// The layer that supplies most bytes: its row groups are those of the output.
fn lead(prepared: &PreparedOverlay) -> &Arc<FileLayer> {
    let mut bytes = vec![0_u64; prepared.layers.len()];
    for leaf in &prepared.shape.leaves {
        let place = prepared.plan.layers[leaf.from.0].place;
        bytes[place] += prepared.layers[place].leaf_bytes(leaf.from.1);
    }
    let most = (0..bytes.len()).rev().max_by_key(|&place| bytes[place]).unwrap_or(0);
    &prepared.layers[most]
}

/// The output's leaves; each is in the files of one layer.
fn output_leaves(prepared: &PreparedOverlay, sources: usize) -> Vec<OutputLeaf> {
    let absent = || LeafAdapter::Missing {
        sibling: None,
        rep_keep: 0,
        def_cap: 0,
        levels: LevelMap::Identity,
    };
    let leaves = &prepared.shape.leaves;
    let mut adapters: Vec<Vec<LeafAdapter>> = vec![Vec::with_capacity(leaves.len()); sources];
    for leaf in leaves {
        let (layer, of) = leaf.from;
        let place = prepared.plan.layers[layer].place;
        let mut id = 0;
        for (other, layer) in prepared.layers.iter().enumerate() {
            for file in 0..layer.files.len() {
                let own = layer.adapter(file, of).filter(|_| other == place);
                adapters[id].push(own.unwrap_or_else(absent));
                id += 1;
            }
        }
    }
    let adapters = Arc::new(adapters.into_iter().map(Arc::from).collect::<Vec<_>>());
    let columns = prepared.shape.descr.columns().iter().enumerate();
    columns
        .map(|(index, descr)| OutputLeaf {
            descr: Arc::clone(descr),
            index,
            adapters: Arc::clone(&adapters),
        })
        .collect()
}

/// Entries of the footer: the first layer's word counts. What describes one file as a whole is left
/// out where there are several, and so is that on which the files of a layer differ.
fn metadata(prepared: &PreparedOverlay, sources: &[Arc<Source>]) -> Vec<KeyValue> {
    let schema = &prepared.plan.schema;
    let is_mixed = prepared.plan.layers.iter().filter(|plan| plan.supplies()).count() > 1;
    let entries_of =
        |source: &Arc<Source>| source.file().key_value_metadata().cloned().unwrap_or_default();
    let mut kept: Vec<KeyValue> = Vec::new();
    for plan in &prepared.plan.layers {
        let files = &prepared.layers[plan.place].files;
        let (first, others) = match files.split_first() {
            Some((first, others)) => {
                (entries_of(first), others.iter().map(entries_of).collect::<Vec<_>>())
            }
            None => continue,
        };
        for entry in &first {
            let is_stale = entry.key == ARROW_SCHEMA_META_KEY
                || entry.key.starts_with("plait.")
                || ((is_mixed || !others.is_empty()) && describes_one_file(&entry.key))
                || !others.iter().all(|entries| entries.contains(entry));
            if !is_stale && kept.iter().all(|known| known.key != entry.key) {
                kept.push(entry.clone());
            }
        }
    }
    let has_hint = |source: &Arc<Source>| {
        let entries = source.file().key_value_metadata();
        entries.into_iter().flatten().any(|entry| entry.key == ARROW_SCHEMA_META_KEY)
    };
    if sources.iter().any(has_hint) {
        // PyArrow takes the entries of a schema from the hint alone.
        let entries = kept.iter().map(|kv| (kv.key.clone(), kv.value.clone().unwrap_or_default()));
        let entries: std::collections::HashMap<String, String> = entries.collect();
        let hint = Schema::new_with_metadata(schema.fields().clone(), entries);
        kept.push(KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(&hint)));
    }
    kept
}

fn publish(
    prepared: &PreparedOverlay,
    output: Output,
    target: &Target,
    name: &str,
    context: &Context,
) -> Result<(u64, usize)> {
    let finished = output.finish(&[])?;
    if finished.rows != rows_of(prepared) {
        return Err(Error::new(Kind::Internal, "rows do not add up, nothing was published")
            .with_got(format!("{} rows out of {}", finished.rows, rows_of(prepared)))
            .with_hint("please report this"));
    }
    let files: Vec<_> = prepared.layers.iter().flat_map(|layer| &layer.files).collect();
    check_unchanged(&files, None, context)?;
    context.check_cancelled()?;
    if finished.temp.publish_new(target, name)? == Completed::Occupied {
        return Err(Error::new(Kind::OutputExists, "the output is there already")
            .with_path(target.location(name))
            .with_hint("remove it or write elsewhere"));
    }
    target.sync()?;
    Ok((finished.bytes, finished.row_groups))
}
