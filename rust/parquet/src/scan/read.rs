//! Batches of a resolved scan, in order, a few files ahead.
//!
//! ```text
//! sources   f0 f1 f2 f3 f4 …          cursors: files that are open or ready, at most 64
//!           └──────────┘ cursors ──▶ refill: all that are not full, on all threads, then join
//!           front ──▶ next()
//! ```
//!
//! # Invariants
//! The front cursor is emptied before the next is touched, so order never depends on threads.
//! Threads live inside of [`ResolvedBatches::refill`] only. After an error nothing more is given.
//!
//! # Cost
//! Unpacked rows ahead as `memory_limit` leaves room for, and one batch more for each thread.
//!
//! # Not here
//! One file (`file`); one schema (`plait_core::schema`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use plait_core::schema::{Adapter, Frozen};
use plait_core::stream::Reader;
use plait_core::{Error, Kind, Result};

use super::entries::ScanSource;
use super::file::{self, FileReader};
use super::resolve::{Resolved, SchemaClass};
use super::size::{batch_bytes, split};
use super::sources::ScanSources;
use crate::runtime::Charge;
use crate::store::TAIL_BYTES;

/// Files that are open or wait, at most.
const CURSORS_MAX: usize = 64;

/// The batches of a resolved scan.
pub(super) struct ResolvedBatches {
    sources: Arc<ScanSources>,
    resolved: Arc<Resolved>,
    /// The next source that has no cursor yet.
    next: usize,
    cursors: VecDeque<FileCursor>,
    /// Threads that read small files.
    far_threads: usize,
    stream: Option<(usize, Reader, u64)>,
    ready: VecDeque<RecordBatch>,
    /// Rows that may still be given.
    left: u64,
    given: bool,
    over: bool,
}

/// One file on its way.
struct FileCursor {
    index: usize,
    data_bytes: u64,
    /// Whether one request brings all of it.
    is_small: bool,
    reader: Option<(FileReader, Adapter)>,
    /// Rows of the file given or ready.
    row: u64,
    /// Rows that are asked of it.
    rows_max: u64,
    ready: VecDeque<(RecordBatch, Charge)>,
    ready_bytes: usize,
    done: bool,
    failed: Option<Error>,
}

impl ResolvedBatches {
    pub(super) fn new(sources: Arc<ScanSources>, resolved: Arc<Resolved>) -> Self {
        let left = sources.options.limit.unwrap_or(u64::MAX);
        let far_threads = sources.far_threads();
        Self {
            far_threads,
            sources,
            resolved,
            next: 0,
            cursors: VecDeque::new(),
            stream: None,
            ready: VecDeque::new(),
            left,
            given: false,
            over: false,
        }
    }

