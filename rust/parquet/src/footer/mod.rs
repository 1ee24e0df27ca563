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
//! Of a pool: about 100 bytes a footer, what no other footer says of its file, and shares of the
//! memory limit for row groups: stored ones, whose others are on disk, and decoded ones. Decoding
//! takes about two microseconds a chunk.
//!
//! # Not here
//! What is checked (`checks`); what is shared (`stored`); what is on disk (`store`); which stay
//! decoded (`decoded`); how many are decoded at a time (`room`).

mod checks;
mod chunk;
mod decoded;
mod parts;
mod room;
mod row_starts;
mod schema;
mod stored;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parquet::file::metadata::{FileMetaData, PageEncodingStats, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::SchemaDescPtr;
use plait_core::Result;
use sha2::{Digest, Sha256};

#[cfg(test)]
pub(crate) use self::checks::TAIL_BYTES;
pub(crate) use self::checks::chunk_range;
pub(crate) use self::chunk::ChunkEntry;

use self::checks::{Decoded, check_footer, check_meta, decode, decode_counts, read_footer};
use self::decoded::{DecodedFooters, DecodedSlot};
use self::parts::FooterParts;
use self::room::DecodeRoom;
pub(crate) use self::row_starts::RowStarts;
use self::schema::PooledSchema;
use self::stored::{StoredFooter, StoredFooters};
use crate::runtime::Context;
use crate::store::RangeReader;

/// So many different schemas with their entries are held for other files. Entries such as ranges of
/// keys, which each file has for itself, are of no use to others.
const SHARED_MAX: usize = 64;

/// The footer of an opened file.
#[derive(Clone)]
pub(crate) enum SourceFooter {
    /// Of a file that was opened alone.
    Decoded(Arc<ParquetMetaData>),
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
    pub(crate) row_starts: RowStarts,
    /// Bytes of all pages, before and after compression.
    pub(crate) encoded_bytes: u64,
    pub(crate) stored_bytes: u64,
}

/// One footer of a pool.
pub(crate) struct PooledFooter {
    stored: StoredFooter,
    schema: Arc<PooledSchema>,
    /// Of this file or of one that says the same but for the number of its rows.
    file: Arc<FileMetaData>,
    decoded: DecodedSlot,
    pool: Arc<FooterPool>,
}

/// A footer that has only one top-level column in one row group, its schema, and one of its leaves.
type FooterOfOne<'a> = (Vec<u8>, &'a SchemaDescPtr, usize);

/// Footers of the files of one call.
pub(crate) struct FooterPool {
    known: Mutex<KnownFooters>,
    decoded: DecodedFooters<PooledFooter>,
    room: DecodeRoom,
}

