//! The row map of an output, from the windows that are written to it.
//!
//! ```text
//! steps of a window   0+2 1+1 (0 gap 1) 0+9 …  ─▶ kept 0·2, kept 1·1, dropped 0·1, kept 0·9
//! two passes          group 3+2 ─▶ the next two rows that its own map keeps
//! ```
//!
//! # Invariants
//! Nothing is decided here: the windows are what is woven. Rows that leave a source's selection are
//! deleted, all others that no window takes are dropped.
//!
//! # Cost
//! A few nanoseconds a run.
//!
//! # Not here
//! The file (`row_map`).

use std::ops::Range;
use std::sync::Arc;

use plait_core::packed_runs::{PackedRun, PackedRuns};
use plait_core::{Error, Kind, Result};

use super::prepare::Prepared;
use crate::output::TempFile;
use crate::row_map::{
    Fate, FinishedMap, MapHeader, MapRun, MapRuns, MappedSource, RowMap, RowMapWriter, whole_path,
};
use crate::runtime::Context;
use crate::source::Source;
use crate::store::{Stores, open_local};

/// What the rows of a source of a merge are.
pub(super) enum Origin {
    /// Those of the source at this index of the map.
    Source(u32),
    /// Those that the map of a group keeps.
    Group(Box<GroupRows>),
}

impl Origin {
    /// Sources that are those of the map.
    pub(super) fn all(sources: usize) -> Vec<Self> {
        (0..sources).map(|at| Self::Source(u32::try_from(at).unwrap_or(u32::MAX))).collect()
    }
}

/// Rows of a group that was merged before, in order.
pub(super) struct GroupRows {
    runs: MapRuns,
    /// What is left of the run that was begun.
    left: Option<MapRun>,
}

impl GroupRows {
    /// Those of which `map` is.
    pub(super) fn open(map: &FinishedMap, context: &Context) -> Result<Self> {
        let path = map.temp.local_path().unwrap_or(std::path::Path::new(""));
        let runs = RowMap::of(open_local(path)?)?.runs(context)?;
        Ok(Self { runs, left: None })
    }

    /// The next run, and of one that is kept `rows` rows at most.
    fn next(&mut self, rows: u64) -> Result<Option<MapRun>> {
        let Some(run) = self.left.take().map_or_else(|| self.runs.next(), |run| Ok(Some(run)))?
        else {
            return Ok(None);
        };
        if run.fate != Fate::Kept || run.rows <= rows {
            return Ok(Some(run));
        }
        self.left = Some(MapRun { rows: run.rows - rows, ..run });
        Ok((rows > 0).then_some(MapRun { rows, ..run }))
    }
}

/// Where one source is.
struct MapCursor {
    origin: Origin,
    source: Arc<Source>,
    next: u64,
    end: u64,
}

/// A map that grows with its output.
pub(super) struct Mapping {
    writer: RowMapWriter,
    cursors: Vec<MapCursor>,
}

impl Mapping {
    /// The map of what `prepared` becomes.
    pub(super) fn begin(parts: MapParts<'_>, prepared: &Prepared<'_>) -> Result<Self> {
        let MapParts { header, temp, origins, context } = parts;
        let scratch = prepared.target().scratch();
        let writer = RowMapWriter::create(header, temp, &scratch, context)?;
        let rows = prepared.sources.iter().zip(&prepared.rows);
        let cursors = rows.zip(origins).map(|((source, rows), origin)| {
            let Range { start, end } = match origin {
                Origin::Source(_) => extent(source, rows),
                Origin::Group(_) => rows.clone(),
            };
            MapCursor { origin, source: Arc::clone(source), next: start, end }
        });
        let cursors = cursors.collect();
        Ok(Self { writer, cursors })
    }

    /// Adds the rows of a window.
    pub(super) fn add(&mut self, steps: &PackedRuns) -> Result<()> {
        let Self { writer, cursors } = self;
        for taken in steps.taken() {
            let cursor = cursor(cursors, taken.source.0)?;
            let passed = taken.start.saturating_sub(cursor.next);
            cursor.pass_over(passed, writer)?;
        }
        let mut words = steps.words();
        while let Some((run, used)) = PackedRun::first(words) {
            let cursor = cursor(cursors, run.source)?;
            match run.is_gap {
                true => cursor.pass_over(u64::from(run.len), writer)?,
                false => cursor.keep(u64::from(run.len), writer)?,
            }
            words = words.get(used..).unwrap_or_default();
        }
        Ok(())
    }

