//! Reads what every source says of its columns: the footers of files, the schemas of streams.
//!
//! # Invariants
//! Of several sources that cannot be opened the first in order is named, whatever the threads.
//!
//! # Cost
//! A footer a file, on all threads; what is kept of it is three numbers.
//!
//! # Not here
//! Deciding on one schema (`frozen`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_schema::{Schema, SchemaRef};
use plait_core::schema::{Adapter, Class, Frozen, Summary};
use plait_core::{Error, Kind, Result};

use super::file;
use super::footer::Footer;
use super::sources::ScanSources;
use super::text;

/// What is known of a resolved source.
#[derive(Clone)]
pub(super) struct ResolvedSource {
    /// Its schema, among the distinct ones.
    pub(super) class: usize,
    /// None for a stream; of a file of text, what a footer would tell.
    pub(super) footer: Option<Footer>,
}

/// Sources of equal schemas: the schema, and the adapter of the leaves that are read.
pub(super) struct SchemaClass {
    pub(super) schema: SchemaRef,
    pub(super) adapter: OnceLock<Arc<Adapter>>,
}

/// All sources, and the schema that was decided on.
pub(super) struct Resolved {
    pub(super) frozen: Frozen,
    pub(super) known: Vec<ResolvedSource>,
    pub(super) shapes: Vec<SchemaClass>,
}

/// What all sources say of their columns.
pub(super) fn summary(
    sources: &ScanSources,
    known: &[ResolvedSource],
    shapes: &[SchemaClass],
) -> Summary {
    let mut summary = Summary::default();
    let are_all_blank = sources.are_all_blank();
    for (entry, known) in sources.entries.iter().zip(known) {
        let Some(shape) = shapes.get(known.class) else { continue };
        let is_blank = sources.is_blank(entry);
        if is_blank && !are_all_blank {
            continue; // it lacks no column
        }
        summary.add(Class {
            fields: shape.schema.fields().clone(),
            first: entry.name.clone(),
            sources: 1,
            has_rows: !is_blank && known.footer.as_ref().is_none_or(|footer| footer.rows > 0),
        });
    }
    summary
}

/// A thread is not started for fewer local footers.
const FILES_A_THREAD: usize = 8;

/// Reads all footers, on all threads.
///
/// # Errors
/// What opening the first of the files gives that fails.
pub(super) fn footers(sources: &ScanSources) -> Result<(Vec<ResolvedSource>, Vec<SchemaClass>)> {
    struct SeenFooters {
        shapes: Vec<SchemaClass>,
        place: HashMap<SchemaRef, usize>,
        known: Vec<Option<ResolvedSource>>,
        failed: Option<(usize, Error)>,
    }
    let found = Mutex::new(SeenFooters {
        shapes: Vec::new(),
        place: HashMap::new(),
        known: vec![None; sources.entries.len()],
        failed: None,
    });
    let next = AtomicUsize::new(0);
    let lock = || found.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(entry) = sources.entries.get(index) else { return };
            let read = sources.context.check_cancelled().and_then(|()| match &entry.path {
                Some(_) if entry.is_text => {
                    sources.survey(entry).map(|(schema, footer)| (schema, Some(footer)))
                }
                Some(path) => file::open(path, &sources.stores)
                    .map(|(_, meta, footer)| (meta.schema().clone(), Some(footer))),
                None => sources.stream_schema(entry).map(|schema| (schema, None)),
            });
            let mut found = lock();
            match read {
                Ok((schema, footer)) => {
                    // Metadata of a whole schema is no column, and differs from file to file.
                    let schema = Arc::new(Schema::new(schema.fields().clone()));
                    let new = found.shapes.len();
                    let class = *found.place.entry(Arc::clone(&schema)).or_insert(new);
                    if class == new {
                        found.shapes.push(SchemaClass { schema, adapter: OnceLock::new() });
                    }
                    if let Some(slot) = found.known.get_mut(index) {
                        *slot = Some(ResolvedSource { class, footer });
                    }
                }
                Err(e) => {
                    // The first in order is named, whichever thread was faster.
                    if found.failed.as_ref().is_none_or(|(at, _)| index < *at) {
                        found.failed = Some((index, e));
                    }
                    next.store(sources.entries.len(), Ordering::Relaxed);
                    return;
                }
            }
        }
    };
    let files = sources.entries.len();
    let threads = match sources.are_objects() {
        true => sources.far_threads().min(files),
        false => sources.sizes.threads.min(files.div_ceil(FILES_A_THREAD)),
    };
    sources.on_threads(threads, &|_| work())?;
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, e)) = found.failed {
        return Err(e);
    }
    let mut known: Vec<ResolvedSource> = found.known.into_iter().flatten().collect();
    if known.len() != sources.entries.len() {
        return Err(Error::new(Kind::Internal, "a source was not looked at"));
    }
    let mut shapes = found.shapes;
    settle(sources, &mut known, &mut shapes);
    Ok((known, shapes))
}

/// Gives files of text the types that go with those of all sources.
fn settle(sources: &ScanSources, known: &mut [ResolvedSource], shapes: &mut Vec<SchemaClass>) {
    let texts = sources.entries.iter().zip(known).filter(|(entry, _)| entry.is_text);
    for (_, known) in texts {
        let Some(shape) = shapes.get(known.class) else { continue };
        let all = shapes.iter().map(|shape| &shape.schema);
        let Some(schema) = text::settled(&shape.schema, all) else { continue };
        let place = shapes.iter().position(|shape| shape.schema == schema);
        known.class = place.unwrap_or(shapes.len());
        if place.is_none() {
            shapes.push(SchemaClass { schema, adapter: OnceLock::new() });
        }
    }
}
