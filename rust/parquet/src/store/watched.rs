//! Reads of the sources of a call: they are counted, and tests make them fail.
//!
//! # Invariants
//! A read is counted once, whoever serves it.
//!
//! # Cost
//! Eight bytes for a local file, which counts its own reads: there may be a million.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use plait_core::{Error, Kind, Result};

use super::reader::{ObjectVersion, RangeReader};
use crate::runtime::Context;

/// The call whose reads are counted.
pub(super) struct Watch(Context);

impl Watch {
    pub(super) fn of(context: &Context) -> Self {
        Self(context.clone())
    }

    /// Counts a read of `range`.
    ///
    /// # Errors
    /// [`Kind::Storage`] where a test wants one.
    pub(super) fn read(&self, range: &Range<u64>, path: &str) -> Result<()> {
        self.0.faults().check("read").map_err(|e| {
            Error::new(Kind::Storage, "cannot read a source").with_path(path).with_cause(e)
        })?;
        self.0.counters().add_read(range.end.saturating_sub(range.start));
        Ok(())
    }
}

/// A reader whose reads are counted.
pub(super) struct Watched {
    pub(super) inner: Arc<dyn RangeReader>,
    pub(super) watch: Watch,
}

impl RangeReader for Watched {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.watch.read(&range, self.path())?;
        self.inner.read(range)
    }

    fn read_and_keep(&self, range: Range<u64>) -> Result<Bytes> {
        self.watch.read(&range, self.path())?;
        self.inner.read_and_keep(range)
    }

    fn takes_hints(&self) -> bool {
        self.inner.takes_hints()
    }

    fn will_read(&self, range: Range<u64>, end: u64) {
        self.inner.will_read(range, end);
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.watch.read(&(offset..offset.saturating_add(out.len() as u64)), self.path())?;
        self.inner.read_into(offset, out)
    }

    fn check_unchanged(&self) -> Result<()> {
        self.inner.check_unchanged()
    }

    fn version(&self) -> Option<String> {
        self.inner.version()
    }

    fn written_at(&self) -> Option<SystemTime> {
        self.inner.written_at()
    }

    fn footer_bytes(&self) -> Option<u64> {
        self.inner.footer_bytes()
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }

    fn object(&self) -> Option<ObjectVersion> {
        self.inner.object()
    }
}
