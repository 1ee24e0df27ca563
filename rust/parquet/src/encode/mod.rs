//! Makes the pages of a column chunk: levels, values or ids, packed, with everything the footer and
//! the indexes say about them.
//!
//! ```text
//! weave ─▶ PageBuffer ─ full ─▶ encode ─▶ pack (codec) ─┐
//! weave ─▶ page as it is stored ────────────────────────┴▶ ChunkWriter ─▶ Chunk
//! ```
//!
//! # Invariants
//! Bounds, null counts, histograms and row counts are those of what is in a page: counted, or for a
//! page that stays as it is, taken over from its source's index. A chunk has at most one
//! dictionary, in front.
//!
//! # Cost
//! One page under construction, and the packed chunk.
//!
//! # Not here
//! Chunks that the parquet crate's writer makes as a whole (`weave`).

mod body;
pub(crate) mod bounds;
pub(crate) mod buffer;
pub(crate) mod chunk;
pub(crate) mod facts;
pub(crate) mod floats;
pub(crate) mod foreign;
pub(crate) mod id_runs;
pub(crate) mod ids;
pub(crate) mod index;
pub(crate) mod pack;
mod packed;
pub(crate) mod recount;
pub(crate) mod statistics;
pub(crate) mod values;

pub(crate) use buffer::PageBuffer;
pub(crate) use chunk::Chunk;
