//! Where sources and outputs lie: local files and object stores.
//!
//! ```text
//! patterns ── list ──▶ locations ── open ──▶ RangeReader ── read(range) ──▶ Bytes
//!   dir/  *.parquet  s3://b/p/*.parquet        ├─ prefetched.rs  what was read of it before
//!                                              ├─ local.rs     positioned reads
//!                                              └─ object.rs    ranged reads, joined by coalesce.rs
//!                                                   └─ Bucket ─┬─ remote.rs  S3, GCS, Azure, HTTP
//!                                                              └─ the caller's own (obstore, fsspec)
//! ```
//!
//! # Invariants
//! Only this module opens files for reading. A read returns exactly the bytes asked for or an
//! error; nothing is allocated before the range was checked against the length.
//!
//! # Cost
//! One system call or one request a read.
//!
//! # Not here
//! What the bytes mean (`source`, `page`); names of outputs and when they appear (`output`).

mod arrivals;
mod azure;
mod bucket;
mod coalesce;
mod copied;
mod credentials;
mod descriptors;
mod driver;
pub(crate) mod exchange;
mod failed;
mod foreign;
mod list;
mod live;
mod local;
mod moved;
mod object;
mod prefetched;
mod reader;
mod registry;
mod remote;
pub(crate) mod root;
mod s3;
pub(crate) mod same;
mod settings;
mod stored_blocks;
pub(crate) mod table;
pub(crate) mod temp;
mod upload;
mod urls;
mod watched;
mod window_blocks;
mod window_cache;
mod window_file;
mod windows;
mod wire;

pub(crate) use bucket::Place;
pub use bucket::{Bucket, Completed, Meta, Upload};
pub(crate) use coalesce::TAIL_BYTES;
pub(crate) use foreign::{ForeignTable, check_root, tables_of};
pub(crate) use list::{Wanted, is_text_name};
pub(crate) use local::{read_exact_at, write_all_at};
pub use prefetched::Prefetched;
pub(crate) use prefetched::RecordingReader;
#[cfg(test)]
pub(crate) use reader::check_range;
pub(crate) use reader::{ObjectVersion, RangeReader, is_denied};
pub use registry::Stores;
pub(crate) use registry::{Location, open_local};
pub use root::Found;
pub(crate) use stored_blocks::{StoredBlocks, StoredBytes};
