//! Keeps files that are to count out of the reach of `expire`, until they count.
//!
//! ```text
//! take      a manifest names the lease ─▶ files whose names bear its id are written
//! commit    names files of leases that the manifest before it names, and of no others
//! end       a manifest without the lease: what of its files does not count by then never will
//! ```
//!
//! # Invariants
//! An id is given once, and its lease is named by a manifest before a file bears it. So a file in
//! `_plait/files` that a manifest neither names nor has a lease for is dead, in that manifest and
//! in all later ones: nothing that `expire` removes can come to count. This rests on the order of
//! manifests alone. Clocks and locks decide only when a lease that nobody ends may be ended by
//! others; a wrong decision costs a compaction its work, and no row.
//!
//! # Cost
//! A manifest to take a lease. The last commit under a lease ends it.
//!
//! # Not here
//! What may be removed (`expire`); the check of a commit (`commit`).

use std::collections::BTreeMap;

use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::put::{Writer, probe};
use super::signs::{end_abandoned, now_s, sign_of};
use super::survey::check_not_part;
use crate::json::from_json;
use crate::output::{Sign, machine};
use crate::runtime::Context;
use crate::store::Stores;
use crate::store::root::Root;
use crate::store::table::{Lease, Manifest, is_id};

/// Which lease to take.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LeaseOptions {
    /// The folder.
    pub(crate) folder: String,
    /// 16 random hexadecimal digits.
    pub(crate) id: String,
    /// Seconds after which others may end it, unless it is renewed.
    pub(crate) term_s: f64,
    /// Bytes of memory to stay within.
    pub(crate) memory_limit: Option<u64>,
    /// Settings of object stores.
    pub(crate) storage_options: BTreeMap<String, String>,
}

/// Takes the lease that `options`, JSON, name. The sign that its process lives, if there are locks,
/// is the caller's to keep.
///
/// # Errors
/// [`Kind::InvalidArgument`] for options that cannot be read and for an id that is none or is
/// taken, [`Kind::Unsupported`] where commits are impossible, [`Kind::Storage`], and what a damaged
/// manifest gives.
pub fn take_in(options: &str, stores: &Stores, context: &Context) -> Result<Option<Sign>> {
    let options: LeaseOptions = from_json(options)?;
    let bad = |what: &str| {
        Err(Error::new(Kind::InvalidArgument, what).with_got(format!("`{}`", options.id)))
    };
    if !is_id(&options.id) {
        return bad("the id of a lease is not 16 hexadecimal digits");
    }
    let root = Root::open(&options.folder, stores)?;
    // Since the survey, a compaction of a folder above may have begun.
    check_not_part(&root, &Manifest::newest(&root)?)?;
    // A store that cannot commit is found out before anything is merged.
    probe(&root)?;
    let sign = match &root {
        Root::Local(path) => Sign::put(&sign_of(path, &options.id))?,
        Root::Objects(_) => None,
    };
    let lease = Lease {
        id: options.id.clone(),
        until: 0.0,
        machine: if sign.is_some() { machine() } else { String::new() },
    };
    let writer = Writer { root: &root, stores, context };
    loop {
        context.check_cancelled()?;
        let mut manifest = Manifest::newest(&root)?;
        if manifest.leases.iter().any(|other| other.id == lease.id) {
            return bad("there is a lease of this id");
        }
        end_abandoned(&mut manifest, &root);
        let until = now_s() + options.term_s;
        manifest.leases.push(Lease { until, ..lease.clone() });
        if writer.put(&mut manifest)? {
            return Ok(sign);
        }
    }
}
