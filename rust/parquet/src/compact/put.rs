//! Puts a manifest under a number that nobody has taken.
//!
//! # Invariants
//! Of two writers of one number one succeeds. A lost answer is not taken for a failure: the manifest
//! that is there is compared with the own one.
//!
//! # Not here
//! What a manifest says (`commit`, `lease`, `expire`).

use std::io::Write;

use plait_core::{Error, Kind, Result};

use crate::output::Target;
use crate::runtime::Context;
use crate::store::root::Root;
use crate::store::table::{FOLDER, Manifest};
use crate::store::{Completed, Stores, unconditional};

/// The object by which a store is asked whether it puts objects only where there is none.
const PROBE: &str = "conditional-put";

/// Puts manifests.
pub(super) struct Writer<'a> {
    pub(super) root: &'a Root,
    pub(super) stores: &'a Stores,
    pub(super) context: &'a Context,
}

impl Writer<'_> {
    /// Puts `manifest` under the next number; false if somebody else has taken that.
    pub(super) fn put(&self, manifest: &mut Manifest) -> Result<bool> {
        let name = |number| format!("{FOLDER}/{}", Manifest::name(number));
        manifest.number = manifest.number.checked_add(1).ok_or_else(|| {
            Error::new(Kind::CorruptSource, "there is no number after that of the newest manifest")
                .with_path(self.root.location(&name(manifest.number)))
        })?;
        // Whoever knows no leases must not go on.
        manifest.version = Manifest::none().version;
        let text = serde_json::to_vec_pretty(manifest)
            .map_err(|e| Error::new(Kind::Internal, "cannot write a manifest").with_cause(e))?;
        let put = match self.root {
            Root::Local(_) => Ok(self.put_local(&Manifest::name(manifest.number), &text)?),
            Root::Objects(place) => {
                let place = place.below(&name(manifest.number));
                place.bucket().put_new(place.key(), text.clone().into())
            }
        };
        match put {
            Ok(Completed::Yes) => Ok(true),
            Err(e) if e.kind() != Kind::Storage => Err(e),
            // Somebody was faster, or the answer to our own request was lost.
            outcome => match (self.root.read(&name(manifest.number))?, outcome) {
                (Some(there), _) => Ok(there == text),
                (None, Err(e)) => Err(e),
                (None, Ok(_)) => Ok(false),
            },
        }
    }

    fn put_local(&self, name: &str, text: &[u8]) -> Result<Completed> {
        let target = Target::open(&self.root.location(FOLDER), self.stores, self.context)?;
        let mut temp = target.create(name)?;
        temp.write_all(text).map_err(|e| {
            Error::new(Kind::Storage, "cannot write a manifest")
                .with_path(target.location(name))
                .with_cause(e)
        })?;
        temp.sync()?;
        if temp.publish_once(&target, name)? == Completed::Occupied {
            // Over NFS, our own link may have been made by a request whose answer was lost.
            return Ok(Completed::Occupied);
        }
        target.sync()?;
        Ok(Completed::Yes)
    }
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
    Err(unconditional(&place.location()).with_got("it replaced one"))
}
