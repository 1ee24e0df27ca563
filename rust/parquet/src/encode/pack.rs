//! Packs the body of a page: the mirror of `page::codec`.
//!
//! ```text
//! zstd, level not fixed    beginning of the first page of a leaf with levels -1, 1, 2, 3 ─▶ the
//!                          fastest that is within 4 % of the smallest is kept for the leaf
//! ```
//!
//! # Invariants
//! The level of a leaf is chosen once, on the first page worth it, so that it depends on the data
//! and not on threads.
//!
//! # Cost
//! One context a thread for ZSTD. A leaf packs 320 kB four times more than it would have to.
//!
//! # Not here
//! Unpacking (`page::codec`).

use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

use parquet::basic::Compression;
use plait_core::{Error, Kind, Result};

use crate::properties::ZSTD_LEVEL;

/// Levels that are tried, fastest first. The first gives up on what hardly shrinks, such as numbers
/// of full precision: packing these is seven times as fast then, and unpacking twenty times.
const TRIED_LEVELS: [i32; 4] = [-1, 1, 2, 3];

/// A page smaller than this tells nothing about a leaf.
const TRIAL_BYTES_MIN: usize = 32 << 10;

/// How much of a page is tried. ZSTD packs what is longer than 256 kB in the same way, whatever its
/// length; so this tells of whole pages.
const TRIAL_BYTES_MAX: usize = 320 << 10;

/// What a level may be larger than the smallest.
const SLACK: f64 = 1.04;

/// A codec with its level, of which ZSTD has more than the parquet crate's type knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// ZSTD with this level.
    Zstd(i32),
    /// Another one.
    Other(Compression),
}

impl From<Compression> for Codec {
    fn from(codec: Compression) -> Self {
        match codec {
            Compression::ZSTD(level) => Self::Zstd(level.compression_level()),
            other => Self::Other(other),
        }
    }
}

