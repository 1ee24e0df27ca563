//! Which file is read when: the one whose rows are wanted, and at the same time some that come next.
//!
//! ```text
//! merge asks file 3 ─▶ batch ready? ─ no ─▶ threads read files 3, 0, 7 … at once ─▶ batch of file 3
//! one thread puts rows in order │ others copy rows, then read files that have no batch ready
//! ```
//!
//! # Invariants
//! Of the files that were not asked for, only a few of the next ones are begun, and none where rows
//! are limited. Threads end before a call returns, so that a reader that is dropped leaves none.
//!
//! # Cost
//! At most one batch a file that waits.
//!
//! # Not here
//! Rows of one file (`window`); their order (`plait_core::stream`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use plait_core::workers::Workers;
use plait_core::{Error, Result};

use super::hints::FILES_HINTED;
use super::window::WindowCursor;
use crate::runtime::{Charge, Context, ScopedWorkers};

/// Files that are read at once for each thread.
pub(super) const FILES_A_THREAD: usize = 2;

/// All files of one read.
pub(super) struct FilesAhead {
    cursors: Vec<Mutex<WaitingFile>>,
    /// Files that were asked before, the longest ago first.
    asked: Mutex<VecDeque<usize>>,
    next: Mutex<NextFiles>,
    workers: ScopedWorkers,
    ahead: ReadsAhead,
    /// Whether all rows are read, as far as is known.
    is_all: bool,
    context: Context,
}

/// What is read before it is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadsAhead {
    /// Nothing: rows are limited.
    Nothing,
    /// The first rows of the files that come next.
    NextFiles,
    /// Those, and further rows of files that were asked before.
    NextRows,
}

/// Files that were not asked for, in their order.
#[derive(Default)]
struct NextFiles {
    /// The first that was not begun.
    first: usize,
    /// The first whose store was given no hint of its first rows.
    hinted: usize,
    /// How many were begun.
    begun: usize,
}

/// A file and the batch that waits.
struct WaitingFile {
    /// None once it has ended.
    cursor: Option<WindowCursor>,
    ready: Option<(Result<RecordBatch>, Charge)>,
    begun: Begun,
}

/// Why a file was begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Not,
    Ahead,
    Asked,
}

impl FilesAhead {
    pub(super) fn new(
        cursors: Vec<WindowCursor>,
        workers: ScopedWorkers,
        ahead: ReadsAhead,
        context: &Context,
    ) -> Self {
        let waiting = |cursor| {
            Mutex::new(WaitingFile { cursor: Some(cursor), ready: None, begun: Begun::Not })
        };
        Self {
            cursors: cursors.into_iter().map(waiting).collect(),
            asked: Mutex::default(),
            next: Mutex::default(),
            is_all: ahead != ReadsAhead::Nothing,
            ahead: if workers.count() > 1 { ahead } else { ReadsAhead::Nothing },
            workers,
            context: context.clone(),
        }
    }

    fn lock(&self, file: usize) -> Option<MutexGuard<'_, WaitingFile>> {
        self.cursors.get(file).map(|c| c.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The next rows of a file.
    fn next(&self, file: usize) -> Option<Result<RecordBatch>> {
        let (before, is_ready) = {
            let mut waiting = self.lock(file)?;
            (std::mem::replace(&mut waiting.begun, Begun::Asked), waiting.ready.is_some())
        };
        if before == Begun::Ahead {
            self.next.lock().unwrap_or_else(PoisonError::into_inner).begun -= 1;
        }
        if !is_ready {
            let files = self.wanted(file);
            self.workers.run(files.len(), &|i| {
                if let Some(mut waiting) = files.get(i).and_then(|file| self.lock(*file)) {
                    waiting.fill(&self.context);
                }
            });
        }
        let (batch, _) = self.lock(file)?.ready.take()?;
        Some(batch)
    }

    /// Reads the next rows of a file that was asked for before and has none ready, if there is one.
    fn read_one(&self) {
        let mut waiting = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            // Of a file that another thread reads, rows are ready soon.
            let found = asked.iter().enumerate().find_map(|(at, file)| {
                let waiting = self.cursors.get(*file)?.try_lock().ok()?;
                waiting.lacks().then_some((at, waiting))
            });
            let Some((at, waiting)) = found else { return };
            if let Some(file) = asked.remove(at) {
                asked.push_back(file);
            }
            waiting
        };
        waiting.fill(&self.context);
    }

