//! The error for two rows of one key, where there must be one.
//!
//! # Not here
//! Who finds them (`plait_core::plan`).

use plait_core::key::render;
use plait_core::plan::Clash;
use plait_core::{Error, Kind, Result};

use super::prepare::Prepared;
use crate::keys::key_at;
use crate::runtime::Context;

/// The error for two rows of one key.
///
/// # Errors
/// Whatever keeps the key from being read again.
pub(super) fn clashing(prepared: &Prepared, clash: Clash, context: &Context) -> Result<Error> {
    let (keys, cache) = (&prepared.keys, &prepared.cache);
    let (id, row) = clash.after;
    let source = |id: plait_core::SourceId| {
        prepared
            .sources
            .get(id.index())
            .ok_or_else(|| Error::new(Kind::Internal, "the plan names a source that is not there"))
    };
    let after = source(id)?;
    let before = source(clash.before.0)?;
    let key = keys.stored(&key_at(after, keys, row, cache, context)?)?;
    let place = format!("row {} of {}", clash.before.1, before.path());
    Ok(clash.error(&render(&keys.shape, &key), &place).with_path(after.path()).with_row(row))
}
