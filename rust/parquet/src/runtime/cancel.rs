//! The flag by which a caller stops a call.

use std::sync::atomic::{AtomicBool, Ordering};

use plait_core::{Error, Kind, Result};

/// Set by the caller's thread, read by the engine's before every page or batch.
#[derive(Default)]
pub(super) struct Cancel(AtomicBool);

impl Cancel {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails once [`set`](Self::set) was called.
    ///
    /// # Errors
    /// [`Kind::Cancelled`].
    pub(super) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Cancelled, "stopped at the caller's request")
                .with_hint("nothing was published and no source was changed"));
        }
        Ok(())
    }
}
