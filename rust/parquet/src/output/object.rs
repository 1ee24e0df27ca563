//! Outputs in an object store: multipart uploads, completed when everything is whole; small ones by
//! one request.
//!
//! ```text
//! write ─▶ part that is filled ─ full ─▶ upload.part ──▶ … wait_all ─▶ complete
//!          limit / 48, 5 to 64 MiB        others on their way
//!            └─ whole, and small ─▶ waits ────────────────────────────▶ put
//! copy  ─▶ stretch that grows ─ ends ─▶ its first bytes, read, up to the least size of a part
//!                                     └▶ upload.copy_part: the rest, by the store, with the bytes
//!                                        before it if the output begins with the same
//! ```
//!
//! # Invariants
//! No object is visible before it is complete, and none is ever replaced. Parts are accounted for
//! until they have arrived. Small outputs wait only as far as they fit into their share of the memory.
//! All parts but the last have one size, as some stores demand, unless some are copied; none but the
//! last is smaller than the store allows.
//!
//! # Not here
//! Requests and how many parts travel at once (`store`).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use plait_core::{Error, Kind, Result};

use crate::runtime::{Charge, Context, MemoryStage};
use crate::store::{Completed, ObjectVersion, Place, RangeReader, Upload};

/// The fewest bytes that are worth the request that copies them.
const COPIED_BYTES_MIN: u64 = 1 << 20;

/// How many bytes are read at a time of what the store does not copy.
const READ_BYTES: u64 = 5 << 20;

/// The most that is copied by one request, which takes a second or two.
const COPIED_BYTES_MAX: u64 = 128 << 20;

/// The most bytes in front of the first row group, which are the magic number.
const BEGINNING_BYTES_MAX: u64 = 64;

/// A prefix of an object store that outputs are published to.
pub(super) struct Prefix {
    place: Place,
    /// Bytes of small outputs that are whole and wait.
    waiting: Arc<AtomicUsize>,
}

impl Prefix {
    /// Takes `place` for a folder, or for a file if it ends in `.parquet` and is not said to be a
    /// folder; gives that one's name.
    pub(super) fn open(place: Place, is_folder: bool) -> (Self, Option<String>) {
        let of = |place| Self { place, waiting: Arc::default() };
        if is_folder || !place.key().ends_with(".parquet") {
            return (of(place), None);
        }
        let (folder, name) = place.key().rsplit_once('/').unwrap_or(("", place.key()));
        let name = name.to_owned();
        (of(place.with_key(folder.to_owned())), Some(name))
    }

    pub(super) fn location(&self, name: &str) -> String {
        self.place.below(name).location()
    }

    pub(super) fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.place.bucket().head(self.place.below(name).key())?.is_some())
    }

    /// Removes an object, as far as that is possible.
    pub(super) fn remove(&self, name: &str) {
        let _ = self.place.bucket().remove(self.place.below(name).key());
    }

    /// Names of the objects in the folder, not of those in folders below.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let keys = self.place.bucket().list(self.place.key(), false)?;
        let name = |key: &String| key.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(keys.iter().map(name).collect())
    }

    /// Names of all objects below the folder, with the folders that they lie in.
    pub(super) fn names_below(&self) -> Result<Vec<String>> {
        let folder = match self.place.key() {
            "" => String::new(),
            key => format!("{key}/"),
        };
        let keys = self.place.bucket().list(self.place.key(), true)?;
        Ok(keys.iter().filter_map(|key| key.strip_prefix(&folder)).map(str::to_owned).collect())
    }

    pub(super) fn create(&self, name: &str, context: &Context) -> Result<ObjectOutput> {
        let place = self.place.below(name);
        let failed = |e| {
            Error::new(Kind::Storage, "cannot begin an upload")
                .with_path(place.location())
                .with_cause(e)
        };
        context.faults().check("create").map_err(failed)?;
        let mut output = ObjectOutput {
            location: place.location(),
            place,
            upload: None,
            has_sent: false,
            part: Vec::new(),
            stretch: None,
            charge: context.charge(0),
            part_bytes: context.budget().upload_part(),
            waits: Waits { all: Arc::clone(&self.waiting), own: 0 },
            context: context.clone(),
        };
        if !output.place.bucket().puts_whole() {
            output.begun()?;
        }
        Ok(output)
    }
}

