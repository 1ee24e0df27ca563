//! The pages of one column chunk: found, read, checked, unpacked.
//!
//! ```text
//! Locations::find ── offset index, or one walk over the page headers
//!        │
//! Pages::open(row) ── ranged reads ahead ── header ── checksum ── codec ──▶ parquet's ColumnReader
//! ```
//!
//! # Invariants
//! Every length in a header is checked against the bytes at hand before it is used, a page is
//! never larger than [`PAGE_BYTES_MAX`], and rows are counted against the locations. Calls into
//! decoders that may panic on hostile bytes go through [`guard`].
//!
//! # Not here
//! Levels and values (`leaf`); footers (`source`).

pub(crate) mod codec;
mod expand;
pub(crate) mod header;
pub(crate) mod hybrid;
pub(crate) mod hybrid_reader;
pub(crate) mod indexes;
mod kept;
pub(crate) mod levels;
pub(crate) mod locate;
pub(crate) mod pages;
mod stored;
#[cfg(test)]
#[path = "tests/files.rs"]
pub(crate) mod testing;
pub(crate) mod unpack;
mod unpacking;
mod write;

pub(crate) use kept::Kept;
pub(crate) use locate::{Locations, PageLoc};
pub(crate) use pages::Pages;
pub(crate) use stored::stored_into_page;
pub(crate) use unpacking::Unpacking;

pub(crate) use crate::guard::{guard, unwrap_error, wrap_error};

/// The most bytes of one page, packed or unpacked.
pub(crate) const PAGE_BYTES_MAX: usize = 512 << 20;

/// Chunks of objects up to this size are requested whole: dictionary and pages take a request each.
const SMALL_CHUNK_BYTES: u64 = 256 << 10;