    fn step(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.left == 0 {
                return Ok(None);
            }
            if let Some(batch) = self.ready.pop_front() {
                if batch.num_rows() > 0 {
                    return Ok(Some(batch));
                }
                continue;
            }
            if let Some(front) = self.cursors.front_mut() {
                if let Some((batch, _charge)) = front.ready.pop_front() {
                    front.ready_bytes -=
                        batch_bytes(&batch, 0, batch.num_rows()).min(front.ready_bytes);
                    self.ready.push_back(batch);
                    continue;
                }
                if let Some(e) = front.failed.take() {
                    return Err(e);
                }
                if front.done {
                    self.cursors.pop_front();
                    continue;
                }
                self.refill()?;
                continue;
            }
            if self.stream.is_some() {
                self.stream_batch()?;
                continue;
            }
            let Some(entry) = self.sources.entries.get(self.next) else { return Ok(None) };
            if entry.path.is_some() && !entry.is_text {
                self.add_cursors();
                if !self.cursors.is_empty() {
                    self.refill()?;
                }
            } else {
                let stream = self.open_stream(entry)?;
                self.sources.counts.opened.fetch_add(1, Ordering::Relaxed);
                self.stream = Some((self.next, stream, 0));
                self.next += 1;
            }
        }
    }

    /// Adds cursors for the next files, as many as may wait; files without rows have none.
    fn add_cursors(&mut self) {
        let (ahead_bytes, threads) =
            (self.sources.sizes.ahead_bytes as u64, self.sources.sizes.threads);
        let mut bytes: u64 =
            self.cursors.iter().map(|cursor| cursor.data_bytes).fold(0, u64::saturating_add);
        let mut rows: u64 = self
            .cursors
            .iter()
            .map(|l| l.rows_max.saturating_sub(l.row))
            .fold(0, u64::saturating_add);
        // Several at a time: they are opened together.
        let are_many = bytes >= ahead_bytes / 2 || self.cursors.len() >= CURSORS_MAX / 2;
        if are_many && self.cursors.len() >= threads {
            return;
        }
        while self.cursors.len() < CURSORS_MAX
            && (bytes < ahead_bytes || self.cursors.len() < threads)
            && rows < self.left
        {
            let is_text = self.sources.entries.get(self.next).is_some_and(|entry| entry.is_text);
            let known = self.resolved.known.get(self.next).filter(|_| !is_text);
            let Some(footer) = known.and_then(|known| known.footer.as_ref()) else { break };
            let index = self.next;
            self.next += 1;
            if footer.rows == 0 {
                continue;
            }
            let rows_max = footer.rows.min(self.left - rows);
            rows = rows.saturating_add(rows_max);
            bytes = bytes.saturating_add(footer.data_bytes);
            self.cursors.push_back(FileCursor {
                index,
                data_bytes: footer.data_bytes,
                is_small: footer.size <= TAIL_BYTES,
                reader: None,
                row: 0,
                rows_max,
                ready: VecDeque::new(),
                ready_bytes: 0,
                done: false,
                failed: None,
            });
        }
    }

    /// Fills all cursors that are not full.
    fn refill(&mut self) -> Result<()> {
        self.add_cursors();
        let share = (self.sources.sizes.ahead_bytes / self.cursors.len().max(1)).max(1);
        let (sources, resolved) = (&*self.sources, &*self.resolved);
        let waits = |cursor: &&mut FileCursor| {
            !cursor.done && cursor.failed.is_none() && cursor.ready_bytes < share
        };
        let wait: Vec<&mut FileCursor> = self.cursors.iter_mut().filter(waits).collect();
        let are_small = wait.iter().all(|cursor| cursor.is_small);
        let threads = if are_small { self.far_threads } else { sources.sizes.threads };
        let are_closed = wait.iter().filter(|cursor| cursor.reader.is_none()).count();
        // Who opens a file mostly waits, who decodes it does not.
        let openers = if are_closed > threads { self.far_threads.max(threads) } else { threads };
        let wait: Vec<Mutex<&mut FileCursor>> = wait.into_iter().map(Mutex::new).collect();
        let (opened, filled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let each = |next: &AtomicUsize, act: &dyn Fn(&mut FileCursor) -> Result<()>| {
            while let Some(cursor) = wait.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut cursor = cursor.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(e) = act(&mut cursor) {
                    cursor.failed = Some(e);
                }
            }
        };
        sources.on_threads(openers.min(wait.len()), &|thread| {
            if openers > threads {
                each(&opened, &|cursor| open(sources, resolved, cursor));
            }
            // Always the first threads: others would fill heaps of their own, which stay.
            if thread < threads {
                each(&filled, &|cursor| fill(sources, resolved, cursor, share));
            }
        })
    }

    /// The next source, a stream or a file of text.
    fn open_stream(&self, entry: &ScanSource) -> Result<Reader> {
        let Resolved { known, shapes, .. } = &*self.resolved;
        let known = known.get(self.next);
        let shape = known.and_then(|known| shapes.get(known.class));
        match (shape, known.and_then(|known| known.footer.as_ref())) {
            (Some(shape), Some(footer)) if entry.is_text => {
                self.sources.read_text(entry, &shape.schema, footer)
            }
            _ => self.sources.take_stream(entry),
        }
    }

    fn stream_batch(&mut self) -> Result<()> {
        let Some((index, stream, row)) = &mut self.stream else { return Ok(()) };
        let Resolved { frozen, known, shapes } = &*self.resolved;
        let name = self.sources.entries.get(*index).map(|e| e.name.clone()).unwrap_or_default();
        let Some(next) = stream.next() else {
            self.stream = None;
            return Ok(());
        };
        let batch = next.map_err(Error::from_arrow).map_err(|e| e.with_path(name.as_str()))?;
        let known = known.get(*index);
        let shape = known.and_then(|known| shapes.get(known.class));
        let footer = known.and_then(|known| known.footer.as_ref());
        let values = self.sources.values(*index, footer)?;
        let schema = batch.schema();
        // A stream may drift within itself, as long as it adapts.
        let adapter = match shape.filter(|shape| shape.schema.fields() == schema.fields()) {
            Some(shape) => template(shape, frozen, &schema)?.bind(&values),
            None => frozen.adapter_with(&schema, &values),
        };
        let adapted = adapter.and_then(|adapter| adapter.apply_at(&batch, *row));
        let adapted = adapted.map_err(|e| e.with_path(name))?;
        *row += batch.num_rows() as u64;
        self.ready.extend(split(
            adapted,
            self.sources.rows_max,
            self.sources.sizes.file.batch_bytes,
        ));
        Ok(())
    }
}

