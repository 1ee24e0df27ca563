//! Decoded rows of files that wait in a temporary file for their turn in the merge.
//!
//! ```text
//! pages ─ decoded once ─▶ large window ─┬─ piece 0 ─▶ merged next
//!                                       ├─ piece 1 ─┐
//!                                       └─ piece 2 ─┴─▶ temporary file ─▶ read back, one at a time
//! ```
//!
//! Of many files that overlap, each has little memory. Its windows are then shorter than its pages,
//! and without a temporary file each window would decompress and decode the same pages again.
//!
//! # Invariants
//! The file has no name (it is unlinked at once), so that no crash leaves it behind. A piece that was
//! read back gives its place to others. If the file cannot be written, rows stay in memory and
//! no more rows are spilled: the read goes on, more slowly.
//!
//! # Cost
//! A write and a read of the decoded rows, as Arrow IPC without compression. On disk, one large window
//! for each file that overlaps.
//!
//! # Not here
//! Which files spill (`window`), and how large a window is (`sizes`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema, SchemaRef};
use arrow_select::dictionary::garbage_collect_any_dictionary;
use plait_core::{Error, Kind, Result};

use crate::output::storage;
use crate::runtime::Context;
use crate::store::temp::unnamed_file;
use crate::store::{read_exact_at, write_all_at};

/// Rows of a batch that tell how many bytes rows have, at least.
const NOTED_ROWS_MIN: usize = 64;

/// Types in types, at most: flatbuffers of Arrow IPC end at 64, with more than one for each type.
const DEPTH_MAX: usize = 24;

/// The temporary file of one read.
pub(super) struct SpillSpace {
    dir: PathBuf,
    context: Context,
    space: Mutex<Space>,
    /// Why the file could not be written.
    failed: OnceLock<String>,
    /// Bytes of a row, as far as windows of any file had them.
    row_bytes: AtomicU64,
}

#[derive(Default)]
struct Space {
    file: Option<Arc<File>>,
    end: u64,
    /// Places that are free again, by their bytes.
    free: BTreeMap<u64, Vec<u64>>,
}

/// A place in the file.
#[derive(Clone, Copy, Debug)]
struct SpillPlace {
    start: u64,
    /// Bytes of the piece, and of the place.
    len: u64,
    room: u64,
}

impl SpillSpace {
    /// A file in `dir`, or in the system's folder of temporary files, which is made when it is needed.
    pub(super) fn new(dir: Option<PathBuf>, context: &Context) -> Self {
        let dir = dir.unwrap_or_else(std::env::temp_dir);
        let (context, space) = (context.clone(), Mutex::default());
        Self { dir, context, space, failed: OnceLock::new(), row_bytes: AtomicU64::default() }
    }

    /// Another file in the same folder.
    pub(super) fn anew(&self) -> Self {
        Self::new(Some(self.dir.clone()), &self.context)
    }

    /// Whether rows may be spilled: nothing failed so far.
    pub(super) fn is_usable(&self) -> bool {
        self.failed.get().is_none()
    }

    /// Why no more rows are spilled, if the file could not be written.
    pub(super) fn error(&self) -> Option<String> {
        self.failed.get().cloned()
    }

    /// Takes note of how many bytes rows have: files are much alike.
    pub(super) fn note_rows(&self, batch: &RecordBatch) {
        // Few rows have buffers of a size that says nothing.
        if batch.num_rows() >= NOTED_ROWS_MIN {
            let bytes = batch.get_array_memory_size() / batch.num_rows();
            self.row_bytes.fetch_max(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Bytes of a row of the files so far; 0 before the first.
    pub(super) fn row_bytes(&self) -> u64 {
        self.row_bytes.load(Ordering::Relaxed)
    }

    /// Gives the disk space back, once no piece waits.
    pub(super) fn release(&self) {
        *self.space.lock().unwrap_or_else(PoisonError::into_inner) = Space::default();
    }

    /// The file, and a place for `len` bytes.
    fn take(&self, len: u64) -> io::Result<(Arc<File>, SpillPlace)> {
        let mut space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &space.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(unnamed_file(&self.dir, &self.context)?);
                Arc::clone(space.file.insert(file))
            }
        };
        let found = space.free.range_mut(len..).next();
        if let Some((room, start)) = found.and_then(|(room, starts)| Some((*room, starts.pop()?))) {
            if space.free.get(&room).is_some_and(Vec::is_empty) {
                space.free.remove(&room);
            }
            return Ok((file, SpillPlace { start, len, room }));
        }
        // Pieces of one file differ a little: the next one may be longer.
        let (start, room) = (space.end, len + len / 8);
        space.end += room;
        Ok((file, SpillPlace { start, len, room }))
    }

    fn give_back(&self, place: SpillPlace) {
        let mut space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        space.free.entry(place.room).or_default().push(place.start);
    }

    fn write(&self, bytes: &[u8]) -> io::Result<SpillPlace> {
        let (file, place) = self.take(bytes.len() as u64)?;
        self.context.faults().check("spill")?;
        write_all_at(&file, bytes, place.start)?;
        self.context.counters().add_spilled(place.len);
        Ok(place)
    }

    /// The bytes of a piece; its place is free then.
    fn read(&self, place: SpillPlace) -> Result<Buffer> {
        let failed = |e| storage("cannot read spilled rows", &self.dir, e);
        let space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        let file = space.file.as_ref().map(Arc::clone);
        drop(space);
        let file = file.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let len = usize::try_from(place.len).unwrap_or(usize::MAX);
        let mut bytes = MutableBuffer::from_len_zeroed(len);
        read_exact_at(&file, bytes.as_slice_mut(), place.start).map_err(failed)?;
        self.give_back(place);
        Ok(bytes.into())
    }

    fn fail(&self, e: &io::Error) {
        self.failed.get_or_init(|| format!("{}: {e}", self.dir.display()));
    }
}

/// The rows of one file that wait.
pub(super) struct SpilledRows {
    space: Arc<SpillSpace>,
    pieces: VecDeque<SpilledPiece>,
    schema: SchemaRef,
}

enum SpilledPiece {
    OnDisk(SpillPlace),
    InMemory(RecordBatch),
}

impl SpilledRows {
    pub(super) fn new(space: &Arc<SpillSpace>) -> Self {
        let schema = Arc::new(Schema::empty());
        Self { space: Arc::clone(space), pieces: VecDeque::new(), schema }
    }

