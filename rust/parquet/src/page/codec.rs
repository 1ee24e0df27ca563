//! Unpacks the body of a page.
//!
//! ```text
//! SNAPPY  one raw block           LZ4_RAW  one raw block
//! GZIP    one or more members     LZ4      Hadoop's frames, else an LZ4 frame, else a raw block
//! ZSTD    one or more frames      BROTLI   one stream
//! ```
//!
//! # Invariants
//! What comes out is exactly as long as the page header declares, or an error. Memory is reserved
//! only for lengths that the codec can reach from the bytes at hand.
//!
//! # Cost
//! One pass. One decompression context a thread for ZSTD.
//!
//! # Not here
//! Packing (`encode::pack`).

use std::io::{self, Read};

use bytes::Bytes;
use parquet::basic::Compression;
use plait_core::{Error, Kind, Result};

use super::PAGE_BYTES_MAX;
use crate::unzstd::unzstd;

/// Unpacks `compressed` into exactly `uncompressed_len` bytes.
///
/// # Errors
/// [`Kind::CorruptSource`] when the bytes do not unpack to that length, [`Kind::MemoryLimit`] when
/// it is above [`PAGE_BYTES_MAX`], [`Kind::Unsupported`] for LZO.
pub(crate) fn decompress(
    codec: Compression,
    compressed: &[u8],
    uncompressed_len: usize,
) -> Result<Bytes> {
    let mut out = Vec::new();
    decompress_into(codec, compressed, uncompressed_len, &mut out)?;
    Ok(out.into())
}

/// Like [`decompress`], appending to `out`.
///
/// # Errors
/// As [`decompress`]; `out` is then of no use.
pub(crate) fn decompress_into(
    codec: Compression,
    compressed: &[u8],
    uncompressed_len: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let name = name(codec);
    let corrupt = |got: String| {
        Error::new(Kind::CorruptSource, format!("page does not unpack with {name}")).with_got(got)
    };
    if uncompressed_len == 0 && codec != Compression::UNCOMPRESSED {
        return Ok(()); // some writers store nothing at all for an empty page
    }
    check_reach(codec, compressed.len(), uncompressed_len)?;
    out.try_reserve_exact(uncompressed_len).map_err(|e| {
        Error::new(Kind::MemoryLimit, "not enough memory for one page")
            .with_got(format!("{uncompressed_len} bytes"))
            .with_cause(e)
    })?;
    let prefix = out.len();
    let unpacked = match codec {
        Compression::UNCOMPRESSED => {
            out.extend_from_slice(compressed);
            Ok(())
        }
        Compression::SNAPPY => snappy(compressed, uncompressed_len, out),
        Compression::GZIP(_) => {
            read(flate2::bufread::MultiGzDecoder::new(compressed), uncompressed_len, out)
        }
        Compression::BROTLI(_) => {
            read(brotli::Decompressor::new(compressed, 4096), uncompressed_len, out)
        }
        Compression::ZSTD(_) => unzstd(compressed, out),
        Compression::LZ4_RAW => lz4_block(compressed, uncompressed_len, out),
        Compression::LZ4 => lz4(compressed, uncompressed_len, out),
        Compression::LZO => Ok(()),
    };
    unpacked.map_err(corrupt)?;
    let got = out.len() - prefix;
    if got != uncompressed_len {
        return Err(corrupt(format!("{got} bytes instead of {uncompressed_len}")));
    }
    Ok(())
}

/// The section at the front of what unpacks to `uncompressed_len` bytes: four bytes with its
/// length, and what they say. What is behind is unpacked only where the codec has no other way.
///
/// # Errors
/// As [`decompress`], as far as it is unpacked.
pub(crate) fn decompress_section(
    codec: Compression,
    compressed: &[u8],
    uncompressed_len: usize,
) -> Result<Bytes> {
    if !matches!(codec, Compression::ZSTD(_)) {
        return decompress(codec, compressed, uncompressed_len);
    }
    let corrupt = |got: String| {
        Error::new(Kind::CorruptSource, "page does not unpack with ZSTD").with_got(got)
    };
    let unpack = || -> io::Result<Vec<u8>> {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(compressed)?;
        let mut len = [0; 4];
        decoder.read_exact(&mut len)?;
        let mut out = len.to_vec();
        let len = u64::from(u32::from_le_bytes(len)).min(uncompressed_len as u64);
        decoder.take(len).read_to_end(&mut out)?;
        Ok(out)
    };
    check_reach(codec, compressed.len(), uncompressed_len)?;
    unpack().map(Bytes::from).map_err(|e| corrupt(e.to_string()))
}

