//! Deletes that came while a merge ran, carried to the rows of its outputs.
//!
//! ```text
//! source   deleted then {2}, now {2, 5, 6}      new: 5, 6
//! map      5 ─▶ row 9 of the output             6 ─▶ dropped
//! output   deleted {9}
//! ```
//!
//! # Invariants
//! One of the maps has every new row, or nothing is carried. Nothing is carried either if a row is
//! not deleted any more, since it is in no output; or if a kept row is deleted and the merge dropped
//! others, since one of these would have stayed without it.
//!
//! # Cost
//! What deletes rows of sources, twice; the maps of outputs that have such rows.
//!
//! # Not here
//! How a table stores what is deleted of the outputs (its log).

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plait_core::{Error, Kind, Result, SourceId};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use super::Fate;
use super::map_file::whole_path;
use super::read::RowMap;
use crate::deleted::{DeletionVector, DeletionVectors, LiveRows, vector_bytes};
use crate::runtime::{Context, ScopedWorkers};
use crate::source::Source;
use crate::store::Stores;

/// What was merged, and what was deleted since.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CarryOptions {
    /// The row maps of all outputs of the merge.
    maps: Vec<String>,
    /// Sources of which rows were deleted.
    sources: Vec<SourceDeletes>,
    /// How deleted rows of outputs are encoded.
    form: RowsForm,
    /// Read by the border: settings of object stores.
    #[serde(rename = "storage_options")]
    _storage_options: BTreeMap<String, String>,
}

/// How deleted rows are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RowsForm {
    /// The magic number and the bitmap of a deletion vector.
    #[default]
    Bitmap,
    /// Numbers of 8 bytes each, little endian, ascending.
    Numbers,
}

/// A source before the merge and now.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SourceDeletes {
    path: String,
    /// What the merge left out.
    then: Option<DeletionVector>,
    now: Option<DeletionVector>,
}

/// What is deleted of the outputs.
#[derive(Debug, Serialize)]
pub(crate) struct CarriedDeletes {
    /// Why nothing can be carried, if that is so.
    why: Option<String>,
    /// Outputs of which rows are deleted.
    outputs: Vec<OutputDeletes>,
}

/// Deleted rows of an output.
#[derive(Debug, Serialize)]
struct OutputDeletes {
    /// Its map.
    map: String,
    /// How many.
    rows: u64,
    /// Which, in the form that was asked for, in base 64.
    encoded: String,
}

/// Carries deletes from the sources of a merge to its outputs.
///
/// # Errors
/// What is wrong with a vector or a map.
pub(crate) fn carry_in(
    options: &CarryOptions,
    stores: &Stores,
    context: &Context,
) -> Result<CarriedDeletes> {
    let not = |why: String| Ok(CarriedDeletes { why: Some(why), outputs: Vec::new() });
    let mut deleted: BTreeMap<String, RoaringTreemap> = BTreeMap::new();
    let paths: Vec<String> = options.sources.iter().map(|source| source.path.clone()).collect();
    let open = |path: &String| Source::open(SourceId(0), stores.open(path)?).map(Arc::new);
    let files = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
    let then = deleted_rows(options, &files, |source| source.then.clone(), stores, context)?;
    let now = deleted_rows(options, &files, |source| source.now.clone(), stores, context)?;
    for ((path, then), now) in paths.iter().zip(then).zip(now) {
        if !then.is_subset(&now) {
            return not(format!("rows of `{path}` are deleted no more"));
        }
        deleted.insert(whole_path(path, stores)?, now - then);
    }
    let mut left: u64 = deleted.values().map(RoaringTreemap::len).sum();
    let mut outputs = Vec::new();
    for location in &options.maps {
        let map = RowMap::open(location, stores)?;
        let NewDeletes { rows, found, are_others_dropped } =
            carried(&map, &deleted, stores, context)?;
        left = left.checked_sub(found).ok_or_else(twice)?;
        if !rows.is_empty() && are_others_dropped {
            return not("rows were deleted that others were dropped for".to_owned());
        }
        if !rows.is_empty() {
            let encoded = match options.form {
                RowsForm::Bitmap => STANDARD.encode(vector_bytes(&rows)?),
                RowsForm::Numbers => {
                    STANDARD.encode(rows.iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
                }
            };
            outputs.push(OutputDeletes { map: location.clone(), rows: rows.len(), encoded });
        }
    }
    match left {
        0 => Ok(CarriedDeletes { why: None, outputs }),
        left => not(format!("no row map has {left} of the deleted rows")),
    }
}

/// The rows of each source that `of` says are deleted.
fn deleted_rows(
    options: &CarryOptions,
    files: &[Arc<Source>],
    of: fn(&SourceDeletes) -> Option<DeletionVector>,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<RoaringTreemap>> {
    // By the path that the file has, however it was spelled.
    let vector = |(source, file): (&SourceDeletes, &Arc<Source>)| {
        Some((file.path().to_owned(), of(source)?))
    };
    let vectors: DeletionVectors = options.sources.iter().zip(files).filter_map(vector).collect();
    let workers = &ScopedWorkers::of_objects(None, context.budget());
    let rows = LiveRows { vectors: &vectors, stores, workers, context }.deleted(files)?;
    Ok(rows.into_iter().map(Option::unwrap_or_default).collect())
}

/// What is deleted of one output.
struct NewDeletes {
    rows: RoaringTreemap,
    /// How many deleted rows of its sources its map has.
    found: u64,
    /// Whether the merge dropped other rows of its sources.
    are_others_dropped: bool,
}

/// Rows of one output that are deleted.
fn carried(
    map: &RowMap,
    deleted: &BTreeMap<String, RoaringTreemap>,
    stores: &Stores,
    context: &Context,
) -> Result<NewDeletes> {
    let mut found = NewDeletes { rows: RoaringTreemap::new(), found: 0, are_others_dropped: false };
    let (mut next, mut waiting) = (Vec::new(), 0_u64);
    for source in &map.header.sources {
        let here = source.start..source.end;
        let all = deleted.get(&whole_path(&source.path, stores)?);
        let all = all.into_iter().flatten().filter(move |row| here.contains(row));
        let all: Vec<u64> = all.collect();
        waiting += all.len() as u64;
        next.push(all.into_iter().peekable());
    }
    let mut runs = map.runs(context)?;
    while waiting > 0
        && let Some(run) = runs.next()?
    {
        let Some(next) = next.get_mut(run.source as usize) else { continue };
        let mut left = run.rows;
        while let Some(row) = next.next_if(|row| *row < run.row + run.rows) {
            (found.found, left) = (found.found + 1, left.saturating_sub(1));
            if run.fate == Fate::Kept {
                let behind = row.checked_sub(run.row).ok_or_else(twice)?;
                found.rows.insert(run.output_row + behind);
            }
        }
        found.are_others_dropped |= run.fate == Fate::Dropped && left > 0;
    }
    Ok(found)
}

fn twice() -> Error {
    Error::new(Kind::CorruptSource, "row maps tell of a row twice")
        .with_hint("compact again; nothing was committed")
}
