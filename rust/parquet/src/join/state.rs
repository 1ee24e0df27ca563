//! The three tables of a join, in memory or as files, and how they turn to the next step.
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
//! Files and manifests (`folder`, `file`).

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use plait_core::join::{self, Block, Layout, MemoryRun, Side, StateRun, Step, Tables, View};
use plait_core::{Error, Kind, Result};

use super::file::FileRun;
use super::folder::{self, Folder, Refused, Run};
use super::manifest::{Files, Manifest};
use super::{After, Counts, JoinOptions};
use crate::beside::Beside;
use crate::context::Context;

/// Of the limit, one part in so many is for blocks of files.
const CACHE_SHARE: u64 = 2;
/// Of the limit, one part in so many is for merging runs.
const MERGE_SHARE: u64 = 4;
/// Merging runs takes so much in any case.
const MERGE_BYTES_MIN: u64 = 16_000_000;
/// With less, cache and merges do not fit.
const FOLDER_BYTES_MIN: u64 = 2 * MERGE_BYTES_MIN;

/// What to do where nobody knows whether a step counts.
const UNKNOWN_HINT: &str =
    "close the join and open the state again: `step` says whether the step counts";

/// Files of the three tables, oldest first.
type FileTables = [Vec<Arc<FileRun>>; 3];

/// The state of a join.
#[derive(Debug)]
pub(super) struct State {
    base: Tables,
    last: Tables,
    memory_limit: u64,
    threads: Beside,
    disk: Option<Disk>,
}

#[derive(Debug)]
struct Disk {
    folder: Folder,
    number: u64,
    base: FileTables,
    last: FileTables,
    found: Option<Manifest>,
    /// Whether a manifest was put that may count or not: then only opening the state again tells.
    is_unknown: bool,
}

/// The base of the next step.
pub(super) struct Next {
    pub(super) base: Tables,
    files: FileTables,
}

impl State {
    pub(super) fn open(options: &JoinOptions, context: &Context) -> Result<Self> {
        let memory_limit = options.memory_limit;
        let disk = match &options.state {
            None => None,
            Some(_) if memory_limit < FOLDER_BYTES_MIN => {
                let what = "`memory_limit` is too small for a state in a folder";
                return Err(Error::new(Kind::InvalidArgument, what)
                    .with_got(format!("{memory_limit} bytes"))
                    .with_hint("give at least 32 MB"));
            }
            Some(location) => {
                let cache = usize::try_from(memory_limit / CACHE_SHARE).unwrap_or(usize::MAX);
                let (folder, found) = Folder::open(location, cache, context)?;
                let number = found.as_ref().map_or(0, |found| found.number);
                let (base, last) = Default::default();
                Some(Disk { folder, number, base, last, found, is_unknown: false })
            }
        };
        let threads = Beside::new(options.threads);
        let (base, last) = Default::default();
        Ok(Self { base, last, memory_limit, threads, disk })
    }

    /// What the folder held when it was opened.
    pub(super) fn take_manifest(&mut self) -> Option<Manifest> {
        self.disk.as_mut()?.found.take()
    }