/// Footers, and what they have in common.
struct KnownFooters {
    stored: StoredFooters,
    /// Schemas by their bytes.
    schemas: HashMap<Box<[u8]>, Arc<PooledSchema>>,
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
        let _place = pool.map(|pool| pool.room.enter(bytes.len()));
        let schema = pool.and_then(|pool| pool.schema(&bytes, &parts));
        let decoded = decode(&bytes, schema.as_ref().map(|schema| &schema.all))?;
        let meta = &decoded.meta;
        let row_starts = check_meta(meta, start)?;
        let sum = |of: fn(&RowGroupMetaData) -> i64| {
            let groups =
                meta.row_groups().iter().map(|group| u64::try_from(of(group)).unwrap_or(0));
            groups.fold(0, u64::saturating_add)
        };
        let encoded_bytes = sum(RowGroupMetaData::total_byte_size);
        let stored_bytes = sum(RowGroupMetaData::compressed_size);
        let footer = match pool {
            None => Self::Decoded(Arc::new(decoded.meta)),
            Some(pool) => Self::Pooled(pool.store(&bytes, &parts, decoded)),
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
    pub(crate) fn decoded(&self) -> Result<Arc<ParquetMetaData>> {
        match self {
            Self::Decoded(meta) => Ok(Arc::clone(meta)),
            Self::Pooled(pooled) => pooled.decoded(),
        }
    }

    /// The entry of one chunk, if it is there. Where the footer is not decoded, the others stay so.
    ///
    /// # Errors
    /// As [`decoded`](Self::decoded).
    pub(crate) fn chunk(&self, row_group: usize, leaf: usize) -> Result<Option<ChunkEntry>> {
        if let Self::Pooled(pooled) = self {
            let is_decoded = pooled.decoded.lock().strong_count() > 0;
            if !is_decoded && let Some(entry) = pooled.chunk(row_group, leaf)? {
                return Ok(Some(entry));
            }
        }
        Ok(ChunkEntry::of(self.decoded()?, row_group, leaf))
    }

    /// How many pages of each encoding one chunk has, if its footer says so and is one of a pool:
    /// decoded footers say only which encodings there are.
    pub(crate) fn encoding_stats(
        &self,
        row_group: usize,
        leaf: usize,
    ) -> Option<Vec<PageEncodingStats>> {
        let Self::Pooled(pooled) = self else { return None };
        let (footer, schema, leaf) = pooled.alone(row_group, leaf).ok()??;
        let meta = decode_counts(&footer, schema).ok()?;
        meta.row_groups().first()?.columns().get(leaf)?.page_encoding_stats().cloned()
    }
}

impl AsRef<DecodedSlot> for PooledFooter {
    fn as_ref(&self) -> &DecodedSlot {
        &self.decoded
    }
}

impl PooledFooter {
    /// The entry of one chunk, if it can be decoded without the others.
    fn chunk(&self, row_group: usize, leaf: usize) -> Result<Option<ChunkEntry>> {
        let Some((footer, schema, leaf)) = self.alone(row_group, leaf)? else { return Ok(None) };
        let Ok(decoded) = decode(&footer, Some(schema)) else { return Ok(None) };
        Ok(ChunkEntry::of(Arc::new(decoded.meta), 0, leaf))
    }

    /// What a leaf of one row group is decoded from; none if its place is not known.
    fn alone(&self, row_group: usize, leaf: usize) -> Result<Option<FooterOfOne<'_>>> {
        let Some((schema, leaves)) = self.schema.around(leaf) else { return Ok(None) };
        let leaf = leaf - leaves.start;
        let footer = self.stored.chunks(row_group, leaves, self.schema.all.num_columns())?;
        Ok(footer.map(|footer| (footer, schema, leaf)))
    }

    fn decoded(self: &Arc<Self>) -> Result<Arc<ParquetMetaData>> {
        let mut slot = self.decoded.lock();
        if let Some(found) = slot.upgrade() {
            return Ok(found);
        }
        let found = Arc::new(decode(&self.stored.bytes()?, Some(&self.schema.all))?.meta);
        *slot = Arc::downgrade(&found);
        drop(slot);
        self.pool.decoded.keep(&found, self);
        Ok(found)
    }
}

impl FooterPool {
    /// A pool without footers, within the memory limit of `context`. Those that do not fit go to the
    /// system's folder of temporary files.
    pub(crate) fn new(context: &Context) -> Arc<Self> {
        Self::with_scratch(&std::env::temp_dir(), context)
    }

    /// The same with another folder.
    pub(crate) fn with_scratch(dir: &Path, context: &Context) -> Arc<Self> {
        let known = Mutex::new(KnownFooters {
            stored: StoredFooters::new(dir, context),
            schemas: HashMap::new(),
            files: HashMap::new(),
        });
        let (decoded, room) = (DecodedFooters::new(context), DecodeRoom::new(context));
        Arc::new(Self { known, decoded, room })
    }

    /// The schema of a footer, if one before it had the same.
    fn schema(&self, footer: &[u8], parts: &FooterParts) -> Option<Arc<PooledSchema>> {
        let schema = footer.get(parts.schema.clone()?)?;
        self.lock().schemas.get(schema).map(Arc::clone)
    }

    /// Stores a footer with these `parts`.
    fn store(
        self: &Arc<Self>,
        footer: &[u8],
        parts: &FooterParts,
        decoded: Decoded,
    ) -> Arc<PooledFooter> {
        let Decoded { meta, lacks_statistics } = decoded;
        let file = meta.file_metadata();
        let of_all = (parts.of_all(footer), file.num_rows() > 0);
        // Statistics are left out of all chunks where one of them cannot be decoded.
        let leaves = file.schema_descr().num_columns();
        let chunks = if lacks_statistics { None } else { parts.chunks(footer, leaves) };
        let schema = parts.schema.clone().and_then(|at| footer.get(at)).unwrap_or_default();
        let mut known = self.lock();
        let schema = known.schema(schema, file);
        let file = known.file(of_all, file, &schema);
        let stored = known.stored.store(footer, parts, chunks.as_deref());
        drop(known);
        let (decoded, pool) = (DecodedSlot::default(), Arc::clone(self));
        let footer = Arc::new(PooledFooter { stored, schema, file, decoded, pool });
        self.decoded.keep_if_it_fits(meta, &footer);
        footer
    }

