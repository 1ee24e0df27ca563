//! One page as it is stored, and what its header must agree with.
//!
//! # Not here
//! Reading pages in turn (`pages`).

use std::sync::Arc;

use bytes::Bytes;
use parquet::column::page::Page;
use plait_core::{Error, Kind, Result};

use super::header::{PageHeader, PageKind};
use super::levels::LevelCount;
use super::locate::PageLoc;
use super::unpacking::Unpacking;
use crate::store::RangeReader;

/// A page as it is stored, header included.
#[derive(Clone)]
pub(crate) struct Stored {
    /// Where it lies and which rows it has.
    pub place: PageLoc,
    /// Its number among the data pages of the chunk.
    pub number: usize,
    /// Its header.
    pub header: PageHeader,
    pub(super) header_len: usize,
    pub(super) held: Held,
    pub(super) is_data: bool,
    /// Who unpacks it, if it was offered to others.
    pub(super) unpacking: Option<Arc<Unpacking>>,
}

/// Where the bytes of a stored page are.
#[derive(Clone)]
pub(crate) enum Held {
    /// Here, header and body.
    Here(Bytes),
    /// Where they lie in the source.
    InPlace(Arc<dyn RangeReader>),
}

impl Stored {
    /// Where header and body are.
    #[must_use]
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Bytes of header and body.
    #[must_use]
    pub(crate) fn byte_len(&self) -> usize {
        self.header_len + self.header.compressed_len as usize
    }

    /// Bytes of the header.
    #[must_use]
    pub(crate) fn header_len(&self) -> usize {
        self.header_len
    }
}

pub(super) fn check_count(count: LevelCount, page: &PageLoc) -> Result<()> {
    if count.zeros != page.rows || count.starts_with_zero != page.row_aligned {
        let aligned = |aligned| if aligned { "" } else { ", the first begun before" };
        return Err(Error::new(Kind::CorruptSource, "page has other rows than its place says")
            .with_got(format!(
                "{} rows{} instead of {}{}",
                count.zeros,
                aligned(count.starts_with_zero),
                page.rows,
                aligned(page.row_aligned)
            )));
    }
    Ok(())
}

/// In a leaf that does not repeat, every value is a row.
pub(super) fn check_flat(header: &PageHeader, page: &PageLoc) -> Result<()> {
    let (values, rows) = match header.kind {
        PageKind::Data { num_values, .. } => (num_values, num_values),
        PageKind::DataV2 { num_values, num_rows, .. } => (num_values, num_rows),
        PageKind::Dictionary { .. } | PageKind::Index => return Ok(()),
    };
    if u64::from(values) == page.rows && rows == values {
        return Ok(());
    }
    Err(Error::new(Kind::CorruptSource, "page has other rows than its place says")
        .with_got(format!("{values} values, {rows} rows instead of {}", page.rows)))
}

/// A page of the parquet crate, of its header and its unpacked body.
pub(crate) fn stored_into_page(header: PageHeader, buf: Bytes) -> Result<Page> {
    into_page(header, buf, None)
}

pub(super) fn into_page(header: PageHeader, buf: Bytes, page: Option<&PageLoc>) -> Result<Page> {
    Ok(match header.kind {
        PageKind::Data { num_values, encoding, def_level_encoding, rep_level_encoding } => {
            let statistics = None;
            Page::DataPage {
                buf,
                num_values,
                encoding,
                def_level_encoding,
                rep_level_encoding,
                statistics,
            }
        }
        PageKind::DataV2 {
            num_values,
            num_nulls,
            num_rows,
            encoding,
            def_levels_len,
            rep_levels_len,
            is_compressed,
        } => Page::DataPageV2 {
            buf,
            num_values,
            encoding,
            num_nulls,
            num_rows: page.and_then(|page| u32::try_from(page.rows).ok()).unwrap_or(num_rows),
            def_levels_byte_len: def_levels_len,
            rep_levels_byte_len: rep_levels_len,
            is_compressed,
            statistics: None,
        },
        PageKind::Dictionary { num_values, encoding, is_sorted } => {
            Page::DictionaryPage { buf, num_values, encoding, is_sorted }
        }
        PageKind::Index => {
            return Err(Error::new(Kind::Internal, "an index page was taken for a data page"));
        }
    })
}
