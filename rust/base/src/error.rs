//! One error for everything: what happened, where, what was found, what to do.
//!
//! ```text
//! key goes backwards in source 2 (b.parquet), column `ts`, row 4096: got `17:03` after `17:05`
//! hint: sort the file first, or check the direction and null placement in sort_by
//! ```
//!
//! # Invariants
//! Callers act on [`Kind`], people read the message. Context (path, column) is added while the
//! error travels up and never overwrites what a deeper layer said.
//!
//! # Not here
//! Expected outcomes: those are `#[must_use]` enums.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};

use arrow_schema::ArrowError;

/// Result with Plait's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing went wrong; each has one exception class in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An option or a combination of options is invalid.
    InvalidArgument,
    /// A source's rows are not in the declared order.
    UnsortedSource,
    /// Two rows have one key where that was forbidden.
    DuplicateKey,
    /// Sources cannot be brought to one schema.
    SchemaConflict,
    /// A named column is in no source, or not in one that must have it.
    UnknownColumn,
    /// A change has no key.
    NullKey,
    /// Layers do not hold the same rows in the same order.
    RowMismatch,
    /// A layer's index column has another type than it must have.
    IndexTypeError,
    /// A layer owns a path that it does not have.
    FieldNotInLayer,
    /// Layers contest parts of a value that cannot be taken apart.
    SplitInsideNonStruct,
    /// A path leads through a value that has no fields.
    PathThroughNonStruct,
    /// A schema has two fields of one name.
    DuplicateField,
    /// The schema changed within a stream that must keep it.
    SchemaDrift,
    /// A path of fields cannot be read.
    InvalidPath,
    /// A projected path does not go with the type it meets.
    ProjectionError,
    /// A value does not fit the type it is cast to.
    LossyCast,
    /// The schema changed where changes are refused.
    SchemaChanged,
    /// A column's type has no order and cannot be a key.
    UnsupportedKey,
    /// Bytes of a source contradict the format or each other.
    CorruptSource,
    /// A source is encrypted.
    EncryptedSource,
    /// Valid input that this version does not handle.
    Unsupported,
    /// A folder is a table of another format, whose log lists the live files.
    ForeignTable,
    /// A source does not exist.
    SourceNotFound,
    /// A source changed while it was read.
    SourceChanged,
    /// A stream that is a source failed.
    SourceFailed,
    /// Reading or writing failed in the storage below.
    Storage,
    /// The output is there already.
    OutputExists,
    /// One item alone needs more memory than the limit allows.
    MemoryLimit,
    /// The caller asked to stop.
    Cancelled,
    /// A check of the result failed; nothing was published.
    VerificationFailed,
    /// A broken promise inside Plait; please report it.
    Internal,
}

impl Kind {
    /// Name of the kind, equal to the Python exception class.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "InvalidArgument",
            Self::UnsortedSource => "UnsortedSource",
            Self::DuplicateKey => "DuplicateKey",
            Self::SchemaConflict => "SchemaConflict",
            Self::UnknownColumn => "UnknownColumn",
            Self::NullKey => "NullKey",
            Self::RowMismatch => "RowMismatch",
            Self::IndexTypeError => "IndexTypeError",
            Self::FieldNotInLayer => "FieldNotInLayer",
            Self::SplitInsideNonStruct => "SplitInsideNonStruct",
            Self::PathThroughNonStruct => "PathThroughNonStruct",
            Self::DuplicateField => "DuplicateField",
            Self::SchemaDrift => "SchemaDrift",
            Self::InvalidPath => "InvalidPath",
            Self::ProjectionError => "ProjectionError",
            Self::LossyCast => "LossyCast",
            Self::SchemaChanged => "SchemaChanged",
            Self::UnsupportedKey => "UnsupportedKey",
            Self::CorruptSource => "CorruptSource",
            Self::EncryptedSource => "EncryptedSource",
            Self::Unsupported => "Unsupported",
            Self::ForeignTable => "ForeignTable",
            Self::SourceNotFound => "SourceNotFound",
            Self::SourceChanged => "SourceChanged",
            Self::SourceFailed => "SourceFailed",
            Self::Storage => "StorageError",
            Self::OutputExists => "OutputExists",
            Self::MemoryLimit => "MemoryLimitExceeded",
            Self::Cancelled => "Cancelled",
            Self::VerificationFailed => "VerificationFailed",
            Self::Internal => "InternalError",
        }
    }
}

