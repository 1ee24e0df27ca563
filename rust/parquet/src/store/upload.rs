//! An upload to a bucket in parts.
//!
//! ```text
//! part ─▶ put ─┐              in flight: so many that memory allows; the next waits for the oldest
//! part ─▶ put ─┼─▶ wait ─▶ complete, if nothing is there
//! part ─▶ put ─┘
//! ```
//!
//! # Invariants
//! An upload that is not completed is aborted when it is dropped, also after the call was cancelled;
//! not in a forked process.
//!
//! # Cost
//! A request a part, and two more.
//!
//! # Not here
//! Other requests (`remote`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use plait_core::{Error, Kind, Result};
use tokio::task::JoinHandle;
use url::Url;

use super::bucket::{Completed, Upload};
use super::copied::{CopiedRange, CopyingUpload, PartRules};
use super::driver::Driver;
use super::failed::request_error;
use super::reader::changed;
use crate::runtime::{Charge, Context, MemoryStage};

/// The most parts that are uploaded at once.
const PARTS_AT_ONCE: usize = 4;

/// How long aborting an upload may take.
pub(super) const ABORT_TIME: Duration = Duration::from_secs(10);

/// An upload whose parts are on their way.
pub(super) struct RemoteUpload {
    /// Absent while it is completed or aborted, and afterwards.
    pub(super) inner: Option<UploadedParts>,
    pub(super) client: Arc<dyn ObjectStore>,
    pub(super) path: Path,
    pub(super) location: String,
    pub(super) in_flight: VecDeque<JoinHandle<Result<()>>>,
    pub(super) parts: usize,
    pub(super) driver: Arc<Driver>,
    pub(super) context: Context,
    pub(super) process: u32,
}

/// The parts of an upload.
pub(super) enum UploadedParts {
    /// Of a store that copies none.
    Sent(Box<dyn MultipartUpload>),
    /// Of one that may copy some.
    Copied(CopyingUpload),
}

impl UploadedParts {
    fn upload(&mut self) -> &mut dyn MultipartUpload {
        match self {
            Self::Sent(upload) => &mut **upload,
            Self::Copied(upload) => upload,
        }
    }

    /// The most parts that it may have.
    fn parts_max(&self) -> usize {
        match self {
            Self::Sent(_) => PartRules::S3.parts_max,
            Self::Copied(upload) => upload.rules().parts_max,
        }
    }
}

impl RemoteUpload {
    /// Waits until at most `most` parts are on their way.
    fn wait(&mut self, most: usize) -> Result<()> {
        while self.in_flight.len() > most
            && let Some(part) = self.in_flight.pop_front()
        {
            let arrived = self.driver.run(Some(&self.context), Duration::ZERO, part)?;
            arrived
                .map_err(|e| Error::new(Kind::Internal, "an upload stopped").with_cause(e))??;
        }
        Ok(())
    }

    /// Counts one more part, of so many bytes.
    fn count_part(&mut self, bytes: usize) -> Result<()> {
        self.parts += 1;
        let parts_max = self.inner.as_ref().map_or(usize::MAX, UploadedParts::parts_max);
        if self.parts > parts_max {
            return Err(Error::new(Kind::Unsupported, "output has more parts than one upload may")
                .with_path(&self.location)
                .with_got(format!("{parts_max} parts of {bytes} bytes"))
                .with_hint("make more outputs, or allow more memory: parts are larger then"));
        }
        Ok(())
    }
}

impl Upload for RemoteUpload {
    fn part(&mut self, bytes: Vec<u8>, charge: Charge) -> Result<()> {
        let share = self.context.budget().bytes(MemoryStage::SentParts) / bytes.len().max(1);
        let most = share.min(PARTS_AT_ONCE);
        self.wait(most.saturating_sub(1))?;
        self.count_part(bytes.len())?;
        let Some(inner) = &mut self.inner else { return Err(ended()) };
        let put = inner.upload().put_part(PutPayload::from(bytes));
        let location = self.location.clone();
        let (handle, _) = self.driver.handle()?;
        self.in_flight.push_back(handle.spawn(async move {
            let arrived = put.await;
            drop(charge);
            arrived.map_err(|e| request_error(e, &location))
        }));
        self.wait(most)
    }

