//! The flag by which a caller stops a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plait_core::{Error, Kind, Result};

/// Set by the caller's thread, read by the engine's before every page or batch.
#[derive(Clone, Default)]
pub(super) struct Cancel {
    is_set: Arc<AtomicBool>,
    /// The flag of the call, if this is that of a part of it.
    call: Option<Arc<AtomicBool>>,
}

impl Cancel {
    /// A flag that stops a part of the call, as that of the call does.
    pub(super) fn part(&self) -> Self {
        Self { is_set: Arc::default(), call: Some(Arc::clone(&self.is_set)) }
    }

    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
    }

    /// Fails once [`set`](Self::set) was called.
    ///
    /// # Errors
    /// [`Kind::Cancelled`].
    pub(super) fn check(&self) -> Result<()> {
        let call = self.call.as_ref().is_some_and(|call| call.load(Ordering::Relaxed));
        if call || self.is_set.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Cancelled, "stopped at the caller's request")
                .with_hint("nothing was published and no source was changed"));
        }
        Ok(())
    }
}