/// Plait's error: a [`Kind`], a sentence, a place, what was found, a hint, a cause.
pub struct Error(Box<Inner>);

#[derive(Clone, Default)]
struct Place {
    path: Option<String>,
    source: Option<usize>,
    column: Option<String>,
    row: Option<u64>,
    offset: Option<u64>,
}

struct Inner {
    kind: Kind,
    what: String,
    place: Place,
    got: Option<String>,
    hint: Option<String>,
    cause: Option<Box<dyn StdError + Send + Sync>>,
    errors: Vec<Error>,
}

/// An error for several lists at most so many of them.
const NAMED_MAX: usize = 20;

impl Error {
    /// An error that says `what` in one lower-case sentence without a full stop.
    ///
    /// ```
    /// use plait_base::{Error, Kind};
    /// let e = Error::new(Kind::UnknownColumn, "sort column is in no source")
    ///     .with_column("ts")
    ///     .with_hint("the columns are `a`, `b`");
    /// assert_eq!(
    ///     e.to_string(),
    ///     "sort column is in no source: column `ts`\nhint: the columns are `a`, `b`"
    /// );
    /// ```
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            what: what.into(),
            place: Place::default(),
            got: None,
            hint: None,
            cause: None,
            errors: Vec::new(),
        }))
    }

    /// One error for several of one kind: itself if there is one; else `what`, the place of the
    /// first, and every place with what was found there.
    ///
    /// ```
    /// use plait_base::{Error, Kind};
    /// let error = |path: &str| Error::new(Kind::UnsortedSource, "key goes backwards").with_path(path);
    /// let all = Error::every("2 sources are not sorted", vec![error("a"), error("b")]).unwrap();
    /// assert_eq!(
    ///     all.to_string(),
    ///     "2 sources are not sorted: file `a`, got these:\n  file `a`\n  file `b`"
    /// );
    /// assert!(Error::every("", vec![]).is_none());
    /// ```
    #[must_use]
    pub fn every(what: &str, errors: Vec<Self>) -> Option<Self> {
        let mut list = "these:".to_owned();
        for error in errors.iter().take(NAMED_MAX) {
            let _ = write!(list, "\n  {}", Found { inner: &error.0, names_file: true });
        }
        if let Some(more @ 1..) = errors.len().checked_sub(NAMED_MAX) {
            let _ = write!(list, "\n  and {more} more");
        }
        if errors.len() < 2 {
            return errors.into_iter().next();
        }
        let first = &errors.first()?.0;
        let mut all = Self::new(first.kind, what).with_got(list);
        (all.0.place, all.0.hint) = (first.place.clone(), first.hint.clone());
        all.0.errors = errors;
        Some(all)
    }

    /// The errors that this one is of, if it is one for several.
    #[must_use]
    pub fn errors(&self) -> &[Self] {
        &self.0.errors
    }

    /// What a source stream raised; Plait's own error comes back as itself.
    #[must_use]
    pub fn from_arrow(error: ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(inner) => match inner.downcast::<Self>() {
                Ok(error) => *error,
                Err(inner) => {
                    Self::new(Kind::SourceFailed, "a source stream failed").with_cause(inner)
                }
            },
            error => Self::new(Kind::SourceFailed, "a source stream failed").with_cause(error),
        }
    }

    /// The same as an error of Arrow, for readers of record batches.
    #[must_use]
    pub fn into_arrow(self) -> ArrowError {
        ArrowError::ExternalError(Box::new(self))
    }

    /// Puts what it is about before the sentence.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        self.0.what = format!("{prefix}: {}", self.0.what);
        self
    }

    /// Names the file, unless a deeper layer did.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.0.place.path.get_or_insert_with(|| path.into());
        self
    }

    /// Names a source that is no file by its place in the list, unless a deeper layer named one.
    #[must_use]
    pub fn in_source(mut self, index: usize) -> Self {
        if self.0.place.path.is_none() {
            self.0.place.source.get_or_insert(index);
        }
        self
    }

    /// Names the column by its dotted path, unless a deeper layer did.
    #[must_use]
    pub fn with_column(mut self, column: impl Into<String>) -> Self {
        self.0.place.column.get_or_insert_with(|| column.into());
        self
    }

    /// Names the row, counted from 0 over the whole file, unless a deeper layer did.
    #[must_use]
    pub fn with_row(mut self, row: u64) -> Self {
        self.0.place.row.get_or_insert(row);
        self
    }

    /// Names the byte offset in the file, unless a deeper layer did.
    #[must_use]
    pub fn with_offset(mut self, offset: u64) -> Self {
        self.0.place.offset.get_or_insert(offset);
        self
    }

    /// Says what was found, unless a deeper layer did.
    #[must_use]
    pub fn with_got(mut self, got: impl Into<String>) -> Self {
        self.0.got.get_or_insert_with(|| got.into());
        self
    }

    /// Says what the caller can do, unless a deeper layer did.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.cause.get_or_insert_with(|| cause.into());
        self
    }

    /// The kind that callers act on.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The sentence alone, without place, find and hint.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The file, if one is named.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.0.place.path.as_deref()
    }

    /// The column's dotted path, if one is named.
    #[must_use]
    pub fn column(&self) -> Option<&str> {
        self.0.place.column.as_deref()
    }

    /// The row, if one is named.
    #[must_use]
    pub fn row(&self) -> Option<u64> {
        self.0.place.row
    }

    /// The byte offset, if one is named.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.0.place.offset
    }

    /// The sentence with place, find and cause, but without file and hint: for lists of files.
    #[must_use]
    pub fn why(&self) -> String {
        let found = Found { inner: &self.0, names_file: false };
        let found = found.to_string();
        if found.is_empty() { self.0.what.clone() } else { format!("{}: {found}", self.0.what) }
    }

    /// What was found, if that is said.
    #[must_use]
    pub fn got(&self) -> Option<&str> {
        self.0.got.as_deref()
    }

    /// The hint, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)?;
        let found = Found { inner: &self.0, names_file: true }.to_string();
        if !found.is_empty() {
            write!(f, ": {found}")?;
        }
        if let Some(hint) = &self.0.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

