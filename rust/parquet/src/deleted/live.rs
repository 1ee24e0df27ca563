//! The rows of files that are not deleted, by all that deletes rows of them.
//!
//! # Invariants
//! Live rows are in ranges that ascend and do not touch. A row that is deleted twice is deleted.
//!
//! # Not here
//! What a vector or a delete file says (`vector`, `positions`, `equality`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use plait_core::workers::{Workers, each};
use plait_core::{Error, Kind, Result};
use roaring::RoaringTreemap;

use super::equality::{EqualityReader, groups};
use super::positions::{Wanted, listed_rows};
use super::value::{DeletionVector, DeletionVectors};
use crate::runtime::{Context, ScopedWorkers};
use crate::source::Source;
use crate::store::Stores;

/// Finds the live rows of files.
pub(crate) struct LiveRows<'a> {
    /// What is deleted.
    pub(crate) vectors: &'a DeletionVectors,
    /// Where vectors and delete files are.
    pub(crate) stores: &'a Stores,
    /// Who reads them.
    pub(crate) workers: &'a ScopedWorkers,
    /// The call.
    pub(crate) context: &'a Context,
}

/// A file of which rows are deleted.
struct Touched<'a> {
    /// Its places among the files.
    places: Vec<usize>,
    file: &'a Arc<Source>,
    vector: &'a DeletionVector,
    deleted: Mutex<RoaringTreemap>,
}

impl LiveRows<'_> {
    /// The live rows of each of `files`; none says all.
    ///
    /// # Errors
    /// As [`LiveRows::deleted`].
    pub(crate) fn of(&self, files: &[Arc<Source>]) -> Result<Vec<Option<Vec<Range<u64>>>>> {
        let deleted = self.deleted(files)?.into_iter().zip(files);
        Ok(deleted.map(|(rows, file)| Some(rest(&rows?, file.rows()))).collect())
    }

    /// The deleted rows of each of `files`; none says that nothing deletes any.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] for what deletes rows and cannot be read, or is of another file;
    /// [`Kind::UnsupportedKey`] for values that cannot be compared; [`Kind::SourceNotFound`]
    /// without its file; what reading gives. Names the file of a vector, and the files that a
    /// delete file reaches.
    pub(crate) fn deleted(&self, files: &[Arc<Source>]) -> Result<Vec<Option<RoaringTreemap>>> {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, file) in files.iter().enumerate() {
            places.entry(file.path()).or_default().push(place);
        }
        let touch = |(path, places): (&str, Vec<usize>)| {
            let vector = self.vectors.get(path)?;
            let file: &Arc<Source> = files.get(*places.first()?)?;
            Some(Touched { places, file, vector, deleted: Mutex::default() })
        };
        let touched: Vec<Touched<'_>> = places.into_iter().filter_map(touch).collect();
        each(self.workers, touched.len(), |i| {
            self.context.check_cancelled()?;
            let Touched { file, vector, .. } = &touched[i];
            if vector.has_vector() {
                touched[i].add(vector.vector_rows(file.rows(), self.stores)?);
            }
            Ok(())
        })?;
        self.read_positions(&touched)?;
        self.read_equality(&touched)?;
        let mut deleted = vec![None; files.len()];
        for touched in touched {
            let rows = touched.deleted.into_inner().unwrap_or_else(PoisonError::into_inner);
            for place in touched.places {
                deleted[place] = Some(rows.clone());
            }
        }
        Ok(deleted)
    }

    /// Reads every position delete file once.
    fn read_positions(&self, touched: &[Touched<'_>]) -> Result<()> {
        let mut by_file: BTreeMap<&str, Wanted<'_>> = BTreeMap::new();
        for (i, file) in touched.iter().enumerate() {
            let Some(positions) = &file.vector.positions else { continue };
            for location in &positions.files {
                by_file.entry(location).or_default().insert(positions.name.as_bytes(), i);
            }
        }
        let by_file: Vec<_> = by_file.into_iter().collect();
        let at_once = self.workers.count().min(by_file.len());
        let sizes = self.context.budget().stream(at_once);
        each(self.workers, by_file.len(), |i| {
            self.context.check_cancelled()?;
            let (location, wanted) = &by_file[i];
            let listed = listed_rows(location, wanted, self.stores, sizes, self.context);
            let reached = wanted.values().map(|i| touched[*i].file);
            for (i, rows) in listed.map_err(|e| of_reached(e, reached))? {
                let file = touched[i].file;
                if let Some(last) = rows.max().filter(|last| *last >= file.rows()) {
                    return Err(Error::new(
                        Kind::CorruptSource,
                        "a position delete file deletes rows that the file lacks",
                    )
                    .with_path(file.path())
                    .with_got(format!("row {last} of {} in `{location}`", file.rows()))
                    .with_hint("the table is damaged; restore the delete file"));
                }
                touched[i].add(rows);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Reads every equality delete file once, and of the files that it reaches the columns it names.
    fn read_equality(&self, touched: &[Touched<'_>]) -> Result<()> {
        let reached = touched.iter().enumerate();
        let reached =
            reached.flat_map(|(i, file)| file.vector.equality.iter().map(move |d| (i, d)));
        let Self { stores, workers, context, .. } = *self;
        let reader = EqualityReader { stores, workers, context };
        let files: Vec<&Arc<Source>> = touched.iter().map(|touched| touched.file).collect();
        for group in groups(reached) {
            let reached = group.places().map(|i| files[i]);
            reader
                .delete(&group, &files, &|i, rows| touched[i].add(rows))
                .map_err(|e| of_reached(e, reached))?;
        }
        Ok(())
    }
}

impl Touched<'_> {
    fn add(&self, rows: RoaringTreemap) {
        *self.deleted.lock().unwrap_or_else(PoisonError::into_inner) |= rows;
    }
}

/// What is wrong with a delete file as an error of every file that it reaches: a call may go on
/// without these.
fn of_reached<'a>(error: Error, reached: impl Iterator<Item = &'a Arc<Source>>) -> Error {
    let reached: Vec<&str> = reached.map(|file| file.path()).collect();
    let is_of_one = error.path().is_some_and(|path| reached.contains(&path));
    if is_of_one || !matches!(error.kind(), Kind::CorruptSource | Kind::UnsupportedKey) {
        return error;
    }
    let told = error.to_string();
    let (what, hint) = told.split_once("\nhint: ").unwrap_or((&told, "restore the delete file"));
    let of = |path: &&str| {
        Error::new(error.kind(), "rows of a file are deleted in a way that cannot be read")
            .with_path(*path)
            .with_got(what)
            .with_hint(hint)
    };
    let all = format!("rows of {} files are deleted in a way that cannot be read", reached.len());
    Error::every(&all, reached.iter().map(of).collect()).unwrap_or(error)
}

/// The rows of a file with `file_rows` rows that are not `deleted`.
fn rest(deleted: &RoaringTreemap, file_rows: u64) -> Vec<Range<u64>> {
    let mut live = Vec::new();
    let mut next = 0;
    for row in deleted {
        if row > next {
            live.push(next..row);
        }
        next = row + 1;
    }
    if next < file_rows {
        live.push(next..file_rows);
    }
    live
}
