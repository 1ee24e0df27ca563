//! Bounds of columns in all files of a read, one entry a row group, each column once for all reads.
//!
//! ```text
//! files    0     1     2 …
//! groups   0 1   0     0 1 2
//! least    3 7   1     4 9 9      asked at once: where may `ts > 8` hold?
//! ```
//!
//! # Invariants
//! A column that a file lacks is null in all its rows, or has the value
//! that a table says. A bound that may be wrong is null.
//!
//! # Cost
//! Two values and a number for each row group, of columns of conditions and of the first sort columns.
//!
//! # Not here
//! Bounds of one file, and of pages (`bounds`).

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, UInt64Array, new_null_array};
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::take::take;
use plait_core::{Error, Result};

use super::bounds::LeafBounds;
use super::fixed::ColumnPlace;
use super::known::KnownFile;

/// A column whose bounds are asked for.
pub(super) struct BoundColumn {
    pub(super) path: Vec<String>,
    pub(super) data_type: DataType,
    /// Where files of each class have it.
    pub(super) places: Vec<ColumnPlace>,
}

/// The bounds of one column.
pub(super) struct ColumnBounds {
    pub(super) bounds: LeafBounds,
    /// Where the row groups of each file begin, and the number of all.
    pub(super) starts: Arc<[usize]>,
}

impl ColumnBounds {
    /// The bounds of one file.
    pub(super) fn of_file(&self, file: usize) -> LeafBounds {
        let start = self.starts.get(file).copied().unwrap_or(0);
        let end = self.starts.get(file + 1).copied().unwrap_or(start);
        LeafBounds {
            least: self.bounds.least.slice(start, end - start),
            greatest: self.bounds.greatest.slice(start, end - start),
            nulls: self.bounds.nulls.slice(start, end - start),
        }
    }
}

/// The columns that were asked for so far.
#[derive(Default)]
pub(super) struct AllBounds(Mutex<Vec<KnownBounds>>);

struct KnownBounds {
    path: Vec<String>,
    data_type: DataType,
    bounds: Arc<ColumnBounds>,
}

impl AllBounds {
    /// The bounds of each of `columns`; footers are gone through once for those not known yet.
    ///
    /// # Errors
    /// What decoding a footer gives.
    pub(super) fn find(
        &self,
        columns: Vec<BoundColumn>,
        files: &[Arc<KnownFile>],
    ) -> Result<Vec<Arc<ColumnBounds>>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = |known: &[KnownBounds], column: &BoundColumn| {
            known.iter().position(|k| k.path == column.path && k.data_type == column.data_type)
        };
        let missing: Vec<&BoundColumn> =
            columns.iter().filter(|column| place(&known, column).is_none()).collect();
        if !missing.is_empty() {
            let made = read(&missing, files)?;
            known.extend(missing.into_iter().zip(made).map(|(column, bounds)| KnownBounds {
                path: column.path.clone(),
                data_type: column.data_type.clone(),
                bounds: Arc::new(bounds),
            }));
        }
        let found = columns.iter().filter_map(|column| place(&known, column));
        Ok(found.map(|at| Arc::clone(&known[at].bounds)).collect())
    }
}

fn read(columns: &[&BoundColumn], files: &[Arc<KnownFile>]) -> Result<Vec<ColumnBounds>> {
    let mut all: Vec<Vec<LeafBounds>> = columns.iter().map(|_| Vec::new()).collect();
    let mut starts = vec![0];
    for files in files.chunks(FILES_AT_ONCE) {
        let mut parts: Vec<Vec<LeafBounds>> = columns.iter().map(|_| Vec::new()).collect();
        for file in files {
            let last = starts.last().copied().unwrap_or(0);
            starts.push(last + file.source.num_row_groups());
            for (column, parts) in columns.iter().zip(&mut parts) {
                let bounds = match column.places.get(file.class) {
                    Some(ColumnPlace::Leaf(leaf)) => {
                        leaf.of_row_groups(&file.source).map_err(|e| e.with_path(file.path()))?
                    }
                    Some(ColumnPlace::Fixed(value)) if !value.is_null(0) => all_of(value, file)?,
                    _ => all_null(&column.data_type, file),
                };
                parts.push(bounds);
            }
        }
        for ((column, parts), all) in columns.iter().zip(&parts).zip(&mut all) {
            all.push(joined(&column.data_type, parts)?);
        }
    }
    let starts: Arc<[usize]> = starts.into();
    let column = |(column, parts): (&&BoundColumn, Vec<LeafBounds>)| {
        let bounds = joined(&column.data_type, &parts)?;
        Ok(ColumnBounds { bounds, starts: Arc::clone(&starts) })
    };
    columns.iter().zip(all).map(column).collect()
}

/// Files whose bounds wait in arrays of their own, which are much larger than what they hold.
const FILES_AT_ONCE: usize = 64;

/// The bounds of a column in which all rows have the value of an array of one.
fn all_of(value: &ArrayRef, file: &KnownFile) -> Result<LeafBounds> {
    let groups = file.source.num_row_groups();
    let first = UInt64Array::from_value(0, groups);
    let bound = take(value, &first, None).map_err(Error::from_arrow)?;
    Ok(LeafBounds { least: Arc::clone(&bound), greatest: bound, nulls: first })
}

/// The bounds of a column that a file lacks.
fn all_null(data_type: &DataType, file: &KnownFile) -> LeafBounds {
    let groups = file.source.num_row_groups();
    let none = || new_null_array(data_type, groups);
    let nulls = (0..groups).map(|group| file.source.row_group_rows(group)).collect();
    LeafBounds { least: none(), greatest: none(), nulls }
}

fn joined(data_type: &DataType, parts: &[LeafBounds]) -> Result<LeafBounds> {
    let all = |of: &dyn Fn(&LeafBounds) -> ArrayRef| -> Result<ArrayRef> {
        let arrays: Vec<ArrayRef> = parts.iter().map(of).collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        match arrays.is_empty() {
            true => Ok(new_null_array(data_type, 0)),
            false => concat(&arrays).map_err(Error::from_arrow),
        }
    };
    let nulls = all(&|part| Arc::new(part.nulls.clone()))?;
    let nulls = match nulls.as_primitive_opt::<UInt64Type>() {
        Some(nulls) => nulls.clone(),
        None => UInt64Array::new_null(0),
    };
    Ok(LeafBounds {
        least: all(&|part| Arc::clone(&part.least))?,
        greatest: all(&|part| Arc::clone(&part.greatest))?,
        nulls,
    })
}