/// Checks that `from` packed bytes can become `uncompressed_len`, so that memory may be taken.
///
/// # Errors
/// As [`decompress`].
pub(crate) fn check_reach(codec: Compression, from: usize, uncompressed_len: usize) -> Result<()> {
    if uncompressed_len > PAGE_BYTES_MAX {
        return Err(page_too_large(uncompressed_len));
    }
    // The most that one packed byte can become; what no packing can reach is not reserved.
    let growth_max = match codec {
        Compression::UNCOMPRESSED => 1,
        Compression::SNAPPY => 22,
        Compression::LZ4 | Compression::LZ4_RAW => 256,
        Compression::GZIP(_) => 1032,
        Compression::ZSTD(_) | Compression::BROTLI(_) => usize::MAX,
        Compression::LZO => {
            return Err(Error::new(Kind::Unsupported, "codec LZO is not supported")
                .with_hint("rewrite the file with another codec, for example ZSTD"));
        }
    };
    if uncompressed_len > from.saturating_mul(growth_max).saturating_add(64) {
        let name = name(codec);
        return Err(Error::new(Kind::CorruptSource, format!("page does not unpack with {name}"))
            .with_got(format!("{from} bytes that cannot become {uncompressed_len}")));
    }
    Ok(())
}

/// The error for a page above [`PAGE_BYTES_MAX`].
pub(super) fn page_too_large(len: usize) -> Error {
    Error::new(Kind::MemoryLimit, "one page is larger than any page may be")
        .with_got(format!("{len} bytes, at most {PAGE_BYTES_MAX}"))
        .with_hint("rewrite the file with smaller pages")
}

fn name(codec: Compression) -> &'static str {
    match codec {
        Compression::UNCOMPRESSED => "no codec",
        Compression::SNAPPY => "SNAPPY",
        Compression::GZIP(_) => "GZIP",
        Compression::LZO => "LZO",
        Compression::BROTLI(_) => "BROTLI",
        Compression::LZ4 => "LZ4",
        Compression::ZSTD(_) => "ZSTD",
        Compression::LZ4_RAW => "LZ4_RAW",
    }
}

/// Reads at most one byte more than `len`, which tells too much from just right.
fn read(decoder: impl Read, len: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let limit = u64::try_from(len).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(limit).read_to_end(out).map(drop).map_err(|e| e.to_string())
}

fn snappy(compressed: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let declared = snap::raw::decompress_len(compressed).map_err(|e| e.to_string())?;
    if declared != len {
        return Err(format!("{declared} bytes instead of {len}"));
    }
    let prefix = out.len();
    out.resize(prefix + len, 0);
    let space = out.get_mut(prefix..).unwrap_or_default();
    let n = snap::raw::Decoder::new().decompress(compressed, space).map_err(|e| e.to_string())?;
    out.truncate(prefix + n);
    Ok(())
}

fn lz4_block(compressed: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let prefix = out.len();
    out.resize(prefix + len, 0);
    let space = out.get_mut(prefix..).unwrap_or_default();
    let n = lz4_flex::block::decompress_into(compressed, space).map_err(|e| e.to_string())?;
    out.truncate(prefix + n);
    Ok(())
}

/// The codec named LZ4 was never specified; three ways of framing are in use.
fn lz4(compressed: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let prefix = out.len();
    let hadoop = lz4_hadoop(compressed, len, out);
    if hadoop.is_ok() && out.len() - prefix == len {
        return Ok(());
    }
    out.truncate(prefix);
    let frame = read(lz4_flex::frame::FrameDecoder::new(compressed), len, out);
    if frame.is_ok() && out.len() - prefix == len {
        return Ok(());
    }
    out.truncate(prefix);
    lz4_block(compressed, len, out)
}

