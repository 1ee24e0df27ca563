//! The tables of a join, or of one side of a staged one, in memory or as files, and how they turn
//! to the next step.
//!
//! ```text
//! base ── last      step n: its changes are made of these two
//!   └──┬────┘
//!   merged where due ── new      step n + 1: the new base, the new last
//! ```
//!
//! # Invariants
//! What is replaced is let go only after what replaces it counts.
//!
//! # Not here
//! Files and manifests (`folder`, `file`); which tables there are (the callers).

use std::ops::Range;
use std::sync::Arc;

use plait_core::join::{self, Block, MemoryRun, SortedRun, StateTable, View};
use plait_core::workers::Workers;
use plait_core::{Error, Kind, Result};

use super::file::FileRun;
use super::folder::{self, JoinFolder, Refused, Run};
use super::manifest::{Counts, Files, JoinManifest, Owner};
use super::options::JoinOptions;
use crate::runtime::{Budget, Context, MemoryStage, ScopedWorkers};

/// What to do where nobody knows whether a step counts.
const UNKNOWN_HINT: &str =
    "close the join and open the state again: `step` says whether the step is committed";

/// Files of each table, oldest first.
type FileTables = Vec<Vec<Arc<FileRun>>>;

/// The state of a join.
#[derive(Debug)]
pub(super) struct State {
    base: Vec<View>,
    last: Vec<View>,
    budget: Budget,
    threads: ScopedWorkers,
    disk: Option<Disk>,
}

#[derive(Debug)]
struct Disk {
    folder: JoinFolder,
    number: u64,
    base: FileTables,
    last: FileTables,
    found: Option<JoinManifest>,
    /// Whether a manifest was put that may count or not: then only opening the state again tells.
    is_unknown: bool,
}

/// The base of the next step.
pub(super) struct Next {
    pub(super) base: Vec<View>,
    files: FileTables,
}

impl State {
    pub(super) fn open(options: &JoinOptions, owner: Owner, context: &Context) -> Result<Self> {
        let budget = Budget::of(options.memory_limit);
        let disk = match &options.state {
            None => None,
            Some(_) if budget.limit_bytes() < Budget::join_folder_min() => {
                let what = "`memory_limit` is too small for a state in a folder";
                return Err(Error::new(Kind::InvalidArgument, what)
                    .with_got(format!("{} bytes", budget.limit_bytes()))
                    .with_hint("give at least 32 MB"));
            }
            Some(location) => {
                let cache = budget.bytes(MemoryStage::JoinCache);
                let (folder, found) = JoinFolder::open(location, owner, cache, context)?;
                let number = found.as_ref().map_or(0, |found| found.number);
                let (base, last) = Default::default();
                Some(Disk { folder, number, base, last, found, is_unknown: false })
            }
        };
        let threads = ScopedWorkers::new(options.threads);
        let (base, last) = Default::default();
        Ok(Self { base, last, budget, threads, disk })
    }

    /// What the folder held when it was opened.
    pub(super) fn take_manifest(&mut self) -> Option<JoinManifest> {
        self.disk.as_mut()?.found.take()
    }

