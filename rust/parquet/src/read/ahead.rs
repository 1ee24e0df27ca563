//! Which file is read when: the one whose rows are wanted, and at the same time some that come next.
//!
//! ```text
//! merge asks file 3 ─▶ batch ready? ─ no ─▶ threads read files 3, 0, 7 … at once ─▶ batch of file 3
//! ```
//!
//! # Invariants
//! A file that was not asked for holds no row before another one lacks its own. Threads end before
//! a call returns, so that a reader that is dropped leaves none.
//!
//! # Cost
//! At most one batch a file that waits.
//!
//! # Not here
//! Rows of one file (`file`); their order (`plait_core::stream`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use plait_core::workers::Workers;
use plait_core::{Error, Result};

use super::file::WindowCursor;
use crate::runtime::{Charge, Context, ScopedWorkers};

/// Files that are read at once for each thread.
const FILES_A_THREAD: usize = 2;

/// All files of one read.
pub(super) struct FilesAhead {
    cursors: Vec<Mutex<WaitingFile>>,
    /// Files that were asked before, the longest ago first.
    asked: Mutex<VecDeque<usize>>,
    workers: ScopedWorkers,
    reads_ahead: bool,
    context: Context,
}

/// A file and the batch that waits.
struct WaitingFile {
    /// None once it has ended.
    cursor: Option<WindowCursor>,
    ready: Option<(Result<RecordBatch>, Charge)>,
}

impl FilesAhead {
    pub(super) fn new(
        cursors: Vec<WindowCursor>,
        workers: ScopedWorkers,
        reads_ahead: bool,
        context: &Context,
    ) -> Self {
        let waiting = |cursor| Mutex::new(WaitingFile { cursor: Some(cursor), ready: None });
        Self {
            cursors: cursors.into_iter().map(waiting).collect(),
            asked: Mutex::default(),
            workers,
            reads_ahead: reads_ahead && workers.count() > 1,
            context: context.clone(),
        }
    }

    fn lock(&self, file: usize) -> Option<MutexGuard<'_, WaitingFile>> {
        self.cursors.get(file).map(|c| c.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The next rows of a file.
    fn next(&self, file: usize) -> Option<Result<RecordBatch>> {
        let is_ready = self.lock(file)?.ready.is_some();
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

    /// The file that is asked for, and others that have no batch ready.
    fn wanted(&self, file: usize) -> Vec<usize> {
        let mut wanted = vec![file];
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.retain(|other| *other != file);
        if self.reads_ahead {
            let most = self.workers.count() * FILES_A_THREAD;
            let lacks = |other: &usize| self.lock(*other).is_some_and(|waiting| waiting.lacks());
            let others: Vec<usize> = asked.iter().copied().filter(lacks).take(most - 1).collect();
            asked.retain(|other| !others.contains(other));
            asked.extend(&others);
            wanted.extend(others);
        }
        asked.push_back(file);
        wanted
    }
}

impl WaitingFile {
    fn lacks(&self) -> bool {
        self.ready.is_none() && self.cursor.is_some()
    }

    fn fill(&mut self, context: &Context) {
        let Some(cursor) = self.cursor.as_mut().filter(|_| self.ready.is_none()) else { return };
        let next = cursor.next().transpose();
        let bytes = |next: &Option<Result<RecordBatch>>| match next {
            Some(Ok(batch)) => batch.get_array_memory_size(),
            _ => 0,
        };
        let charge = context.charge(bytes(&next));
        if !matches!(next, Some(Ok(_))) {
            self.cursor = None;
        }
        self.ready = next.map(|next| (next, charge));
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
