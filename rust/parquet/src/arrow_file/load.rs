//! How much memory the rows of one batch may become, found page by page before they are decoded.
//!
//! ```text
//! page of ids   4,000 values, 8 words of 1 MB    may become 4 GB; one row becomes 1 MB at most
//! batch         rows × longest row of a leaf, or all that its pages hold: the smaller, summed
//! ```
//!
//! A decoder makes as many rows as it was asked for, whatever they become. If the pages it takes
//! hold more than a batch may have, the batch is given up and read again with fewer rows.
//!
//! # Invariants
//! What a batch becomes is at most `bytes_max`, or one row. A row that is larger than the memory
//! limit is [`Kind::MemoryLimit`].
//!
//! # Cost
//! A few additions a page. Lengths are walked only where pages are large for the number of leaves.
//!
//! # Not here
//! Reading again (`arrow_file`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use parquet::column::page::Page;
use parquet::schema::types::ColumnDescPtr;
use plait_core::{Error, Kind, Result};

use crate::block::decode::{ChunkDictionary, PageShape, decode_page, is_ids};
use crate::block::{Block, Dictionary, Layout, Values};
use crate::page::guard;
use crate::page::header::PageHeader;
use crate::schema::LevelMap;

/// Bytes of levels and offsets that a value takes besides itself.
const VALUE_BYTES: u64 = 8;

/// The load of one reader.
pub(super) struct Load {
    state: Mutex<LoadState>,
    rows: u64,
    bytes_max: u64,
    limit_bytes: u64,
}

struct LoadState {
    leaves: Vec<LeafLoad>,
    is_over: bool,
}

/// What one leaf holds of the batch that is made.
#[derive(Clone, Copy, Default)]
struct LeafLoad {
    /// All that the pages hold that were taken for the batch.
    given: u64,
    /// All that the last of them holds.
    last: u64,
    /// The longest row.
    longest: u64,
}