/// Contexts for packing that wait for their next use.
#[derive(Default)]
pub(crate) struct Packers(Mutex<Vec<zstd::bulk::Compressor<'static>>>);

impl Packers {
    /// Packs `body`, appending to `out`.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the codec fails, [`Kind::Unsupported`] for codecs that are only
    /// read.
    pub(crate) fn pack(&self, codec: Codec, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match codec {
            Codec::Zstd(level) => self.zstd(level, body, out),
            Codec::Other(other) => pack_others(other, body, out),
        }
    }

    /// The codec with the level for a leaf whose first page is `body`: the one in `chosen`, or one
    /// that is tried and kept there.
    ///
    /// # Errors
    /// As [`pack`](Self::pack).
    pub(crate) fn choose(
        &self,
        codec: Codec,
        chosen: &OnceLock<i32>,
        body: &[u8],
    ) -> Result<Codec> {
        let Codec::Zstd(_) = codec else { return Ok(codec) };
        Ok(match chosen.get() {
            Some(level) => Codec::Zstd(*level),
            None if body.len() < TRIAL_BYTES_MIN => codec,
            None => {
                let level = self.try_levels(&body[..body.len().min(TRIAL_BYTES_MAX)])?;
                Codec::Zstd(*chosen.get_or_init(|| level))
            }
        })
    }

    fn try_levels(&self, body: &[u8]) -> Result<i32> {
        let mut tries = Vec::new();
        for level in TRIED_LEVELS {
            let mut packed = Vec::new();
            self.zstd(level, body, &mut packed)?;
            tries.push((level, packed.len()));
        }
        let smallest = tries.iter().map(|(_, len)| *len).min().unwrap_or(0);
        let good = tries.iter().find(|(_, len)| *len as f64 <= smallest as f64 * SLACK);
        Ok(good.map_or(ZSTD_LEVEL, |(level, _)| *level))
    }

    fn zstd(&self, level: i32, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let held = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = held().pop();
        let mut packer = match idle {
            Some(packer) => packer,
            None => zstd::bulk::Compressor::new(level).map_err(|e| failed("ZSTD", e))?,
        };
        packer.set_compression_level(level).map_err(|e| failed("ZSTD", e))?;
        // Into the room of a vector, which is not zeroed first.
        let mut packed = Vec::with_capacity(zstd::zstd_safe::compress_bound(body.len()));
        let outcome = packer.compress_to_buffer(body, &mut packed);
        held().push(packer);
        outcome.map_err(|e| failed("ZSTD", e))?;
        out.extend_from_slice(&packed);
        Ok(())
    }
}

fn pack_others(codec: Compression, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
    match codec {
        Compression::UNCOMPRESSED => out.extend_from_slice(body),
        Compression::SNAPPY => {
            let prefix = out.len();
            out.resize(prefix + snap::raw::max_compress_len(body.len()), 0);
            let mut encoder = snap::raw::Encoder::new();
            let len =
                encoder.compress(body, &mut out[prefix..]).map_err(|e| failed("SNAPPY", e))?;
            out.truncate(prefix + len);
        }
        Compression::GZIP(level) => {
            let level = flate2::Compression::new(level.compression_level());
            let mut encoder = flate2::write::GzEncoder::new(&mut *out, level);
            encoder.write_all(body).map_err(|e| failed("GZIP", e))?;
            encoder.finish().map_err(|e| failed("GZIP", e))?;
        }
        Compression::BROTLI(level) => {
            let level = level.compression_level();
            let mut encoder = brotli::CompressorWriter::new(&mut *out, 4096, level, 22);
            encoder.write_all(body).map_err(|e| failed("BROTLI", e))?;
            encoder.flush().map_err(|e| failed("BROTLI", e))?;
            let _ = encoder.into_inner();
        }
        Compression::LZ4_RAW => {
            let prefix = out.len();
            out.resize(prefix + lz4_flex::block::get_maximum_output_size(body.len()), 0);
            let len = lz4_flex::block::compress_into(body, &mut out[prefix..])
                .map_err(|e| failed("LZ4_RAW", e))?;
            out.truncate(prefix + len);
        }
        Compression::LZ4 | Compression::LZO | Compression::ZSTD(_) => {
            return Err(
                Error::new(Kind::Unsupported, "codec is not written").with_got(codec.to_string())
            );
        }
    }
    Ok(())
}

fn failed(codec: &str, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(Kind::Internal, format!("page does not pack with {codec}")).with_cause(cause)
}

#[cfg(test)]
mod tests {
    use parquet::basic::{BrotliLevel, GzipLevel, ZstdLevel};

    use super::*;
    use crate::page::codec::decompress;

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|i| b"merge, don't re-sort "[i * i % 21]).collect()
    }

    #[test]
    fn every_codec_unpacks_what_it_packs() {
        let packers = Packers::default();
        for codec in [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::GZIP(GzipLevel::default()),
            Compression::BROTLI(BrotliLevel::default()),
            Compression::ZSTD(ZstdLevel::try_new(7).unwrap()),
            Compression::LZ4_RAW,
        ] {
            for len in [0, 1, 1000, 100_000] {
                let (body, mut packed) = (text(len), vec![9, 9]);
                packers.pack(codec.into(), &body, &mut packed).unwrap();
                let back = decompress(codec, &packed[2..], len).unwrap();
                assert_eq!(back, body, "{codec} {len}");
            }
        }
        let error =
            packers.pack(Codec::Other(Compression::LZO), &[1], &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
    }

    #[test]
    fn the_level_is_chosen_once_and_costs_little() {
        let packers = Packers::default();
        let chosen = OnceLock::new();
        let codec = Codec::Zstd(3);
        assert_eq!(packers.choose(codec, &chosen, &text(100)).unwrap(), codec);
        assert_eq!(chosen.get(), None, "too small to tell");
        let body = text(200_000);
        let best = packers.choose(codec, &chosen, &body).unwrap();
        let mut packed = Vec::new();
        packers.pack(best, &body, &mut packed).unwrap();
        for level in TRIED_LEVELS {
            let mut rival = Vec::new();
            packers.zstd(level, &body, &mut rival).unwrap();
            assert!(packed.len() as f64 <= rival.len() as f64 * SLACK, "{best:?} against {level}");
        }
        assert_eq!(packers.choose(codec, &chosen, &[]).unwrap(), best, "kept");
    }

    #[test]
    fn what_hardly_shrinks_is_hardly_packed() {
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Numbers between 1 and 2: full precision, one exponent.
            f64::from_bits(0x3ff << 52 | state >> 12)
        };
        let body: Vec<u8> = (0..20_000).flat_map(|_| noise().to_le_bytes()).collect();
        let packers = Packers::default();
        for (body, expected) in [(body, false), (text(200_000), true)] {
            let best = packers.choose(Codec::Zstd(3), &OnceLock::new(), &body).unwrap();
            let mut packed = Vec::new();
            packers.pack(best, &body, &mut packed).unwrap();
            assert_eq!(packed.len() < body.len() / 2, expected, "{best:?}");
            let codec = Compression::ZSTD(ZstdLevel::default());
            assert_eq!(decompress(codec, &packed, body.len()).unwrap(), body);
        }
    }
}