    /// Opens the runs of a manifest.
    pub(super) fn resume(&mut self, manifest: &JoinManifest, tables: &[StateTable]) -> Result<()> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        let open = |files: &Files| -> Result<FileTables> {
            let runs = |table: &StateTable| {
                let names = files.get(table.name).ok_or_else(|| {
                    let what = format!("the manifest of a join has no table `{}`", table.name);
                    Error::new(Kind::CorruptSource, what).with_path(disk.folder.location())
                })?;
                disk.folder.runs(names, &table.schema)
            };
            tables.iter().map(runs).collect()
        };
        (disk.base, disk.last) = (open(&manifest.base)?, open(&manifest.last)?);
        (self.base, self.last) = (views(&disk.base), views(&disk.last));
        Ok(())
    }

    /// The tables before the last step.
    pub(super) fn base(&self) -> &[View] {
        &self.base
    }

    /// What the last step added.
    pub(super) fn last(&self) -> &[View] {
        &self.last
    }

    /// The tables with the last step.
    pub(super) fn all(&self) -> Vec<View> {
        let with = |(i, base): (usize, &View)| {
            let last = self.last.get(i).into_iter().flat_map(|last| &last.runs).cloned();
            last.fold(base.clone(), |view, run| view.with(run))
        };
        self.base.iter().enumerate().map(with).collect()
    }

    /// Bytes held on the heap.
    pub(super) fn memory_size(&self) -> usize {
        let cache = self.disk.as_ref().map_or(0, |disk| disk.folder.cache.bytes());
        bytes_of(&self.base) + bytes_of(&self.last) + cache
    }

    /// Blocks that were in the cache, and those that were not.
    pub(super) fn asked(&self) -> (u64, u64) {
        self.disk.as_ref().map_or((0, 0), |disk| disk.folder.cache.asked())
    }

    /// All tables, with runs merged where that is due.
    pub(super) fn merged(
        &self,
        tables: &[StateTable],
        counts: &mut Counts,
        context: &Context,
    ) -> Result<Next> {
        let mut next = match &self.disk {
            None => Next { base: self.all(), files: FileTables::default() },
            Some(disk) => {
                disk.check_known()?;
                let mut files = disk.base.clone();
                for (base, last) in files.iter_mut().zip(&disk.last) {
                    base.extend(last.iter().cloned());
                }
                Next { base: views(&files), files }
            }
        };
        next.base.resize(tables.len(), View::default());
        if self.disk.is_some() {
            next.files.resize(tables.len(), Vec::new());
        }
        for (place, table) in tables.iter().enumerate() {
            let rows: Vec<u64> = next.base[place].runs.iter().map(|run| run.rows()).collect();
            if let Some(range) = join::due(&rows) {
                self.merge_runs(place, table, &mut next, range, counts, context)?;
            }
        }
        Ok(next)
    }

    /// Replaces the runs of `range` by one.
    fn merge_runs(
        &self,
        place: usize,
        table: &StateTable,
        next: &mut Next,
        range: Range<usize>,
        counts: &mut Counts,
        context: &Context,
    ) -> Result<()> {
        context.check_cancelled()?;
        let keep_deleted = range.start > 0 || table.keeps_deleted;
        let schema = &table.schema;
        let view = &mut next.base[place];
        let part = View { runs: view.runs.get(range.clone()).unwrap_or_default().to_vec() };
        counts.merges += 1;
        counts.rows_merged += part.rows();
        match &self.disk {
            None => {
                let merged = join::compact(&part, schema, keep_deleted, &self.threads)?;
                let merged = (merged.rows() > 0).then(|| merged.into_run());
                view.runs.splice(range, merged);
            }
            Some(disk) => {
                let files = &mut next.files[place];
                let old = files.get(range.clone()).unwrap_or_default();
                let how = folder::Merging {
                    keep_deleted,
                    memory_limit: self.budget.join_merge() as u64,
                    threads: self.threads.count(),
                };
                let number = disk.number + 1;
                let made = disk.folder.merge(table.name, number, old, schema, how, context)?;
                files.splice(range, made);
                next.base = views(&next.files);
            }
        }
        Ok(())
    }

    /// Makes `next` the base, and `blocks`, one of each table, the last.
    pub(super) fn add(
        &mut self,
        next: Next,
        tables: &[StateTable],
        blocks: &[Block],
        draft: JoinManifest,
        context: &Context,
    ) -> Result<()> {
        let last: Vec<View> = blocks.iter().map(|block| run(block.clone())).collect();
        self.check_memory(&next.base, &last)?;
        let Some(disk) = &mut self.disk else {
            (self.base, self.last) = (next.base, last);
            return Ok(());
        };
        let number = disk.number + 1;
        let mut files = FileTables::default();
        let done = (|| -> Result<(), Refused> {
            for (table, block) in tables.iter().zip(blocks) {
                let made = disk.folder.write(table.name, number, block, context)?;
                files.push(made.into_iter().collect());
            }
            disk.commit([&next.files, &files], tables, draft, context)
        })();
        if let Err(refused) = done {
            return Err(disk.refused(refused, &[&next.files, &files]));
        }
        disk.replace(next.files, files);
        (self.base, self.last) = (next.base, last);
        Ok(())
    }

    /// Makes `draft` count for the tables as they are.
    pub(super) fn put(
        &mut self,
        tables: &[StateTable],
        draft: JoinManifest,
        context: &Context,
    ) -> Result<()> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        disk.check_known()?;
        if let Err(refused) = disk.commit([&disk.base, &disk.last], tables, draft, context) {
            return Err(disk.refused(refused, &[]));
        }
        disk.number += 1;
        Ok(())
    }

    /// Merges all runs of the base.
    pub(super) fn compact(
        &mut self,
        tables: &[StateTable],
        draft: JoinManifest,
        counts: &mut Counts,
        context: &Context,
    ) -> Result<()> {
        self.disk.as_ref().map_or(Ok(()), Disk::check_known)?;
        let files = self.disk.as_ref().map(|disk| disk.base.clone()).unwrap_or_default();
        let mut next = Next { base: self.base.clone(), files };
        for (place, table) in tables.iter().enumerate() {
            let runs = next.base.get(place).map_or(0, |view| view.runs.len());
            if runs > 1 {
                self.merge_runs(place, table, &mut next, 0..runs, counts, context)?;
            }
        }
        if let Some(disk) = &mut self.disk {
            let last = disk.last.clone();
            let draft = JoinManifest { counts: counts.clone(), ..draft };
            let done = disk.commit([&next.files, &last], tables, draft, context);
            if let Err(refused) = done {
                return Err(disk.refused(refused, &[&next.files]));
            }
            disk.replace(next.files, last);
        }
        self.base = next.base;
        Ok(())
    }

    /// Writes the state to another folder.
    pub(super) fn snapshot(
        &self,
        location: &str,
        tables: &[StateTable],
        draft: JoinManifest,
        context: &Context,
    ) -> Result<()> {
        let mut manifest = JoinManifest { number: 1, ..draft };
        let mut runs: Vec<(String, Run<'_>)> = Vec::new();
        if let Some(disk) = &self.disk {
            manifest.base = names(tables, &disk.base);
            manifest.last = names(tables, &disk.last);
            let all = disk.base.iter().chain(&disk.last).flatten();
            runs.extend(all.map(|run| (run.name().to_owned(), Run::File(run.path()))));
        } else {
            for (views, files) in
                [(&self.base, &mut manifest.base), (&self.last, &mut manifest.last)]
            {
                for (place, table) in tables.iter().enumerate() {
                    let names = files.entry(table.name.to_owned()).or_default();
                    for run in views.get(place).into_iter().flat_map(|view| &view.runs) {
                        let name = folder::file_name(table.name, 1);
                        let blocks = (0..run.blocks()).map(|i| run.block(i));
                        let blocks = blocks.map(|block| block.map(|block| Block::clone(&block)));
                        runs.push((name.clone(), Run::Blocks(blocks.collect::<Result<_>>()?)));
                        names.push(name);
                    }
                }
            }
        }
        folder::copy_to(location, &manifest, &runs, context)
    }

    fn check_memory(&self, base: &[View], last: &[View]) -> Result<()> {
        let bytes = bytes_of(base) + bytes_of(last);
        let limit = match self.disk {
            None => self.budget.limit_bytes(),
            Some(_) => self.budget.bytes(MemoryStage::JoinState),
        };
        if bytes <= limit {
            return Ok(());
        }
        let what = "the state of the join needs more memory than the limit";
        let hint = match self.disk {
            None => "pass state= to keep it in files, or a higher memory_limit=",
            Some(_) => "cut the changes into smaller steps, or pass a higher memory_limit=",
        };
        Err(Error::new(Kind::MemoryLimit, what)
            .with_got(format!("{bytes} bytes of {limit}"))
            .with_hint(hint))
    }
}

