//! Puts a manifest under a number that nobody has taken.
//!
//! # Invariants
//! Of two writers of one number one succeeds, also if an answer is lost: see [`put_new`].
//!
//! # Not here
//! What a manifest says (`commit`, `lease`, `expire`).

use std::time::Duration;

use plait_core::{Error, Kind, Result};

use super::signs::is_abandoned;
use crate::folder::put_new;
use crate::runtime::Context;
use crate::store::root::Root;
use crate::store::table::{FOLDER, Manifest};
use crate::store::{Completed, Stores};

/// The object by which a store is asked whether it puts objects only where there is none.
const PROBE: &str = "conditional-put";

/// How long to wait before looking again whether a folder was exchanged.
const EXCHANGE_WAIT: Duration = Duration::from_millis(5);

/// Puts manifests.
pub(super) struct Writer<'a> {
    pub(super) root: &'a Root,
    pub(super) stores: &'a Stores,
    pub(super) context: &'a Context,
}

impl Writer<'_> {
    /// Puts `manifest` under the next number; false if somebody else has taken that, or exchanges
    /// the folder: what was put into the old one would be lost.
    pub(super) fn put(&self, manifest: &mut Manifest) -> Result<bool> {
        if manifest.exchange.as_ref().is_some_and(|lease| !is_abandoned(lease, self.root)) {
            std::thread::sleep(EXCHANGE_WAIT);
            return Ok(false);
        }
        self.put_next(manifest)
    }

    /// The same by the one who exchanges it.
    pub(super) fn put_next(&self, manifest: &mut Manifest) -> Result<bool> {
        let name = |number| format!("{FOLDER}/{}", Manifest::name(number));
        manifest.number = manifest.number.checked_add(1).ok_or_else(|| {
            Error::new(Kind::CorruptSource, "there is no number after that of the newest manifest")
                .with_path(self.root.location(&name(manifest.number)))
        })?;
        // Whoever knows no leases must not go on.
        manifest.version = Manifest::none().version;
        let text = serde_json::to_vec_pretty(manifest)
            .map_err(|e| Error::new(Kind::Internal, "cannot write a manifest").with_cause(e))?;
        put_new(self.root, &name(manifest.number), &text, self.stores, self.context)
    }
}

/// Fails if a test wants this step of a change to fail.
pub(super) fn step(context: &Context, operation: &str, name: &str) -> Result<()> {
    context.faults().check(operation).map_err(|e| {
        Error::new(Kind::Storage, "cannot change the folder").with_path(name).with_cause(e)
    })
}

/// Asks an object store for what commits need: a store that ignores the condition says yes twice.
pub(super) fn probe(root: &Root) -> Result<()> {
    let Root::Objects(place) = root else { return Ok(()) };
    let place = place.below(&format!("{FOLDER}/{PROBE}"));
    for _ in 0..2 {
        let bytes = "Says whether this store puts objects only where there is none.\n";
        if place.bucket().put_new(place.key(), bytes.into())? == Completed::Occupied {
            return Ok(());
        }
    }
    Err(place.bucket().unconditional(&place.location()).with_got("it replaced one"))
}
