//! Errors of stores on their way through the parquet crate's Arrow reader, which keeps their text
//! only.
//!
//! # Not here
//! Errors that keep their class on the way (`wrap_error`, `unwrap_error`).

use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;
use plait_core::{Error, Kind};

use super::unwrap_error;
use crate::guard::{WIDE_DELTAS, has_wide_deltas};

/// What a store said last; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Option<Error>>>);

impl Kept {
    /// Keeps `error` and gives one that the parquet crate takes.
    pub(crate) fn keep(&self, error: Error) -> ParquetError {
        let text = error.to_string();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        ParquetError::General(text)
    }

    /// What is behind `error`: the kept one, Plait's own inside of it, or damage.
    pub(crate) fn explain(&self, error: ArrowError) -> Error {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (kept, error) {
            (Some(kept), _) => kept,
            (None, ArrowError::ExternalError(inner)) => unwrap_error(ParquetError::External(inner)),
            (None, error) => {
                let is_wide = has_wide_deltas(&error.to_string());
                let error =
                    Error::new(Kind::CorruptSource, "bytes cannot be decoded").with_cause(error);
                if is_wide { error.with_hint(WIDE_DELTAS) } else { error }
            }
        }
    }
}
