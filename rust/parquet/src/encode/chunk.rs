//! A column chunk, page by page, with what its footer and indexes say.
//!
//! ```text
//! ids      dictionary (all sources united) │ ids │ ids │ ids …
//! fallback dictionary                      │ ids │ plain │ plain …   a plain page came along
//! plain    plain │ plain │ as stored │ plain …
//! ```
//!
//! # Invariants
//! The dictionary is written before the first page, and not at all if it is known by then that no
//! page refers to it.
//! Offsets in the close result count from the first byte of the chunk.
//!
//! # Cost
//! The packed chunk, in memory up to a limit and on disk from there.
//!
//! # Not here
//! Which rows come next (`weave`).

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{ColumnChunkMetaData, LevelHistogram, PageEncodingStats};
use parquet::file::properties::EnabledStatistics;
use parquet::schema::types::ColumnDescPtr;
use plait_core::{Error, Kind, Result};

use super::body::check_body;
use super::bounds::ValueOrder;
use super::buffer::PageBuffer;
use super::facts::{Facts, PageLevels, ValueFacts};
use super::floats::FloatOrder;
use super::ids::Ids;
use super::index::IndexWriter;
use super::pack::{Codec, Packers, ZstdTrial};
use super::packed::{About, len_u32, pack_body, too_large};
pub(crate) use super::packed::{PackedPage, RawPage, pack};
use super::statistics::{Cut, statistics};
use super::values::{ValueEncoding, encode_values};
use crate::block::fold::{greatest, pack_booleans};
use crate::block::index::KnownPage;
use crate::block::{Contents, Layout, Values};
use crate::page::header::{PageHeader, PageKind};
use crate::page::hybrid::{encode, width_of};
use crate::page::pages::Stored;
use crate::page::unwrap_error;
use crate::spill::SpillBuffer;
use crate::zone::{Observer, Seen, ValueSet};

/// An encoded column chunk that waits for its place in the row group.
pub(crate) struct Chunk {
    /// The bytes, from the first page on.
    pub bytes: SpillBuffer,
    /// What the footer needs to know.
    pub close: ColumnCloseResult,
    /// Bytes and rows of pages that were taken as they are.
    pub verbatim: Verbatim,
    /// Whether it was made with a dictionary of all sources.
    pub is_united: bool,
    /// Its values, if they are to be listed.
    pub values: Option<ValueSet>,
}

/// What was copied without being encoded again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verbatim {
    /// Stored bytes, headers included.
    pub bytes: u64,
    /// Rows.
    pub rows: u64,
}

/// How pages are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRules<'a> {
    /// Most rows of a page.
    pub rows_max: usize,
    /// Bytes of values after which a page ends.
    pub bytes_max: usize,
    /// Whether pages are of version 2.
    pub is_v2: bool,
    /// The codec of bodies.
    pub codec: Compression,
    /// How ZSTD packs the leaf, if the caller does not say.
    pub zstd: Option<&'a ZstdTrial>,
    /// How plain values are encoded again, if they are.
    pub encoding: Option<ValueEncoding<'a>>,
    /// Longest bounds.
    pub cut: Cut,
    /// Of what bounds are written.
    pub statistics: EnabledStatistics,
    /// The order of bounds of floats.
    pub floats: FloatOrder,
}

/// A page's bytes.
enum PageBytes<'a> {
    /// As a source stores them.
    Stored(&'a Stored),
    /// Header and body.
    Packed(Bytes, Bytes),
}

/// Writes one chunk.
pub(crate) struct ChunkWriter<'a> {
    descr: ColumnDescPtr,
    layout: Layout,
    order: ValueOrder,
    rules: PageRules<'a>,
    packers: &'a Packers,
    /// The codec and how it packs, known from the first page on.
    codec: Option<Codec>,
    ids: Option<Arc<Ids>>,
    writes_ids: bool,
    sink: SpillBuffer,
    dictionary_offset: Option<u64>,
    data_offset: Option<u64>,
    encodings: Vec<Encoding>,
    stats: Vec<PageEncodingStats>,
    index: IndexWriter,
    packed: u64,
    unpacked: u64,
    verbatim: Verbatim,
    observer: Option<Observer>,
    /// The page under construction.
    pub page: PageBuffer,
}

