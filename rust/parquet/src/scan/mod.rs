//! One schema over many files that drift: resolve once, then read every file adapted.
//!
//! ```text
//! sources ─ footers, in parallel ─ Summary ─ freeze ─▶ Frozen ─┐
//!    └──────── files, a few ahead, in parallel ── batches ─────┴─ Adapter ─▶ batches in order
//! ```
//!
//! # Invariants
//! Rows come in the order of the sources, whatever the threads. Every batch has the frozen schema.
//! A file is opened a second time only if a row of it is asked for. Threads end before a call
//! returns.
//!
//! # Cost
//! Resolving: a footer a file; decoded footers are not kept. Reading: what `memory_limit` leaves
//! (`options`), at most 64 MiB of rows ahead.
//!
//! # Not here
//! Types, policies, adapters (`plait_core::schema`).

mod entries;
mod file;
mod follow;
mod footer;
mod frozen;
mod options;
mod read;
mod resolve;
mod size;
mod sources;
mod statics;
mod text;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow_schema::SchemaRef;
use plait_core::Result;
use plait_core::schema::{Follow, Request};
use plait_core::stream::Reader;
use serde::Serialize;

use self::options::ScanOptions;
use crate::json::{from_json, to_json};
use crate::runtime::Context;
use crate::store::Stores;
use follow::FollowBatches;
pub use frozen::freeze_scan;
pub(crate) use frozen::summarize;
use read::ResolvedBatches;
use resolve::{Resolved, footers, summary};
use sources::ScanSources;
pub use text::{TextFile, TextReader, TextSurvey};

/// A scan: its sources, the schema of its batches, and how they are made.
///
/// ```
/// use plait_parquet::{Context, Scan, Stores};
///
/// # let folder = std::env::temp_dir().join(format!("plait-scan-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
/// # let context = Context::new(64 << 20);
/// # for (name, keys) in [("a.parquet", vec![1, 3, 5]), ("b.parquet", vec![2, 4])] {
/// #     let keys: arrow_array::ArrayRef = std::sync::Arc::new(arrow_array::Int64Array::from(keys));
/// #     let batch = arrow_array::RecordBatch::try_from_iter([("k", keys)])?;
/// #     let schema = batch.schema();
/// #     let batches = arrow_array::RecordBatchIterator::new([Ok(batch)], schema);
/// #     plait_parquet::write_batches(Box::new(batches), &path(name), &context)?;
/// # }
/// let files = [path("a.parquet"), path("b.parquet")];
/// let options = format!(r#"{{"sources": {files:?}, "columns": ["k"]}}"#);
/// let stores = Stores::try_new(&Default::default(), &context)?;
/// let scan = Scan::open(&options, None, Vec::new(), None, &stores, &context)?;
/// let mut rows = 0;
/// for batch in scan.batches()? {
///     rows += batch?.num_rows();
/// }
/// assert_eq!(rows, 5);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scan {
    sources: Arc<ScanSources>,
    plan: ScanPlan,
    resolve_seconds: f64,
}

enum ScanPlan {
    Resolved(Arc<Resolved>),
    Follow { request: Box<Request>, schema: SchemaRef, first: Mutex<Option<Box<FollowBatches>>> },
}

/// What a scan found and did so far.
#[derive(Debug, Serialize)]
struct ScanReport {
    /// Sources in all.
    sources: usize,
    /// Of these, files.
    files: usize,
    /// Distinct schemas among them.
    schemas: usize,
    /// Rows of all files, where footers were read.
    rows_known: Option<u64>,
    /// Sources whose rows were begun to be read.
    sources_opened: usize,
    /// Sources of which no row was read.
    sources_skipped: usize,
    /// Rows handed out.
    rows: u64,
    /// Batches handed out.
    batches: usize,
    /// In how many sources each column is.
    seen: BTreeMap<String, u64>,
    /// Seconds it took to resolve the schema.
    resolve_seconds: f64,
    /// Bytes read and batches that waited, at the worst.
    peak_bytes: u64,
    /// Changes of the schema, found by following.
    changes: Vec<ChangeReport>,
}

