//! What does the header in front of a page say?
//!
//! ```text
//! type │ unpacked length │ packed length │ crc? │ data, dictionary or data-v2 part
//! ```
//!
//! # Invariants
//! A [`PageHeader`] that was parsed has no negative number, no more nulls or rows than values, and
//! level lengths that fit both lengths. Statistics and unknown fields are skipped.
//!
//! # Cost
//! No allocation.
//!
//! # Not here
//! Checking the header against the chunk (`locate`, `pages`).

use parquet::basic::Encoding;
use plait_core::{Error, Kind, Result};

use crate::thrift::{Reader, Stop, TYPE_STRUCT};

/// The longest header that is read; only statistics of huge values come near.
pub(crate) const HEADER_BYTES_MAX: usize = 16 << 20;

/// The header of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    /// Length of the unpacked body.
    pub uncompressed_len: u32,
    /// Length of the body as stored.
    pub compressed_len: u32,
    /// CRC-32 of the body as stored.
    pub crc: Option<u32>,
    /// What follows.
    pub kind: PageKind,
}

/// The kinds of pages, with what only they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Levels and values, packed together.
    Data {
        /// Values, nulls included.
        num_values: u32,
        /// Encoding of the values.
        encoding: Encoding,
        /// Encoding of the definition levels.
        def_level_encoding: Encoding,
        /// Encoding of the repetition levels.
        rep_level_encoding: Encoding,
    },
    /// Levels as they are, then values, packed or not.
    DataV2 {
        /// Values, nulls included.
        num_values: u32,
        /// Nulls among them.
        num_nulls: u32,
        /// Rows that start here.
        num_rows: u32,
        /// Encoding of the values.
        encoding: Encoding,
        /// Length of the definition levels.
        def_levels_len: u32,
        /// Length of the repetition levels.
        rep_levels_len: u32,
        /// Whether the values are packed.
        is_compressed: bool,
    },
    /// Values that data pages refer to.
    Dictionary {
        /// Number of values.
        num_values: u32,
        /// Encoding of the values.
        encoding: Encoding,
        /// Whether the values ascend.
        is_sorted: bool,
    },
    /// An index page: has no rows and is skipped.
    Index,
}

/// What parsing found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Parsed {
    /// A header and its length.
    Header {
        /// The header.
        header: PageHeader,
        /// Bytes it takes.
        len: usize,
    },
    /// The bytes end inside the header.
    MoreBytes,
}

impl PageHeader {
    /// Parses the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when no header starts like this, [`Kind::Unsupported`] for page
    /// types and encodings that are not known.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed> {
        let mut reader = Reader::new(bytes);
        let raw = match Raw::read(&mut reader) {
            Ok(raw) => raw,
            Err(Stop::MoreBytes) if bytes.len() < HEADER_BYTES_MAX => return Ok(Parsed::MoreBytes),
            Err(stop) => return Err(malformed(stop.reason())),
        };
        Ok(Parsed::Header { header: raw.check()?, len: reader.position() })
    }
}

impl PageHeader {
    /// The encoding of the values of a data page.
    #[must_use]
    pub(crate) fn data_encoding(&self) -> Option<Encoding> {
        match self.kind {
            PageKind::Data { encoding, .. } | PageKind::DataV2 { encoding, .. } => Some(encoding),
            PageKind::Dictionary { .. } | PageKind::Index => None,
        }
    }

    /// How many values the page says it has, nulls included.
    #[must_use]
    pub(crate) fn num_values(&self) -> u32 {
        match self.kind {
            PageKind::Data { num_values, .. }
            | PageKind::DataV2 { num_values, .. }
            | PageKind::Dictionary { num_values, .. } => num_values,
            PageKind::Index => 0,
        }
    }