/// One output while it is uploaded; aborted when dropped incomplete.
pub(super) struct ObjectOutput {
    place: Place,
    location: String,
    /// None while it may turn out to be small.
    upload: Option<Box<dyn Upload>>,
    /// Whether a part is on its way.
    has_sent: bool,
    /// What is filled now.
    part: Vec<u8>,
    /// What comes behind it and is not written yet.
    stretch: Option<Stretch>,
    charge: Charge,
    part_bytes: usize,
    waits: Waits,
    context: Context,
}

/// Bytes of a small output that wait, among those of all.
struct Waits {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Waits {
    /// Whether so many bytes may wait, too.
    fn take(&mut self, bytes: usize, most: usize) -> bool {
        let fits = |all: usize| all.checked_add(bytes).filter(|all| *all <= most);
        let taken = self.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        self.own += if taken { bytes } else { 0 };
        taken
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// Bytes of an object that the store copies itself.
struct Stretch {
    source: Arc<dyn RangeReader>,
    range: Range<u64>,
}

impl ObjectOutput {
    /// The object's address.
    pub(super) fn location(&self) -> String {
        self.location.clone()
    }

    fn send(&mut self) -> Result<()> {
        let part = std::mem::take(&mut self.part);
        let charge = std::mem::replace(&mut self.charge, self.context.charge(0));
        self.has_sent = true;
        self.begun()?.part(part, charge)
    }

    /// The upload in parts, which begins now if it has not.
    fn begun(&mut self) -> Result<&mut dyn Upload> {
        let upload = match self.upload.take() {
            Some(upload) => upload,
            None => self.place.bucket().upload(self.place.key())?,
        };
        Ok(&mut **self.upload.insert(upload))
    }

    /// Whether the store may copy parts of `object`. The upload begins, as only it knows that where
    /// both are in stores of one kind.
    pub(super) fn may_copy(&mut self, object: &ObjectVersion) -> Result<bool> {
        Ok(self.place.is_like(&object.url) && self.begun()?.copied_part_min(&object.url).is_some())
    }

    /// Writes bytes of an object. They are copied once it is known how many follow each other.
    pub(super) fn copy(&mut self, source: &Arc<dyn RangeReader>, range: Range<u64>) -> Result<()> {
        self.fault("write")?;
        if let Some(stretch) = &mut self.stretch
            && Arc::ptr_eq(&stretch.source, source)
            && stretch.range.end == range.start
        {
            stretch.range.end = range.end;
            return Ok(());
        }
        self.end_stretch()?;
        self.stretch = Some(Stretch { source: Arc::clone(source), range });
        Ok(())
    }

    fn end_stretch(&mut self) -> Result<()> {
        let Some(Stretch { source, mut range }) = self.stretch.take() else { return Ok(()) };
        let Some(object) = source.object() else { return self.read(&*source, range) };
        let Some(part_min) = self.begun()?.copied_part_min(&object.url) else {
            return self.read(&*source, range);
        };
        let copied_min = part_min.max(COPIED_BYTES_MIN);
        // One that is too short to be copied is not worth the request.
        if range.end >= copied_min && self.begins_as(&*source, range.start)? {
            self.part = Vec::new();
            self.charge.set(0);
            range.start = 0;
        }
        // The part before becomes as large as parts must be.
        let filled = self.part.len() as u64;
        let head = if filled == 0 { 0 } else { part_min.saturating_sub(filled) };
        let start = range.start.saturating_add(head);
        if start + copied_min > range.end {
            return self.read(&*source, range);
        }
        self.read(&*source, range.start..start)?;
        if !self.part.is_empty() {
            self.send()?;
        }
        let bytes = range.end - start;
        let parts = bytes.div_ceil(COPIED_BYTES_MAX);
        let at = |part: u64| start + bytes.saturating_mul(part) / parts;
        for part in 0..parts {
            if !self.begun()?.copy_part(&object.url, &object.tag, at(part)..at(part + 1))? {
                return self.read(&*source, at(part)..range.end);
            }
            self.has_sent = true;
        }
        Ok(())
    }

    /// Whether the output so far is how `source` begins, up to `end`: all files begin with the same
    /// bytes, and the first row group of an output is often that of a source.
    fn begins_as(&self, source: &dyn RangeReader, end: u64) -> Result<bool> {
        let is_first = !self.has_sent && (1..=BEGINNING_BYTES_MAX).contains(&end);
        Ok(is_first && end == self.part.len() as u64 && source.read(0..end)? == self.part)
    }

    /// Writes bytes of an object that the store does not copy.
    fn read(&mut self, source: &dyn RangeReader, range: Range<u64>) -> Result<()> {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + READ_BYTES);
            let bytes = self.context.account().hold(source.read(start..end)?);
            self.context.counters().add_consumed(bytes.len() as u64);
            let mut left = &bytes[..];
            while !left.is_empty() {
                let taken = self.append(left)?;
                left = left.get(taken..).unwrap_or_default();
            }
            start = end;
        }
        Ok(())
    }

