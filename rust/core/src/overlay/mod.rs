//! Layers joined by position: every leaf comes whole from the layer that owns it.
//!
//! ```text
//! base       _index │ a{x y} │ b          owns a, b         ┐ row i of one layer
//! override   _index │ a{y}                owns a.y          ┘ is row i of every other
//!                │      │
//! output     _index │ a{x y'} │ b         x, b of base; y' of override
//! ```
//!
//! # Invariants
//! Who supplies what follows from paths and schemas alone, before a row is read ([`Plan`]). Rows of
//! all layers have the same index values, element by element, or the overlay fails; there is no
//! fallback. A value under a null parent of its own layer never shows. Value buffers are shared with
//! the layers; they are copied only where one output batch spans several batches of a layer.
//!
//! # Cost
//! Per output batch: a comparison of index values, pointers per leaf, one bitmap per combined struct
//! and one per leaf that has nulls of its own under a parent with nulls. One batch of every layer is
//! held.
//!
//! # Not here
//! Files (`plait_parquet::overlay`); joins by key, of which there are none.

mod combine;
mod declared;
mod drift;
mod feed;
mod layer;
mod mask;
mod node;
mod path;
mod plan;
mod resolve;
mod stream;

pub use drift::common_schema;
pub use feed::Reader;
pub use layer::{LayerSpec, StructValidity};
pub use node::{Node, Supply};
pub use path::FieldPath;
pub use plan::{Mark, OverlayRules, Plan};
pub use stream::Overlay;

/// Field metadata that marks the index column: key and value.
const INDEX_MARK: (&str, &str) = ("plait.index", "true");

/// Name of the index column where none is marked.
const INDEX_NAME: &str = "_index";