    /// Where values begin in the unpacked body of a data page whose leaf has these greatest levels;
    /// `None` where levels are in the old bit packing or end early.
    #[must_use]
    pub(crate) fn values_start(&self, body: &[u8], rep_max: i16, def_max: i16) -> Option<usize> {
        match self.kind {
            PageKind::DataV2 { def_levels_len, rep_levels_len, .. } => {
                Some(def_levels_len as usize + rep_levels_len as usize)
            }
            PageKind::Data { def_level_encoding, rep_level_encoding, .. } => {
                let mut at = 0_usize;
                for (max, encoding) in
                    [(rep_max, rep_level_encoding), (def_max, def_level_encoding)]
                {
                    if max == 0 {
                        continue;
                    }
                    if encoding != Encoding::RLE {
                        return None;
                    }
                    let len = u32::from_le_bytes(*body.get(at..)?.first_chunk()?);
                    at = at.checked_add(4)?.checked_add(len as usize)?;
                }
                Some(at)
            }
            PageKind::Dictionary { .. } | PageKind::Index => None,
        }
    }
}

fn malformed(reason: &str) -> Error {
    Error::new(Kind::CorruptSource, "page header is malformed").with_got(reason)
}

/// The fields as they stand; nested structs by field id.
#[derive(Default)]
struct Raw {
    page_type: Option<i32>,
    uncompressed_len: Option<i32>,
    compressed_len: Option<i32>,
    crc: Option<i32>,
    data: Option<NestedNumbers>,
    dictionary: Option<NestedNumbers>,
    data_v2: Option<NestedNumbers>,
}

/// The numbers and the flag of a nested struct, by field id.
#[derive(Default)]
struct NestedNumbers {
    numbers: [Option<i32>; 7],
    flag: Option<bool>,
}

impl Raw {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Stop> {
        let (mut raw, mut last) = (Self::default(), 0);
        while let Some((id, kind)) = reader.field(&mut last)? {
            match (id, kind) {
                (1, 5) => raw.page_type = Some(reader.i32()?),
                (2, 5) => raw.uncompressed_len = Some(reader.i32()?),
                (3, 5) => raw.compressed_len = Some(reader.i32()?),
                (4, 5) => raw.crc = Some(reader.i32()?),
                (5, TYPE_STRUCT) => raw.data = Some(NestedNumbers::read(reader)?),
                (7, TYPE_STRUCT) => raw.dictionary = Some(NestedNumbers::read(reader)?),
                (8, TYPE_STRUCT) => raw.data_v2 = Some(NestedNumbers::read(reader)?),
                (1..=5 | 7 | 8, _) => return Err(Stop::Malformed("field of a wrong type")),
                _ => reader.skip(kind)?,
            }
        }
        Ok(raw)
    }

    fn check(self) -> Result<PageHeader> {
        let compressed_len = length(self.compressed_len, "packed length")?;
        let uncompressed_len = length(self.uncompressed_len, "unpacked length")?;
        let kind = match (self.page_type, self.data, self.dictionary, self.data_v2) {
            (Some(0), Some(part), ..) => PageKind::Data {
                num_values: part.count(1)?,
                encoding: part.encoding(2)?,
                def_level_encoding: part.encoding(3)?,
                rep_level_encoding: part.encoding(4)?,
            },
            (Some(1), ..) => PageKind::Index,
            (Some(2), _, Some(part), _) => PageKind::Dictionary {
                num_values: part.count(1)?,
                encoding: part.encoding(2)?,
                is_sorted: part.flag.unwrap_or(false),
            },
            (Some(3), .., Some(part)) => {
                let (num_values, num_nulls) = (part.count(1)?, part.count(2)?);
                let num_rows = part.count(3)?;
                if num_nulls > num_values || num_rows > num_values {
                    return Err(malformed("more nulls or rows than values"));
                }
                let (def_levels_len, rep_levels_len) = (part.count(5)?, part.count(6)?);
                let levels = u64::from(def_levels_len) + u64::from(rep_levels_len);
                if levels > u64::from(compressed_len.min(uncompressed_len)) {
                    return Err(malformed("levels longer than the page"));
                }
                PageKind::DataV2 {
                    num_values,
                    num_nulls,
                    num_rows,
                    encoding: part.encoding(4)?,
                    def_levels_len,
                    rep_levels_len,
                    is_compressed: part.flag.unwrap_or(true),
                }
            }
            (Some(0..=3), ..) => return Err(malformed("the part for the page's type is missing")),
            (Some(other), ..) => {
                return Err(Error::new(Kind::Unsupported, "page type is not known")
                    .with_got(other.to_string()));
            }
            (None, ..) => return Err(malformed("page type is missing")),
        };
        Ok(PageHeader {
            uncompressed_len,
            compressed_len,
            crc: self.crc.map(i32::cast_unsigned),
            kind,
        })
    }
}

