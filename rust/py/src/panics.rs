//! A panic never reaches the terminal: it becomes an error that says where it happened.
//!
//! # Invariants
//! The hook prints nothing while the engine guards a page (it turns such a panic into
//! `CorruptSource` itself), and nothing otherwise either, unless `RUST_BACKTRACE` asks for it:
//! the place travels in the `InternalError`. The hook covers this library alone, because it
//! brings its own standard library.

use std::any::Any;
use std::panic;
use std::sync::{Mutex, PoisonError};

use plait_core::{Error, Kind};

/// Where the last unguarded panic happened. One for all threads: the engine's own workers panic
/// elsewhere than the thread that reports it.
static PLACE: Mutex<Option<String>> = Mutex::new(None);

/// Installs the hook; called once, when the module is first imported.
pub(crate) fn install() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if plait_parquet::guarding() {
            return;
        }
        let place = info.location().map(ToString::to_string);
        *PLACE.lock().unwrap_or_else(PoisonError::into_inner) = place;
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v != "0") {
            previous(info);
        }
    }));
}

/// The error for a panic with `payload` that ended a call.
pub(crate) fn error(payload: &(dyn Any + Send)) -> Error {
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message");
    let place = PLACE.lock().unwrap_or_else(PoisonError::into_inner).take();
    Error::new(Kind::Internal, "a promise inside Plait was broken; nothing was published")
        .with_got(format!("`{said}` at {}", place.as_deref().unwrap_or("an unknown place")))
        .with_hint("please report it, with the options and, if you can, the files")
}
