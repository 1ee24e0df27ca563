//! The files of a read, opened once for all reads of them.
//!
//! # Cost
//! All footers as they are stored, as long as one of these reads is there; what files of one schema
//! have in common is there once. Decoded footers, bounds of columns, bloom filters and bounds of pages
//! stay within shares of the limit.
//!
//! # Not here
//! Which of the files may have rows (`prune`).

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use plait_core::key::SortOrder;
use plait_core::schema::{Frozen, Summary, freeze};
use plait_core::{Error, Kind, Result, SourceId};

use super::all_bounds::AllBounds;
use super::classes::{FileClasses, summary};
use super::fixed::FixedColumns;
use super::kept::KeptIndexes;
use super::known::KnownFile;
use super::options::ReadOptions;
use super::part::{FilePart, PlanPart};
use crate::arrow_file::FileSchema;
use crate::deleted::LiveRows;
use crate::files::open_all_by;
use crate::footer::FooterPool;
use crate::leaf::LocationCache;
use crate::runtime::{Context, MemoryStage, ScopedWorkers};
use crate::source::Source;
use crate::store::Stores;

/// The files of a read.
pub(super) struct OpenedFiles {
    pub(super) files: Vec<Arc<KnownFile>>,
    /// The schema of the files of each class.
    pub(super) classes: Vec<FileSchema>,
    /// A file of each.
    pub(super) examples: Vec<Arc<KnownFile>>,
    pub(super) planned: Option<PlanPart>,
    /// Columns that the files do not have.
    pub(super) fixed: FixedColumns,
    /// What all files say of their columns, and one schema for all of these.
    pub(super) summary: Summary,
    pub(super) whole: Frozen,
    /// The order that the files claim, once it is known.
    pub(super) claimed: OnceLock<SortOrder>,
    /// Where pages are, as far as one of the reads looked.
    pub(super) cache: Arc<LocationCache>,
    pub(super) bounds: AllBounds,
    pub(super) kept: Arc<KeptIndexes>,
    parts: Vec<Arc<FilePart>>,
}

impl OpenedFiles {
    /// Opens the files that the options name, or their plan.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] without files; what is wrong with a file.
    pub(super) fn open(options: &ReadOptions, stores: &Stores, context: &Context) -> Result<Self> {
        let planned = options.plan.as_deref().map(PlanPart::parse).transpose()?;
        let threads = options.threads;
        let classes = FileClasses::default();
        let (mut files, parts): (Vec<_>, Vec<_>) = match &planned {
            Some(planned) => {
                let opened = planned.open(threads, stores, context)?;
                let known = (0_u32..).zip(opened).map(|(place, (source, part))| {
                    let class = classes.of(&source)?;
                    Ok((KnownFile { source, class, id: SourceId(place) }, part))
                });
                known.collect::<Result<Vec<_>>>()?.into_iter().unzip()
            }
            None => {
                let pool = match &options.temp_dir {
                    Some(dir) => FooterPool::with_scratch(dir, context),
                    None => FooterPool::new(context),
                };
                let files =
                    open_all_by(&options.sources, 0, threads, stores, context, |id, store| {
                        let source = Arc::new(Source::open_in(&pool, id, store)?);
                        let class = classes.of(&source)?;
                        Ok(KnownFile { source, class, id })
                    })?;
                let parts = live_parts(&files, options, stores, context)?;
                (files, parts)
            }
        };
        if files.is_empty() && planned.is_none() {
            return Err(Error::new(Kind::InvalidArgument, "there are no files to read")
                .with_hint("name at least one file, folder or glob that has some"));
        }
        let classes = classes.into_schemas();
        let of_plan = planned.as_ref().map(PlanPart::file_schema).transpose()?;
        let summary = summary(&files, &classes, of_plan.as_ref());
        let (fixed, classes) = FixedColumns::of(options, &mut files, classes)?;
        let whole = freeze(&summary, &fixed.request(None)?)?;
        let bytes_max = context.budget().bytes(MemoryStage::PageLocations);
        let cache = Arc::new(LocationCache::new(context, bytes_max));
        let bytes_max = context.budget().bytes(MemoryStage::ReadIndexes);
        let files: Vec<Arc<KnownFile>> = files.into_iter().map(Arc::new).collect();
        let example = |class| files.iter().find(|file| file.class == class).map(Arc::clone);
        Ok(Self {
            examples: (0..classes.len()).filter_map(example).collect(),
            files,
            classes,
            planned,
            fixed,
            summary,
            whole,
            claimed: OnceLock::new(),
            cache,
            bounds: AllBounds::default(),
            kept: Arc::new(KeptIndexes::new(context, bytes_max)),
            parts,
        })
    }

    /// Which rows of each file are there: those `rows` of all, if that is said.
    pub(super) fn parts(&self, rows: Option<&Range<u64>>) -> Vec<Arc<FilePart>> {
        match rows {
            Some(rows) => FilePart::of_rows(&self.files, &self.parts, rows),
            None => self.parts.clone(),
        }
    }
}

/// Which rows of each of `files` are not deleted.
///
/// # Errors
/// As [`LiveRows::of`].
fn live_parts(
    files: &[KnownFile],
    options: &ReadOptions,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<Arc<FilePart>>> {
    let whole = Arc::new(FilePart::Whole);
    let vectors = &options.deletion_vectors;
    if vectors.is_empty() {
        return Ok(vec![whole; files.len()]);
    }
    let workers = &ScopedWorkers::of_files(options.threads, context.budget());
    let files: Vec<Arc<Source>> = files.iter().map(|file| Arc::clone(&file.source)).collect();
    let live = LiveRows { vectors, stores, workers, context }.of(&files)?;
    let part = |rows: Option<Vec<_>>| {
        rows.map_or_else(|| Arc::clone(&whole), |rows| Arc::new(FilePart::Rows(rows)))
    };
    Ok(live.into_iter().map(part).collect())
}
