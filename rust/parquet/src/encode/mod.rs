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
//! page that stays as it is, taken over from its source's index. A chunk has at most one dictionary, in front.
//!
//! # Cost
//! One page under construction, and the packed chunk.
//!
//! # Not here
//! Delta and byte-stream-split pages: the parquet crate's writer makes them (`weave`).

mod body;
pub mod bounds;
pub mod buffer;
pub mod chunk;
pub mod facts;
pub mod floats;
pub mod foreign;
pub mod ids;
pub mod index;
pub mod pack;
mod packed;
pub mod recount;
pub mod statistics;

pub use buffer::PageBuffer;
pub use chunk::{Chunk, ChunkWriter};
