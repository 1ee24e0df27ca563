//! The sources of a plan, packed: there may be a million of them.
//!
//! ```text
//! sources   0 … 255      256 … 511    512 … 600
//!           compressed   compressed   text          JSON, a line each
//! ```
//!
//! # Invariants
//! Sources come back as they were pushed, in that order. Blocks that come from elsewhere are read
//! when the plan is checked.
//!
//! # Cost
//! About 100 bytes a source, a sixth of its text; unpacking one unpacks its block, 0.1 ms.
//!
//! # Not here
//! What a source is (`value`).

use std::fmt;
use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use plait_core::{Error, Kind, Result};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::planned_source::PlanSource;

/// Sources of a block.
const BLOCK_SOURCES: usize = 256;

/// Bytes of a block once it is unpacked, at most: a path has less than 64 KiB.
const BLOCK_BYTES_MAX: u64 = 256 << 20;

/// The sources of a plan, in the order that breaks ties.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct PlanSources {
    /// Whole blocks, compressed by zlib, which Python reads without an extension.
    blocks: Vec<Box<[u8]>>,
    /// The lines of the last block.
    last: String,
    len: usize,
}

/// Reads sources one by one.
pub(crate) struct SourceReader<'a> {
    sources: &'a PlanSources,
    /// The block that is unpacked, and where its lines begin.
    block: usize,
    text: String,
    starts: Vec<usize>,
}

/// How many sources blocks have.
#[derive(Serialize)]
pub(super) struct BlockCounts {
    /// All together, and each but the last.
    len: usize,
    each: usize,
}

impl PlanSources {
    /// How many there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All of them, unpacked one by one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<PlanSource>> + '_ {
        let mut reader = self.reader();
        (0..self.len).map(move |i| reader.get(i))
    }

    /// Appends a source.
    ///
    /// # Errors
    /// None that is known.
    pub(super) fn push(&mut self, source: &PlanSource) -> Result<()> {
        if self.len > 0 && self.len.is_multiple_of(BLOCK_SOURCES) {
            self.blocks.push(pack(&self.last)?.into());
            self.last.clear();
        }
        self.last.push_str(&super::planned_source::written(source)?);
        self.last.push('\n');
        self.len += 1;
        Ok(())
    }

    /// Reads single sources.
    pub(crate) fn reader(&self) -> SourceReader<'_> {
        let (text, starts) = (String::new(), Vec::new());
        SourceReader { sources: self, block: usize::MAX, text, starts }
    }

    /// All blocks, packed, which Python unpacks.
    ///
    /// # Errors
    /// None that is known.
    pub(super) fn into_blocks(mut self) -> Result<(BlockCounts, Vec<Box<[u8]>>)> {
        if !self.last.is_empty() {
            self.blocks.push(pack(&self.last)?.into());
        }
        Ok((BlockCounts { len: self.len, each: BLOCK_SOURCES }, self.blocks))
    }

    /// Those of `packed`, which may be of another origin.
    fn unpacked(len: usize, each: usize, blocks: &[String]) -> Result<Self> {
        if each != BLOCK_SOURCES || blocks.len() != len.div_ceil(BLOCK_SOURCES) {
            return Err(damaged("blocks of another size"));
        }
        let mut bytes = Vec::with_capacity(blocks.len());
        for block in blocks {
            bytes
                .push(BASE64.decode(block).map_err(|e| damaged("no base64").with_cause(e))?.into());
        }
        let last: Option<Box<[u8]>> = bytes.pop();
        let last = last.map_or_else(|| Ok(String::new()), |block| unpack(&block))?;
        Ok(Self { blocks: bytes, last, len })
    }
}

impl SourceReader<'_> {
    /// The source at `index`.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for sources of a plan from elsewhere that cannot be unpacked, and
    /// for an index that is not less than their number.
    pub(crate) fn get(&mut self, index: usize) -> Result<PlanSource> {
        let (block, line) = (index / BLOCK_SOURCES, index % BLOCK_SOURCES);
        if index >= self.sources.len {
            return Err(damaged("no such source"));
        }
        if block != self.block {
            self.text.clear();
            match self.sources.blocks.get(block) {
                Some(packed) => self.text = unpack(packed)?,
                None => self.text.push_str(&self.sources.last),
            }
            self.starts.clear();
            self.starts.push(0);
            self.starts.extend(self.text.match_indices('\n').map(|(at, _)| at + 1));
            self.block = block;
        }
        let bounds = (self.starts.get(line), self.starts.get(line + 1));
        let text = match bounds {
            (Some(start), Some(end)) => self.text.get(*start..*end),
            _ => None,
        };
        let text = text.ok_or_else(|| damaged("a block with fewer sources"))?;
        serde_json::from_str(text).map_err(|e| damaged("no source").with_cause(e))
    }
}

