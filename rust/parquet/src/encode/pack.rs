//! Packs the body of a page: the mirror of `page::codec`.
//!
//! ```text
//! zstd, level not fixed    beginning of a page of a leaf, packed in four to eight ways ─▶ the
//!                          fastest that is within 4 % of the smallest (or the smallest, if sizes
//!                          are what counts) is kept for the leaf
//! ```
//!
//! # Invariants
//! The way of a leaf is chosen once, on the first page worth it, so that it depends on the data and
//! not on threads. Every way writes frames that any ZSTD reads.
//!
//! # Cost
//! One context a thread for ZSTD. A leaf packs 128 kB four to eight times more than it would have
//! to.
//!
//! # Not here
//! Unpacking (`page::codec`).

use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

use parquet::basic::Compression;
use plait_core::{Error, Kind, Result};
use zstd::zstd_safe::CParameter;

use crate::properties::ZSTD_LEVEL;

/// How ZSTD packs: a level, and what differs from it. Zero is what the level has.
///
/// See [`ZSTD_compressionParameters`](https://facebook.github.io/zstd/doc/api_manual_latest.html).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zstd {
    level: i32,
    /// Binary logarithm of the slots of the hash table in which matches are found.
    hash_log: u32,
    /// Binary logarithm of the slots of a second table, if the level has one.
    chain_log: u32,
    /// Bytes of a match, at least.
    min_match: u32,
}

impl Zstd {
    /// What `level` is for the length of each page.
    pub(crate) const fn level(level: i32) -> Self {
        Self { level, hash_log: 0, chain_log: 0, min_match: 0 }
    }

    const fn literals_as_they_are() -> Self {
        Self { level: -1, hash_log: 13, chain_log: 0, min_match: 6 }
    }

    const fn one_table(hash_log: u32, min_match: u32) -> Self {
        Self { level: 1, hash_log, chain_log: 0, min_match }
    }

    const fn two_tables(hash_log: u32) -> Self {
        Self { level: 3, hash_log, chain_log: hash_log - 1, min_match: 5 }
    }
}

/// Ways that find few matches, fastest first.
///
/// - Level -1 has no Huffman codes. It gives up on what hardly shrinks, such as numbers of full
///   precision: packing these is seven times as fast then, and unpacking twenty times.
/// - Tables of 64 and 256 slots. Random text, and integers of which two or three bytes are random,
///   have short matches by chance, which cost time, and more bytes than Huffman codes.
const FEW_MATCHES: [Zstd; 3] =
    [Zstd::literals_as_they_are(), Zstd::one_table(6, 7), Zstd::one_table(8, 6)];

/// Ways that find many, fastest first. Two tables find longer matches as well.
const MANY_MATCHES: [Zstd; 5] = [
    Zstd::one_table(13, 5),
    Zstd::one_table(14, 6),
    Zstd::one_table(16, 6),
    Zstd::two_tables(14),
    Zstd::two_tables(16),
];

/// The way that tells whether matches are worth finding.
const PROBE: Zstd = MANY_MATCHES[3];

/// A page smaller than this tells nothing about a leaf.
const TRIAL_BYTES_MIN: usize = 32 << 10;

/// How much of a page is tried.
const TRIAL_BYTES_MAX: usize = 128 << 10;

/// What a faster way may be larger than the smallest.
const SLACK: f64 = 1.04;

/// Which way of ZSTD suits a leaf: found on its first page worth it.
#[derive(Debug)]
pub(crate) struct ZstdTrial {
    slack: f64,
    chosen: OnceLock<Zstd>,
}

impl ZstdTrial {
    /// A trial that prefers faster ways, unless the `smallest` is asked for.
    #[must_use]
    pub(crate) fn new(smallest: bool) -> Self {
        Self { slack: if smallest { 1.0 } else { SLACK }, chosen: OnceLock::new() }
    }
}

/// A codec and how it packs, of which ZSTD has more than the parquet crate's type knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// ZSTD in this way.
    Zstd(Zstd),
    /// Another one.
    Other(Compression),
}

impl From<Compression> for Codec {
    fn from(codec: Compression) -> Self {
        match codec {
            Compression::ZSTD(level) => Self::Zstd(Zstd::level(level.compression_level())),
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
            Codec::Zstd(way) => self.zstd(way, body, out),
            Codec::Other(other) => pack_others(other, body, out),
        }
    }

    /// The codec for a leaf whose first page is `body`, as `trial` found or finds.
    ///
    /// # Errors
    /// As [`pack`](Self::pack).
    pub(crate) fn choose(&self, codec: Codec, trial: &ZstdTrial, body: &[u8]) -> Result<Codec> {
        let Codec::Zstd(_) = codec else { return Ok(codec) };
        Ok(match trial.chosen.get() {
            Some(way) => Codec::Zstd(*way),
            None if body.len() < TRIAL_BYTES_MIN => codec,
            None => {
                let way = self.try_all(&body[..body.len().min(TRIAL_BYTES_MAX)], trial.slack)?;
                Codec::Zstd(*trial.chosen.get_or_init(|| way))
            }
        })
    }

