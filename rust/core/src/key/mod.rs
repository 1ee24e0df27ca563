//! Keys: the declared order of rows, as bytes that `memcmp` orders the same way.
//!
//! ```text
//! "service, -ts" ─ SortOrder ─┬─ KeyShape ── encode ──> Keys ──> who is next, ranges, cuts
//!   types from the schema ────┘      └────── decode <──┘
//! ```
//!
//! # Invariants
//! `a < b` in the declared order if and only if `encode(a) < encode(b)`; equal likewise; `decode`
//! undoes `encode`. The bytes outlive the process: `docs/formats/key.md` draws them.
//!
//! # Not here
//! Resolving names against a schema (`schema`); reading key columns (`plait_parquet`).

mod arrow;
mod column;
mod coordinate;
mod curve;
mod curve_decode;
mod curve_encode;
mod curve_index;
mod decode;
mod decode_arrow;
mod encode;
mod field;
mod hilbert;
mod keys;
mod literal;
mod number;
mod order;
mod quickwit;
mod range;
mod ranks;
mod shape;
mod shown;
mod sort_column;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod values;

pub use arrow::encode_arrow;
pub use curve::{Curve, CurveKind};
pub use decode::decode;
pub use decode_arrow::decode_arrow;
pub use encode::{Packing, encode};
pub use field::KeyValue;
pub(crate) use keys::pack;
pub use keys::{KeyBytes, Keys};
pub(crate) use literal::{Place, literal, place};
pub use number::{numbers, numbers_at};
pub use order::SortOrder;
pub use range::{prefix_len, successor};
pub use ranks::{RankOf, Ranks};
pub use shape::{KeyColumn, KeyShape, KeyType};
pub use shown::{ShownAs, ShownValue};
pub use sort_column::{Nulls, SortColumn};
pub use text::{render, shown_cut, shown_values};
pub use values::{Column, Values};