impl Disk {
    /// Makes these files, of the base and the last, the ones that count.
    fn commit(
        &self,
        [base, last]: [&FileTables; 2],
        tables: &[StateTable],
        draft: JoinManifest,
        context: &Context,
    ) -> Result<(), Refused> {
        let (base, last) = (names(tables, base), names(tables, last));
        let manifest = JoinManifest { number: self.number + 1, base, last, ..draft };
        self.folder.commit(&manifest, context)
    }

    /// Takes up files that are live from now on; those that they replace go with their last reader.
    fn replace(&mut self, base: FileTables, last: FileTables) {
        let old = self.base.iter().chain(&self.last).flatten();
        old.for_each(|run| run.set_obsolete(true));
        base.iter().chain(&last).flatten().for_each(|run| run.set_obsolete(false));
        (self.base, self.last, self.number) = (base, last, self.number + 1);
    }

    /// The error of a commit. Files that were made for it stay only if they may count.
    fn refused(&mut self, refused: Refused, made: &[&FileTables]) -> Error {
        if !refused.may_count {
            return refused.error;
        }
        self.is_unknown = true;
        made.iter()
            .flat_map(|tables| tables.iter().flatten())
            .for_each(|run| run.set_obsolete(false));
        refused.error.with_hint(UNKNOWN_HINT)
    }

    fn check_known(&self) -> Result<()> {
        if !self.is_unknown {
            return Ok(());
        }
        let what = "a step of the join was written, but may not be durable";
        Err(Error::new(Kind::Storage, what)
            .with_path(self.folder.location())
            .with_hint(UNKNOWN_HINT))
    }
}

fn names(tables: &[StateTable], files: &FileTables) -> Files {
    let runs = |place: usize| files.get(place).into_iter().flatten();
    let names = |place| -> Vec<String> { runs(place).map(|run| run.name().to_owned()).collect() };
    let named = |(place, table): (usize, &StateTable)| (table.name.to_owned(), names(place));
    tables.iter().enumerate().map(named).collect()
}

fn views(files: &FileTables) -> Vec<View> {
    let view = |runs: &Vec<Arc<FileRun>>| {
        let runs = runs.iter().map(|run| Arc::clone(run) as Arc<dyn SortedRun>);
        View { runs: runs.collect() }
    };
    files.iter().map(view).collect()
}

fn bytes_of(tables: &[View]) -> usize {
    tables.iter().map(View::memory_size).sum()
}

fn run(block: Block) -> View {
    View::default().with(MemoryRun::new(vec![block]).into_run())
}
