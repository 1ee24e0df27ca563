//! One source on its way: the batch in flight, and its keys slice by slice.
//!
//! ```text
//! reader ─▶ batch ─ adapt ─▶ held: rows 4096..65536 of the source
//!                             keys of rows 4096..8192 │ two slices ahead │ not yet
//! ```
//!
//! # Invariants
//! The next batch is asked for when all keys of the one before were given out. Rows are counted over
//! the whole source.
//!
//! # Cost
//! Keys of three slices; a batch is held until its last row has left.
//!
//! # Not here
//! Who is next (`crate::plan`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, ArrayRef};
use arrow_schema::ArrowError;

use super::schema::SourceAdapter;
use super::wanted::{Arrays, Wanted};
use super::{Reader, Source};
use crate::key::Keys;
use crate::plan::Marks;
use plait_base::{Error, Kind, Result};

/// Rows whose keys are encoded at once: enough to forget the call, few enough for the cache.
const SLICE_ROWS: usize = 4096;

/// Slices whose keys may wait.
const SLICES_AHEAD: usize = 2;

/// A batch of a source, brought to the schema of all.
pub(super) struct Held {
    /// Row of the source that is its first.
    pub(super) first_row: u64,
    pub(super) rows: usize,
    pub(super) columns: Vec<ArrayRef>,
    arrays: Arrays,
}

/// The batches that rows may come from: a place each, free once its last row has left.
pub(super) type Slots = [Option<Arc<Held>>];

/// The error for a row whose batch is gone.
pub(super) fn lost() -> Error {
    Error::new(Kind::Internal, "a row that was ordered is not held")
}

/// A source.
pub(super) struct SourceCursor {
    index: usize,
    path: Option<String>,
    /// None once it has ended. Locked by nobody: a cursor is shared while rows are ordered, and a reader
    /// need not be.
    reader: Mutex<Option<Reader>>,
    adapter: Arc<SourceAdapter>,
    /// Rows of all batches so far.
    rows: u64,
    slices: Mutex<Slices>,
    /// Bytes of a row, as the last batch has it.
    pub(super) row_bytes: usize,
}

#[derive(Default)]
struct Slices {
    held: Option<Arc<Held>>,
    /// Row of the batch whose key is encoded next.
    next: usize,
    /// Keys that were not given out yet.
    ahead: VecDeque<Next>,
}

/// The keys of some rows, and their marks where rows may be dropped.
pub(super) type Next = (Keys, Option<Marks>);

impl Slices {
    fn encode(&mut self, wanted: &Wanted) -> Result<Option<Next>> {
        let Some(held) = &self.held else { return Ok(None) };
        let len = SLICE_ROWS.min(held.rows - self.next);
        if len == 0 {
            return Ok(None);
        }
        let keys = wanted.keys(&held.arrays, self.next, len)?;
        let marks = wanted.marks(&held.arrays, self.next, len)?;
        self.next += len;
        Ok(Some((keys, marks)))
    }
}

impl SourceCursor {
    pub(super) fn new(index: usize, source: Source, adapter: Arc<SourceAdapter>) -> Self {
        Self {
            index,
            path: source.path,
            reader: Mutex::new(Some(source.reader)),
            adapter,
            rows: 0,
            slices: Mutex::default(),
            row_bytes: 0,
        }
    }

    /// Keys of the next rows; none when the batch in flight is used up.
    pub(super) fn next_keys(&self, wanted: &Wanted) -> Result<Option<Next>> {
        let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        match slices.ahead.pop_front() {
            Some(next) => Ok(Some(next)),
            None => slices.encode(wanted).map_err(|e| self.tell(e)),
        }
    }

    /// Encodes the keys that [`next_keys`](Self::next_keys) will give.
    pub(super) fn encode_ahead(&self, wanted: &Wanted) {
        let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        while slices.ahead.len() < SLICES_AHEAD {
            // An error comes again when the keys are asked for.
            let Ok(Some(next)) = slices.encode(wanted) else { return };
            slices.ahead.push_back(next);
        }
    }

    /// The key of `row`, which lies in the batch in flight.
    pub(super) fn key_of(&self, row: u64, wanted: &Wanted) -> Result<Vec<u8>> {
        let slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        let held = slices.held.as_ref();
        let at = held.and_then(|held| usize::try_from(row.checked_sub(held.first_row)?).ok());
        match (held, at) {
            (Some(held), Some(at)) if at < held.rows => {
                Ok(wanted.keys(&held.arrays, at, 1)?.to_bytes(&wanted.key.shape, 0))
            }
            _ => Err(lost()),
        }
    }

    /// The source, and one of its rows, in words.
    pub(super) fn place(&self, row: u64) -> String {
        match &self.path {
            Some(path) => format!("row {row} of {path}"),
            None => format!("row {row} of source {}", self.index),
        }
    }

    /// Asks for the next batch that has rows.
    pub(super) fn pull(&mut self, wanted: &Wanted) -> Result<Option<Arc<Held>>, ArrowError> {
        *self.slices.lock().unwrap_or_else(PoisonError::into_inner) = Slices::default();
        loop {
            let reader = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner);
            let Some(next) = reader.as_mut().and_then(Iterator::next) else {
                *reader = None;
                return Ok(None);
            };
            let batch = next.map_err(|e| self.failed(e))?;
            let tell = |e: Error| self.tell(e.with_row(self.rows)).into_arrow();
            let columns = self.adapter.adapt(&batch, self.rows).map_err(tell)?;
            if batch.num_rows() == 0 {
                continue;
            }
            let arrays = wanted.arrays(&columns).map_err(tell)?;
            let bytes = |array: &ArrayRef| {
                let data = array.to_data();
                data.get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
            };
            self.row_bytes = columns.iter().map(bytes).sum::<usize>() / batch.num_rows();
            let rows = batch.num_rows();
            let held = Arc::new(Held { first_row: self.rows, rows, columns, arrays });
            self.rows += rows as u64;
            let slices = Slices { held: Some(Arc::clone(&held)), ..Slices::default() };
            self.slices = Mutex::new(slices);
            return Ok(Some(held));
        }
    }

    /// Names the source.
    pub(super) fn tell(&self, error: Error) -> Error {
        match &self.path {
            Some(path) => error.with_path(path),
            None => error.in_source(self.index),
        }
    }

    /// What a foreign reader raised stays as it is; errors of Plait and Arrow name the source.
    fn failed(&self, error: ArrowError) -> ArrowError {
        match error {
            ArrowError::ExternalError(inner) => match inner.downcast::<Error>() {
                Ok(error) => self.tell(*error).into_arrow(),
                Err(inner) => ArrowError::ExternalError(inner),
            },
            error => self.tell(Error::from_arrow(error)).into_arrow(),
        }
    }
}
