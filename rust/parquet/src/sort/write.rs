//! Writes sorted runs of loose rows to temp files, leaf by leaf.
//!
//! ```text
//! order   keys of chunk 1 │ keys of chunk 2 │ …      sorted while the chunk before is written
//! write                     leaf 0, 1, 2 …  │ …      a temp file a chunk, a row group a run
//! ```
//!
//! # Invariants
//! A chunk has as many rows as its keys, and the rows of any one leaf, take of the memory limit. If a
//! leaf turns out to take more, the chunk is sorted again in two halves.
//!
//! # Not here
//! Finding loose rows (`find`); the rows of a chunk (`chunk`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parquet::file::properties::WriterPropertiesPtr;
use plait_core::packed_runs::PackedRuns;
use plait_core::plan::Window;
use plait_core::{Error, Kind, Result, Run, SourceId};

use super::call::{LooseRange, SortCall, SortedFiles};
use super::chunk::{LooseRows, rows_of_runs, steps};
use super::order::SortKeys;
use crate::block::Layout;
use crate::encode::Chunk;
use crate::keys::KeyReader;
use crate::leaf::OutputLeaf;
use crate::options::{IfExists, MergeOptions, OnDuplicateOption};
use crate::order::KEY_ROWS;
use crate::output::{Target, TempFile};
use crate::plan::LEAVES_AT_ONCE;
use crate::properties::{Encodings, encodings, has_paying_dictionary, properties};
use crate::queue::{self, Queue, Work};
use crate::ranks::KeyForm;
use crate::runtime::{Charge, Context, MemoryStage, Pool};
use crate::sink::Output;
use crate::source::Source;
use crate::spill::{ScratchFiles, Waiting};
use crate::weave::{LeafFooters, RowsToSort, SharedWork, Tiers, WeaveContext, weave_sorted};

/// Pages of temp files are not smaller: their headers and indexes would be most of them.
const PAGE_BYTES_MIN: u64 = 8 << 10;

/// Options of temp files that are merged again, with `cursors` pages of such files open at once.
pub(crate) fn temp_options(order: &str, cursors: usize, options: &MergeOptions) -> MergeOptions {
    let page_size = options
        .budget()
        .temp_page_bytes(cursors)
        .clamp(PAGE_BYTES_MIN, options.page_size.max(PAGE_BYTES_MIN));
    let share = page_size as f64 / options.page_size.max(1) as f64;
    let page_rows = (options.page_rows as f64 * share.min(1.0)).max(64.0) as u64;
    MergeOptions {
        sources: Vec::new(),
        sort_by: Some(order.to_owned()),
        outputs: None,
        target_file_size: None,
        target_rows: None,
        cut_on: None,
        align_row_groups: 0,
        page_size,
        page_rows,
        compression: Some("lz4".into()),
        data_page_version: Some(1),
        on_duplicate: OnDuplicateOption::KeepAll,
        version_by: None,
        replace_columns: Vec::new(),
        aggregate: Default::default(),
        delete_where: None,
        keep_tombstones: false,
        drop_where: None,
        // What is read again by the merge alone needs none; nor has every group every column.
        bloom_filters: Default::default(),
        value_sets: Default::default(),
        statistics: Default::default(),
        verify: None,
        sha256: false,
        if_exists: IfExists::Add,
        empty_output: true,
        ..options.clone()
    }
}

/// Sorts loose rows.
pub(super) struct LooseSort<'a> {
    call: SortCall<'a>,
    target: &'a Arc<Target>,
    pool: Option<&'a Pool>,
    files: SortedFiles,
    properties: WriterPropertiesPtr,
    weaving: WeaveContext,
    /// Bytes of all leaves in the files.
    /// Bytes of a row of each leaf.
    row_bytes: Vec<f64>,
    rows_max: u64,
}

