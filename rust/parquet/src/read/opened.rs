//! The files of a read, opened once for all reads of them.
//!
//! # Cost
//! All footers, as long as one of these reads is there.
//!
//! # Not here
//! Which of the files may have rows (`prune`).

use std::ops::Range;
use std::sync::Arc;

use plait_core::{Error, Kind, Result};

use super::options::ReadOptions;
use super::part::{FilePart, PlanPart};
use crate::arrow_file::FileSchema;
use crate::files::open_sources;
use crate::leaf::LocationCache;
use crate::runtime::{Context, MemoryStage};
use crate::source::Source;
use crate::store::Stores;

/// The files of a read.
pub(super) struct OpenedFiles {
    pub(super) sources: Vec<Arc<Source>>,
    pub(super) schemas: Vec<FileSchema>,
    pub(super) planned: Option<PlanPart>,
    /// Where pages are, as far as one of the reads looked.
    pub(super) cache: Arc<LocationCache>,
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
        let (sources, parts) = match &planned {
            Some(planned) => planned.open(threads, stores, context)?.into_iter().unzip(),
            None => {
                let sources = open_sources(&options.sources, 0, threads, stores, context)?;
                let parts = sources.iter().map(|_| Arc::new(FilePart::Whole)).collect();
                (sources, parts)
            }
        };
        if sources.is_empty() && planned.is_none() {
            return Err(Error::new(Kind::InvalidArgument, "there are no files to read")
                .with_hint("name at least one file, folder or glob that has some"));
        }
        let schemas = sources.iter().map(|s: &Arc<Source>| FileSchema::of(s));
        let schemas = schemas.collect::<Result<_>>()?;
        let bytes_max = context.budget().bytes(MemoryStage::PageLocations);
        let cache = Arc::new(LocationCache::new(context, bytes_max));
        Ok(Self { schemas, sources, planned, cache, parts })
    }

    /// Which rows of each file are there: those `rows` of all, if that is said.
    pub(super) fn parts(&self, rows: Option<&Range<u64>>) -> Vec<Arc<FilePart>> {
        match rows {
            Some(rows) => FilePart::of_rows(&self.sources, rows),
            None => self.parts.clone(),
        }
    }
}