/// A change of the schema.
#[derive(Debug, Serialize)]
struct ChangeReport {
    /// The source that brought it.
    source: String,
    /// What changed.
    what: Vec<String>,
}

/// What becomes of one source.
#[derive(Debug, Serialize)]
struct SourcePlan {
    /// Its path, or the name of the stream.
    source: String,
    /// Its rows, where known.
    rows: Option<u64>,
    /// Every column of the output, and what is done for it.
    columns: Vec<(String, String)>,
}

impl Scan {
    /// Finds the sources and decides the schema: from all footers, or in mode `follow` from the
    /// first source alone. `options` are JSON. A stream is `None` if it has no batches, and so no schema:
    /// it has no rows, whatever the columns are.
    ///
    /// # Errors
    /// As `Stores::list`, `plait_core::schema::freeze` and opening files.
    pub fn open(
        options: &str,
        given: Option<SchemaRef>,
        streams: Vec<Option<Reader>>,
        text_reader: Option<Arc<dyn TextReader>>,
        stores: &Stores,
        context: &Context,
    ) -> Result<Arc<Self>> {
        let started = Instant::now();
        let options: ScanOptions = from_json(options)?;
        options.check_effects(given.is_some() || options.frozen.is_some())?;
        let sources = Arc::new(ScanSources::find(
            options,
            streams,
            text_reader,
            given.as_ref(),
            stores,
            context,
        )?);
        sources.check_columns(given.is_some())?;
        let request = sources.request(given)?;
        let plan = if sources.options.is_follow()? {
            begin_following(&sources, request)?
        } else {
            ScanPlan::Resolved(Arc::new(resolve(&sources, &request)?))
        };
        Ok(Arc::new(Self { sources, plan, resolve_seconds: started.elapsed().as_secs_f64() }))
    }