/// Hadoop's frames: unpacked length, packed length (big-endian), raw block; again and again.
fn lz4_hadoop(mut compressed: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let mut left = len;
    while let Some((head, rest)) = compressed.split_first_chunk::<8>() {
        let [a, b, c, d, e, f, g, h] = *head;
        let unpacked = u32::from_be_bytes([a, b, c, d]) as usize;
        let packed = u32::from_be_bytes([e, f, g, h]) as usize;
        let (block, rest) = rest.split_at_checked(packed).ok_or("a frame behind the end")?;
        left = left.checked_sub(unpacked).ok_or("frames longer than the page")?;
        let before = out.len();
        lz4_block(block, unpacked, out)?;
        if out.len() - before != unpacked {
            return Err("a frame of another length".to_owned());
        }
        compressed = rest;
    }
    if compressed.is_empty() { Ok(()) } else { Err("bytes behind the last frame".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn hadoop(data: &[u8], frame: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for part in data.chunks(frame) {
            let block = lz4_flex::block::compress(part);
            out.extend((part.len() as u32).to_be_bytes());
            out.extend((block.len() as u32).to_be_bytes());
            out.extend(block);
        }
        out
    }

    fn gzip(data: &[u8], member: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for part in data.chunks(member) {
            let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
            encoder.write_all(part).unwrap();
            out = encoder.finish().unwrap();
        }
        out
    }

    /// `data` packed in every way that Parquet files hold.
    fn packed(data: &[u8]) -> Vec<(Compression, Vec<u8>)> {
        let mut brotli_out = Vec::new();
        brotli::CompressorWriter::new(&mut brotli_out, 4096, 3, 20).write_all(data).unwrap();
        let mut frame = lz4_flex::frame::FrameEncoder::new(Vec::new());
        frame.write_all(data).unwrap();
        let (a, b) = data.split_at(data.len() / 2);
        let zstd = |data| zstd::bulk::compress(data, 1).unwrap();
        vec![
            (Compression::UNCOMPRESSED, data.to_vec()),
            (Compression::SNAPPY, snap::raw::Encoder::new().compress_vec(data).unwrap()),
            (Compression::GZIP(Default::default()), gzip(data, usize::MAX)),
            (Compression::GZIP(Default::default()), gzip(data, 1000)),
            (Compression::BROTLI(Default::default()), brotli_out),
            (Compression::ZSTD(Default::default()), zstd(data)),
            (Compression::ZSTD(Default::default()), [zstd(a), zstd(b)].concat()),
            (Compression::LZ4, hadoop(data, usize::MAX)),
            (Compression::LZ4, hadoop(data, 700)),
            (Compression::LZ4, frame.finish().unwrap()),
            (Compression::LZ4, lz4_flex::block::compress(data)),
            (Compression::LZ4_RAW, lz4_flex::block::compress(data)),
        ]
    }

    fn samples() -> Vec<Vec<u8>> {
        let mut state = 7_u32;
        let noise = (0..5000).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        vec![
            vec![1],
            vec![0; 300_000],
            (0..4000_u32).map(|i| (i / 7) as u8).collect(),
            noise.collect(),
        ]
    }

    #[test]
    fn every_codec_gives_back_what_was_packed() {
        for data in samples() {
            for (way, (codec, bytes)) in packed(&data).into_iter().enumerate() {
                let got = decompress(codec, &bytes, data.len());
                assert!(got.unwrap_or_else(|e| panic!("{way} {e}")) == data, "{way} {codec:?}");
                let mut out = b"levels".to_vec();
                decompress_into(codec, &bytes, data.len(), &mut out).unwrap();
                assert!(out[..6] == *b"levels" && out[6..] == data, "{way} {codec:?}");
            }
        }
    }

    #[test]
    fn any_other_length_is_corrupt() {
        for data in samples() {
            for (way, (codec, bytes)) in packed(&data).into_iter().enumerate() {
                for len in [data.len() - 1, data.len() + 1, data.len() * 2 + 70, PAGE_BYTES_MAX] {
                    if len == 0 {
                        continue;
                    }
                    let e = decompress(codec, &bytes, len).unwrap_err();
                    assert_eq!(e.kind(), Kind::CorruptSource, "{way} {codec:?} {len}");
                }
            }
        }
    }

    #[test]
    fn empty_pages_need_no_bytes() {
        for (codec, _) in packed(b"x") {
            assert!(decompress(codec, b"", 0).unwrap().is_empty());
        }
        assert!(decompress(Compression::UNCOMPRESSED, b"x", 0).is_err());
    }

    #[test]
    fn what_is_too_large_or_unknown_says_so() {
        let e = decompress(Compression::SNAPPY, b"", PAGE_BYTES_MAX + 1).unwrap_err();
        assert_eq!(e.kind(), Kind::MemoryLimit);
        assert_eq!(decompress(Compression::LZO, b"x", 1).unwrap_err().kind(), Kind::Unsupported);
    }

    proptest! {
        #[test]
        fn damaged_bytes_never_panic(way in 0..12_usize, at: usize, byte: u8, cut: usize) {
            let data: Vec<u8> = (0..2000_u32).map(|i| (i * i / 9) as u8).collect();
            let (codec, mut bytes) = packed(&data).swap_remove(way);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = decompress(codec, &bytes, data.len());
            bytes.truncate(cut % bytes.len());
            let _ = decompress(codec, &bytes, data.len());
        }
    }
}