    /// Fills the part with some of `bytes`, and sends it when it is full. Tells how many.
    fn append(&mut self, bytes: &[u8]) -> Result<usize> {
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
            self.send()?;
        }
        Ok(taken)
    }

    /// Waits until everything has arrived, or is whole and so small that it is sent when the output
    /// is named.
    pub(super) fn wait_all(&mut self) -> Result<()> {
        self.fault("sync")?;
        self.end_stretch()?;
        if self.upload.is_none() {
            let most = self.context.budget().bytes(MemoryStage::SmallOutputs);
            if self.waits.take(self.part.len(), most) {
                self.part.shrink_to_fit();
                self.charge.set(self.part.capacity());
                return Ok(());
            }
        }
        if !self.part.is_empty() {
            self.send()?;
        }
        self.begun()?.wait_all()
    }

    pub(super) fn complete(mut self) -> Result<Completed> {
        self.fault("rename")?;
        match &mut self.upload {
            Some(upload) => upload.complete(),
            None => self.put(),
        }
    }

    /// Sends all of a small output.
    fn put(&mut self) -> Result<Completed> {
        // Not every store looks whether there is an object of that name.
        let (bucket, key) = (Arc::clone(self.place.bucket()), self.place.key().to_owned());
        if bucket.head(&key)?.is_some() {
            return Ok(Completed::Occupied);
        }
        let bytes = Bytes::from(std::mem::take(&mut self.part));
        match bucket.put_new(&key, bytes.clone()) {
            // One that cannot look goes without, as it does where there are parts.
            Err(e) if e.kind() == Kind::Unsupported => {
                self.part = bytes.into();
                self.send()?;
                self.begun()?.complete()
            }
            // The answer to an attempt before was lost.
            Ok(Completed::Occupied) if self.is_there(&bytes)? => Ok(Completed::Yes),
            done => done,
        }
    }

    /// Whether the object has these bytes.
    fn is_there(&self, bytes: &Bytes) -> Result<bool> {
        let (bucket, key, len) = (self.place.bucket(), self.place.key(), bytes.len() as u64);
        match bucket.head(key)? {
            Some(meta) if meta.len == len => Ok(bucket.read(key, 0..len, &meta)? == *bytes),
            _ => Ok(false),
        }
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
        self.end_stretch().and_then(|()| self.append(bytes)).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
