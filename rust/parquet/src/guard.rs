//! Decoders that may panic on hostile bytes, and the errors of the parquet crate as ours.
//!
//! # Invariants
//! A panic of a decoder becomes [`Kind::CorruptSource`]. Our errors pass through the parquet crate
//! unchanged.
//!
//! # Cost
//! A thread-local counter for each guarded call.

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;
use plait_core::{Error, Kind, Result};

thread_local! {
    static GUARDS: Cell<u32> = const { Cell::new(0) };
}

/// Runs code that may panic on hostile bytes.
///
/// # Errors
/// [`Kind::CorruptSource`] when it did panic.
pub fn guard<T>(f: impl FnOnce() -> T) -> Result<T> {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            GUARDS.set(GUARDS.get() - 1);
        }
    }
    GUARDS.set(GUARDS.get() + 1);
    let leave = Leave;
    let outcome = catch_unwind(AssertUnwindSafe(f));
    drop(leave);
    outcome.map_err(|payload| {
        Error::new(Kind::CorruptSource, "decoder rejected these bytes")
            .with_got(panic_message(&*payload).to_owned())
    })
}

/// Whether this thread is inside `guard`, where a panic becomes an error: panic hooks stay silent.
#[must_use]
pub fn guarding() -> bool {
    GUARDS.get() > 0
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}

/// Our error inside an error of the parquet crate, or the one that says the same.
#[must_use]
pub(crate) fn unwrap_error(e: ParquetError) -> Error {
    match e {
        ParquetError::External(inner) => match inner.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => match other.downcast::<io::Error>() {
                Ok(io) => unwrap_io_error(*io),
                Err(other) => {
                    Error::new(Kind::CorruptSource, "bytes cannot be decoded").with_cause(other)
                }
            },
        },
        ParquetError::NYI(what) => {
            Error::new(Kind::Unsupported, "encoding is not supported").with_got(what)
        }
        ParquetError::General(what) | ParquetError::EOF(what) | ParquetError::ArrowError(what) => {
            let is_wide = has_wide_deltas(&what);
            let error = Error::new(Kind::CorruptSource, "bytes cannot be decoded").with_got(what);
            if is_wide { error.with_hint(WIDE_DELTAS) } else { error }
        }
        e => Error::new(Kind::CorruptSource, "bytes cannot be decoded").with_cause(e),
    }
}

/// What to do about deltas that are wider than their column: DuckDB 2.0 writes them.
pub(crate) const WIDE_DELTAS: &str = "deltas of this column have more bits than its values, as some \
     versions of DuckDB write with parquet_version 'V2'; write the file again with 'V1'";

/// Whether the parquet crate says so.
pub(crate) fn has_wide_deltas(text: &str) -> bool {
    text.contains("'min_delta' too large") || text.contains("first value too large")
}

/// Gives our error back out of an I/O error. Sources are read through `store`, whose errors are
/// ours: what remains comes from writing.
pub(crate) fn unwrap_io_error(e: io::Error) -> Error {
    let hint = match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space; nothing was published and no source was changed"
        }
        _ => "nothing was published and no source was changed",
    };
    match e.downcast::<Error>() {
        Ok(ours) => ours,
        Err(e) => Error::new(Kind::Storage, "cannot write an output").with_hint(hint).with_cause(e),
    }
}

/// Our error as one of the parquet crate; [`unwrap_error`] gives it back.
#[must_use]
pub(crate) fn wrap_error(e: Error) -> ParquetError {
    ParquetError::External(Box::new(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_errors_pass_through_the_parquet_crate_unchanged() {
        let e = Error::new(Kind::Cancelled, "stopped").with_column("a");
        let back = unwrap_error(wrap_error(e));
        assert_eq!((back.kind(), back.column()), (Kind::Cancelled, Some("a")));
        let e = unwrap_error(ParquetError::NYI("INT96 in ALP".into()));
        assert_eq!(e.kind(), Kind::Unsupported);
        assert_eq!(unwrap_error(ParquetError::EOF("end".into())).kind(), Kind::CorruptSource);
    }

    #[test]
    fn guards_nest_and_end_even_after_a_panic() {
        crate::page::testing::quiet_guards();
        let e = guard(|| guard(|| panic!("{} values", 3)).unwrap_err()).unwrap();
        assert!(!guarding());
        assert!(e.to_string().ends_with("got 3 values"), "{e}");
    }

    #[test]
    fn panics_of_decoders_are_errors() {
        assert_eq!(guard(|| 7).unwrap(), 7);
        assert!(guard(guarding).unwrap() && !guarding());
        let e = guard(|| [1, 2].split_at(3).0.len()).unwrap_err();
        assert_eq!(e.kind(), Kind::CorruptSource);
    }
}