    fn copied_part_min(&self, source: &Url) -> Option<u64> {
        match &self.inner {
            Some(UploadedParts::Copied(upload)) => {
                let rules = upload.rules();
                let may_copy = rules.may_copy(self.parts) && upload.may_copy_from(source);
                may_copy.then_some(rules.bytes_min)
            }
            _ => None,
        }
    }

    fn copy_part(&mut self, from: &Url, tag: &str, range: Range<u64>) -> Result<bool> {
        self.wait(PARTS_AT_ONCE - 1)?;
        let bytes = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let Some(inner) = &mut self.inner else { return Err(ended()) };
        let UploadedParts::Copied(upload) = inner else { return Ok(false) };
        let copies = upload.copies(from);
        if copies == Some(false) {
            return Ok(false);
        }
        let copy = upload.copy_part(CopiedRange { url: from.clone(), tag: tag.to_owned(), range });
        let source = from.to_string();
        if copies.is_none() {
            // The first one tells whether the store copies parts of that bucket. A read tells
            // whether the object changed.
            match self.driver.run(Some(&self.context), Duration::ZERO, copy)? {
                Ok(()) => {}
                Err(
                    object_store::Error::NotSupported { .. }
                    | object_store::Error::Precondition { .. },
                ) => {
                    if let Some(UploadedParts::Copied(upload)) = &mut self.inner {
                        upload.take_back();
                    }
                    return Ok(false);
                }
                Err(e) => return Err(copy_error(e, &source)),
            }
        } else {
            let (handle, _) = self.driver.handle()?;
            let copied = async move { copy.await.map_err(|e| copy_error(e, &source)) };
            self.in_flight.push_back(handle.spawn(copied));
        }
        self.count_part(bytes)?;
        Ok(true)
    }

    fn wait_all(&mut self) -> Result<()> {
        self.wait(0)
    }

    fn complete(&mut self) -> Result<Completed> {
        self.wait_all()?;
        let (client, path) = (Arc::clone(&self.client), self.path.clone());
        let head = async move { client.head(&path).await };
        let head = self.driver.run(Some(&self.context), Duration::ZERO, head)?;
        // Only S3 looks again while it completes; the others are looked at here, right before.
        match head {
            Ok(_) => return Ok(Completed::Occupied),
            Err(object_store::Error::NotFound { .. }) => {}
            Err(e) => return Err(request_error(e, &self.location)),
        }
        let Some(mut inner) = self.inner.take() else {
            return Err(Error::new(Kind::Internal, "an upload was completed twice"));
        };
        let complete = async move {
            let outcome = inner.upload().complete().await;
            (inner, outcome)
        };
        // Cancelling it half-way would leave open what happened.
        let (inner, outcome) = self.driver.run(None, Duration::ZERO, complete)?;
        let Err(e) = outcome else { return Ok(Completed::Yes) };
        self.inner = Some(inner);
        // Somebody was faster, or the answer to our own request was lost: both leave an object.
        let (client, path) = (Arc::clone(&self.client), self.path.clone());
        let head = async move { client.head(&path).await };
        match self.driver.run(None, Duration::ZERO, head)? {
            Ok(_) => Ok(Completed::Occupied),
            Err(_) => Err(request_error(e, &self.location)),
        }
    }
}

fn ended() -> Error {
    Error::new(Kind::Internal, "an upload was used after its end")
}

/// The error for a part of `source` that the store did not copy.
fn copy_error(e: object_store::Error, source: &str) -> Error {
    match e {
        object_store::Error::Precondition { .. } => changed(source).with_cause(e),
        e => request_error(e, source)
            .with_hint("without `server_side_copy`, the bytes are read and sent"),
    }
}

impl Drop for RemoteUpload {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        if self.process != std::process::id() {
            std::mem::forget(inner);
            std::mem::forget(std::mem::take(&mut self.in_flight));
            return;
        }
        for part in self.in_flight.drain(..) {
            part.abort();
        }
        // Whether it works or not: a rule of the bucket sweeps what is left.
        let abort = async move { tokio::time::timeout(ABORT_TIME, inner.upload().abort()).await };
        let _ = self.driver.run(None, Duration::ZERO, abort);
    }
}
