//! What is checked: the pages of a chunk, and what is said of them.
//!
//! # Not here
//! The checks (`check`, `index`).

use parquet::basic::{Encoding, PageType};
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use plait_core::{Error, Kind};

use crate::page::header::PageKind;

/// A page as its header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenPage {
    /// Offset of its header.
    pub offset: u64,
    /// Length of header and body.
    pub len: u64,
    /// The header's own words.
    pub kind: PageKind,
}

impl WrittenPage {
    /// Values and nulls of a data page.
    #[must_use]
    pub(crate) fn num_values(&self) -> u64 {
        match self.kind {
            PageKind::Data { num_values, .. } | PageKind::DataV2 { num_values, .. } => {
                u64::from(num_values)
            }
            PageKind::Dictionary { .. } | PageKind::Index => 0,
        }
    }

    /// Its rows, if the header tells: `is_flat` if every value is a row.
    #[must_use]
    pub(crate) fn num_rows(&self, is_flat: bool) -> Option<u64> {
        match self.kind {
            PageKind::DataV2 { num_rows, .. } => Some(u64::from(num_rows)),
            _ => is_flat.then(|| self.num_values()),
        }
    }

    pub(super) fn page_type(&self) -> PageType {
        match self.kind {
            PageKind::Data { .. } => PageType::DATA_PAGE,
            PageKind::DataV2 { .. } => PageType::DATA_PAGE_V2,
            PageKind::Dictionary { .. } => PageType::DICTIONARY_PAGE,
            PageKind::Index => PageType::INDEX_PAGE,
        }
    }

    pub(super) fn encoding(&self) -> Option<Encoding> {
        match self.kind {
            PageKind::Data { encoding, .. }
            | PageKind::DataV2 { encoding, .. }
            | PageKind::Dictionary { encoding, .. } => Some(encoding),
            PageKind::Index => None,
        }
    }

    pub(super) fn is_dictionary(&self) -> bool {
        matches!(self.kind, PageKind::Dictionary { .. })
    }
}

/// What pages say of their encodings, as a footer lists it.
#[must_use]
pub(crate) fn encoding_stats(pages: &[WrittenPage]) -> Vec<PageEncodingStats> {
    let mut stats: Vec<PageEncodingStats> = Vec::new();
    for page in pages {
        let (page_type, Some(encoding)) = (page.page_type(), page.encoding()) else { continue };
        let known = stats.iter_mut().find(|s| s.page_type == page_type && s.encoding == encoding);
        match known {
            Some(known) => known.count += 1,
            None => stats.push(PageEncodingStats { page_type, encoding, count: 1 }),
        }
    }
    stats
}

/// A column chunk: its pages, and what is said of them.
#[derive(Clone, Copy)]
pub(crate) struct CheckedChunk<'a> {
    /// Its pages, in order, the dictionary first.
    pub pages: &'a [WrittenPage],
    /// What the footer says.
    pub metadata: &'a ColumnChunkMetaData,
    /// The column index, if there is one.
    pub columns: Option<&'a ColumnIndexMetaData>,
    /// The offset index, if there is one.
    pub offsets: Option<&'a OffsetIndexMetaData>,
    /// Rows of the row group.
    pub rows: u64,
}

impl CheckedChunk<'_> {
    /// Data pages, without the dictionary.
    pub(super) fn data_pages(&self) -> impl Iterator<Item = &WrittenPage> {
        self.pages.iter().filter(|page| !page.is_dictionary())
    }

    pub(super) fn is_flat(&self) -> bool {
        self.metadata.column_descr().max_rep_level() == 0
    }

    /// Nulls of the whole chunk, if the footer counts them.
    pub(super) fn nulls(&self) -> Option<u64> {
        self.metadata.statistics().and_then(|statistics| statistics.null_count_opt())
    }
}

/// Two places of a file that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    pub(super) what: &'static str,
    got: String,
}

impl Contradiction {
    pub(super) fn new(what: &'static str, got: impl Into<String>) -> Self {
        Self { what, got: got.into() }
    }

    /// As an error.
    #[must_use]
    pub(crate) fn into_error(self, kind: Kind) -> Error {
        Error::new(kind, self.what).with_got(self.got)
    }
}

/// What the contradiction is, and what was found, unless `is_right`.
pub(super) fn expect(
    is_right: bool,
    what: &'static str,
    got: impl FnOnce() -> String,
) -> Result<(), Contradiction> {
    if is_right { Ok(()) } else { Err(Contradiction::new(what, got())) }
}
