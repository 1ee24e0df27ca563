//! Looks up one row: which row of which source it is, or what became of it.
//!
//! ```text
//! file, row             its own map          ─▶ source, row
//! file, row, to         maps in those places ─▶ output, row; or dropped, or deleted
//! ```
//!
//! # Invariants
//! A map of another file is an error.
//!
//! # Cost
//! One map, up to the row; the footers of all maps where the row of a source is looked for.
//!
//! # Not here
//! Maps themselves (`read`).

use std::collections::BTreeMap;

use plait_core::{Error, Kind, Result, SourceId};
use serde::{Deserialize, Serialize};

use super::Fate;
use super::map_file::{damaged, is_map, map_name, whole_path};
use super::read::{MapRun, RowMap};
use crate::runtime::Context;
use crate::source::Source;
use crate::store::Stores;
use crate::store::root::Root;

/// Which row to look up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TraceOptions {
    /// The file: an output, or a source with `to`.
    file: String,
    /// The row, from 0.
    row: u64,
    /// Outputs, and folders of outputs, in which a row of a source is looked for.
    to: Option<Vec<String>>,
    /// Read by the border: settings of object stores.
    #[serde(rename = "storage_options")]
    _storage_options: BTreeMap<String, String>,
}

/// What was found.
#[derive(Debug, Serialize)]
pub(crate) struct TraceReport {
    file: String,
    row: u64,
    found: Vec<TracedRow>,
}

/// One row, before and after a merge.
#[derive(Debug, Serialize)]
struct TracedRow {
    source: String,
    source_row: u64,
    fate: Fate,
    /// The output that its map is of, and the row in it if it was kept.
    output: String,
    output_row: Option<u64>,
}

impl TracedRow {
    /// A row of `run`, so many behind its first.
    fn of(map: &RowMap, output: String, run: MapRun, behind: u64) -> Self {
        let source = map.header.sources.get(run.source as usize);
        Self {
            source: source.map(|source| source.path.clone()).unwrap_or_default(),
            source_row: run.row + behind,
            fate: run.fate,
            output,
            output_row: (run.fate == Fate::Kept).then_some(run.output_row + behind),
        }
    }
}

/// Looks up the row that `options` name.
///
/// # Errors
/// [`Kind::SourceNotFound`] where no map tells of it, [`Kind::InvalidArgument`] for a row that the
/// file does not have, [`Kind::CorruptSource`] for a damaged map.
pub(crate) fn trace_in(
    options: &TraceOptions,
    stores: &Stores,
    context: &Context,
) -> Result<TraceReport> {
    let TraceOptions { file, row, to, .. } = options;
    let found = match to {
        None => vec![back(file, *row, stores, context)?],
        Some(to) => onward(file, *row, to, stores, context)?,
    };
    Ok(TraceReport { file: file.clone(), row: *row, found })
}

/// The row of a source that the row of an output is.
fn back(output: &str, row: u64, stores: &Stores, context: &Context) -> Result<TracedRow> {
    let file = Source::open(SourceId(0), stores.open(output)?)?;
    let map = open_map(&map_name(output), stores)?;
    check_same(&file, &map)?;
    if row >= file.rows() {
        return Err(no_row(output, row, file.rows()));
    }
    let mut runs = map.runs(context)?;
    while let Some(run) = runs.next()? {
        let behind = row.checked_sub(run.output_row).filter(|behind| *behind < run.rows);
        if let Some(behind) = behind.filter(|_| run.fate == Fate::Kept) {
            return Ok(TracedRow::of(&map, output.to_owned(), run, behind));
        }
    }
    Err(damaged("does not tell of all rows").with_path(map.path()))
}

/// What became of the row of a source in the merges whose outputs are in `to`.
fn onward(
    source: &str,
    row: u64,
    to: &[String],
    stores: &Stores,
    context: &Context,
) -> Result<Vec<TracedRow>> {
    let (mut found, mut are_maps, mut rows) = (Vec::new(), false, 0);
    let wanted = whole_path(source, stores)?;
    for location in maps_in(to, stores)? {
        are_maps = true;
        let map = RowMap::open(&location, stores)?;
        let mut wants = Vec::new();
        for (at, of) in map.header.sources.iter().enumerate() {
            if whole_path(&of.path, stores)? == wanted {
                rows = rows.max(of.end);
                wants.extend((of.start..of.end).contains(&row).then_some(at));
            }
        }
        if !wants.is_empty() {
            let output = output_of(&location, &map);
            let mut runs = map.runs(context)?;
            while let Some(run) = runs.next()? {
                let behind = row.checked_sub(run.row).filter(|behind| *behind < run.rows);
                if let Some(behind) = behind.filter(|_| wants.contains(&(run.source as usize))) {
                    found.push(TracedRow::of(&map, output, run, behind));
                    break;
                }
            }
        }
    }
    let what = match (found.is_empty(), are_maps, rows) {
        (false, ..) => return Ok(found),
        (true, false, _) => "no row maps lie there",
        (true, true, 0) => "no row map is of this source",
        (true, true, rows) => return Err(no_row(source, row, rows)),
    };
    let places = to.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", ");
    Err(Error::new(Kind::SourceNotFound, what)
        .with_path(source)
        .with_got(places)
        .with_hint("name the outputs of a merge with row_map, or their folder"))
}

/// The locations of the maps of outputs, and of all maps below folders.
fn maps_in(places: &[String], stores: &Stores) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for place in places {
        if is_map(place) {
            found.push(place.clone());
        } else if place.ends_with(".parquet") {
            found.push(map_name(place));
        } else {
            let root = Root::open(place, stores)?;
            let names = root.names("", true)?;
            found.extend(names.iter().filter(|name| is_map(name)).map(|name| root.location(name)));
        }
    }
    Ok(found)
}

/// The output of the map at `location`.
fn output_of(location: &str, map: &RowMap) -> String {
    let folder = location.rfind('/').map_or("", |at| &location[..=at]);
    format!("{folder}{}", map.header.output)
}

fn open_map(location: &str, stores: &Stores) -> Result<RowMap> {
    RowMap::open(location, stores).map_err(|e| match e.kind() {
        Kind::SourceNotFound => Error::new(Kind::SourceNotFound, "the file has no row map")
            .with_path(location)
            .with_hint("merge with row_map, or look at an output of such a merge")
            .with_cause(e),
        _ => e,
    })
}

/// Checks that `map` is of `file`.
fn check_same(file: &Source, map: &RowMap) -> Result<()> {
    let entries = file.file().key_value_metadata().into_iter().flatten();
    let task = entries.filter(|entry| entry.key == "plait.task").find_map(|e| e.value.as_deref());
    if task == Some(map.header.task.as_str()) && file.rows() == map.header.rows {
        return Ok(());
    }
    Err(damaged("belongs to another output").with_path(map.path()).with_got(format!(
        "a map of task {} and {} rows, and a file of task {} and {} rows",
        map.header.task,
        map.header.rows,
        task.unwrap_or("none"),
        file.rows()
    )))
}

fn no_row(file: &str, row: u64, rows: u64) -> Error {
    Error::new(Kind::InvalidArgument, "the file has no such row")
        .with_path(file)
        .with_got(format!("row {row} of {rows}"))
        .with_hint("rows are counted from 0")
}
