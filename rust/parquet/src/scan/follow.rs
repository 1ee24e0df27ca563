//! Batches of sources that are resolved one after the other.
//!
//! # Invariants
//! A source is opened when its first row is needed, not before. The first batch is read to learn
//! the schema, held, and given in full by the first reader. Within a stream whose batches drift,
//! rows of one batch that come before a new column are null in it.
//!
//! # Not here
//! What is published (`plait_core::schema::Follow`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, Fields, Schema, SchemaRef};
use plait_core::schema::{Adapter, Follow, SchemaPolicy, Value, reconcile};
use plait_core::stream::Reader;
use plait_core::{Error, Kind, Result};

use super::file::{self, FileReader};
use super::size::split;
use super::sources::ScanSources;

/// The state of following.
pub(super) struct FollowBatches {
    follow: Follow,
    next: usize,
    open: Option<Open>,
    ready: VecDeque<RecordBatch>,
    left: u64,
}

struct Open {
    name: String,
    values: Vec<(String, Value)>,
    rows: FollowedRows,
    /// The adapter and the fields it is for.
    adapter: Option<(Fields, Adapter)>,
    row: u64,
}

enum FollowedRows {
    File(FileReader),
    Stream {
        stream: Reader,
        ahead: Option<RecordBatch>,
    },
    /// No batches, and no schema: there is nothing to follow.
    Blank,
}

impl FollowBatches {
    pub(super) fn new(sources: &ScanSources, follow: Follow) -> Result<Self> {
        let left = sources.options.limit.unwrap_or(u64::MAX);
        Ok(Self { follow, next: 0, open: None, ready: VecDeque::new(), left })
    }

    /// Learns the schema: reads the first batch if any row is asked for, and keeps it.
    pub(super) fn peek(&mut self, sources: &ScanSources) -> Result<SchemaRef> {
        if self.left == 0 {
            while self.follow.schema().is_none() && self.next < sources.entries.len() {
                self.open_next(sources)?;
                if let Some(open) = &mut self.open
                    && let Some(schema) = open.rows.schema()
                {
                    turn(sources, &mut self.follow, open, &schema)?;
                }
            }
        } else if let Some(batch) = self.step(sources)? {
            self.ready.push_front(batch);
        }
        self.follow
            .schema()
            .cloned()
            .ok_or_else(|| Error::new(Kind::Internal, "following began without a schema"))
    }

    /// The next batch of at most the rows that are left.
    pub(super) fn step(&mut self, sources: &ScanSources) -> Result<Option<RecordBatch>> {
        loop {
            if self.left == 0 {
                self.open = None;
                return Ok(None);
            }
            if let Some(batch) = self.ready.pop_front() {
                if batch.num_rows() > 0 {
                    return Ok(Some(batch));
                }
                continue;
            }
            let Some(open) = &mut self.open else {
                if self.next >= sources.entries.len() {
                    return Ok(None);
                }
                self.open_next(sources)?;
                continue;
            };
            let in_source = |e: Error, name: &str| e.with_path(name);
            match open.rows.next(sources).map_err(|e| in_source(e, &open.name))? {
                None => {
                    // A source without rows has a schema all the same.
                    if open.adapter.is_none()
                        && let Some(schema) = open.rows.schema()
                    {
                        turn(sources, &mut self.follow, open, &schema)?;
                    }
                    self.open = None;
                }
                Some(batch) => {
                    let schema = batch.schema();
                    if open.adapter.as_ref().is_none_or(|(fields, _)| fields != schema.fields()) {
                        turn(sources, &mut self.follow, open, &schema)?;
                    }
                    let Some((_, adapter)) = &open.adapter else { continue };
                    let adapted = adapter.apply_at(&batch, open.row);
                    let adapted = adapted.map_err(|e| in_source(e, &open.name))?;
                    open.row += batch.num_rows() as u64;
                    self.ready.extend(split(
                        adapted,
                        sources.rows_max,
                        sources.sizes.file.batch_bytes,
                    ));
                }
            }
        }
    }

    fn open_next(&mut self, sources: &ScanSources) -> Result<()> {
        let index = self.next;
        let Some(entry) = sources.entries.get(index) else { return Ok(()) };
        self.next += 1;
        sources.counts.opened.fetch_add(1, Ordering::Relaxed);
        let mut found = None;
        let rows = match &entry.path {
            Some(_) if entry.is_text => {
                let (schema, footer) = sources.survey(entry)?;
                let stream = sources.read_text(entry, &schema, &footer)?;
                found = Some(footer);
                FollowedRows::Stream { stream, ahead: None }
            }
            Some(path) => {
                let (source, metadata, footer) = file::open(path, &sources.stores)?;
                let leaves = self.follow.leaves(metadata.schema(), path)?;
                let left = usize::try_from(self.left).unwrap_or(usize::MAX).max(1);
                let rows = sources.rows_max.min(left);
                found = Some(footer);
                FollowedRows::File(FileReader::new(sources, &source, &metadata, &leaves, rows)?)
            }
            None if sources.is_blank(entry) && !sources.are_all_blank() => FollowedRows::Blank,
            None => FollowedRows::Stream { stream: sources.take_stream(entry)?, ahead: None },
        };
        self.open = Some(Open {
            name: entry.name.clone(),
            values: sources.values(index, found.as_ref())?,
            rows,
            adapter: None,
            row: 0,
        });
        Ok(())
    }
}