impl<'a> LooseSort<'a> {
    /// A sort of `loose` rows, of which so many runs are merged, with the others.
    pub(super) fn new(
        call: SortCall<'a>,
        target: &'a Arc<Target>,
        pool: Option<&'a Pool>,
        runs: usize,
        loose: u64,
    ) -> Result<Self> {
        let SortCall { merged, options, context } = call;
        let files = SortedFiles::open(call, KeyForm::Ranked)?;
        let row_bytes = row_bytes(&merged.files, &files.leaves)?;
        let rows_max = rows_max(call, &files, &row_bytes);
        let temps = usize::try_from(loose.div_ceil(rows_max.max(1))).unwrap_or(usize::MAX);
        let cursors =
            runs.saturating_add(temps).saturating_mul(LEAVES_AT_ONCE + files.keys.leaves.len());
        let temp = temp_options(&merged.order.to_string(), cursors, options);
        let found = plain(encodings(&temp, &merged.files, &files.leaves)?);
        let properties = properties(&temp, &found, &files.leaves, Vec::new(), Vec::new())?;
        let tiers = Tiers { page: false, ..Tiers::of(&options.copy_tiers) };
        let footers = LeafFooters::of(&merged.files, &files.leaves, &properties, tiers)?;
        let weaving = WeaveContext {
            footers: Arc::new(footers),
            sources: Arc::clone(&merged.files),
            properties: Arc::clone(&properties),
            cache: Arc::clone(&files.cache),
            context: context.clone(),
            packers: Arc::default(),
            unions: Arc::default(),
            carried: Arc::default(),
            zstd: None,
            encodings: None,
            tiers,
            asked_dictionary: options.dictionary,
            verify_pages: options.verify_pages,
            server_side_copy: false,
            page_version: Some(1),
            type_defined: Arc::default(),
            asks: Arc::default(),
        };
        Ok(Self { call, target, pool, files, properties, weaving, row_bytes, rows_max })
    }

