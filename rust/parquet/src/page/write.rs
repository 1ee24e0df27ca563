//! Writes page headers: the mirror of `header`.
//!
//! ```text
//! field delta·4 type·4 │ zigzag varint      nested struct: its fields, then 0
//! ```
//!
//! # Invariants
//! What is written parses back to the same header.
//!
//! # Source
//! Parquet format, `parquet.thrift`, struct `PageHeader`; Thrift compact protocol.

use parquet::basic::Encoding;

use super::header::{PageHeader, PageKind};
use crate::thrift::TYPE_STRUCT;

const TYPE_TRUE: u8 = 1;
const TYPE_FALSE: u8 = 2;
const TYPE_I32: u8 = 5;

impl PageHeader {
    /// Appends the header to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut fields = Fields { out, last: 0 };
        let page_type = match self.kind {
            PageKind::Data { .. } => 0,
            PageKind::Index => 1,
            PageKind::Dictionary { .. } => 2,
            PageKind::DataV2 { .. } => 3,
        };
        fields.number(1, page_type);
        fields.number(2, self.uncompressed_len.cast_signed());
        fields.number(3, self.compressed_len.cast_signed());
        if let Some(crc) = self.crc {
            fields.number(4, crc.cast_signed());
        }
        match self.kind {
            PageKind::Data { num_values, encoding, def_level_encoding, rep_level_encoding } => {
                fields.part(5, |part| {
                    part.number(1, num_values.cast_signed());
                    part.number(2, code(encoding));
                    part.number(3, code(def_level_encoding));
                    part.number(4, code(rep_level_encoding));
                });
            }
            PageKind::Index => fields.part(6, |_| {}),
            PageKind::Dictionary { num_values, encoding, is_sorted } => fields.part(7, |part| {
                part.number(1, num_values.cast_signed());
                part.number(2, code(encoding));
                part.flag(3, is_sorted);
            }),
            PageKind::DataV2 {
                num_values,
                num_nulls,
                num_rows,
                encoding,
                def_levels_len,
                rep_levels_len,
                is_compressed,
            } => fields.part(8, |part| {
                part.number(1, num_values.cast_signed());
                part.number(2, num_nulls.cast_signed());
                part.number(3, num_rows.cast_signed());
                part.number(4, code(encoding));
                part.number(5, def_levels_len.cast_signed());
                part.number(6, rep_levels_len.cast_signed());
                part.flag(7, is_compressed);
            }),
        }
        fields.out.push(0);
    }
}

/// The fields of a struct; ids ascend.
struct Fields<'a> {
    out: &'a mut Vec<u8>,
    last: u8,
}

impl Fields<'_> {
    fn field(&mut self, id: u8, kind: u8) {
        self.out.push((id - self.last) << 4 | kind);
        self.last = id;
    }

    fn number(&mut self, id: u8, n: i32) {
        self.field(id, TYPE_I32);
        let mut zigzag = (n << 1 ^ n >> 31).cast_unsigned();
        while zigzag > 0x7f {
            self.out.push(zigzag as u8 | 0x80);
            zigzag >>= 7;
        }
        self.out.push(zigzag as u8);
    }

    fn flag(&mut self, id: u8, is_true: bool) {
        self.field(id, if is_true { TYPE_TRUE } else { TYPE_FALSE });
    }

    fn part(&mut self, id: u8, write: impl FnOnce(&mut Fields<'_>)) {
        self.field(id, TYPE_STRUCT);
        let mut part = Fields { out: &mut *self.out, last: 0 };
        write(&mut part);
        self.out.push(0);
    }
}

fn code(encoding: Encoding) -> i32 {
    match encoding {
        Encoding::PLAIN => 0,
        Encoding::PLAIN_DICTIONARY => 2,
        Encoding::RLE => 3,
        #[expect(deprecated, reason = "old files have it")]
        Encoding::BIT_PACKED => 4,
        Encoding::DELTA_BINARY_PACKED => 5,
        Encoding::DELTA_LENGTH_BYTE_ARRAY => 6,
        Encoding::DELTA_BYTE_ARRAY => 7,
        Encoding::RLE_DICTIONARY => 8,
        Encoding::BYTE_STREAM_SPLIT => 9,
        Encoding::ALP => 10,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::header::Parsed;
    use super::*;

    proptest! {
        #[test]
        fn what_is_written_parses(
            numbers in prop::array::uniform7(0..i32::MAX as u32), crc: Option<u32>, flag: bool,
            encoding in prop::sample::select(vec![
                Encoding::PLAIN, Encoding::RLE_DICTIONARY, Encoding::PLAIN_DICTIONARY,
                Encoding::RLE, Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT,
            ]),
            which in 0..4,
        ) {
            let [a, b, c, d, e, f, g] = numbers;
            let (def_levels_len, rep_levels_len) = (e % 1000, f % 1000);
            let kind = match which {
                0 => PageKind::Data {
                    num_values: c, encoding,
                    def_level_encoding: Encoding::RLE, rep_level_encoding: Encoding::RLE,
                },
                1 => PageKind::Dictionary { num_values: c, encoding, is_sorted: flag },
                2 => PageKind::Index,
                _ => PageKind::DataV2 {
                    num_values: c, num_nulls: d % (c + 1), num_rows: g % (c + 1), encoding,
                    def_levels_len, rep_levels_len, is_compressed: flag,
                },
            };
            let (uncompressed_len, compressed_len) = (a.max(2000), b.max(2000));
            let header = PageHeader { uncompressed_len, compressed_len, crc, kind };
            let mut bytes = Vec::new();
            header.write(&mut bytes);
            let len = bytes.len();
            bytes.extend([0xff; 3]);
            let parsed = PageHeader::parse(&bytes).unwrap();
            prop_assert_eq!(parsed, Parsed::Header { header, len });
        }
    }
}
