//! The footers of opened files: read once, stored, and decoded where their row groups are needed.
//!
//! ```text
//! end of the file ─ checks ─▶ decoded ─▶ schema and entries │ row groups
//!                                 held, once for equal ones   stored ─▶ decoded again and again
//! ```
//!
//! # Invariants
//! What is decoded again is what was checked when the file was opened: the footer is not read again.
//! A footer outside of a pool stays decoded.
//!
//! # Cost
//! Of a pool: the stored row groups, what other footers do not say of the file, and a share of the
//! memory limit for row groups that are decoded.
//!
//! # Not here
//! What is checked (`checks`); what is shared (`stored`); which stay decoded (`decoded`).

mod checks;
mod decoded;
mod parts;
mod stored;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use parquet::file::metadata::{FileMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::SchemaDescPtr;
use plait_core::Result;
use sha2::{Digest, Sha256};

#[cfg(test)]
pub(crate) use self::checks::TAIL_BYTES;
pub(crate) use self::checks::chunk_range;
pub(crate) use self::decoded::DecodedFooter;

use self::checks::{check_footer, check_meta, decode, read_footer};
use self::decoded::DecodedFooters;
use self::parts::FooterParts;
use self::stored::{FooterPieces, StoredFooter};
use crate::runtime::Context;
use crate::store::RangeReader;

/// Files have so many different schemas and entries, or what they say of themselves is no use to
/// others, such as ranges of keys.
const SHARED_MAX: usize = 64;

/// The footer of an opened file.
#[derive(Clone)]
pub(crate) enum SourceFooter {
    /// Of a file that was opened alone.
    Decoded(Arc<DecodedFooter>),
    /// One of many.
    Pooled(Arc<PooledFooter>),
}

/// A footer and what was found in it when it was read.
pub(crate) struct OpenedFooter {
    pub(crate) footer: SourceFooter,
    /// SHA-256 of its bytes.
    pub(crate) hash: [u8; 32],
    /// Its place in the file.
    pub(crate) start: u64,
    /// First row of each row group, and the number of rows.
    pub(crate) row_starts: Vec<u64>,
    /// Bytes of all pages, before and after compression.
    pub(crate) encoded_bytes: u64,
    pub(crate) stored_bytes: u64,
}

/// One footer of a pool.
pub(crate) struct PooledFooter {
    stored: StoredFooter,
    /// Of this file or of one that says the same but for the number of its rows.
    file: Arc<FileMetaData>,
    decoded: Mutex<Weak<DecodedFooter>>,
    pool: Arc<FooterPool>,
}

/// Footers of the files of one call.
pub(crate) struct FooterPool {
    known: Mutex<KnownFooters>,
    decoded: DecodedFooters,
}

/// What footers have in common.
#[derive(Default)]
struct KnownFooters {
    pieces: FooterPieces,
    /// Schemas by their bytes.
    schemas: HashMap<Box<[u8]>, SchemaDescPtr>,
    /// What footers say but for row groups, by its bytes and whether there are rows.
    files: HashMap<(Vec<u8>, bool), Arc<FileMetaData>>,
}

impl SourceFooter {
    /// Reads and checks the footer of the file in `store`.
    ///
    /// # Errors
    /// As [`Source::open`](crate::source::Source::open).
    pub(crate) fn open(
        store: &dyn RangeReader,
        pool: Option<&Arc<FooterPool>>,
    ) -> Result<OpenedFooter> {
        let (bytes, start) = read_footer(store)?;
        let parts = check_footer(&bytes)?;
        let schema = pool.and_then(|pool| pool.schema(&bytes, &parts));
        let meta = decode(&bytes, schema.as_ref())?;
        let row_starts = check_meta(&meta, start)?;
        let sum = |of: fn(&RowGroupMetaData) -> i64| {
            let groups =
                meta.row_groups().iter().map(|group| u64::try_from(of(group)).unwrap_or(0));
            groups.fold(0, u64::saturating_add)
        };
        let encoded_bytes = sum(RowGroupMetaData::total_byte_size);
        let stored_bytes = sum(RowGroupMetaData::compressed_size);
        let footer = match pool {
            None => Self::Decoded(Arc::new(DecodedFooter::alone(meta))),
            Some(pool) => Self::Pooled(Arc::new(pool.store(&bytes, &parts, meta))),
        };
        let hash = Sha256::digest(&bytes).into();
        Ok(OpenedFooter { footer, hash, start, row_starts, encoded_bytes, stored_bytes })
    }

    /// The schema, the entries and the writer of the file; its number of rows may be that of another.
    pub(crate) fn file(&self) -> &FileMetaData {
        match self {
            Self::Decoded(meta) => meta.file_metadata(),
            Self::Pooled(pooled) => &pooled.file,
        }
    }

