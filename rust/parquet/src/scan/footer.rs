//! What a scan keeps of a file once its footer was read.
//!
//! # Not here
//! Reading it (`file`).

use std::time::SystemTime;

/// What resolving keeps of a file.
#[derive(Clone, Debug)]
pub(super) struct Footer {
    pub(super) rows: u64,
    /// Bytes of all values, unpacked.
    pub(super) data_bytes: u64,
    /// Names this version of the file.
    pub(super) hash: [u8; 16],
    /// Bytes of the file.
    pub(super) size: u64,
    /// When it was written, if the storage tells.
    pub(super) written_at: Option<SystemTime>,
}
