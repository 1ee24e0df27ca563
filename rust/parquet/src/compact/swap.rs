//! Exchanges a folder in one step for one without the files that were replaced.
//!
//! ```text
//! begin     manifest n + 1: where files move, and that nobody else commits while we live
//! exchange  links in another folder    ─▶ is n + 1 the newest? ─▶ one rename
//! finish    what came to the old folder meanwhile is carried over; the old folder is removed
//! ```
//!
//! # Invariants
//! Manifest n + 1 holds in both folders: a file that moves is found under either name. No manifest
//! is put between the look at the newest and the rename, since whoever would put one waits until
//! the holder of the exchange is done, or its lock is free.
//!
//! # Not here
//! Links and renames (`store::exchange`); which files go (`expire`).

use std::cell::RefCell;
use std::path::PathBuf;

use plait_core::{Error, Kind, Result};

use super::put::{Writer, step};
use super::signs::{is_abandoned, take_exchange};
use crate::output::Sign;
use crate::runtime::Context;
use crate::store::exchange::{Difference, Exchange};
use crate::store::root::Root;
use crate::store::table::{Manifest, is_id};

/// An exchange of a folder.
pub(super) struct Swap {
    root: PathBuf,
    exchange: Exchange,
    id: String,
    /// Held until the end; made when it begins.
    sign: RefCell<Option<Sign>>,
}

impl Swap {
    /// Finds out whether the folder can be exchanged.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] where it cannot, [`Kind::InvalidArgument`] for an id that is none.
    pub(super) fn try_new(root: &Root, id: &str) -> Result<Self> {
        if !is_id(id) {
            let what = "the id of an exchange is not 16 hexadecimal digits";
            return Err(Error::new(Kind::InvalidArgument, what).with_got(format!("`{id}`")));
        }
        let Root::Local(path) = root else {
            let what = "a folder of an object store cannot be exchanged in one step";
            return Err(Error::new(Kind::Unsupported, what)
                .with_path(root.location(""))
                .with_hint("leave out `swap` or `in_place`"));
        };
        let exchange = Exchange::of(path, id)?;
        exchange.probe()?;
        Ok(Self { root: path.clone(), exchange, id: id.to_owned(), sign: RefCell::default() })
    }

    /// Puts the manifest that says so; false if somebody was faster.
    ///
    /// # Errors
    /// [`Kind::SourceChanged`] while others write to the folder, [`Kind::Unsupported`] without
    /// locks, [`Kind::Storage`].
    pub(super) fn begin(&self, manifest: &mut Manifest, writer: &Writer<'_>) -> Result<bool> {
        if !manifest.leases.is_empty() {
            let what = "others write to the folder, it was not exchanged";
            return Err(Error::new(Kind::SourceChanged, what)
                .with_path(writer.root.location(""))
                .with_got(format!("{} leases", manifest.leases.len()))
                .with_hint("expire again when compactions of the folder have ended"));
        }
        if manifest.exchange.is_some() {
            // Others exchange it: `put` waits for them.
            return writer.put(manifest);
        }
        let Some((lease, sign)) = take_exchange(&self.root, &self.id)? else {
            let what = "the folder cannot be exchanged without locks of files";
            return Err(Error::new(Kind::Unsupported, what)
                .with_path(writer.root.location(""))
                .with_hint("leave out `swap` or `in_place`"));
        };
        manifest.exchange = Some(lease);
        let is_put = writer.put_next(manifest)?;
        if is_put {
            *self.sign.borrow_mut() = Some(sign);
        }
        Ok(is_put)
    }

    /// Exchanges the folder; if that fails, nothing has changed.
    ///
    /// # Errors
    /// [`Kind::Unsupported`], [`Kind::Storage`], [`Kind::SourceNotFound`] for a live file that is
    /// missing.
    pub(super) fn exchange(
        &self,
        difference: &Difference,
        manifest: &Manifest,
        writer: &Writer<'_>,
    ) -> Result<()> {
        let outcome = self.try_exchange(difference, manifest, writer);
        if outcome.is_err() {
            // If that fails, too, the next `expire` does it.
            let _ = self.exchange.finish();
            let mut given_up = Manifest { exchange: None, ..manifest.clone() };
            let _ = writer.put_next(&mut given_up);
        }
        outcome
    }

    fn try_exchange(
        &self,
        difference: &Difference,
        manifest: &Manifest,
        writer: &Writer<'_>,
    ) -> Result<()> {
        step(writer.context, "build", &self.id)?;
        self.exchange.build(difference)?;
        step(writer.context, "exchange", &self.id)?;
        if Manifest::newest(writer.root)?.number != manifest.number {
            let what = "another process took the exchange for abandoned";
            return Err(Error::new(Kind::SourceChanged, what)
                .with_path(writer.root.location(""))
                .with_hint("expire again"));
        }
        self.exchange.exchange()
    }

    /// Carries over what came meanwhile, and removes the old folder.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(super) fn finish(&self, context: &Context) -> Result<()> {
        step(context, "finish", &self.id)?;
        self.exchange.finish()
    }
}

/// Goes on with an exchange that nobody goes on with; whether there was one.
///
/// # Errors
/// [`Kind::Storage`].
pub(super) fn end_abandoned(manifest: &mut Manifest, root: &Root) -> Result<bool> {
    let (Some(lease), Root::Local(path)) = (&manifest.exchange, root) else { return Ok(false) };
    if !is_abandoned(lease, root) {
        return Ok(false);
    }
    Exchange::of(path, &lease.id)?.finish()?;
    manifest.exchange = None;
    Ok(true)
}
