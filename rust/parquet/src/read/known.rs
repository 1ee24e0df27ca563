//! One opened file of a read: what is needed of every file at any time, and its footer as bytes.
//!
//! ```text
//! file   store │ first rows of row groups │ footer as stored ─ decoded when it is asked for ─▶ source
//! ```
//!
//! # Invariants
//! A source that is decoded again is the one that was opened: its footer is not read again.
//!
//! # Cost
//! Without a decoded footer: the stored row groups, and about 500 bytes. Decoded footers have a share
//! of the limit; where they do not fit, a footer is decoded for every window of its file.
//!
//! # Not here
//! How a footer is stored (`crate::footer`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plait_core::{Result, SourceId};

use crate::deleted::DataFile;
use crate::footer::StoredFooter;
use crate::runtime::{Charge, Context};
use crate::source::Source;
use crate::store::RangeReader;

/// An opened file.
pub(super) struct KnownFile {
    pub(super) store: Arc<dyn RangeReader>,
    /// Its schema among those of the files.
    pub(super) class: usize,
    /// Its place among the files.
    pub(super) id: SourceId,
    /// First row of each row group, and the number of rows.
    row_starts: Box<[u64]>,
    footer: KnownFooter,
    decoded: Arc<DecodedFooters>,
}

enum KnownFooter {
    /// Of files that others opened.
    Decoded(Arc<Source>),
    Stored(Box<StoredFooter>, [u8; 32]),
}

impl KnownFile {
    /// A file that was just opened.
    pub(super) fn new(
        source: Source,
        footer: StoredFooter,
        class: usize,
        decoded: &Arc<DecodedFooters>,
    ) -> Self {
        let footer = KnownFooter::Stored(Box::new(footer), source.footer_hash);
        let file = Self::of(&source, source.id, footer, class, decoded);
        decoded.keep_if_it_fits(Arc::new(source));
        file
    }

    /// A file whose source is there.
    pub(super) fn of_source(
        source: &Arc<Source>,
        id: SourceId,
        class: usize,
        decoded: &Arc<DecodedFooters>,
    ) -> Self {
        Self::of(source, id, KnownFooter::Decoded(Arc::clone(source)), class, decoded)
    }

    fn of(
        source: &Source,
        id: SourceId,
        footer: KnownFooter,
        class: usize,
        decoded: &Arc<DecodedFooters>,
    ) -> Self {
        Self {
            store: Arc::clone(&source.store),
            class,
            id,
            row_starts: (0..=source.num_row_groups()).map(|g| source.row_group_start(g)).collect(),
            footer,
            decoded: Arc::clone(decoded),
        }
    }

    pub(super) fn path(&self) -> &str {
        self.store.path()
    }

    pub(super) fn rows(&self) -> u64 {
        self.row_starts.last().copied().unwrap_or(0)
    }

    pub(super) fn num_row_groups(&self) -> usize {
        self.row_starts.len().saturating_sub(1)
    }

    pub(super) fn row_group_start(&self, group: usize) -> u64 {
        self.row_starts.get(group).copied().unwrap_or_else(|| self.rows())
    }

    pub(super) fn row_group_rows(&self, group: usize) -> u64 {
        self.row_group_start(group + 1) - self.row_group_start(group)
    }

    /// The rows of each row group.
    pub(super) fn row_groups(&self) -> impl Iterator<Item = u64> + '_ {
        self.row_starts.windows(2).map(|rows| rows[1] - rows[0])
    }

    /// The row group of a row.
    pub(super) fn row_group_of(&self, row: u64) -> usize {
        self.row_starts.partition_point(|start| *start <= row).saturating_sub(1)
    }

    /// Refuses a local file that is another one by now: the footer may be that of an earlier read.
    /// Objects say with every answer what they are.
    ///
    /// # Errors
    /// As [`RangeReader::check_unchanged`].
    pub(super) fn check_unchanged(&self) -> Result<()> {
        if self.store.is_local() { self.store.check_unchanged() } else { Ok(()) }
    }

    /// The file with its decoded footer, which stays for the next time if it fits.
    ///
    /// # Errors
    /// As [`Source::again`].
    pub(super) fn source(&self) -> Result<Arc<Source>> {
        match &self.footer {
            KnownFooter::Decoded(source) => Ok(Arc::clone(source)),
            KnownFooter::Stored(footer, hash) => match self.decoded.get(self.id) {
                Some(source) => Ok(source),
                None => {
                    let source = Arc::new(Source::again(self.id, &self.store, footer, *hash)?);
                    self.decoded.keep(&source);
                    Ok(source)
                }
            },
        }
    }

    /// The same for those who go through all files: nothing else is forgotten for it.
    ///
    /// # Errors
    /// As [`source`](Self::source).
    pub(super) fn source_once(&self) -> Result<Arc<Source>> {
        match &self.footer {
            KnownFooter::Decoded(source) => Ok(Arc::clone(source)),
            KnownFooter::Stored(footer, hash) => match self.decoded.get(self.id) {
                Some(source) => Ok(source),
                None => Source::again(self.id, &self.store, footer, *hash).map(Arc::new),
            },
        }
    }
}

impl DataFile for KnownFile {
    fn path(&self) -> &str {
        Self::path(self)
    }

    fn rows(&self) -> u64 {
        Self::rows(self)
    }

    fn source(&self) -> Result<Arc<Source>> {
        self.source_once()
    }
}

/// Footers that are decoded.
pub(super) struct DecodedFooters {
    found: Mutex<KeptSources>,
    bytes_max: usize,
}

struct KeptSources {
    sources: HashMap<SourceId, Arc<Source>>,
    charge: Charge,
}

impl DecodedFooters {
    /// None yet, and at most `bytes_max` bytes.
    pub(super) fn new(context: &Context, bytes_max: usize) -> Self {
        let charge = context.charge(0);
        Self { found: Mutex::new(KeptSources { sources: HashMap::new(), charge }), bytes_max }
    }

    fn get(&self, id: SourceId) -> Option<Arc<Source>> {
        self.lock().sources.get(&id).map(Arc::clone)
    }

    fn keep_if_it_fits(&self, source: Arc<Source>) {
        let bytes = decoded_bytes(&source);
        let mut found = self.lock();
        let held = found.charge.bytes() + bytes;
        if held <= self.bytes_max {
            found.charge.set(held);
            found.sources.insert(source.id, source);
        }
    }

    /// Keeps one footer; where there is no room, all others are forgotten.
    fn keep(&self, source: &Arc<Source>) {
        let bytes = decoded_bytes(source);
        let mut found = self.lock();
        let held = found.charge.bytes() + bytes;
        if held > self.bytes_max {
            found.sources.clear();
            found.charge.set(bytes);
        } else {
            found.charge.set(held);
        }
        found.sources.insert(source.id, Arc::clone(source));
    }

    fn lock(&self) -> MutexGuard<'_, KeptSources> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decoded_bytes(source: &Source) -> usize {
    size_of::<Source>() + source.meta.memory_size()
}