impl<'a> ChunkWriter<'a> {
    /// A chunk of the leaf `descr`; with `ids`, pages refer to its dictionary until one cannot.
    #[must_use]
    pub(crate) fn new(
        descr: &ColumnDescPtr,
        rules: PageRules<'a>,
        packers: &'a Packers,
        ids: Option<Arc<Ids>>,
        sink: SpillBuffer,
    ) -> Self {
        let level = |max: i16| u8::try_from(max).unwrap_or(u8::MAX);
        Self {
            descr: Arc::clone(descr),
            layout: Layout::of(descr),
            order: ValueOrder::of(descr),
            rules,
            packers,
            codec: None,
            writes_ids: ids.is_some(),
            ids,
            sink,
            dictionary_offset: None,
            data_offset: None,
            encodings: Vec::new(),
            stats: Vec::new(),
            index: IndexWriter::new(descr, ValueOrder::of(descr), rules.cut),
            packed: 0,
            unpacked: 0,
            verbatim: Verbatim::default(),
            observer: None,
            page: PageBuffer::new(level(descr.max_rep_level()), level(descr.max_def_level())),
        }
    }

    /// Has `observer` see every value.
    #[must_use]
    pub(crate) fn with_observer(mut self, observer: Option<Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Whether no page was written yet.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.data_offset.is_none()
    }

    /// Whether the chunk has a dictionary for pages that are taken as they are.
    #[must_use]
    pub(crate) fn has_dictionary(&self) -> bool {
        self.ids.is_some()
    }

    /// Whether pages hold ids at this point.
    #[must_use]
    pub(crate) fn writes_ids(&self) -> bool {
        self.writes_ids
    }

    /// How many more rows the page may have.
    #[must_use]
    pub(crate) fn rows_left(&self) -> usize {
        self.rules.rows_max.saturating_sub(self.page.rows())
    }