    fn lock(&self) -> MutexGuard<'_, KnownFooters> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownFooters {
    /// The schema of these bytes, which is that of `file` if it was not known. Another thread may have
    /// decoded the same at the same time: the first is that of all.
    fn schema(&mut self, bytes: &[u8], file: &FileMetaData) -> Arc<PooledSchema> {
        if let Some(known) = self.schemas.get(bytes) {
            return Arc::clone(known);
        }
        let schema = Arc::new(PooledSchema::new(file.schema_descr_ptr()));
        self.schemas.insert(bytes.into(), Arc::clone(&schema));
        schema
    }

    /// What a footer of these bytes says of its file, which is `file` if it was not known.
    fn file(
        &mut self,
        of_all: (Vec<u8>, bool),
        file: &FileMetaData,
        schema: &PooledSchema,
    ) -> Arc<FileMetaData> {
        if let Some(known) = self.files.get(&of_all) {
            return Arc::clone(known);
        }
        let file = Arc::new(FileMetaData::new(
            file.version(),
            file.num_rows(),
            file.created_by().map(str::to_owned),
            file.key_value_metadata().cloned(),
            Arc::clone(&schema.all),
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
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;
    use crate::page::testing::{Memory, file, testing_files};

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

    fn assert_chunks_alone_are_those_of_the_footer(bytes: Vec<u8>, name: &str) {
        let pool = FooterPool::new(&Context::new(32));
        let Ok(opened) = SourceFooter::open(&*Memory::new(name, bytes), Some(&pool)) else {
            return;
        };
        let SourceFooter::Pooled(pooled) = &opened.footer else { panic!("not in the pool") };
        let all = opened.footer.decoded().unwrap();
        for (row_group, group) in all.row_groups().iter().enumerate() {
            for (leaf, chunk) in group.columns().iter().enumerate() {
                // As text: a NaN in statistics does not equal itself.
                let alone = pooled.chunk(row_group, leaf).unwrap();
                let alone = format!("{:?}", alone.as_deref());
                assert_eq!(alone, format!("{:?}", Some(chunk)), "{name}, {row_group}, {leaf}");
            }
            assert!(pooled.chunk(row_group, group.num_columns()).unwrap().is_none());
        }
        assert!(pooled.chunk(all.num_row_groups(), 0).unwrap().is_none());
    }

    #[test]
    fn chunks_alone_are_those_of_the_footer() {
        let nested = "optional group l (LIST) { repeated group list { \
            optional group element { required int64 x; optional binary y (UTF8); } } }";
        let flat: String = (0..40).map(|i| format!("required int64 c{i}; ")).collect();
        let struct_of_many = format!("required group s {{ {flat} }}");
        for columns in
            [format!("required int64 a; {nested} required double b;"), flat, struct_of_many]
        {
            let schema = format!("message m {{ {columns} }}");
            assert_chunks_alone_are_those_of_the_footer(file(&schema, &[3, 0, 4], |p| p), &schema);
        }
    }

    #[test]
    fn chunks_alone_of_other_writers_are_those_of_the_footer() {
        for (name, bytes) in testing_files("data") {
            assert_chunks_alone_are_those_of_the_footer(bytes, &name);
        }
    }

    #[test]
    fn a_chunk_does_not_bring_others_along() {
        let pool = FooterPool::new(&Context::new(32));
        let opened = open(&pool, "required int64 a; required double b;", &[3, 4]);
        let SourceFooter::Pooled(pooled) = &opened.footer else { panic!("not in the pool") };
        assert_eq!(opened.footer.chunk(1, 1).unwrap().unwrap().num_values(), 4);
        assert!(pooled.decoded.lock().upgrade().is_none(), "the footer was decoded");
        assert!(opened.footer.chunk(1, 2).unwrap().is_none());
    }
}