    /// Sorts the rows of `ranges` into temp files, in the order that breaks ties.
    ///
    /// # Errors
    /// Whatever is wrong with a file or with the storage.
    pub(super) fn sort(&mut self, ranges: Vec<LooseRange>) -> Result<Vec<SortedTemp>> {
        let mut temps = Vec::new();
        let mut loose = LooseRows::new(ranges);
        let mut rows_max = self.rows_max;
        loop {
            let feed = Mutex::new(ChunkFeed { loose, rows_max, written: Vec::new() });
            let scratch = ScratchFiles::new(&self.target.scratch(), self.context());
            let work = SortWork { sort: self, feed, scratch, is_too_large: AtomicBool::new(false) };
            let outcome = work.run(&mut temps);
            let is_too_large = work.is_too_large.load(Ordering::Relaxed);
            let feed = work.feed.into_inner().unwrap_or_else(PoisonError::into_inner);
            loose = feed.loose;
            // Chunks that were put in order and not written are sorted again.
            let put_back = |ranges| loose.put_back(Arc::unwrap_or_clone(ranges));
            feed.written.into_iter().rev().for_each(put_back);
            match outcome {
                Ok(()) => return Ok(temps),
                Err(_) if is_too_large && rows_max > 1 => rows_max = rows_max.div_ceil(2),
                Err(_) if self.files.is_broken() => {
                    self.files = SortedFiles::open(self.call, KeyForm::Stored)?;
                    self.rows_max = self::rows_max(self.call, &self.files, &self.row_bytes);
                    rows_max = rows_max.min(self.rows_max);
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn context(&self) -> &Context {
        self.call.context
    }
}

/// How many rows are sorted at a time.
fn rows_max(call: SortCall<'_>, files: &SortedFiles, row_bytes: &[f64]) -> u64 {
    /// Bytes of a key that does not pack, about.
    const KEY_BYTES: usize = 48;
    let budget = call.context.budget();
    let shape = files.keys.read_shape();
    let key_bytes = match shape.fixed_width() {
        _ if shape.packs() => SortKeys::ROW_BYTES,
        width => SortKeys::row_bytes(width.unwrap_or(KEY_BYTES)),
    };
    let by_keys = budget.bytes(MemoryStage::SortKeys) / key_bytes;
    let widest = row_bytes.iter().copied().fold(1.0, f64::max);
    let by_leaf = budget.sorted_leaf() as f64 / widest;
    (by_keys as u64).min(by_leaf as u64).clamp(1, u64::from(u32::MAX / 2))
}

/// Bytes that a row of each of `leaves` takes while it is sorted, about.
fn row_bytes(files: &[Arc<Source>], leaves: &[OutputLeaf]) -> Result<Vec<f64>> {
    /// To find a row that has no value, several, or values of different lengths.
    const INDEX_BYTES: f64 = 8.0;
    /// An id.
    const ID_BYTES: f64 = 4.0;
    let mut widest = vec![1.0; leaves.len()];
    for file in files {
        let footer = file.footer()?;
        for (leaf, widest) in leaves.iter().zip(&mut widest) {
            let Some(index) = leaf.adapter(file.id)?.leaf() else { continue };
            let repeats = leaf.descr.max_rep_level() > 0;
            for group in footer.row_groups().iter().filter(|group| group.num_rows() > 0) {
                let chunk = group.column(index);
                let bytes = chunk.uncompressed_size().max(0) as f64 / group.num_rows() as f64;
                *widest = f64::max(
                    *widest,
                    match Layout::of(&leaf.descr) {
                        Layout::Fixed(width) if !repeats => width as f64,
                        _ if !repeats && has_paying_dictionary(chunk) => ID_BYTES,
                        _ => 2.0 * bytes,
                    },
                );
            }
        }
    }
    Ok(widest.into_iter().map(|bytes| bytes + INDEX_BYTES).collect())
}

/// Encodings without special ones: what is read once more only need not be small.
fn plain(mut encodings: Encodings) -> Encodings {
    encodings.columns.iter_mut().for_each(|column| column.encoding = None);
    encodings
}

/// A temp file of sorted rows.
pub(super) struct SortedTemp {
    pub(super) temp: TempFile,
    /// The runs that its rows belong to, in the order in which they come, and how many there are.
    pub(super) runs: BTreeMap<u32, u64>,
}

/// Rows that wait, and chunks that are put in order and not written.
struct ChunkFeed {
    loose: LooseRows,
    rows_max: u64,
    written: Vec<Arc<Vec<LooseRange>>>,
}

/// What threads do for a sort.
struct SortWork<'a> {
    sort: &'a LooseSort<'a>,
    feed: Mutex<ChunkFeed>,
    scratch: Arc<ScratchFiles>,
    is_too_large: AtomicBool,
}

/// A row group of `rows` rows.
fn window(rows: u64) -> Result<Window> {
    let len = u32::try_from(rows)
        .map_err(|_| Error::new(Kind::Internal, "too many rows are sorted at a time"))?;
    let mut steps = PackedRuns::default();
    steps.extend(&[Run { source: SourceId(0), start: 0, len }])?;
    Ok(Window { steps, ..Window::default() })
}

/// Rows that are sorted at a time.
struct SortedChunk {
    steps: PackedRuns,
    order: Vec<u32>,
    runs: BTreeMap<u32, u64>,
    waiting: Arc<Waiting>,
    _charge: Charge,
}

impl SortWork<'_> {
    fn feed(&self) -> MutexGuard<'_, ChunkFeed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, temps: &mut Vec<SortedTemp>) -> Result<()> {
        match self.sort.pool.and_then(Pool::threads) {
            None => {
                while let Some(chunk) = self.order()? {
                    let take = |leaf| self.weave_leaf(&chunk, leaf, None);
                    temps.push(self.write(&chunk, take)?);
                }
                Ok(())
            }
            Some(pool) => {
                let sizes = &self.sort.weaving.footers.encoded;
                let idle = queue::run(pool, self, sizes, |queue| self.run_beside(queue, temps))?;
                self.sort.context().counters().add_idle(idle);
                Ok(())
            }
        }
    }

    /// Writes what threads put in order and copy.
    fn run_beside(&self, queue: &Queue<'_, Self>, temps: &mut Vec<SortedTemp>) -> Result<()> {
        queue.ask();
        while let Some(chunk) = queue.first()? {
            queue.ask();
            temps.push(self.write(&chunk, |leaf| queue.take(leaf))?);
            queue.pop();
        }
        Ok(())
    }

    fn write(
        &self,
        chunk: &SortedChunk,
        take: impl FnMut(usize) -> Result<Vec<Chunk>>,
    ) -> Result<SortedTemp> {
        let sort = self.sort;
        let schema = &sort.call.merged.reconciled.schema;
        let temp = sort.target.create_scratch()?;
        let mut output = Output::create(temp, schema, &sort.properties)?;
        let windows = chunk.runs.values().map(|rows| window(*rows)).collect::<Result<Vec<_>>>()?;
        output.write(&windows, sort.files.leaves.len(), take)?;
        let finished = output.finish(&[])?;
        sort.context().counters().add_spilled(finished.bytes);
        self.feed().written.remove(0);
        Ok(SortedTemp { temp: finished.temp, runs: chunk.runs.clone() })
    }

    fn weave_leaf(
        &self,
        chunk: &SortedChunk,
        leaf: usize,
        share: Option<&dyn SharedWork>,
    ) -> Result<Vec<Chunk>> {
        let sort = self.sort;
        let leaf = sort.files.leaves.get(leaf);
        let leaf = leaf.ok_or_else(|| Error::new(Kind::Internal, "there is no such leaf"))?;
        let bytes_max = match chunk.order.len() {
            1 => usize::MAX, // nothing is smaller than a row
            _ => sort.context().budget().sorted_leaf(),
        };
        let runs: Vec<_> = chunk.runs.values().copied().collect();
        let rows = RowsToSort { steps: &chunk.steps, order: &chunk.order, runs: &runs, bytes_max };
        match weave_sorted(&sort.weaving, leaf, rows, &chunk.waiting, share)? {
            Some(chunks) => Ok(chunks),
            None => {
                self.is_too_large.store(true, Ordering::Relaxed);
                Err(Error::new(Kind::Internal, "a leaf takes more memory than there is"))
            }
        }
    }

    fn keys(&self, ranges: &[LooseRange]) -> Result<SortKeys> {
        let sort = self.sort;
        let SortedFiles { keys, cache, .. } = &sort.files;
        let mut all = SortKeys::default();
        let mut charge = sort.context().charge(0);
        for ranges in ranges.chunk_by(|a, b| a.file == b.file) {
            let mut reader: Option<KeyReader> = None;
            for LooseRange { file, run, rows } in ranges {
                let reader = match &mut reader {
                    Some(reader) => {
                        reader.skip_to(rows.start)?;
                        reader
                    }
                    None => {
                        let file = &sort.call.merged.files[*file as usize];
                        let opened =
                            KeyReader::open(file, keys, rows.start, cache, sort.context())?;
                        reader.insert(opened)
                    }
                };
                while reader.row() < rows.end {
                    sort.context().check_cancelled()?;
                    let left = usize::try_from(rows.end - reader.row()).unwrap_or(usize::MAX);
                    let Some((keys, _)) = reader.next(left.min(KEY_ROWS))? else { break };
                    all.push(*run, &keys);
                }
            }
            charge.set(all.memory_size());
        }
        Ok(all)
    }
}

impl Work for SortWork<'_> {
    type Batch = SortedChunk;

