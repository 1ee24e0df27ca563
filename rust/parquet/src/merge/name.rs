//! Gives outputs their names, and their row maps before them.
//!
//! ```text
//! files     map 0 ─ output 0 ─ map 1 ─ output 1 ─ … ─ sync
//! objects   map 0 ─ output 0
//!           map 1 ─ output 1      many at a time
//! ```
//!
//! # Invariants
//! An output with a name has its row map. A map whose output gets no name is removed again. What
//! another merge or another tool wrote is never replaced; nor is a file that has the same bytes.
//!
//! # Not here
//! Whether rows add up (`publish`).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use plait_core::workers::each;
use plait_core::{Error, Kind, Result};

use super::frame::Frame;
use super::output_check::is_ours;
use crate::options::MergeOptions;
use crate::output::TempFile;
use crate::report::OutputReport;
use crate::row_map::{RowMap, map_name};
use crate::store::Completed;

/// What a task made, and what it will be called.
pub(super) struct Unnamed {
    pub(super) name: String,
    /// None if all rows of the task were dropped.
    pub(super) output: Option<WrittenOutput>,
    /// The row map, if there is one.
    pub(super) map: Option<TempFile>,
}

/// An output without a name.
pub(super) struct WrittenOutput {
    pub(super) temp: TempFile,
    pub(super) report: OutputReport,
}

/// Gives all outputs their names.
pub(super) fn name_all(
    frame: &Frame<'_>,
    made: Vec<Unnamed>,
    options: &MergeOptions,
) -> Result<Vec<OutputReport>> {
    // Looked at again, right before the first name: another merge may have come meanwhile.
    frame.check_output(options)?;
    let folders = frame.target.make_folders(made.iter().map(|one| one.name.as_str()))?;
    let reports = name_each(frame, made);
    match &reports {
        Ok(_) => folders.sync()?,
        Err(_) => folders.abandon(),
    }
    reports
}

fn name_each(frame: &Frame<'_>, made: Vec<Unnamed>) -> Result<Vec<OutputReport>> {
    // Maps that have no output so far.
    let alone: Mutex<BTreeSet<String>> = Mutex::default();
    let maps = || alone.lock().unwrap_or_else(PoisonError::into_inner);
    let name_both = |Unnamed { name, output, map }: Unnamed| {
        let mapped = map.map(|map| name_map(frame, map, &map_name(&name))).transpose()?;
        if mapped.is_some() {
            maps().insert(map_name(&name));
        }
        let Some(output) = output else { return Ok(None) };
        let report = name_one(frame, output, &name)?;
        maps().remove(&map_name(&name));
        Ok(Some(OutputReport { row_map: mapped, ..report }))
    };
    let made: Vec<_> = made.into_iter().map(|one| Mutex::new(Some(one))).collect();
    let take = |i: usize| made[i].lock().unwrap_or_else(PoisonError::into_inner).take();
    let name = |i: usize| take(i).map_or(Ok(None), &name_both);
    let named = each(&frame.target.workers(), made.len(), name);
    match named.and_then(|reports| frame.target.sync().map(|()| reports)) {
        Ok(reports) => Ok(reports.into_iter().flatten().collect()),
        Err(e) => {
            maps().iter().for_each(|map| frame.target.remove(map));
            Err(e)
        }
    }
}

fn name_one(frame: &Frame<'_>, output: WrittenOutput, name: &str) -> Result<OutputReport> {
    let (target, stores, task) = (&frame.target, frame.stores, &frame.plan.task);
    let WrittenOutput { temp, report } = output;
    // A folder's names carry the task, so a file of that name has the same bytes, unless it is
    // damaged. Others may read it by now.
    let published = match target.file_name() {
        None => temp.publish_unless_same(target, name)?,
        Some(_) if is_ours(stores, &report.path, task) => temp.publish(target, name)?,
        Some(_) => temp.publish_new(target, name)?,
    };
    if published == Completed::Occupied && !is_ours(stores, &report.path, task) {
        let what = "another process wrote the output meanwhile";
        return Err(Error::new(Kind::OutputExists, what)
            .with_path(report.path)
            .with_hint("run merges into one file one after the other"));
    }
    Ok(report)
}

/// Gives a map its name; where it is.
fn name_map(frame: &Frame<'_>, map: TempFile, name: &str) -> Result<String> {
    let (target, stores) = (&frame.target, frame.stores);
    let location = target.location(name);
    // An object that is there is not replaced: of the same task, it has the same bytes.
    if map.publish(target, name)? == Completed::Occupied
        && RowMap::open(&location, stores).is_ok_and(|map| map.header.task != frame.plan.task)
    {
        return Err(Error::new(
            Kind::OutputExists,
            "the row map of another output is there already",
        )
        .with_path(location)
        .with_hint("remove it or write elsewhere"));
    }
    Ok(location)
}