/// The adapter of a shape, made once.
fn template(shape: &SchemaClass, frozen: &Frozen, source: &Schema) -> Result<Arc<Adapter>> {
    // Files read some leaves, streams give all columns: the first to come keeps its adapter.
    if let Some(made) = shape.adapter.get().filter(|made| made.source().fields() == source.fields())
    {
        return Ok(Arc::clone(made));
    }
    let made = Arc::new(frozen.adapter_template(source)?);
    let _ = shape.adapter.set(Arc::clone(&made));
    Ok(made)
}

/// Opens a file, if it is not open.
fn open(sources: &ScanSources, resolved: &Resolved, cursor: &mut FileCursor) -> Result<()> {
    if cursor.reader.is_some() || cursor.done || cursor.failed.is_some() {
        return Ok(());
    }
    let Resolved { frozen, known, shapes } = resolved;
    let (Some(entry), Some(known)) = (sources.entries.get(cursor.index), known.get(cursor.index))
    else {
        return Err(Error::new(Kind::Internal, "a source is not known"));
    };
    let path = entry.name.as_str();
    sources.counts.opened.fetch_add(1, Ordering::Relaxed);
    let (source, metadata, footer) = file::open(path, &sources.stores)?;
    if known.footer.as_ref().is_none_or(|resolved| resolved.hash != footer.hash) {
        return Err(Error::new(
            Kind::SourceChanged,
            "source changed since its schema was resolved",
        )
        .with_path(path)
        .with_hint("scan files that nobody writes to, or scan again"));
    }
    let metadata = metadata.in_units_of(&source, frozen.schema());
    let leaves = frozen.leaves(metadata.schema());
    let rows = usize::try_from(cursor.rows_max).unwrap_or(usize::MAX).clamp(1, sources.rows_max);
    let reader = FileReader::new(sources, &source, &metadata, &leaves, rows)?;
    let shape = shapes
        .get(known.class)
        .ok_or_else(|| Error::new(Kind::Internal, "a source has no schema"))?;
    let adapter = template(shape, frozen, reader.schema()).map_err(|e| e.with_path(path))?;
    let adapter = if sources.statics.is_empty() && sources.options.columns.is_none() {
        adapter.as_ref().clone()
    } else {
        adapter.bind(&sources.values(cursor.index, Some(&footer))?)?
    };
    cursor.reader = Some((reader, adapter));
    Ok(())
}

/// Reads batches of one file until `share` bytes are ready or it ends.
fn fill(
    sources: &ScanSources,
    resolved: &Resolved,
    cursor: &mut FileCursor,
    share: usize,
) -> Result<()> {
    open(sources, resolved, cursor)?;
    let path = sources.entries.get(cursor.index).map_or("", |entry| entry.name.as_str());
    // None where another thread failed to open it.
    let Some((reader, adapter)) = &mut cursor.reader else { return Ok(()) };
    while cursor.ready_bytes < share {
        let next = if cursor.row < cursor.rows_max { reader.next()? } else { None };
        let Some(mut batch) = next else {
            cursor.done = true;
            cursor.reader = None;
            return Ok(());
        };
        let most = usize::try_from(cursor.rows_max - cursor.row).unwrap_or(usize::MAX);
        if batch.num_rows() > most {
            batch = batch.slice(0, most);
        }
        let adapted = adapter.apply_at(&batch, cursor.row).map_err(|e| e.with_path(path))?;
        cursor.row += batch.num_rows() as u64;
        cursor.ready_bytes += batch_bytes(&adapted, 0, adapted.num_rows());
        for part in split(adapted, sources.rows_max, sources.sizes.file.batch_bytes) {
            let charge = sources.context.charge(batch_bytes(&part, 0, part.num_rows()));
            cursor.ready.push_back((part, charge));
        }
    }
    Ok(())
}

impl Iterator for ResolvedBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let batch = match self.step() {
            Ok(Some(batch)) => {
                let most = usize::try_from(self.left).unwrap_or(usize::MAX);
                if batch.num_rows() > most { batch.slice(0, most) } else { batch }
            }
            Ok(None) => {
                self.over = true;
                self.cursors.clear();
                if self.given {
                    return None;
                }
                RecordBatch::new_empty(Arc::clone(self.resolved.frozen.output()))
            }
            Err(e) => {
                self.over = true;
                self.cursors.clear();
                return Some(Err(e.into_arrow()));
            }
        };
        self.left -= batch.num_rows() as u64;
        self.given = true;
        self.sources.count(batch.num_rows());
        Some(Ok(batch))
    }
}

impl RecordBatchReader for ResolvedBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.resolved.frozen.output())
    }
}