impl NestedNumbers {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Stop> {
        let (mut part, mut last) = (Self::default(), 0);
        while let Some((id, kind)) = reader.field(&mut last)? {
            let slot = usize::try_from(id).ok().and_then(|id| part.numbers.get_mut(id));
            match (slot, kind) {
                (Some(slot), 5) => *slot = Some(reader.i32()?),
                (_, 1 | 2) => part.flag = Some(kind == 1),
                _ => reader.skip(kind)?,
            }
        }
        Ok(part)
    }

    fn number(&self, id: usize) -> Option<i32> {
        self.numbers.get(id).copied().flatten()
    }

    fn count(&self, id: usize) -> Result<u32> {
        length(self.number(id), "count")
    }

    fn encoding(&self, id: usize) -> Result<Encoding> {
        let code = self.number(id).ok_or_else(|| malformed("encoding is missing"))?;
        encoding(code).ok_or_else(|| {
            Error::new(Kind::Unsupported, "encoding is not known").with_got(code.to_string())
        })
    }
}

fn length(number: Option<i32>, name: &str) -> Result<u32> {
    let number = number.ok_or_else(|| malformed(&format!("{name} is missing")))?;
    u32::try_from(number).map_err(|_| malformed(&format!("{name} {number}")))
}

fn encoding(code: i32) -> Option<Encoding> {
    Some(match code {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        #[expect(deprecated, reason = "old files have it")]
        4 => Encoding::BIT_PACKED,
        5 => Encoding::DELTA_BINARY_PACKED,
        6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        7 => Encoding::DELTA_BYTE_ARRAY,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        10 => Encoding::ALP,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::column::page::{CompressedPage, Page, PageWriter};
    use parquet::file::statistics::Statistics;
    use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
    use proptest::prelude::*;

    use super::*;

    /// The header that the parquet crate writes for `page`.
    fn written(page: Page, uncompressed_len: usize) -> Vec<u8> {
        let body = page.buffer().len();
        let mut out = TrackedWrite::new(Vec::new());
        let page = CompressedPage::new(page, uncompressed_len);
        SerializedPageWriter::new(&mut out).write_page(page).unwrap();
        let mut bytes = out.into_inner().unwrap();
        bytes.truncate(bytes.len() - body);
        bytes
    }

    fn pages() -> impl Strategy<Value = (Page, usize, PageHeader)> {
        let counts = (any::<u16>(), any::<u16>(), any::<u16>());
        let rest = (0..64_usize, 0..1000_usize, any::<bool>(), 0..3_u8, "[a-z]{0,40}");
        (counts, rest).prop_map(|((values, nulls, rows), (body, extra, flag, kind, text))| {
            let (num_values, buf) = (u32::from(values), Bytes::from(vec![7; body]));
            let (compressed_len, uncompressed_len) = (body as u32, (body + extra) as u32);
            let min = Some(text.as_bytes().into());
            let statistics = Some(Statistics::byte_array(min.clone(), min, None, Some(3), false));
            let half = compressed_len / 2;
            let (num_nulls, num_rows) =
                (u32::from(nulls).min(num_values), u32::from(rows).min(num_values));
            let (page, kind) = match kind {
                0 => (
                    Page::DataPage {
                        buf,
                        num_values,
                        encoding: Encoding::DELTA_BYTE_ARRAY,
                        def_level_encoding: Encoding::RLE,
                        rep_level_encoding: Encoding::RLE,
                        statistics,
                    },
                    PageKind::Data {
                        num_values,
                        encoding: Encoding::DELTA_BYTE_ARRAY,
                        def_level_encoding: Encoding::RLE,
                        rep_level_encoding: Encoding::RLE,
                    },
                ),
                1 => (
                    Page::DataPageV2 {
                        buf,
                        num_values,
                        encoding: Encoding::BYTE_STREAM_SPLIT,
                        num_nulls,
                        num_rows,
                        def_levels_byte_len: half,
                        rep_levels_byte_len: compressed_len - half,
                        is_compressed: flag,
                        statistics,
                    },
                    PageKind::DataV2 {
                        num_values,
                        num_nulls,
                        num_rows,
                        encoding: Encoding::BYTE_STREAM_SPLIT,
                        def_levels_len: half,
                        rep_levels_len: compressed_len - half,
                        is_compressed: flag,
                    },
                ),
                _ => (
                    Page::DictionaryPage {
                        buf,
                        num_values,
                        encoding: Encoding::PLAIN,
                        is_sorted: flag,
                    },
                    PageKind::Dictionary { num_values, encoding: Encoding::PLAIN, is_sorted: flag },
                ),
            };
            let header = PageHeader { uncompressed_len, compressed_len, crc: None, kind };
            (page, body + extra, header)
        })
    }

    proptest! {
        #[test]
        fn headers_of_the_parquet_crate_parse_as_written((page, unpacked, want) in pages()) {
            let mut bytes = written(page, unpacked);
            let len = bytes.len();
            for cut in 0..len {
                prop_assert_eq!(PageHeader::parse(&bytes[..cut]).unwrap(), Parsed::MoreBytes);
            }
            bytes.extend([1, 2, 3]);
            prop_assert_eq!(PageHeader::parse(&bytes).unwrap(), Parsed::Header { header: want, len });
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = PageHeader::parse(&bytes);
        }

        #[test]
        fn damaged_headers_never_panic((page, unpacked, _) in pages(), at: usize, byte: u8) {
            let mut bytes = written(page, unpacked);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = PageHeader::parse(&bytes);
        }
    }

    #[test]
    fn unknown_fields_are_skipped_and_the_crc_is_unsigned() {
        // 1: type 2, 2: 6, 3: 4, 4: crc -1, 7: {1: 9, 2: PLAIN, 3: true}, 9: {1: "a"}
        let bytes = [
            0x15, 4, 0x15, 12, 0x15, 8, 0x15, 1, 0x3c, 0x15, 18, 0x15, 0, 0x11, 0, 0x2c, 0x18, 1,
            b'a', 0, 0,
        ];
        let kind =
            PageKind::Dictionary { num_values: 9, encoding: Encoding::PLAIN, is_sorted: true };
        let header =
            PageHeader { uncompressed_len: 6, compressed_len: 4, crc: Some(u32::MAX), kind };
        assert_eq!(PageHeader::parse(&bytes).unwrap(), Parsed::Header { header, len: bytes.len() });
    }

    #[test]
    fn negative_lengths_and_unknown_codes_are_refused() {
        let kind = |bytes: &[u8]| PageHeader::parse(bytes).unwrap_err().kind();
        assert_eq!(kind(&[0x15, 2, 0x15, 1, 0x15, 0, 0]), Kind::CorruptSource);
        assert_eq!(kind(&[0x15, 18, 0x15, 0, 0x15, 0, 0]), Kind::Unsupported);
        assert_eq!(kind(&[0x15, 0, 0x15, 0, 0x15, 0, 0]), Kind::CorruptSource);
        let unknown_encoding = [0x15, 4, 0x15, 0, 0x15, 0, 0x4c, 0x15, 2, 0x15, 98, 0, 0];
        assert_eq!(kind(&unknown_encoding), Kind::Unsupported);
    }
}
