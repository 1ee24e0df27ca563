//! Files of text among the sources, such as JSON lines and CSV. Whoever knows a format reads them: this
//! crate has the bytes, and what a scan does with rows.
//!
//! ```text
//! resolve   TextFile ─▶ survey ─▶ columns, rows        the whole file is read: no footer tells
//! read      TextFile, columns ─▶ batches ─▶ adapted like those of a stream
//! ```
//!
//! # Invariants
//! A file that was written to since its columns were decided on is [`Kind::SourceChanged`].
//!
//! # Not here
//! Formats (`python/plait/_text_files.py`); which names are of text (`store`).

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};
use plait_core::stream::Reader;
use plait_core::{Error, Kind, Result};

use super::footer::Footer;
use crate::store::{RangeReader, Stores};

/// What a file of text has.
#[derive(Clone, Debug)]
pub struct TextSurvey {
    /// Its columns.
    pub schema: SchemaRef,
    /// Number of its rows.
    pub rows: u64,
}

/// Reads formats of text.
pub trait TextReader: Send + Sync {
    /// Reads a whole file for the types of its columns.
    ///
    /// # Errors
    /// What is wrong with the file, by its path and row or offset.
    fn survey(&self, file: TextFile) -> Result<TextSurvey>;

    /// The rows of a file, with these columns.
    ///
    /// # Errors
    /// As [`survey`](Self::survey).
    fn read(&self, file: TextFile, schema: &SchemaRef) -> Result<Reader>;
}

/// The bytes of a file of text.
#[derive(Clone)]
pub struct TextFile {
    /// Where it is.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    reader: Arc<dyn RangeReader>,
}

impl std::fmt::Debug for TextFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TextFile {
    /// So many bytes at `offset`, fewer at the end.
    ///
    /// # Errors
    /// What the storage gives.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let offset = offset.min(self.bytes);
        let end = offset.saturating_add(len as u64).min(self.bytes);
        Ok(self.reader.read(offset..end)?.to_vec())
    }
}

/// Opens a file of text.
pub(super) fn open(path: &str, stores: &Stores) -> Result<TextFile> {
    let reader = stores.open(path)?;
    Ok(TextFile { path: reader.path().to_owned(), bytes: reader.len(), reader })
}

/// What is kept of a file; its values are unpacked as they are stored.
pub(super) fn footer(file: &TextFile, rows: u64) -> Footer {
    let (size, written_at) = (file.reader.len(), file.reader.written_at());
    Footer { rows, data_bytes: size, hash: [0; 16], size, written_at }
}

/// Compares a file with what it was when its columns were decided on.
///
/// # Errors
/// [`Kind::SourceChanged`] when it was written to.
pub(super) fn check_same(file: &TextFile, footer: &Footer) -> Result<()> {
    if (file.reader.len(), file.reader.written_at()) == (footer.size, footer.written_at) {
        return Ok(());
    }
    Err(Error::new(Kind::SourceChanged, "source changed since its schema was resolved")
        .with_path(&file.path)
        .with_hint("scan files that nobody writes to, or scan again"))
}

/// The columns of a file of text as they go with those of all sources, if that differs: text does not
/// say whether whole numbers are doubles, so they are where another source has doubles.
pub(super) fn settled<'a>(
    schema: &Schema,
    all: impl Iterator<Item = &'a SchemaRef> + Clone,
) -> Option<SchemaRef> {
    let is_double_elsewhere = |name: &str| {
        let types = all.clone().filter_map(|other| other.field_with_name(name).ok());
        types.into_iter().any(|field| field.data_type().is_floating())
    };
    let double = |field: &FieldRef| -> FieldRef {
        match field.data_type() {
            DataType::Int64 if is_double_elsewhere(field.name()) => {
                Arc::new(field.as_ref().clone().with_data_type(DataType::Float64))
            }
            _ => Arc::clone(field),
        }
    };
    let fields: Vec<FieldRef> = schema.fields().iter().map(double).collect();
    let settled = Schema::new(fields);
    (settled.fields() != schema.fields()).then(|| Arc::new(settled))
}

/// The error where nobody reads text.
pub(super) fn no_reader(path: &str) -> Error {
    Error::new(Kind::Unsupported, "files of text cannot be read here")
        .with_path(path)
        .with_hint("name Parquet files alone")
}