/// Place, find and cause of an error.
struct Found<'a> {
    inner: &'a Inner,
    names_file: bool,
}

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { place, got, cause, .. } = self.inner;
        let mut separator = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            f.write_str(std::mem::replace(&mut separator, ", "))?;
            f.write_fmt(text)
        };
        if let Some(path) = place.path.as_ref().filter(|_| self.names_file) {
            part(f, format_args!("file `{path}`"))?;
        }
        if let Some(source) = place.source {
            part(f, format_args!("source {source}"))?;
        }
        if let Some(column) = &place.column {
            part(f, format_args!("column `{column}`"))?;
        }
        if let Some(row) = place.row {
            part(f, format_args!("row {row}"))?;
        }
        if let Some(offset) = place.offset {
            part(f, format_args!("byte offset {offset}"))?;
        }
        if let Some(got) = got {
            part(f, format_args!("got {got}"))?;
        }
        if let Some(cause) = cause {
            part(f, format_args!("{cause}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.0.kind.name())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.cause.as_deref().map(|c| c as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_says_what_where_got_hint() {
        let e = Error::new(Kind::UnsortedSource, "key goes backwards")
            .with_column("ts")
            .with_path("b.parquet")
            .with_path("a name added later does not win")
            .with_row(4096)
            .with_got("`17:03` after `17:05`")
            .with_hint("sort the file first");
        assert_eq!(
            e.to_string(),
            "key goes backwards: file `b.parquet`, column `ts`, row 4096, got `17:03` after `17:05`\n\
             hint: sort the file first"
        );
    }
}