fn pack(text: &str) -> Result<Vec<u8>> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    let written = packed.write_all(text.as_bytes()).and_then(|()| packed.finish());
    written.map_err(|e| Error::new(Kind::Internal, "cannot pack the plan").with_cause(e))
}

fn unpack(packed: &[u8]) -> Result<String> {
    let mut text = String::new();
    let mut unpacked = ZlibDecoder::new(packed).take(BLOCK_BYTES_MAX);
    match unpacked.read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(e) => Err(damaged("a damaged block").with_cause(e)),
    }
}

fn damaged(got: &str) -> Error {
    Error::new(Kind::InvalidArgument, "cannot read the sources of the plan")
        .with_got(got)
        .with_hint("plan the merge again")
}

impl fmt::Debug for PlanSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A list of sources.
impl Serialize for PlanSources {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(Some(self.len))?;
        for source in self.iter() {
            list.serialize_element(&source.map_err(serde::ser::Error::custom)?)?;
        }
        list.end()
    }
}

/// A list of sources, or what [`PlanSources::into_blocks`] gives, with blocks as base64.
impl<'de> Deserialize<'de> for PlanSources {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SourcesVisitor)
    }
}

struct SourcesVisitor;

impl<'de> Visitor<'de> for SourcesVisitor {
    type Value = PlanSources;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of sources")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PlanSources, A::Error> {
        let mut sources = PlanSources::default();
        while let Some(source) = list.next_element::<PlanSource>()? {
            sources.push(&source).map_err(serde::de::Error::custom)?;
        }
        Ok(sources)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PlanSources, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Packed {
            len: usize,
            each: usize,
            blocks: Vec<String>,
        }
        let packed = Packed::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        PlanSources::unpacked(packed.len, packed.each, &packed.blocks)
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn source(i: usize) -> PlanSource {
        let text = format!(
            r#"{{"path": "folder/{i}\n.parquet", "rows": {i}, "bytes": 7, "row_groups": 1,
                "footer": "{i:064x}", "stamp": null, "merge_level": 0, "first": null,
                "last": null, "keys_from": "rows", "key_min": [], "key_max": []}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn sources(count: usize) -> PlanSources {
        let mut sources = PlanSources::default();
        (0..count).for_each(|i| sources.push(&source(i)).unwrap());
        sources
    }

    #[derive(Serialize)]
    struct SentBlocks {
        len: usize,
        each: usize,
        blocks: Vec<String>,
    }

    /// What Python sends back of `sources`, after a change.
    fn blocks_json(sources: &PlanSources, change: impl Fn(&mut SentBlocks)) -> String {
        let (BlockCounts { len, each }, blocks) = sources.clone().into_blocks().unwrap();
        let blocks = blocks.iter().map(|block| BASE64.encode(block)).collect();
        let mut packed = SentBlocks { len, each, blocks };
        change(&mut packed);
        serde_json::to_string(&packed).unwrap()
    }

    #[test]
    fn sources_come_back_in_their_order() {
        for count in [0, 1, 255, 256, 257, 512, 1000] {
            let packed = sources(count);
            let back: Vec<PlanSource> = packed.iter().collect::<Result<_>>().unwrap();
            assert_eq!(back, (0..count).map(source).collect::<Vec<_>>());
            let mut reader = packed.reader();
            for i in (0..count).rev().step_by(7) {
                assert_eq!(reader.get(i).unwrap(), source(i));
            }
            assert!(reader.get(count).is_err());
        }
    }

    #[test]
    fn both_forms_of_json_are_read() {
        for count in [0, 3, 256, 600] {
            let packed = sources(count);
            for text in [serde_json::to_string(&packed).unwrap(), blocks_json(&packed, |_| ())] {
                assert!(serde_json::from_str::<PlanSources>(&text).unwrap() == packed, "{count}");
            }
        }
    }

    #[test]
    fn damaged_blocks_are_named() {
        let packed = sources(600);
        let read = |change: &dyn Fn(&mut SentBlocks)| {
            let text = blocks_json(&packed, change);
            let read: PlanSources = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            read.iter().collect::<Result<Vec<_>>>().map_err(|e| e.to_string())
        };
        assert_eq!(read(&|_| ()).unwrap().len(), 600);
        let changes: [&dyn Fn(&mut SentBlocks); 6] = [
            &|packed| packed.len = 601,
            &|packed| packed.len = 700,
            &|packed| packed.each = 255,
            &|packed| packed.blocks[0].truncate(40),
            &|packed| packed.blocks.swap(0, 2),
            &|packed| packed.blocks[1].push('?'),
        ];
        for (i, change) in changes.into_iter().enumerate() {
            assert!(read(change).unwrap_err().contains("sources of the plan"), "{i}");
        }
    }
}
