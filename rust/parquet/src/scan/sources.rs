//! The sources of a scan and all that reading them takes, before and after a schema is decided.
//!
//! # Not here
//! The schema (`resolve`, `follow`); reading files (`file`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{RecordBatchIterator, RecordBatchReader};
use arrow_schema::{Schema, SchemaRef};
use plait_core::schema::{Change, Renaming, Request, Value};
use plait_core::stream::Reader;
use plait_core::workers::Workers;
use plait_core::{Error, Kind, Result};

use super::entries::{ScanSource, entries};
use super::footer::Footer;
use super::options::ScanOptions;
use super::statics::Statics;
use super::text::{self, TextReader};
use crate::file_values::table_columns;
use crate::runtime::{Context, ScanSizes, ScopedWorkers};
use crate::store::{Location, Stores};

/// The sources of a scan.
pub(super) struct ScanSources {
    pub(super) entries: Vec<ScanSource>,
    streams: Mutex<Vec<Option<Reader>>>,
    /// Which of the streams have no batches, and so no schema.
    are_blank: Vec<bool>,
    /// Reads files of text.
    text_reader: Option<Arc<dyn TextReader>>,
    pub(super) statics: Statics,
    pub(super) options: ScanOptions,
    pub(super) rows_max: usize,
    pub(super) sizes: ScanSizes,
    /// Where files are; its account holds what is read and what waits.
    pub(super) stores: Stores,
    pub(super) context: Context,
    pub(super) counts: ScanCounts,
}

/// What happened so far.
#[derive(Default)]
pub(super) struct ScanCounts {
    pub(super) rows: AtomicU64,
    pub(super) batches: AtomicUsize,
    pub(super) opened: AtomicUsize,
    pub(super) changes: Mutex<Vec<Change>>,
}