    /// Bytes of `body`, packed: those that tell which of several encodings is smaller.
    ///
    /// # Errors
    /// As [`pack`](Self::pack).
    pub(crate) fn probe(&self, codec: Codec, body: &[u8]) -> Result<usize> {
        match codec {
            Codec::Zstd(_) => {
                let few = self.packed_len(Codec::Zstd(FEW_MATCHES[1]), body)?;
                Ok(few.min(self.packed_len(Codec::Zstd(PROBE), body)?))
            }
            Codec::Other(_) => self.packed_len(codec, body),
        }
    }

    fn packed_len(&self, codec: Codec, body: &[u8]) -> Result<usize> {
        let mut packed = Vec::new();
        self.pack(codec, body, &mut packed)?;
        Ok(packed.len())
    }

    fn try_all(&self, body: &[u8], slack: f64) -> Result<Zstd> {
        let len = |way| self.packed_len(Codec::Zstd(way), body);
        let mut tries = Vec::new();
        for way in FEW_MATCHES {
            tries.push((way, len(way)?));
        }
        let least = |tries: &[(Zstd, usize)]| tries.iter().map(|(_, len)| *len).min().unwrap_or(0);
        let probed = len(PROBE)?;
        if probed < least(&tries) {
            for way in MANY_MATCHES {
                tries.push((way, if way == PROBE { probed } else { len(way)? }));
            }
        }
        let enough = least(&tries) as f64 * slack;
        let good = tries.iter().find(|(_, len)| *len as f64 <= enough);
        Ok(good.map_or(Zstd::level(ZSTD_LEVEL), |(way, _)| *way))
    }

    fn zstd(&self, way: Zstd, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let held = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = held().pop();
        let mut packer = match idle {
            Some(packer) => packer,
            None => zstd::bulk::Compressor::new(way.level).map_err(|e| failed("ZSTD", e))?,
        };
        for parameter in [
            CParameter::CompressionLevel(way.level),
            CParameter::HashLog(way.hash_log),
            CParameter::ChainLog(way.chain_log),
            CParameter::MinMatch(way.min_match),
        ] {
            packer.set_parameter(parameter).map_err(|e| failed("ZSTD", e))?;
        }
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
    fn the_way_is_chosen_once_and_costs_little() {
        let packers = Packers::default();
        let trial = ZstdTrial::new(false);
        let codec = Codec::Zstd(Zstd::level(3));
        assert_eq!(packers.choose(codec, &trial, &text(100)).unwrap(), codec);
        assert_eq!(trial.chosen.get(), None, "too small to tell");
        let body = text(200_000);
        let best = packers.choose(codec, &trial, &body).unwrap();
        let mut packed = Vec::new();
        packers.pack(best, &body, &mut packed).unwrap();
        for way in FEW_MATCHES.into_iter().chain(MANY_MATCHES) {
            let mut rival = Vec::new();
            packers.zstd(way, &body, &mut rival).unwrap();
            assert!(packed.len() as f64 <= rival.len() as f64 * SLACK, "{best:?} against {way:?}");
        }
        assert_eq!(packers.choose(codec, &trial, &[]).unwrap(), best, "kept");
    }

    #[test]
    fn the_smallest_way_is_chosen_where_it_is_asked_for() {
        let mut state = 1_u64;
        let mut words = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!(
                "{} of {}, ",
                ["merge", "overlay", "scan"][(state >> 60) as usize % 3],
                state >> 55
            )
        };
        let body: Vec<u8> = (0..20_000).flat_map(|_| words().into_bytes()).collect();
        let (packers, codec) = (Packers::default(), Codec::Zstd(Zstd::level(3)));
        let size = |smallest| {
            let best = packers.choose(codec, &ZstdTrial::new(smallest), &body).unwrap();
            packers.packed_len(best, &body[..TRIAL_BYTES_MAX]).unwrap()
        };
        let all = FEW_MATCHES.into_iter().chain(MANY_MATCHES);
        let sizes =
            all.map(|way| packers.packed_len(Codec::Zstd(way), &body[..TRIAL_BYTES_MAX]).unwrap());
        assert_eq!(size(true), sizes.min().unwrap());
        assert!(size(true) < size(false), "a faster way is a little larger");
    }

    #[test]
    fn matches_by_chance_are_not_written() {
        let mut state = 1_u64;
        let mut id = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 44
        };
        let body: Vec<u8> = (0..20_000).flat_map(|_| id().to_le_bytes()).collect();
        let packers = Packers::default();
        let best =
            packers.choose(Codec::Zstd(Zstd::level(3)), &ZstdTrial::new(false), &body).unwrap();
        let mut packed = Vec::new();
        packers.pack(best, &body, &mut packed).unwrap();
        for level in [-1, 1, 2, 3] {
            let mut rival = Vec::new();
            packers.zstd(Zstd::level(level), &body, &mut rival).unwrap();
            assert!(packed.len() * 20 < rival.len() * 19, "{best:?} against level {level}");
        }
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
            let best =
                packers.choose(Codec::Zstd(Zstd::level(3)), &ZstdTrial::new(false), &body).unwrap();
            let mut packed = Vec::new();
            packers.pack(best, &body, &mut packed).unwrap();
            assert_eq!(packed.len() < body.len() / 2, expected, "{best:?}");
            let codec = Compression::ZSTD(ZstdLevel::default());
            assert_eq!(decompress(codec, &packed, body.len()).unwrap(), body);
        }
    }
}