    /// The schema of the batches; in mode `follow` that of the first.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        match &self.plan {
            ScanPlan::Resolved(resolved) => resolved.frozen.output(),
            ScanPlan::Follow { schema, .. } => schema,
        }
    }

    /// Names the resolved schema; none in mode `follow`.
    #[must_use]
    pub fn fingerprint(&self) -> Option<&str> {
        match &self.plan {
            ScanPlan::Resolved(resolved) => Some(resolved.frozen.fingerprint()),
            ScanPlan::Follow { .. } => None,
        }
    }

    /// The resolved schema and what was decided with it, for scans of some of the files; none in
    /// mode `follow`.
    ///
    /// # Errors
    /// A schema that cannot be written.
    pub fn frozen(&self) -> Result<Option<String>> {
        match &self.plan {
            ScanPlan::Resolved(resolved) => frozen::write(&resolved.frozen).map(Some),
            ScanPlan::Follow { .. } => Ok(None),
        }
    }

    /// The batches, from the first row on. Streams can be read once.
    ///
    /// # Errors
    /// In mode `follow`: as opening the first source.
    pub fn batches(&self) -> Result<Reader> {
        let sources = &self.sources;
        match &self.plan {
            ScanPlan::Resolved(resolved) => {
                Ok(Box::new(ResolvedBatches::new(Arc::clone(sources), Arc::clone(resolved))))
            }
            ScanPlan::Follow { request, schema, first } => {
                let held = first.lock().unwrap_or_else(PoisonError::into_inner).take();
                let batches = match held {
                    Some(held) => *held,
                    None => FollowBatches::new(sources, follower(sources, request)?)?,
                };
                let (sources, schema) = (Arc::clone(sources), Arc::clone(schema));
                Ok(Box::new(follow::Attached::new(sources, batches, schema)))
            }
        }
    }

    /// What becomes of every source, as JSON; in mode `follow` nothing is known beforehand.
    ///
    /// # Errors
    /// What JSON cannot express.
    pub fn explain(&self) -> Result<String> {
        to_json(&self.source_plans())
    }

    fn source_plans(&self) -> Vec<SourcePlan> {
        let ScanPlan::Resolved(resolved) = &self.plan else { return Vec::new() };
        let Resolved { frozen, known, shapes } = &**resolved;
        let mut plans = Vec::with_capacity(known.len());
        // What does not adapt has no rows.
        let words: Vec<Vec<(String, String)>> = shapes
            .iter()
            .map(|shape| frozen.adapter_template(&shape.schema).map(|adapter| adapter.describe()))
            .map(Result::unwrap_or_default)
            .collect();
        for (entry, known) in self.sources.entries.iter().zip(known) {
            plans.push(SourcePlan {
                source: entry.name.clone(),
                rows: known.footer.as_ref().map(|footer| footer.rows),
                columns: words.get(known.class).cloned().unwrap_or_default(),
            });
        }
        plans
    }

    /// What was found and done so far, as JSON.
    ///
    /// # Errors
    /// What JSON cannot express.
    pub fn report(&self) -> Result<String> {
        let (schemas, rows_known, seen) = match &self.plan {
            ScanPlan::Resolved(resolved) => {
                let Resolved { known, shapes, .. } = &**resolved;
                let rows = known.iter().map(|k| k.footer.as_ref().map(|f| f.rows)).sum();
                let mut seen: BTreeMap<String, u64> = BTreeMap::new();
                for known in known {
                    let fields = shapes.get(known.class).map(|shape| shape.schema.fields());
                    for field in fields.into_iter().flatten() {
                        *seen.entry(field.name().clone()).or_default() += 1;
                    }
                }
                (shapes.len(), rows, seen)
            }
            ScanPlan::Follow { .. } => (0, None, BTreeMap::new()),
        };
        let ScanSources { entries, counts, context, .. } = &*self.sources;
        let opened = counts.opened.load(Ordering::Relaxed);
        let changes = counts.changes.lock().unwrap_or_else(PoisonError::into_inner);
        to_json(&ScanReport {
            sources: entries.len(),
            files: entries.iter().filter(|entry| entry.path.is_some()).count(),
            schemas,
            rows_known,
            sources_opened: opened,
            sources_skipped: entries.len().saturating_sub(opened),
            rows: counts.rows.load(Ordering::Relaxed),
            batches: counts.batches.load(Ordering::Relaxed),
            seen,
            resolve_seconds: self.resolve_seconds,
            peak_bytes: context.account().peak_bytes(),
            changes: changes
                .iter()
                .map(|c| ChangeReport { source: c.source.clone(), what: c.what.clone() })
                .collect(),
        })
    }
}

/// Decides the schema from all sources, or takes the one that was decided on before.
fn resolve(sources: &ScanSources, request: &Request) -> Result<Resolved> {
    let (known, shapes) = footers(sources)?;
    let summary = summary(sources, &known, &shapes);
    let frozen = match &sources.options.frozen {
        Some(text) => {
            let frozen = frozen::read(text, request.policy.clone())?;
            frozen::check(&frozen, &summary)?;
            frozen
        }
        None => frozen::decide(&summary, request)?,
    };
    Ok(Resolved { frozen, known, shapes })
}

fn follower(sources: &ScanSources, request: &Request) -> Result<Follow> {
    let options = &sources.options;
    let null_type = options.null_type.as_deref().map(options::type_named).transpose()?;
    let refuse = options.refuses_changes()?;
    Ok(Follow::new(request.clone(), options.is_smooth(), refuse, null_type))
}

/// Reads the first batch, which has the schema; it is held, and given first.
fn begin_following(sources: &ScanSources, request: Request) -> Result<ScanPlan> {
    let mut first = FollowBatches::new(sources, follower(sources, &request)?)?;
    let schema = first.peek(sources)?;
    let first = Mutex::new(Some(Box::new(first)));
    Ok(ScanPlan::Follow { request: Box::new(request), schema, first })
}