    fn order(&self) -> Result<Option<SortedChunk>> {
        let ranges = {
            let mut feed = self.feed();
            let rows_max = feed.rows_max;
            let ranges = Arc::new(feed.loose.take(rows_max));
            if ranges.is_empty() {
                return Ok(None);
            }
            feed.written.push(Arc::clone(&ranges));
            ranges
        };
        let sort = self.sort;
        sort.files.will_read_keys(sort.call, &ranges);
        let keys = self.keys(&ranges)?;
        sort.files.will_read_rows(sort.call, &ranges);
        let sizes = sort.context().budget().merge(1, 1, 1);
        let charge = sort.context().charge(keys.memory_size());
        let order = keys.sort();
        let runs = rows_of_runs(&ranges);
        let rows: u64 = runs.values().sum();
        if order.len() as u64 != rows {
            return Err(Error::new(Kind::Internal, "rows that are to be sorted do not add up")
                .with_got(format!("{} keys of {rows} rows", order.len())));
        }
        let mut charge = charge;
        charge.set(order.capacity() * size_of::<u32>());
        Ok(Some(SortedChunk {
            steps: steps(&ranges)?,
            order,
            runs,
            waiting: Arc::new(Waiting::new(&self.scratch, sizes.waiting_bytes, sizes.spill_bytes)),
            _charge: charge,
        }))
    }

    fn row_groups(&self, _chunk: &SortedChunk) -> u64 {
        1
    }

    fn fits(&self, chunk: &SortedChunk, leaf: usize) -> bool {
        let Some(row_bytes) = self.sort.row_bytes.get(leaf) else { return true };
        self.has_room((row_bytes * chunk.order.len() as f64) as u64)
    }

    fn has_room(&self, bytes: u64) -> bool {
        let context = self.sort.context();
        let held = context.account().held_bytes().saturating_add(bytes);
        held <= context.budget().bytes(MemoryStage::SortedLeaves) as u64
    }

    fn weave(
        &self,
        chunk: &SortedChunk,
        leaf: usize,
        share: &dyn SharedWork,
    ) -> Result<Vec<Chunk>> {
        self.weave_leaf(chunk, leaf, Some(share))
    }
}