impl Load {
    /// For batches of `rows` rows and `bytes_max` bytes.
    pub(super) fn new(leaves: usize, rows: usize, bytes_max: usize, limit_bytes: usize) -> Self {
        Self {
            state: Mutex::new(LoadState {
                leaves: vec![LeafLoad::default(); leaves],
                is_over: false,
            }),
            rows: rows as u64,
            bytes_max: bytes_max as u64,
            limit_bytes: limit_bytes as u64,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LoadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch begins: of the pages before, the last of each leaf may go on in it.
    pub(super) fn begin(&self) {
        self.lock().leaves.iter_mut().for_each(|leaf| leaf.given = leaf.last);
    }

    /// Whether a batch was given up.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// What a page may hold without its lengths being walked.
    fn walk_bytes_min(&self, leaves: usize) -> u64 {
        self.bytes_max / (2 * leaves.max(1) as u64)
    }

    /// Adds a page to the batch of leaf `leaf`.
    ///
    /// # Errors
    /// [`Kind::MemoryLimit`] where the batch, or one row of it, becomes too much.
    fn add(&self, leaf: usize, bytes: u64, longest: u64) -> Result<()> {
        let mut state = self.lock();
        if let Some(load) = state.leaves.get_mut(leaf) {
            load.given = load.given.saturating_add(bytes);
            load.last = bytes;
            load.longest = load.longest.max(longest);
        }
        let of = |load: &LeafLoad| load.given.min(load.longest.saturating_mul(self.rows));
        let total: u64 = state.leaves.iter().map(of).fold(0, u64::saturating_add);
        if self.rows > 1 && total > self.bytes_max {
            state.is_over = true;
            return Err(Error::new(Kind::MemoryLimit, "a batch is too large")
                .with_got(format!("{total} bytes")));
        }
        if longest.min(bytes) > self.limit_bytes {
            return Err(Error::new(Kind::MemoryLimit, "one row is larger than the memory limit")
                .with_got(format!(
                    "{} bytes, memory_limit {}",
                    longest.min(bytes),
                    self.limit_bytes
                ))
                .with_hint("raise memory_limit"));
        }
        Ok(())
    }
}

/// Weighs the pages of one chunk.
pub(super) struct Scale {
    /// Its number among the leaves that are read.
    place: usize,
    leaves: usize,
    shape: PageShape,
    /// The dictionary of the chunk: its longest value, and its values where rows are walked.
    longest_id: u64,
    dictionary: ChunkDictionary,
}

impl Scale {
    pub(super) fn new(descr: &ColumnDescPtr, place: usize, leaves: usize) -> Self {
        let shape = PageShape {
            layout: Layout::of(descr),
            descr: ColumnDescPtr::clone(descr),
            map: LevelMap::Identity,
            def_max: u8::try_from(descr.max_def_level()).unwrap_or(u8::MAX),
        };
        let dictionary = ChunkDictionary::default();
        Self { place, leaves, shape, longest_id: 0, dictionary }
    }

    /// Takes note of a dictionary.
    pub(super) fn dictionary(&mut self, page: &Page) -> Result<()> {
        let Page::DictionaryPage { buf, num_values, .. } = page else { return Ok(()) };
        let len = *num_values as usize;
        let values = guard(|| Dictionary::new(self.shape.layout, buf.clone(), len)).flatten()?;
        self.longest_id = values.longest() as u64;
        self.dictionary = ChunkDictionary {
            len,
            values: Some(std::sync::Arc::new(values)),
            page: Some(page.clone()),
        };
        Ok(())
    }

    /// Adds a data page to the batch that is made.
    ///
    /// # Errors
    /// As [`Load::add`].
    pub(super) fn weigh(&self, load: &Load, header: &PageHeader, page: &Page) -> Result<()> {
        let values = u64::from(header.num_values());
        let is_ids = header.data_encoding().is_some_and(is_ids);
        let value_max = match self.shape.layout {
            Layout::Fixed(width) => width as u64,
            Layout::Prefixed if is_ids => self.longest_id,
            Layout::Prefixed => u64::MAX,
        };
        let body = page.buffer().len() as u64;
        let bytes = match value_max {
            u64::MAX => self.expanded(header, page).max(body),
            width => values.saturating_mul(width),
        };
        let bytes = bytes.saturating_add(values.saturating_mul(VALUE_BYTES));
        if bytes <= load.walk_bytes_min(self.leaves) {
            return load.add(self.place, bytes, bytes);
        }
        let longest = match (self.shape.descr.max_rep_level(), value_max) {
            (0, u64::MAX) => self.longest_plain(header, page).unwrap_or(bytes),
            (0, width) => width,
            _ => self.longest_row(header, page)?.unwrap_or(bytes),
        };
        load.add(self.place, bytes, longest.saturating_add(VALUE_BYTES))
    }

    /// Bytes of the values of a page that is not of ids.
    fn expanded(&self, header: &PageHeader, page: &Page) -> u64 {
        header.expanded_len(page.buffer(), &self.shape.descr)
    }

    /// The longest value of a plain page of a leaf that does not repeat.
    fn longest_plain(&self, header: &PageHeader, page: &Page) -> Option<u64> {
        if header.data_encoding() != Some(parquet::basic::Encoding::PLAIN) {
            return None;
        }
        let start = header.values_start(page.buffer(), 0, self.shape.descr.max_def_level())?;
        let plain = page.buffer().get(start..)?;
        let (mut at, mut longest) = (0, 0);
        while let Some(len) = self.shape.layout.len_at(plain, at) {
            longest = longest.max(len);
            at += len.max(1);
        }
        Some(longest as u64)
    }

    /// The longest row of a page; `None` if it does not say where rows begin.
    fn longest_row(&self, header: &PageHeader, page: &Page) -> Result<Option<u64>> {
        if header.data_encoding() == Some(parquet::basic::Encoding::DELTA_BYTE_ARRAY) {
            return Ok(None);
        }
        let Some(block) = self.block(page, None)? else { return Ok(None) };
        let mut byte = 0;
        let lens = (0..block.rows).map(|row| {
            let values = block.values(row);
            let bytes: usize = match &block.values {
                Values::Ids(ids, dictionary) => {
                    let ids = ids.get(values).unwrap_or_default();
                    ids.iter().map(|id| dictionary.plain(*id as usize).len()).sum()
                }
                Values::Plain(plain) => values
                    .map(|_| {
                        let len = self.shape.layout.len_at(plain, byte).unwrap_or(0);
                        byte += len;
                        len
                    })
                    .sum(),
            };
            bytes as u64 + VALUE_BYTES * block.levels(row..row + 1).len() as u64
        });
        Ok(lens.max())
    }

    /// The rows of a page; `None` where it begins inside of a row.
    pub(super) fn block(&self, page: &Page, rows: Option<usize>) -> Result<Option<Block>> {
        let rows = match rows {
            Some(rows) => rows,
            None => match self.rows_of(page) {
                Some(rows) => rows,
                None => return Ok(None),
            },
        };
        match guard(|| decode_page(page, rows, &self.shape, &self.dictionary)).flatten() {
            Ok(contents) => Ok(Some(Block::new(contents))),
            // Another decoder reads the page next, and says what is wrong with it.
            Err(_) => Ok(None),
        }
    }

    /// Whether every level is a row.
    pub(super) fn is_flat(&self) -> bool {
        self.shape.descr.max_rep_level() == 0
    }

    /// How many rows a page has.
    pub(super) fn rows_of(&self, page: &Page) -> Option<usize> {
        match page {
            Page::DataPageV2 { num_rows, .. } => Some(*num_rows as usize),
            Page::DataPage { num_values, .. } if self.shape.descr.max_rep_level() == 0 => {
                Some(*num_values as usize)
            }
            Page::DataPage { .. } => crate::block::decode::rows_of(page, &self.shape).ok(),
            Page::DictionaryPage { .. } => None,
        }
    }
}