    /// Opens the runs of a manifest.
    pub(super) fn resume(&mut self, manifest: &Manifest, layout: &Layout) -> Result<()> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        let open = |files: &Files| -> Result<FileTables> {
            let all = TableKind::ALL
                .map(|kind| disk.folder.runs(kind.names(files), &kind.schema(layout)));
            let [left, place, right] = all;
            Ok([left?, place?, right?])
        };
        (disk.base, disk.last) = (open(&manifest.base)?, open(&manifest.last)?);
        (self.base, self.last) = (views(&disk.base), views(&disk.last));
        Ok(())
    }

    pub(super) fn base(&self) -> &Tables {
        &self.base
    }

    pub(super) fn last(&self) -> &Tables {
        &self.last
    }

    /// The tables with the last step.
    pub(super) fn all(&self) -> Tables {
        let with = |base: &View, last: &View| {
            last.runs.iter().fold(base.clone(), |view, run| view.with(Arc::clone(run)))
        };
        Tables {
            left: with(&self.base.left, &self.last.left),
            place: with(&self.base.place, &self.last.place),
            right: with(&self.base.right, &self.last.right),
        }
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
        layout: &Layout,
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
        for kind in TableKind::ALL {
            let rows: Vec<u64> = kind.of(&next.base).runs.iter().map(|run| run.rows()).collect();
            if let Some(range) = join::due(&rows) {
                self.merge_runs(kind, &mut next, range, layout, counts, context)?;
            }
        }
        Ok(next)
    }

    /// Replaces the runs of `range` by one.
    fn merge_runs(
        &self,
        kind: TableKind,
        next: &mut Next,
        range: Range<usize>,
        layout: &Layout,
        counts: &mut Counts,
        context: &Context,
    ) -> Result<()> {
        context.check_cancelled()?;
        let keep_deleted = range.start > 0 || kind.keeps_deleted(layout);
        let schema = kind.schema(layout);
        let view = kind.of_mut(&mut next.base);
        let part = View { runs: view.runs.get(range.clone()).unwrap_or_default().to_vec() };
        counts.merges += 1;
        counts.rows_merged += part.rows();
        match &self.disk {
            None => {
                let merged = join::compact(&part, &schema, keep_deleted, &self.threads)?;
                let merged = (merged.rows() > 0).then(|| merged.into_run());
                view.runs.splice(range, merged);
            }
            Some(disk) => {
                let files = &mut next.files[kind as usize];
                let old = files.get(range.clone()).unwrap_or_default();
                let limit = (self.memory_limit / MERGE_SHARE).max(MERGE_BYTES_MIN);
                let number = disk.number + 1;
                let made = disk.folder.merge(
                    kind.name(),
                    number,
                    old,
                    &schema,
                    folder::Merging { keep_deleted, memory_limit: limit },
                    context,
                )?;
                files.splice(range, made);
                next.base = views(&next.files);
            }
        }
        Ok(())
    }

    /// Makes `next` the base, and the rows of `step` the last.
    pub(super) fn add(
        &mut self,
        next: Next,
        step: &Step,
        after: &After<'_>,
        context: &Context,
    ) -> Result<()> {
        let blocks = [&step.left, &step.place, &step.right];
        let last = Tables {
            left: run(step.left.clone()),
            place: run(step.place.clone()),
            right: run(step.right.clone()),
        };
        self.check_memory(&next.base, &last)?;
        let Some(disk) = &mut self.disk else {
            (self.base, self.last) = (next.base, last);
            return Ok(());
        };
        let number = disk.number + 1;
        let mut files = FileTables::default();
        let done = (|| -> Result<(), Refused> {
            for ((kind, block), files) in TableKind::ALL.into_iter().zip(blocks).zip(&mut files) {
                files.extend(disk.folder.write(kind.name(), number, block, context)?);
            }
            disk.commit(&next.files, &files, after, Some(after.step), context)
        })();
        if let Err(refused) = done {
            return Err(disk.refused(refused, &[&next.files, &files]));
        }
        disk.replace(next.files, files);
        (self.base, self.last) = (next.base, last);
        Ok(())
    }

    /// Merges all runs of the base.
    pub(super) fn compact(
        &mut self,
        after: &After<'_>,
        counts: &mut Counts,
        context: &Context,
    ) -> Result<()> {
        self.disk.as_ref().map_or(Ok(()), Disk::check_known)?;
        let files = self.disk.as_ref().map(|disk| disk.base.clone()).unwrap_or_default();
        let mut next = Next { base: self.base.clone(), files };
        for kind in TableKind::ALL {
            let runs = kind.of(&next.base).runs.len();
            if runs > 1 {
                self.merge_runs(kind, &mut next, 0..runs, after.layout, counts, context)?;
            }
        }
        if let Some(disk) = &mut self.disk {
            let last = disk.last.clone();
            let after = After { counts, ..*after };
            let done = disk.commit(&next.files, &last, &after, Some(after.step), context);
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
        step: Option<u64>,
        after: &After<'_>,
        context: &Context,
    ) -> Result<()> {
        let schemas = [after.layout.given(Side::Left), after.layout.given(Side::Right)];
        let mut manifest = Manifest::new(after.options, [&schemas[0], &schemas[1]], 1)?;
        manifest.step = step;
        manifest.counts = after.counts.clone();
        let mut runs: Vec<(String, Run<'_>)> = Vec::new();
        if let Some(disk) = &self.disk {
            (manifest.base, manifest.last) = (names(&disk.base), names(&disk.last));
            let all = disk.base.iter().chain(&disk.last).flatten();
            runs.extend(all.map(|run| (run.name().to_owned(), Run::File(run.path()))));
        } else {
            for (tables, files) in
                [(&self.base, &mut manifest.base), (&self.last, &mut manifest.last)]
            {
                for kind in TableKind::ALL {
                    for run in &kind.of(tables).runs {
                        let name = folder::file_name(kind.name(), 1);
                        let blocks = (0..run.blocks()).map(|i| run.block(i));
                        let blocks = blocks.map(|block| block.map(|block| Block::clone(&block)));
                        runs.push((name.clone(), Run::Blocks(blocks.collect::<Result<_>>()?)));
                        kind.names_mut(files).push(name);
                    }
                }
            }
        }
        folder::copy_to(location, &manifest, &runs, context)
    }

    fn check_memory(&self, base: &Tables, last: &Tables) -> Result<()> {
        let bytes = (bytes_of(base) + bytes_of(last)) as u64;
        let cache = if self.disk.is_some() { self.memory_limit / CACHE_SHARE } else { 0 };
        let limit = self.memory_limit - cache;
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
    /// Makes these files the ones that count.
    fn commit(
        &self,
        base: &FileTables,
        last: &FileTables,
        after: &After<'_>,
        step: Option<u64>,
        context: &Context,
    ) -> Result<(), Refused> {
        let schemas = [after.layout.given(Side::Left), after.layout.given(Side::Right)];
        let number = self.number + 1;
        let mut manifest = Manifest::new(after.options, [&schemas[0], &schemas[1]], number)?;
        manifest.step = step;
        manifest.counts = after.counts.clone();
        (manifest.base, manifest.last) = (names(base), names(last));
        self.folder.commit(&manifest, context)
    }

    /// Takes up files that count from now on; those that they replace go with their last reader.
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
        let what = "a step of the join was written, but perhaps not for good";
        Err(Error::new(Kind::Storage, what)
            .with_path(self.folder.location())
            .with_hint(UNKNOWN_HINT))
    }
}

fn names(files: &FileTables) -> Files {
    let [left, place, right] =
        [0, 1, 2].map(|i: usize| files[i].iter().map(|run| run.name().to_owned()).collect());
    Files { left, place, right }
}

fn views(files: &FileTables) -> Tables {
    let [left, place, right] = [0, 1, 2].map(|i: usize| {
        let runs = files[i].iter().map(|run| Arc::clone(run) as Arc<dyn StateRun>);
        View { runs: runs.collect() }
    });
    Tables { left, place, right }
}

fn bytes_of(tables: &Tables) -> usize {
    tables.left.memory_size() + tables.place.memory_size() + tables.right.memory_size()
}

fn run(block: Block) -> View {
    View::default().with(MemoryRun::new(vec![block]).into_run())
}

/// The tables of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableKind {
    Left,
    Place,
    Right,
}

