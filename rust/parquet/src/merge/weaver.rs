//! What the threads of a merge do: put a batch in order, weave a leaf of one.
//!
//! # Invariants
//! One thread at a time puts rows in order. A leaf is woven by one thread at a time, batch by batch.
//!
//! # Not here
//! Which thread does what, and when (`queue`); writing (`run`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plait_core::{Error, Kind, Result};

use super::ordering::{Batch, Ordering};
use super::prepare::Prepared;
use crate::chunk;
use crate::encode::Chunk;
use crate::leaf::{ReadOn, will_read_groups, will_read_rows};
use crate::queue::Work;
use crate::weave::{LeafRows, SharedWork, WeaveContext, weave};

/// What threads do for a merge.
pub(super) struct Weaver<'a> {
    prepared: &'a Prepared<'a>,
    weaving: &'a WeaveContext,
    /// Most bytes that each leaf of one source holds, about.
    cursor_bytes: Vec<u64>,
    /// How long each leaf took so far.
    leaf_nanos: Vec<AtomicU64>,
    ordering: Mutex<Ordering<'a>>,
}

impl<'a> Weaver<'a> {
    /// `cursor_bytes`: most bytes that each leaf of one source holds, about.
    pub(super) fn new(
        prepared: &'a Prepared<'a>,
        weaving: &'a WeaveContext,
        cursor_bytes: Vec<u64>,
        ordering: Ordering<'a>,
    ) -> Self {
        let leaf_nanos = prepared.leaves.iter().map(|_| AtomicU64::new(0)).collect();
        Self { prepared, weaving, cursor_bytes, leaf_nanos, ordering: Mutex::new(ordering) }
    }

    pub(super) fn ordering(&self) -> MutexGuard<'_, Ordering<'a>> {
        self.ordering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the leaf took that took longest.
    pub(super) fn longest_leaf(&self) -> Duration {
        let nanos = self.leaf_nanos.iter().map(|nanos| nanos.load(Relaxed)).max();
        Duration::from_nanos(nanos.unwrap_or(0))
    }

    /// Says which rows of objects the leaves of `batch` are made of.
    fn will_read(&self, batch: &Batch) {
        let Prepared { sources, leaves, cache, .. } = self.prepared;
        let taken = batch.windows.iter().flat_map(|window| window.steps.taken());
        let rows: BTreeMap<usize, Range<u64>> = taken.fold(BTreeMap::new(), |mut rows, taken| {
            let all = rows.entry(taken.source.index()).or_insert(taken.start..taken.end);
            all.end = taken.end;
            rows
        });
        for (source, rows) in &rows {
            sources.get(*source).into_iter().for_each(|source| will_read_groups(source, rows));
        }
        if let Some(window) = batch.copy.as_ref().filter(|_| !self.weaving.server_side_copy) {
            for taken in window.steps.taken() {
                if let Some(source) = sources.get(taken.source.index()) {
                    chunk::will_copy(source, taken.start);
                }
            }
        }
        for leaf in leaves {
            for (source, rows) in &rows {
                let Some(source) = sources.get(*source) else { continue };
                will_read_rows(source, leaf, rows, ReadOn::RowGroup, cache, &self.weaving.context);
            }
        }
    }

    /// The chunks of a leaf of `batch`; `share` offers pages to other threads.
    pub(super) fn weave_leaf(
        &self,
        batch: &Batch,
        leaf: usize,
        share: Option<&dyn SharedWork>,
    ) -> Result<Vec<Chunk>> {
        let Prepared { leaves, combine, .. } = self.prepared;
        let (Some(output), Some(spent)) = (leaves.get(leaf), self.leaf_nanos.get(leaf)) else {
            return Err(Error::new(Kind::Internal, "there is no such leaf"));
        };
        let started = Instant::now();
        let (mut rows, _charge) = match combine {
            None => {
                let same = batch.windows.iter().map(|window| LeafRows::same(&window.steps));
                (same.collect(), None)
            }
            Some(combine) => {
                let (rows, charge) =
                    combine.rows_of(self.weaving, leaves, leaf, &batch.windows, &batch.shared)?;
                (rows, Some(charge))
            }
        };
        let woven = weave(self.weaving, output, &mut rows, &batch.waiting, share);
        let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        spent.fetch_add(nanos, Relaxed);
        woven
    }
}

impl Work for Weaver<'_> {
    type Batch = Batch;

    fn order(&self) -> Result<Option<Batch>> {
        let batch = self.ordering().next()?;
        if let Some(batch) = &batch {
            self.will_read(batch);
        }
        Ok(batch)
    }

    fn row_groups(&self, batch: &Batch) -> u64 {
        batch.windows.len() as u64
    }

    fn fits(&self, batch: &Batch, leaf: usize) -> bool {
        let cursor_bytes = self.cursor_bytes.get(leaf).copied().unwrap_or(0);
        let sources = batch.windows.iter().map(|window| window.steps.taken().count()).max();
        let cursors = cursor_bytes.saturating_mul(sources.unwrap_or(0) as u64);
        self.has_room(cursors)
    }

    fn has_room(&self, bytes: u64) -> bool {
        let held = self.weaving.context.account().held_bytes();
        held.saturating_add(bytes) <= self.prepared.sizes.enough_bytes as u64
    }

    fn weave(&self, batch: &Batch, leaf: usize, share: &dyn SharedWork) -> Result<Vec<Chunk>> {
        self.weave_leaf(batch, leaf, Some(share))
    }
}