    /// The file that is asked for, and others that have no batch ready.
    fn wanted(&self, file: usize) -> Vec<usize> {
        let mut wanted = vec![file];
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.retain(|other| *other != file);
        let most = self.workers.count() * FILES_A_THREAD;
        if self.ahead == ReadsAhead::NextRows {
            let lacks = |other: &usize| self.lock(*other).is_some_and(|waiting| waiting.lacks());
            let others: Vec<usize> = asked.iter().copied().filter(lacks).take(most - 1).collect();
            asked.retain(|other| !others.contains(other));
            asked.extend(&others);
            wanted.extend(others);
        }
        asked.push_back(file);
        drop(asked);
        if self.ahead != ReadsAhead::Nothing {
            self.begin_next(&mut wanted, most);
        }
        if self.is_all {
            self.will_read_next(file);
        }
        wanted
    }

    /// Says which rows of the files that come behind `file` are read first.
    fn will_read_next(&self, file: usize) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let end = next.first.max(file + 1) + FILES_HINTED;
        while let Some(cursor) = self.cursors.get(next.hinted).filter(|_| next.hinted < end) {
            // Who reads it now gives hints itself.
            if let Ok(waiting) = cursor.try_lock() {
                waiting.will_read_first();
            }
            next.hinted += 1;
        }
    }

    /// Adds files that were not asked for, so that `most` are read at once.
    fn begin_next(&self, wanted: &mut Vec<usize>, most: usize) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        while wanted.len() < most && next.begun < most {
            let Some(mut waiting) = self.lock(next.first) else { return };
            if waiting.begun == Begun::Not {
                waiting.begun = Begun::Ahead;
                wanted.push(next.first);
                next.begun += 1;
            }
            next.first += 1;
        }
    }
}

impl WaitingFile {
    fn will_read_first(&self) {
        if let Some(cursor) = self.cursor.as_ref().filter(|_| self.begun == Begun::Not) {
            cursor.will_read_first();
        }
    }

    fn lacks(&self) -> bool {
        self.ready.is_none() && self.cursor.is_some()
    }

    fn fill(&mut self, context: &Context) {
        let Some(cursor) = self.cursor.as_mut().filter(|_| self.ready.is_none()) else { return };
        let next = cursor.next().transpose();
        let bytes = next.as_ref().and_then(|next| next.as_ref().ok()).map(|(_, bytes)| *bytes);
        let charge = context.charge(bytes.unwrap_or(0));
        if bytes.is_none() {
            self.cursor = None;
        }
        self.ready = next.map(|next| (next.map(|(batch, _)| batch), charge));
    }
}

/// Workers of a merge that read ahead once nothing else is left to do: one thread puts rows in order,
/// which takes longer than copying them.
pub(super) struct AheadWorkers {
    pub(super) workers: ScopedWorkers,
    pub(super) files: Arc<FilesAhead>,
}

impl Workers for AheadWorkers {
    fn count(&self) -> usize {
        self.workers.count()
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        let reads = match self.files.ahead {
            ReadsAhead::NextRows => self.count() * FILES_A_THREAD,
            ReadsAhead::Nothing | ReadsAhead::NextFiles => 0,
        };
        self.workers
            .run(count + reads, &|i| if i < count { task(i) } else { self.files.read_one() });
    }
}

/// One file as the merge reads it.
pub(super) struct FileRows {
    pub(super) all: Arc<FilesAhead>,
    pub(super) file: usize,
    pub(super) schema: SchemaRef,
}

impl Iterator for FileRows {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.all.next(self.file).map(|next| next.map_err(Error::into_arrow))
    }
}

impl RecordBatchReader for FileRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