    /// Whether the page has all its rows or bytes.
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        self.page.rows() >= self.rules.rows_max || self.bytes() >= self.rules.bytes_max
    }

    /// About the bytes that the values of the page take when encoded.
    fn bytes(&self) -> usize {
        match &self.ids {
            Some(ids) if self.writes_ids => {
                let width = width_of(ids.dictionary.len().saturating_sub(1) as u32) as usize;
                self.page.value_count() * width / 8
            }
            _ => self.page.values().len(),
        }
    }

    /// Bytes of the page under construction; dictionary and waiting pages account for themselves.
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        self.page.memory_size()
    }

    /// Makes plain pages; the dictionary is for pages that are taken as they are.
    pub(crate) fn keep_dictionary(&mut self) {
        self.writes_ids = false;
    }

    /// Ends pages of ids: what follows is plain. The page must be empty.
    pub(crate) fn fall_back(&mut self) {
        self.writes_ids = false;
        if self.is_empty() {
            self.ids = None; // nothing refers to the dictionary
        }
    }

    /// Ends the page, if it has rows, and writes it.
    ///
    /// # Errors
    /// [`Kind::Storage`] where chunks wait.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.page.rows() == 0 {
            return Ok(());
        }
        // The page is packed from where it lies.
        let mut page = std::mem::take(&mut self.page);
        let (body, about) = self.body(&mut page)?;
        let codec = self.choose(body)?;
        let packed = pack_body(body, about, codec, self.rules.is_v2, self.packers)?;
        page.clear();
        self.page = page;
        self.write(packed)
    }

    /// The codec, as it suits a leaf whose first page is `raw`.
    ///
    /// # Errors
    /// As [`Packers::choose`].
    pub(crate) fn codec(&mut self, raw: &RawPage) -> Result<Codec> {
        self.choose(&raw.body)
    }

    fn choose(&mut self, body: &[u8]) -> Result<Codec> {
        if let Some(codec) = self.codec {
            return Ok(codec);
        }
        let codec = match self.rules.zstd {
            Some(trial) => self.packers.choose(self.rules.codec.into(), trial, body)?,
            None => self.rules.codec.into(),
        };
        self.codec = Some(codec);
        Ok(codec)
    }

    /// Takes the page to pack it elsewhere; [`write`](Self::write) it in order.
    ///
    /// # Errors
    /// [`Kind::Internal`] for a page that could not be read back.
    pub(crate) fn take_page(&mut self) -> Result<Option<RawPage>> {
        if self.page.rows() == 0 {
            return Ok(None);
        }
        let mut page = std::mem::take(&mut self.page);
        let (body, about) = self.body(&mut page)?;
        let raw = RawPage { body: body.to_vec(), about };
        page.clear();
        self.page = page;
        Ok(Some(raw))
    }

    /// The encoded page, which is what its header will say.
    fn body<'p>(&mut self, page: &'p mut PageBuffer) -> Result<(&'p [u8], About)> {
        self.check_ids(page)?;
        if let Some(observer) = &mut self.observer {
            match &self.ids {
                Some(ids) if self.writes_ids => observer.ids(page.ids(), &ids.dictionary),
                _ => observer.plain(page.values()),
            }
            observer.nulls(page.levels() - page.value_count());
        }
        let facts = self.page_facts(page);
        let is_boolean = self.descr.physical_type() == Physical::BOOLEAN;
        let (encoding, values) = match &self.ids {
            Some(ids) if self.writes_ids => {
                let width = width_of(ids.dictionary.len().saturating_sub(1) as u32);
                let mut out = vec![width as u8];
                encode(page.ids(), width, &mut out);
                (Encoding::RLE_DICTIONARY, Some(out))
            }
            _ => match self.value_encoding(page)? {
                Encoding::PLAIN if is_boolean => {
                    (Encoding::PLAIN, Some(pack_booleans(page.values())))
                }
                Encoding::PLAIN => (Encoding::PLAIN, None),
                other => (other, Some(encode_values(&self.descr, other, page.values())?)),
            },
        };
        let (body, rep_len, def_len) = page.body(!self.rules.is_v2, values.as_deref());
        let about = About { rep_len, def_len, encoding, facts };
        let dictionary_len = self.ids.as_ref().map_or(0, |ids| ids.dictionary.len());
        check_body(&self.descr, body, &about, self.rules.is_v2, dictionary_len)?;
        Ok((body, about))
    }

    /// How the plain values of `page` are encoded.
    fn value_encoding(&self, page: &PageBuffer) -> Result<Encoding> {
        match self.rules.encoding {
            Some(of) if page.value_count() > 0 => {
                of.choose(&self.descr, page.values(), self.rules.codec, self.packers)
            }
            _ => Ok(Encoding::PLAIN),
        }
    }

    /// Ids are looked up for bounds, so they are compared with the dictionary before.
    fn check_ids(&self, page: &PageBuffer) -> Result<()> {
        let ids = page.ids();
        let len = match &self.ids {
            Some(ids) if self.writes_ids => ids.dictionary.len(),
            _ => 0,
        };
        let most = if ids.is_empty() { 0 } else { greatest(ids) as usize + 1 };
        if most <= len && (!self.writes_ids || ids.len() == page.value_count()) {
            return Ok(());
        }
        Err(Error::new(Kind::Internal, "page of ids holds something else")
            .with_column(self.descr.path().string())
            .with_got(format!(
                "{} ids up to {most} of {len} for {} values",
                ids.len(),
                page.value_count()
            ))
            .with_hint("nothing was published; please report this"))
    }

    fn page_facts(&self, page: &PageBuffer) -> Facts {
        let (order, layout) = (self.order, self.layout);
        let found = match &self.ids {
            Some(ids) if self.writes_ids => ValueFacts::of_ids(order, layout, ids, page.ids()),
            _ => ValueFacts::of_plain(order, layout, page.values(), page.value_count()),
        };
        let (rows, levels, values) = (page.rows(), page.levels(), page.value_count());
        let page = PageLevels { rows, levels, values, rep: page.rep(), def: page.def() };
        Facts::count(&self.descr, &page, found)
    }

    /// What is known of a page that stays as it is and comes next, from what is in it.
    ///
    /// # Errors
    /// [`Kind::Internal`] for ids without a dictionary.
    pub(crate) fn facts_of(&mut self, page: &Contents) -> Result<Facts> {
        let (order, layout) = (self.order, self.layout);
        let found = match (&page.values, &self.ids) {
            (Values::Plain(bytes), _) => {
                ValueFacts::of_plain(order, layout, bytes, page.value_count)
            }
            (Values::Ids(numbers, _), Some(ids)) => ValueFacts::of_ids(order, layout, ids, numbers),
            (Values::Ids(..), None) => {
                return Err(Error::new(Kind::Internal, "a page of ids has no dictionary"));
            }
        };
        let levels = PageLevels::new(page.rows, page.value_count, &page.rep, &page.def);
        if let Some(observer) = &mut self.observer {
            match (&page.values, &self.ids) {
                (Values::Ids(numbers, _), Some(ids)) => observer.ids(numbers, &ids.dictionary),
                (Values::Ids(numbers, dictionary), None) => observer.ids(numbers, dictionary),
                (Values::Plain(bytes), _) => observer.plain(bytes),
            }
            observer.nulls(levels.levels - levels.values);
        }
        Ok(Facts::count(&self.descr, &levels, found))
    }

    /// The same, from what the index of its source says; `None` if that is not enough, or if
    /// somebody wants to see the values.
    #[must_use]
    pub(crate) fn take_over(&self, rows: usize, known: KnownPage) -> Option<Facts> {
        if self.observer.is_some() {
            return None;
        }
        // The total order wants NaN counted.
        if self.order.has_nan() && known.nans.is_none() && self.rules.floats == FloatOrder::Total {
            return None;
        }
        Facts::take_over(&self.descr, self.order, rows, known)
    }

    /// Writes a page of a source as it is stored; `facts` is what it holds. The page under
    /// construction must be empty.
    ///
    /// # Errors
    /// [`Kind::Storage`] where chunks wait.
    pub(crate) fn splice(&mut self, stored: &Stored, facts: Facts) -> Result<()> {
        let Some(encoding) = stored.header.data_encoding() else {
            return Err(Error::new(Kind::Internal, "only data pages are taken as they are"));
        };
        let page_type = match stored.header.kind {
            PageKind::DataV2 { .. } => PageType::DATA_PAGE_V2,
            _ => PageType::DATA_PAGE,
        };
        let unpacked = u64::from(stored.header.uncompressed_len) + stored.header_len() as u64;
        self.verbatim.bytes += stored.byte_len() as u64;
        self.verbatim.rows += facts.rows as u64;
        self.append(PageBytes::Stored(stored), unpacked, page_type, encoding, facts)
    }

    fn write_dictionary(&mut self) -> Result<()> {
        if self.dictionary_offset.is_some() {
            return Ok(());
        }
        let Some(ids) = &self.ids else { return Ok(()) };
        if let Some(stored) = &ids.stored {
            let stored = stored.clone();
            let unpacked = stored.header.uncompressed_len as usize + stored.header_len();
            self.dictionary_offset = Some(self.sink.byte_len());
            self.unpacked += unpacked as u64;
            self.packed += stored.byte_len() as u64;
            self.verbatim.bytes += stored.byte_len() as u64;
            // Early writers call the encoding of a dictionary's plain values PLAIN_DICTIONARY.
            let encoding = match stored.header.kind {
                PageKind::Dictionary { encoding, .. } => encoding,
                _ => {
                    return Err(Error::new(
                        Kind::Internal,
                        "a dictionary is not a dictionary page",
                    ));
                }
            };
            self.count_page(PageType::DICTIONARY_PAGE, encoding);
            return self.sink.push_stored(&stored);
        }
        let values = ids.dictionary.bytes();
        let mut body = Vec::new();
        self.packers.pack(self.rules.codec.into(), values, &mut body)?;
        let header = PageHeader {
            uncompressed_len: len_u32(values.len())?,
            compressed_len: len_u32(body.len())?,
            crc: None,
            kind: PageKind::Dictionary {
                num_values: len_u32(ids.dictionary.len())?,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            },
        };
        let mut head = Vec::new();
        header.write(&mut head);
        self.dictionary_offset = Some(self.sink.byte_len());
        self.unpacked += (head.len() + values.len()) as u64;
        self.packed += (head.len() + body.len()) as u64;
        self.count_page(PageType::DICTIONARY_PAGE, Encoding::PLAIN);
        self.sink.push(head.into())?;
        self.sink.push(body.into())
    }

    /// Writes a page that was packed.
    ///
    /// # Errors
    /// [`Kind::Storage`] where chunks wait.
    pub(crate) fn write(&mut self, packed: PackedPage) -> Result<()> {
        let mut head = Vec::new();
        packed.header.write(&mut head);
        let unpacked = u64::from(packed.header.uncompressed_len) + head.len() as u64;
        let page_type = match packed.header.kind {
            PageKind::DataV2 { .. } => PageType::DATA_PAGE_V2,
            _ => PageType::DATA_PAGE,
        };
        let parts = PageBytes::Packed(head.into(), packed.body.into());
        self.append(parts, unpacked, page_type, packed.encoding, packed.facts)
    }

    fn append(
        &mut self,
        parts: PageBytes<'_>,
        unpacked: u64,
        page_type: PageType,
        encoding: Encoding,
        facts: Facts,
    ) -> Result<()> {
        // It comes first, whether or not the first page refers to it.
        self.write_dictionary()?;
        let offset = self.sink.byte_len();
        let len = match parts {
            PageBytes::Stored(stored) => {
                self.sink.push_stored(stored)?;
                stored.byte_len()
            }
            PageBytes::Packed(head, body) => {
                let len = head.len() + body.len();
                self.sink.push(head)?;
                self.sink.push(body)?;
                len
            }
        };
        self.data_offset.get_or_insert(offset);
        self.count_page(page_type, encoding);
        let facts = self.rules.floats.bounded(facts);
        self.index.add(offset, i32::try_from(len).map_err(|_| too_large(len))?, facts);
        self.packed += len as u64;
        self.unpacked += unpacked;
        Ok(())
    }

    fn count_page(&mut self, page_type: PageType, encoding: Encoding) {
        if !self.encodings.contains(&encoding) {
            self.encodings.push(encoding);
        }
        match self.stats.last_mut() {
            Some(last) if last.page_type == page_type && last.encoding == encoding => {
                last.count += 1;
            }
            _ => self.stats.push(PageEncodingStats { page_type, encoding, count: 1 }),
        }
    }

    /// Ends the chunk.
    ///
    /// # Errors
    /// [`Kind::Storage`] where chunks wait.
    pub(crate) fn close(mut self) -> Result<Chunk> {
        self.flush()?;
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let histogram = |counts: Option<Vec<i64>>| counts.map(LevelHistogram::from);
        let Seen { filter, values } =
            self.observer.take().map(Observer::finish).unwrap_or_default();
        let (column_index, offset_index, sums) = self.index.close()?;
        let statistics = statistics(
            &self.descr,
            sums.bounds.as_ref().map(|(bounds, is_exact)| (bounds, *is_exact)),
            Some(sums.nulls),
            sums.nans.filter(|_| self.order.has_nan()),
            self.rules.cut,
        );
        let level = self.rules.statistics;
        let builder = ColumnChunkMetaData::builder(Arc::clone(&self.descr));
        let builder = match level {
            EnabledStatistics::None => builder,
            _ => builder.set_statistics(statistics),
        };
        let metadata = builder
            .set_compression(self.rules.codec)
            .set_encodings(self.encodings)
            .set_page_encoding_stats(self.stats)
            .set_total_compressed_size(signed(self.packed))
            .set_total_uncompressed_size(signed(self.unpacked))
            .set_num_values(signed(sums.levels))
            .set_data_page_offset(signed(self.data_offset.unwrap_or(0)))
            .set_dictionary_page_offset(self.dictionary_offset.map(signed))
            .set_unencoded_byte_array_data_bytes(sums.bytes)
            .set_repetition_level_histogram(histogram(sums.rep))
            .set_definition_level_histogram(histogram(sums.def))
            .build()
            .map_err(unwrap_error)?;
        let close = ColumnCloseResult {
            bytes_written: self.packed,
            rows_written: sums.rows,
            metadata,
            bloom_filter: filter,
            column_index: column_index.filter(|_| level == EnabledStatistics::Page),
            offset_index: Some(offset_index),
        };
        let is_united = self.ids.is_some();
        Ok(Chunk { bytes: self.sink, close, verbatim: self.verbatim, is_united, values })
    }
}