impl TableKind {
    const ALL: [Self; 3] = [Self::Left, Self::Place, Self::Right];

    fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Place => "place",
            Self::Right => "right",
        }
    }

    fn names(self, files: &Files) -> &[String] {
        match self {
            Self::Left => &files.left,
            Self::Place => &files.place,
            Self::Right => &files.right,
        }
    }

    fn names_mut(self, files: &mut Files) -> &mut Vec<String> {
        match self {
            Self::Left => &mut files.left,
            Self::Place => &mut files.place,
            Self::Right => &mut files.right,
        }
    }

    fn of(self, tables: &Tables) -> &View {
        match self {
            Self::Left => &tables.left,
            Self::Place => &tables.place,
            Self::Right => &tables.right,
        }
    }

    fn of_mut(self, tables: &mut Tables) -> &mut View {
        match self {
            Self::Left => &mut tables.left,
            Self::Place => &mut tables.place,
            Self::Right => &mut tables.right,
        }
    }

    fn schema(self, layout: &Layout) -> SchemaRef {
        match self {
            Self::Left => layout.left_blocks(),
            Self::Place => layout.place_blocks(),
            Self::Right => layout.right_blocks(),
        }
    }

    /// Whether a deleted key must be remembered: its sequence number decides on later changes.
    fn keeps_deleted(self, layout: &Layout) -> bool {
        let has_sequence = |side| layout.given(side).column_with_name(join::SEQUENCE).is_some();
        match self {
            Self::Left => false,
            Self::Place => has_sequence(Side::Left),
            Self::Right => has_sequence(Side::Right),
        }
    }
}