impl ScanSources {
    /// Finds the sources; nothing is decided yet.
    ///
    /// # Errors
    /// As `Stores::list`, and [`Kind::InvalidArgument`] without sources.
    pub(super) fn find(
        options: ScanOptions,
        streams: Vec<Option<Reader>>,
        text_reader: Option<Arc<dyn TextReader>>,
        given: Option<&SchemaRef>,
        stores: &Stores,
        context: &Context,
    ) -> Result<Self> {
        let entries = entries(&options, stores)?;
        if entries.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "there are no sources")
                .with_hint("name at least one file, folder, glob or stream"));
        }
        let statics = Statics::new(&options, &entries)?;
        let (rows_max, sizes) = (options.rows_max()?, options.sizes()?);
        let are_blank = streams.iter().map(Option::is_none).collect();
        let blank = || -> Reader {
            let columns = given.map_or_else(|| Arc::new(Schema::empty()), Arc::clone);
            Box::new(RecordBatchIterator::new([], columns))
        };
        let streams = streams.into_iter().map(|stream| Some(stream.unwrap_or_else(blank)));
        Ok(Self {
            entries,
            streams: Mutex::new(streams.collect()),
            are_blank,
            text_reader,
            statics,
            rows_max,
            sizes,
            stores: stores.clone(),
            context: context.clone(),
            options,
            counts: ScanCounts::default(),
        })
    }

    /// What is asked of the schema.
    pub(super) fn request(&self, given: Option<SchemaRef>) -> Result<Request> {
        Ok(Request {
            policy: self.options.policy()?,
            columns: self.options.columns.clone(),
            renaming: Renaming::As,
            schema: given,
            strict: self.options.strict,
            unknown_null: self.options.unknown_null()?,
            statics: self.statics.columns.clone(),
            table: table_columns(&self.options.table_columns)?,
        })
    }

    /// Whether the source has no batches, and no schema that says anything.
    pub(super) fn is_blank(&self, entry: &ScanSource) -> bool {
        entry.path.is_none() && self.are_blank.get(entry.stream).copied().unwrap_or(false)
    }

    /// Whether no source has columns.
    pub(super) fn are_all_blank(&self) -> bool {
        self.entries.iter().all(|entry| self.is_blank(entry))
    }

    /// Some source has columns, or they are given.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] otherwise.
    pub(super) fn check_columns(&self, is_given: bool) -> Result<()> {
        let has_any = is_given || self.options.frozen.is_some() || !self.are_all_blank();
        if has_any {
            return Ok(());
        }
        let what = "sources are iterables without batches, which have no schema";
        Err(Error::new(Kind::InvalidArgument, what)
            .with_hint("pass the columns that batches would have as schema="))
    }

    /// The schema of a stream that nobody has taken.
    pub(super) fn stream_schema(&self, entry: &ScanSource) -> Result<SchemaRef> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = streams.get(entry.stream).and_then(Option::as_ref);
        stream.map(RecordBatchReader::schema).ok_or_else(|| consumed(entry))
    }

    fn text_reader(&self, entry: &ScanSource) -> Result<&dyn TextReader> {
        self.text_reader.as_deref().ok_or_else(|| text::no_reader(&entry.name))
    }

    /// The columns of a file of text, and what is kept of it.
    pub(super) fn survey(&self, entry: &ScanSource) -> Result<(SchemaRef, Footer)> {
        let file = text::open(&entry.name, &self.stores)?;
        let survey = self.text_reader(entry)?.survey(file.clone())?;
        Ok((survey.schema, text::footer(&file, survey.rows)))
    }

    /// The rows of a file of text, of which `footer` was kept, with these columns.
    pub(super) fn read_text(
        &self,
        entry: &ScanSource,
        schema: &SchemaRef,
        footer: &Footer,
    ) -> Result<Reader> {
        let file = text::open(&entry.name, &self.stores)?;
        text::check_same(&file, footer)?;
        self.text_reader(entry)?.read(file, schema)
    }

    /// A stream, for whoever reads it.
    pub(super) fn take_stream(&self, entry: &ScanSource) -> Result<Reader> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.get_mut(entry.stream).and_then(Option::take).ok_or_else(|| consumed(entry))
    }

    /// The values of static columns in one source; `footer`: that of a file.
    pub(super) fn values(
        &self,
        index: usize,
        footer: Option<&Footer>,
    ) -> Result<Vec<(String, Value)>> {
        let path = self.entries.get(index).and_then(|entry| entry.path.as_deref());
        self.statics.values(index, path, footer)
    }

    /// Counts a batch that is handed out.
    pub(super) fn count(&self, rows: usize) {
        self.counts.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.counts.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether some of the files are objects.
    pub(super) fn are_objects(&self) -> bool {
        let is_object = |path: &String| !matches!(self.stores.locate(path), Ok(Location::Local(_)));
        self.entries.iter().filter_map(|entry| entry.path.as_ref()).any(is_object)
    }

    /// Threads that read footers and small files: more of objects, as they mostly wait.
    pub(super) fn far_threads(&self) -> usize {
        match self.are_objects() {
            true => {
                let budget = self.context.budget();
                ScopedWorkers::of_objects(self.options.threads, budget).count()
            }
            false => self.sizes.threads,
        }
    }

    /// Runs `work` on so many threads, this one included, and joins them. It learns which of them it runs
    /// on: 0 is this one.
    pub(super) fn on_threads(&self, threads: usize, work: &(dyn Fn(usize) + Sync)) -> Result<()> {
        if threads <= 1 {
            work(0);
            return Ok(());
        }
        std::thread::scope(|scope| {
            let mut others = Vec::new();
            for number in 1..threads {
                let started = std::thread::Builder::new()
                    .name(format!("plait-scan-{number}"))
                    .stack_size(8 << 20)
                    .spawn_scoped(scope, move || work(number));
                // With fewer threads it takes longer, and that is all.
                others.extend(started.ok());
            }
            work(0);
            let panicked = others.into_iter().any(|other| other.join().is_err());
            if panicked {
                return Err(Error::new(Kind::Internal, "a thread of the scan panicked"));
            }
            Ok(())
        })
    }
}

fn consumed(entry: &ScanSource) -> Error {
    Error::new(Kind::InvalidArgument, "stream was read before")
        .with_path(entry.name.as_str())
        .with_hint("a stream is read once; scan it again to read it again")
}