    /// Adds the rows that no window took, and ends the map.
    pub(super) fn finish(mut self) -> Result<FinishedMap> {
        for cursor in &mut self.cursors {
            cursor.pass_over(cursor.end.saturating_sub(cursor.next), &mut self.writer)?;
            cursor.drain(&mut self.writer)?;
        }
        self.writer.finish()
    }
}

fn cursor(cursors: &mut [MapCursor], source: u32) -> Result<&mut MapCursor> {
    cursors
        .get_mut(source as usize)
        .ok_or_else(|| Error::new(Kind::Internal, "a window names a source that is not there"))
}

impl MapCursor {
    /// The next `rows` rows are in the output.
    #[inline]
    fn keep(&mut self, rows: u64, writer: &mut RowMapWriter) -> Result<()> {
        self.next += rows;
        match &mut self.origin {
            Origin::Source(id) => writer.push(*id, Fate::Kept, rows),
            Origin::Group(group) => take(group, rows, Fate::Kept, writer),
        }
    }

    /// The next `rows` rows are not in the output.
    fn pass_over(&mut self, rows: u64, writer: &mut RowMapWriter) -> Result<()> {
        let end = self.next + rows;
        let id = match &mut self.origin {
            Origin::Source(id) => *id,
            Origin::Group(group) => {
                self.next = end;
                return take(group, rows, Fate::Dropped, writer);
            }
        };
        while self.next < end {
            let live = self.source.next_rows(self.next);
            let (start, stop) = (live.start.min(end), live.end.min(end));
            writer.push(id, Fate::Deleted, start - self.next)?;
            writer.push(id, Fate::Dropped, stop - start)?;
            self.next = stop.max(start);
        }
        Ok(())
    }

    /// What is left of the map of a group: rows behind the last that it keeps.
    fn drain(&mut self, writer: &mut RowMapWriter) -> Result<()> {
        match &mut self.origin {
            Origin::Source(_) => Ok(()),
            Origin::Group(group) => {
                while let Some(run) = group.next(u64::MAX)? {
                    writer.push(run.source, run.fate, run.rows)?;
                }
                Ok(())
            }
        }
    }
}

/// The next `rows` rows of a group have this fate; rows before them that it left out keep theirs.
fn take(group: &mut GroupRows, rows: u64, fate: Fate, writer: &mut RowMapWriter) -> Result<()> {
    let mut left = rows;
    while left > 0 {
        let run = group.next(left)?;
        let run =
            run.ok_or_else(|| Error::new(Kind::Internal, "a group has more rows than it had"))?;
        let is_kept = run.fate == Fate::Kept;
        writer.push(run.source, if is_kept { fate } else { run.fate }, run.rows)?;
        left -= if is_kept { run.rows } else { 0 };
    }
    Ok(())
}

/// What a map is made of.
pub(super) struct MapParts<'a> {
    pub(super) header: MapHeader,
    pub(super) temp: TempFile,
    /// What the rows of each source are.
    pub(super) origins: Vec<Origin>,
    pub(super) context: &'a Context,
}

/// What the map of the output of `prepared` is of. Rows before the first and behind the last live
/// one of a file count with these.
pub(super) fn header(prepared: &Prepared<'_>, stores: &Stores) -> Result<MapHeader> {
    let mut sources = Vec::new();
    for (source, rows) in prepared.sources.iter().zip(&prepared.rows) {
        let Range { start, end } = extent(source, rows);
        sources.push(MappedSource { path: whole_path(source.path(), stores)?, start, end });
    }
    let output = prepared.output.map(|index| prepared.frame.output_name(index));
    let output = output.unwrap_or_default();
    Ok(MapHeader::new(&prepared.frame.plan.task, &output, sources))
}

/// The rows of the file that the map covers: `rows`, and deleted ones at the ends of the file.
fn extent(source: &Source, rows: &Range<u64>) -> Range<u64> {
    if rows.is_empty() {
        return rows.clone();
    }
    let span = source.span();
    let start = if rows.start <= span.start { 0 } else { rows.start };
    let end = if rows.end >= span.end { source.rows() } else { rows.end };
    start..end
}
