//! Outputs in an object store: multipart uploads, completed when everything is whole.
//!
//! ```text
//! write ─▶ part that is filled ─ full ─▶ upload.part ──▶ … wait_all ─▶ complete
//!          limit / 48, 5 to 64 MiB        others on their way
//! ```
//!
//! # Invariants
//! No object is visible before it is complete, and none is ever replaced. Parts are accounted for
//! until they have arrived. All parts but the last have one size, as some stores demand.
//!
//! # Not here
//! Requests and how many parts travel at once (`store`).

use std::io;

use plait_core::{Error, Kind, Result};

use crate::runtime::{Charge, Context};
use crate::store::{Completed, Place, Upload};

/// A prefix of an object store that outputs are published to.
pub(super) struct Prefix(Place);

impl Prefix {
    /// Takes `place` for a folder, or for a file if it ends in `.parquet` and is not said to be a
    /// folder; gives that one's name.
    pub(super) fn open(place: Place, is_folder: bool) -> (Self, Option<String>) {
        if is_folder || !place.key().ends_with(".parquet") {
            return (Self(place), None);
        }
        let (folder, name) = place.key().rsplit_once('/').unwrap_or(("", place.key()));
        let name = name.to_owned();
        (Self(place.with_key(folder.to_owned())), Some(name))
    }

    pub(super) fn location(&self, name: &str) -> String {
        self.0.below(name).location()
    }

    pub(super) fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.0.bucket().head(self.0.below(name).key())?.is_some())
    }

    /// Removes an object, as far as that is possible.
    pub(super) fn remove(&self, name: &str) {
        let _ = self.0.bucket().remove(self.0.below(name).key());
    }

    /// Names of the objects in the folder, not of those in folders below.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let keys = self.0.bucket().list(self.0.key(), false)?;
        let name = |key: &String| key.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(keys.iter().map(name).collect())
    }

    /// Names of all objects below the folder, with the folders that they lie in.
    pub(super) fn names_below(&self) -> Result<Vec<String>> {
        let folder = match self.0.key() {
            "" => String::new(),
            key => format!("{key}/"),
        };
        let keys = self.0.bucket().list(self.0.key(), true)?;
        Ok(keys.iter().filter_map(|key| key.strip_prefix(&folder)).map(str::to_owned).collect())
    }

    pub(super) fn create(&self, name: &str, context: &Context) -> Result<ObjectOutput> {
        let place = self.0.below(name);
        let failed = |e| {
            Error::new(Kind::Storage, "cannot begin an upload")
                .with_path(place.location())
                .with_cause(e)
        };
        context.faults().check("create").map_err(failed)?;
        let part_bytes = context.budget().upload_part();
        Ok(ObjectOutput {
            upload: place.bucket().upload(place.key())?,
            location: place.location(),
            part: Vec::new(),
            charge: context.charge(0),
            part_bytes,
            context: context.clone(),
        })
    }
}

/// One output while it is uploaded; aborted when dropped incomplete.
pub(super) struct ObjectOutput {
    upload: Box<dyn Upload>,
    location: String,
    /// What is filled now.
    part: Vec<u8>,
    charge: Charge,
    part_bytes: usize,
    context: Context,
}

impl ObjectOutput {
    /// The object's address.
    pub(super) fn location(&self) -> String {
        self.location.clone()
    }

    fn send(&mut self) -> Result<()> {
        let part = std::mem::take(&mut self.part);
        let charge = std::mem::replace(&mut self.charge, self.context.charge(0));
        self.upload.part(part, charge)
    }

    /// Waits until everything has arrived.
    pub(super) fn wait_all(&mut self) -> Result<()> {
        self.fault("sync")?;
        if !self.part.is_empty() {
            self.send()?;
        }
        self.upload.wait_all()
    }

    pub(super) fn complete(mut self) -> Result<Completed> {
        self.fault("rename")?;
        self.upload.complete()
    }

    fn fault(&self, operation: &str) -> Result<()> {
        self.context.faults().check(operation).map_err(|e| {
            Error::new(Kind::Storage, "an upload failed")
                .with_path(self.location.as_str())
                .with_cause(e)
        })
    }
}

impl io::Write for ObjectOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.fault("write").map_err(io::Error::other)?;
        if self.part.capacity() == 0 {
            // Small outputs take small buffers.
            let room = bytes.len().clamp(1 << 20, self.part_bytes);
            self.part.reserve_exact(room);
        }
        let taken = bytes.len().min(self.part_bytes - self.part.len());
        if self.part.capacity() < self.part.len() + taken {
            let room = (2 * self.part.capacity()).max(self.part.len() + taken);
            self.part.reserve_exact(room.min(self.part_bytes) - self.part.len());
        }
        self.charge.set(self.part.capacity());
        self.part.extend_from_slice(&bytes[..taken]);
        if self.part.len() == self.part_bytes {
            self.send().map_err(io::Error::other)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