    /// Whether no rows wait.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Takes the rows of `batch`, to be given in batches of `rows`.
    ///
    /// # Errors
    /// [`Kind::Internal`] for types that Arrow IPC does not have. Where the file cannot be written, the
    /// rows stay in memory.
    pub(super) fn push(&mut self, batch: &RecordBatch, rows: usize) -> Result<()> {
        let rows = rows.max(1);
        let mut at = 0;
        self.schema = batch.schema();
        while at < batch.num_rows() {
            let piece = batch.slice(at, rows.min(batch.num_rows() - at));
            let bytes = encoded(&trimmed(&piece).map_err(Error::from_arrow)?);
            match self.space.write(&bytes.map_err(Error::from_arrow)?) {
                Ok(place) => self.pieces.push_back(SpilledPiece::OnDisk(place)),
                Err(e) => {
                    self.space.fail(&e);
                    let rest = batch.slice(at, batch.num_rows() - at);
                    self.pieces.push_back(SpilledPiece::InMemory(rest));
                    break;
                }
            }
            at += piece.num_rows();
        }
        Ok(())
    }

    /// The next rows and their bytes, if any wait.
    ///
    /// # Errors
    /// [`Kind::Storage`] if the file cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<(RecordBatch, usize)>> {
        match self.pieces.pop_front() {
            None => Ok(None),
            Some(SpilledPiece::InMemory(batch)) => {
                let bytes = batch.get_array_memory_size();
                Ok(Some((batch, bytes)))
            }
            Some(SpilledPiece::OnDisk(place)) => {
                let bytes = self.space.read(place)?;
                let len = bytes.len();
                let batch = decoded(bytes)?;
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let (schema, columns) = (Arc::clone(&self.schema), batch.columns().to_vec());
                let batch = RecordBatch::try_new_with_options(schema, columns, &options);
                Ok(Some((batch.map_err(Error::from_arrow)?, len)))
            }
        }
    }
}

/// A stream of Arrow IPC of its own, so that pieces are read back one by one.
fn encoded(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    // Each piece has a schema: without metadata it is short, and the schema of the read is put back.
    let bare = |field: &FieldRef| field.as_ref().clone().with_metadata(HashMap::new());
    let fields: Fields = batch.schema_ref().fields().iter().map(bare).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new_with_options(schema, batch.columns().to_vec(), &options)?;
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
    writer.write(&batch)?;
    writer.into_inner()
}

fn decoded(mut bytes: Buffer) -> Result<RecordBatch> {
    let mut decoder = StreamDecoder::new();
    while !bytes.is_empty() {
        if let Some(batch) = decoder.decode(&mut bytes).map_err(Error::from_arrow)? {
            return Ok(batch);
        }
    }
    Err(Error::new(Kind::Internal, "a piece of spilled rows has no rows"))
}

/// Whether rows of these columns can be spilled: what a slice refers to can be cut to the slice.
pub(super) fn can_spill(fields: &Fields) -> bool {
    !fields.is_empty() && fields.iter().all(|field| can_trim(field.data_type(), DEPTH_MAX))
}

fn can_trim(data_type: &DataType, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    match data_type {
        DataType::Utf8View | DataType::BinaryView | DataType::Dictionary(..) => true,
        DataType::Struct(fields) => fields.iter().all(|f| can_trim(f.data_type(), depth)),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => is_copied(field.data_type(), depth),
        other => !other.is_nested(),
    }
}

/// Whether a slice is written without what it does not have, as it is.
fn is_copied(data_type: &DataType, depth: usize) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView | DataType::Dictionary(..) => false,
        DataType::Struct(fields) => {
            depth > 0 && fields.iter().all(|f| is_copied(f.data_type(), depth - 1))
        }
        other => can_trim(other, depth),
    }
}

/// The rows without texts and dictionary values that only other rows of their batch have.
fn trimmed(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(trimmed_array).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

fn trimmed_array(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        DataType::Dictionary(..) => garbage_collect_any_dictionary(array.as_any_dictionary())?,
        DataType::Struct(fields) => {
            let structs = array.as_struct();
            let members =
                structs.columns().iter().map(trimmed_array).collect::<Result<Vec<_>, _>>()?;
            let nulls = structs.nulls().cloned();
            Arc::new(StructArray::try_new_with_length(fields.clone(), members, nulls, array.len())?)
        }
        _ => Arc::clone(array),
    })
}

#[cfg(test)]
mod tests;
