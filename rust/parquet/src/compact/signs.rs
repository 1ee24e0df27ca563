//! Whether those live who have leases: their signs, and the clock where there are none.
//!
//! # Invariants
//! A lease that is taken for abandoned by mistake costs its holder work, and nobody a row: see
//! `lease`.
//!
//! # Not here
//! Taking and ending leases (`lease`).

use std::path::Path;
use std::time::SystemTime;

use plait_core::Result;

use crate::output::{Alive, Sign, machine};
use crate::store::root::Root;
use crate::store::table::{FOLDER, Lease, Manifest, is_id};

/// After so long, machines that do not see the lock take an exchange for abandoned.
const EXCHANGE_TERM_S: f64 = 3600.0;

/// The folder of locks, below [`FOLDER`].
const LEASES: &str = "leases";

/// Takes leases out of `manifest` that nobody has any more; whether there were some.
pub(super) fn end_abandoned(manifest: &mut Manifest, root: &Root) -> bool {
    let (before, now) = (manifest.leases.len(), now_s());
    manifest.leases.retain(|lease| lease.until >= now && sign_at(lease, root) != Some(Alive::No));
    manifest.leases.len() < before
}

/// What the sign of a lease says, where there is one: locks of other machines may be unknown to this
/// one.
fn sign_at(lease: &Lease, root: &Root) -> Option<Alive> {
    let here = machine();
    match root {
        Root::Local(path) if !here.is_empty() && lease.machine == here => {
            Some(Sign::look(&sign_of(path, &lease.id)))
        }
        _ => None,
    }
}

/// Whether nobody exchanges the folder any more. Who lives and was stopped for long goes on.
#[must_use]
pub(super) fn is_abandoned(exchange: &Lease, root: &Root) -> bool {
    match sign_at(exchange, root) {
        Some(alive) => alive != Alive::Yes,
        None => exchange.until < now_s(),
    }
}

/// A lease to exchange the folder, and the sign that its process lives; none without locks.
///
/// # Errors
/// [`Kind::Storage`].
pub(super) fn take_exchange(root: &Path, id: &str) -> Result<Option<(Lease, Sign)>> {
    let sign = Sign::put(&sign_of(root, id))?;
    let machine = machine();
    let lease = Lease { id: id.to_owned(), until: now_s() + EXCHANGE_TERM_S, machine };
    Ok(sign.filter(|_| !lease.machine.is_empty()).map(|sign| (lease, sign)))
}

/// Removes signs of leases that have ended, and of those that never began.
///
/// # Errors
/// [`Kind::Storage`].
pub(super) fn sweep(manifest: &Manifest, root: &Root) -> Result<()> {
    let Root::Local(path) = root else { return Ok(()) };
    for name in root.names(&format!("{FOLDER}/{LEASES}"), false)? {
        let id = name.rsplit('/').next().unwrap_or_default();
        let mut known = manifest.leases.iter().chain(&manifest.exchange);
        if is_id(id) && !known.any(|lease| lease.id == id) {
            Sign::sweep(&path.join(&name));
        }
    }
    Ok(())
}

pub(super) fn sign_of(root: &Path, id: &str) -> std::path::PathBuf {
    root.join(FOLDER).join(LEASES).join(id)
}

/// Seconds since 1970.
pub(super) fn now_s() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0.0, |now| now.as_secs_f64())
}