/// Lets `follow` decide on a schema of the open source, and counts a change.
fn turn(
    sources: &ScanSources,
    follow: &mut Follow,
    open: &mut Open,
    schema: &Schema,
) -> Result<()> {
    let turn = follow.turn(schema, &open.name, &open.values)?;
    if let Some(change) = turn.change {
        let mut changes =
            sources.counts.changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        changes.push(change);
    }
    open.adapter = Some((schema.fields().clone(), turn.adapter));
    Ok(())
}

impl FollowedRows {
    fn schema(&self) -> Option<SchemaRef> {
        match self {
            Self::File(reader) => Some(Arc::clone(reader.schema())),
            Self::Stream { stream, .. } => Some(stream.schema()),
            Self::Blank => None,
        }
    }

    fn next(&mut self, sources: &ScanSources) -> Result<Option<RecordBatch>> {
        match self {
            Self::File(reader) => reader.next(),
            Self::Stream { stream, ahead } => stream_batch(stream, ahead, sources.rows_max),
            Self::Blank => Ok(None),
        }
    }
}

/// Batches of a stream until there are enough rows, as one batch: columns that come later are null
/// in the rows before. Where types differ, a batch ends.
fn stream_batch(
    stream: &mut Reader,
    ahead: &mut Option<RecordBatch>,
    rows_max: usize,
) -> Result<Option<RecordBatch>> {
    let next = |stream: &mut Reader| stream.next().transpose().map_err(Error::from_arrow);
    let first = match ahead.take() {
        Some(first) => first,
        None => match next(stream)? {
            Some(first) => first,
            None => return Ok(None),
        },
    };
    let (mut rows, mut drifts) = (first.num_rows(), false);
    let mut parts = vec![first];
    while rows < rows_max {
        let Some(part) = next(stream)? else { break };
        let schema = part.schema();
        let same = parts.last().is_some_and(|last| last.schema().fields() == schema.fields());
        if !same && !parts.iter().all(|p| meets(&p.schema(), &schema)) {
            *ahead = Some(part);
            break;
        }
        drifts |= !same;
        rows += part.num_rows();
        parts.push(part);
    }
    if let ([only], false) = (parts.as_slice(), drifts) {
        return Ok(Some(only.clone()));
    }
    let joined = |schema: &SchemaRef, parts: &[RecordBatch]| {
        arrow_select::concat::concat_batches(schema, parts).map(Some).map_err(|e| {
            Error::new(Kind::SourceFailed, "batches of a stream cannot be joined").with_cause(e)
        })
    };
    if !drifts {
        let Some(schema) = parts.first().map(RecordBatch::schema) else { return Ok(None) };
        return joined(&schema, &parts);
    }
    let schemas: Vec<SchemaRef> = parts.iter().map(RecordBatch::schema).collect();
    let frozen = reconcile(&schemas, &SchemaPolicy::default())?;
    let mut alike = Vec::with_capacity(parts.len());
    for part in &parts {
        alike.push(frozen.adapter(&part.schema())?.apply(part)?);
    }
    joined(frozen.schema(), &alike)
}

/// Whether columns of one name have one type in both, so that their batches can be joined.
fn meets(a: &Schema, b: &Schema) -> bool {
    a.fields().iter().all(|field| match b.field_with_name(field.name()) {
        Ok(other) => other.data_type() == field.data_type(),
        Err(_) => true,
    })
}

/// A follower with its sources, as a reader.
pub(super) struct Attached {
    sources: Arc<ScanSources>,
    inner: FollowBatches,
    schema: SchemaRef,
    given: bool,
    over: bool,
}

impl Attached {
    pub(super) fn new(sources: Arc<ScanSources>, inner: FollowBatches, schema: SchemaRef) -> Self {
        Self { sources, inner, schema, given: false, over: false }
    }
}

impl Iterator for Attached {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let batch = match self.inner.step(&self.sources) {
            Ok(Some(batch)) => {
                let most = usize::try_from(self.inner.left).unwrap_or(usize::MAX);
                if batch.num_rows() > most { batch.slice(0, most) } else { batch }
            }
            Ok(None) => {
                self.over = true;
                if self.given {
                    return None;
                }
                RecordBatch::new_empty(Arc::clone(&self.schema))
            }
            Err(e) => {
                self.over = true;
                return Some(Err(e.into_arrow()));
            }
        };
        self.inner.left -= batch.num_rows() as u64;
        self.given = true;
        self.sources.count(batch.num_rows());
        Some(Ok(batch))
    }
}

impl RecordBatchReader for Attached {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
