//! The schema of the outputs as a value: the footer of an output without rows.
//!
//! # Invariants
//! A task has the schema and the metadata of the whole merge, whichever sources it reads: theirs are
//! adapted to it, and what would change it is refused.
//!
//! # Not here
//! How schemas are brought together (`schema`).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::metadata::FileMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use plait_core::SourceId;
use plait_core::{Error, Kind, Result};

use super::planned_source::KeyBase64;
use crate::page::unwrap_error;
use crate::schema::{Reconciled, Renamed, Unite, reconcile};
use crate::source::Source;
use crate::store::RangeReader;

/// A schema that was carried.
pub(crate) struct CarriedSchema {
    own: FileMetaData,
    source: Source,
    renamed: Vec<Renamed>,
}

impl CarriedSchema {
    /// What messages call it. It sorts before all paths: columns have the order of the first file.
    pub(crate) const NAME: &str = " the plan";

    /// The schema and metadata of `reconciled` as bytes.
    ///
    /// # Errors
    /// A schema that cannot be written.
    pub(super) fn write(reconciled: &Reconciled) -> Result<KeyBase64> {
        let metadata = reconciled.metadata.clone();
        let properties = WriterProperties::builder()
            .set_key_value_metadata((!metadata.is_empty()).then_some(metadata))
            .build();
        let writer = SerializedFileWriter::new(
            Vec::new(),
            Arc::clone(&reconciled.schema),
            properties.into(),
        )
        .map_err(unwrap_error)?;
        writer.into_inner().map(KeyBase64).map_err(unwrap_error)
    }

    /// Reads what [`write`](Self::write) wrote, and the other names of its columns.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for anything else.
    pub(crate) fn read(bytes: &KeyBase64, renamed: &[Renamed]) -> Result<Self> {
        let held = Arc::new(PlanBytes(Bytes::from(bytes.0.clone())));
        let source = Source::open(SourceId(0), held).map_err(|e| {
            Error::new(Kind::InvalidArgument, "cannot read the schema of the plan")
                .with_hint("plan the merge again")
                .with_cause(e)
        })?;
        let own = source.file();
        // A file without rows would not keep a column nullable.
        let own = FileMetaData::new(
            own.version(),
            1,
            own.created_by().map(str::to_owned),
            own.key_value_metadata().cloned(),
            own.schema_descr_ptr(),
            own.column_orders().cloned(),
        );
        Ok(Self { own, source, renamed: renamed.to_vec() })
    }

    /// The file without rows that has the schema.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The other names of its columns.
    pub(crate) fn renamed(&self) -> &[Renamed] {
        &self.renamed
    }

    /// Adapts `sources` to the schema.
    ///
    /// # Errors
    /// Sources that would change it.
    pub(crate) fn reconcile(&self, sources: &[Arc<Source>], how: &Unite) -> Result<Reconciled> {
        let own = &self.own;
        let is_own = |found: &Reconciled| found.schema == own.schema_descr().root_schema_ptr();
        let footers = || sources.iter().map(|s| (s.path(), s.file()));
        // Mostly the sources of a task have all that there is. Logical types that are not known are
        // left out of the schema, so that it does not go together with those that have them.
        let alone = match sources {
            [] => None,
            _ => reconcile(&footers().collect::<Vec<_>>(), how).ok().filter(is_own),
        };
        let mut reconciled = match alone {
            Some(reconciled) => reconciled,
            None => {
                let all: Vec<_> = [(Self::NAME, own)].into_iter().chain(footers()).collect();
                let mut reconciled = reconcile(&all, how)?;
                Arc::make_mut(&mut reconciled.leaves).remove(0);
                reconciled
            }
        };
        if !is_own(&reconciled) {
            let what = "sources have columns that the plan does not have";
            return Err(Error::new(Kind::SourceChanged, what).with_hint("plan the merge again"));
        }
        reconciled.metadata = own.key_value_metadata().cloned().unwrap_or_default();
        reconciled.metadata_conflicts.clear();
        reconciled.renamed.clone_from(&self.renamed);
        Ok(reconciled)
    }
}

/// Bytes in memory.
struct PlanBytes(Bytes);

impl RangeReader for PlanBytes {
    fn path(&self) -> &str {
        "the plan"
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let (start, end) = (index(range.start), index(range.end));
        if start > end || end > self.0.len() {
            return Err(Error::new(Kind::CorruptSource, "a range lies behind the end")
                .with_offset(range.start));
        }
        Ok(self.0.slice(start..end))
    }

    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }

    fn is_local(&self) -> bool {
        true
    }
}
