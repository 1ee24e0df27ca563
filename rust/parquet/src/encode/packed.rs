//! A page before and after it is packed, by whichever thread.
//!
//! # Not here
//! Where packed pages go (`chunk`); codecs (`pack`).

use parquet::basic::{Compression, Encoding};
use plait_core::{Error, Kind, Result};

use super::facts::Facts;
use super::pack::{Codec, Packers};
use crate::page::header::{PageHeader, PageKind};

/// A page before it is packed.
pub(crate) struct RawPage {
    pub(super) body: Vec<u8>,
    pub(super) about: About,
}

/// What a page's header says, and more.
pub(super) struct About {
    pub(super) rep_len: usize,
    pub(super) def_len: usize,
    pub(super) encoding: Encoding,
    pub(super) facts: Facts,
}

impl RawPage {
    /// Bytes held on the heap.
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        self.body.capacity()
    }
}

/// A page that is packed.
pub(crate) struct PackedPage {
    pub(super) header: PageHeader,
    pub(super) body: Vec<u8>,
    pub(super) encoding: Encoding,
    pub(super) facts: Facts,
}

impl PackedPage {
    /// Bytes held on the heap.
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        self.body.capacity()
    }
}

/// Packs a page.
///
/// # Errors
/// As [`Packers::pack`]; [`Kind::Unsupported`] for a page of over two gigabytes.
pub(crate) fn pack(
    raw: RawPage,
    codec: Codec,
    is_v2: bool,
    packers: &Packers,
) -> Result<PackedPage> {
    pack_body(&raw.body, raw.about, codec, is_v2, packers)
}

pub(super) fn pack_body(
    raw: &[u8],
    about: About,
    codec: Codec,
    is_v2: bool,
    packers: &Packers,
) -> Result<PackedPage> {
    let About { rep_len, def_len, encoding, facts } = about;
    let uncompressed_len = len_u32(raw.len())?;
    let (rows, levels) = (len_u32(facts.rows)?, len_u32(facts.levels)?);
    let mut body = Vec::new();
    let kind = if is_v2 {
        let (in_front, values) = raw.split_at(rep_len + def_len);
        body.extend_from_slice(in_front);
        packers.pack(codec, values, &mut body)?;
        // What does not get smaller stays as it is, and costs readers nothing.
        let is_compressed =
            codec != Codec::Other(Compression::UNCOMPRESSED) && body.len() < raw.len();
        if !is_compressed {
            body = raw.to_vec();
        }
        PageKind::DataV2 {
            num_values: levels,
            num_nulls: len_u32(facts.nulls)?,
            num_rows: rows,
            encoding,
            def_levels_len: len_u32(def_len)?,
            rep_levels_len: len_u32(rep_len)?,
            is_compressed,
        }
    } else {
        packers.pack(codec, raw, &mut body)?;
        PageKind::Data {
            num_values: levels,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
        }
    };
    // Codecs reserve for the worst case, and the page may wait: it keeps what it needs.
    if body.capacity() / 2 > body.len() {
        body.shrink_to_fit();
    }
    let compressed_len = len_u32(body.len())?;
    let header = PageHeader { uncompressed_len, compressed_len, crc: None, kind };
    Ok(PackedPage { header, body, encoding, facts })
}

pub(super) fn len_u32(len: usize) -> Result<u32> {
    // The format counts in signed 32-bit numbers.
    i32::try_from(len).map(i32::cast_unsigned).map_err(|_| too_large(len))
}

pub(super) fn too_large(len: usize) -> Error {
    Error::new(Kind::Unsupported, "page is larger than the format allows")
        .with_got(format!("{len} bytes"))
        .with_hint("ask for smaller pages with page_size and page_rows")
}