    /// The footer with its row groups.
    ///
    /// # Errors
    /// None that is known: it was decoded before.
    pub(crate) fn decoded(&self) -> Result<Arc<DecodedFooter>> {
        match self {
            Self::Decoded(meta) => Ok(Arc::clone(meta)),
            Self::Pooled(pooled) => pooled.decoded(),
        }
    }
}

impl PooledFooter {
    fn decoded(&self) -> Result<Arc<DecodedFooter>> {
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = decoded.upgrade() {
            return Ok(found);
        }
        let schema = self.file.schema_descr_ptr();
        let found = self.pool.decoded.footer(decode(&self.stored.bytes(), Some(&schema))?);
        *decoded = Arc::downgrade(&found);
        self.pool.decoded.keep(&found);
        Ok(found)
    }
}

impl FooterPool {
    /// A pool without footers, within the memory limit of `context`.
    pub(crate) fn new(context: &Context) -> Arc<Self> {
        let (known, decoded) = (Mutex::default(), DecodedFooters::new(context));
        Arc::new(Self { known, decoded })
    }

    /// The schema of a footer, if one before it had the same.
    fn schema(&self, footer: &[u8], parts: &FooterParts) -> Option<SchemaDescPtr> {
        let schema = footer.get(parts.schema.clone()?)?;
        self.lock().schemas.get(schema).map(Arc::clone)
    }

    /// Stores a footer with these `parts`, which was decoded to `meta`.
    fn store(
        self: &Arc<Self>,
        footer: &[u8],
        parts: &FooterParts,
        meta: ParquetMetaData,
    ) -> PooledFooter {
        let schema = parts.schema.clone().and_then(|at| footer.get(at));
        let has_rows = meta.file_metadata().num_rows() > 0;
        let mut known = self.lock();
        let file = known.file(schema, (parts.of_all(footer), has_rows), meta.file_metadata());
        let stored = known.pieces.store(footer, parts);
        drop(known);
        let meta = self.decoded.footer(meta);
        self.decoded.keep_if_it_fits(&meta);
        let decoded = Mutex::new(Arc::downgrade(&meta));
        PooledFooter { stored, file, decoded, pool: Arc::clone(self) }
    }

    fn lock(&self) -> MutexGuard<'_, KnownFooters> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownFooters {
    /// What a footer of these bytes says of its file, which is `file` if it was not known.
    fn file(
        &mut self,
        schema: Option<&[u8]>,
        of_all: (Vec<u8>, bool),
        file: &FileMetaData,
    ) -> Arc<FileMetaData> {
        if let Some(known) = self.files.get(&of_all) {
            return Arc::clone(known);
        }
        // Another thread may have decoded the same schema at the same time: the first is that of all.
        let descr = match schema.and_then(|bytes| self.schemas.get(bytes)) {
            Some(known) => Arc::clone(known),
            None => file.schema_descr_ptr(),
        };
        if let Some(bytes) = schema {
            self.schemas.entry(bytes.into()).or_insert_with(|| Arc::clone(&descr));
        }
        let file = Arc::new(FileMetaData::new(
            file.version(),
            file.num_rows(),
            file.created_by().map(str::to_owned),
            file.key_value_metadata().cloned(),
            descr,
            file.column_orders().cloned(),
        ));
        if self.files.len() < SHARED_MAX {
            self.files.insert(of_all, Arc::clone(&file));
        }
        file
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::page::testing::{Memory, file};

    fn open(pool: &Arc<FooterPool>, schema: &str, rows: &[usize]) -> OpenedFooter {
        let bytes = file(&format!("message m {{ {schema} }}"), rows, |p| p);
        SourceFooter::open(&*Memory::new("m.parquet", bytes), Some(pool)).unwrap()
    }

    #[test]
    fn files_share_what_they_say_alike_and_keep_their_row_groups() {
        let pool = FooterPool::new(&Context::new(1 << 20));
        let [one, other] = [[3, 4], [5, 6]].map(|rows| open(&pool, "required int64 a;", &rows));
        let third = open(&pool, "required int64 b;", &[3]);
        let empty = open(&pool, "required int64 a;", &[]);
        let is_shared =
            |a: &OpenedFooter, b: &OpenedFooter| std::ptr::eq(a.footer.file(), b.footer.file());
        assert!(is_shared(&one, &other) && !is_shared(&one, &third) && !is_shared(&one, &empty));
        let schema = |of: &OpenedFooter| of.footer.file().schema_descr_ptr();
        assert!(Arc::ptr_eq(&schema(&one), &schema(&empty)));
        assert_eq!((&*one.row_starts, &*other.row_starts), (&[0, 3, 7][..], &[0, 5, 11][..]));
        assert_eq!(empty.footer.file().num_rows(), 0);
    }

    #[test]
    fn a_footer_without_room_is_decoded_again_to_the_same() {
        let pool = FooterPool::new(&Context::new(32));
        let opened = open(&pool, "required int64 a; required double b;", &[3, 4]);
        let again = opened.footer.decoded().unwrap();
        assert!(Arc::ptr_eq(&again, &opened.footer.decoded().unwrap()), "kept while it is in use");
        let rows: Vec<_> = again.row_groups().iter().map(|group| group.num_rows()).collect();
        assert_eq!(rows, [3, 4]);
        let other = open(&pool, "required int64 a; required double b;", &[9]).footer;
        let (first, other) = (Arc::downgrade(&again), other.decoded().unwrap());
        drop(again);
        assert!(first.upgrade().is_none(), "gone for the other");
        assert_eq!(other.row_group(0).num_rows(), 9);
        assert_eq!(opened.footer.decoded().unwrap().num_row_groups(), 2);
    }
}
