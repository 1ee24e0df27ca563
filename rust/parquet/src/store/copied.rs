//! Uploads whose parts the store may copy from other objects.
//!
//! ```text
//! part of bytes ───────── put_part ───────────────────────────────▶ part
//! part of another object ─ CopyRequests ─▶ request without a body ─▶ part, no bytes sent
//!                           ├─ s3.rs     UploadPartCopy
//!                           └─ azure.rs  Put Block From URL
//! ```
//!
//! # Invariants
//! A part is copied from the version of an object that was read. Each bucket of sources is asked
//! once before more is expected of it: where the first part is not copied, its bytes may be sent in
//! its place.
//!
//! # Cost
//! One request a part.
//!
//! # Not here
//! Which bytes are copied (`output`); how parts travel (`upload`).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::client::{HttpClient, HttpConnector, HttpRequest};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    ClientOptions, MultipartUpload, PutPayload, PutResult, RetryConfig, UploadPart,
};
use url::Url;

use super::urls::split;
use super::wire::Connector;

/// How long the signature of a request is valid.
pub(super) const SIGNED_TIME: Duration = Duration::from_secs(600);

/// The requests of one kind of store.
#[async_trait]
pub(super) trait CopyRequests: Send + Sync {
    /// Whether there are requests that copy from `source` to an upload to `target`, once one began.
    fn copies(&self, source: &Url, target: &Path) -> bool;

    /// What the store demands of parts.
    fn rules(&self) -> PartRules;

    /// The name of a new upload to `path`.
    async fn begin(&self, path: &Path) -> object_store::Result<String>;

    /// The request that makes `from` a part.
    async fn request(
        &self,
        part: NewPart<'_>,
        from: &CopiedRange,
    ) -> object_store::Result<HttpRequest>;

    /// What the answer to that request means, for which it was asked since `asked`.
    fn understand(&self, part: NewPart<'_>, status: u16, body: &str, asked: Instant) -> Answered;
}

/// What a store demands of the parts of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartRules {
    /// The fewest bytes of a part that is not the last.
    pub(super) bytes_min: u64,
    /// The most parts.
    pub(super) parts_max: usize,
}

impl PartRules {
    /// Those of S3, which suit other stores, too.
    pub(super) const S3: Self = Self { bytes_min: 5 << 20, parts_max: 10_000 };

    /// Whether an upload of so many parts may have small ones, as copies are: what comes behind the
    /// first half of the parts is sent in large ones.
    pub(super) fn may_copy(self, parts: usize) -> bool {
        parts < self.parts_max / 2
    }
}

/// A part of an upload that is about to be made.
#[derive(Clone, Copy)]
pub(super) struct NewPart<'a> {
    pub(super) path: &'a Path,
    pub(super) upload: &'a str,
    /// From 0.
    pub(super) number: usize,
}

/// Bytes of an object.
#[derive(Clone)]
pub(super) struct CopiedRange {
    /// Such as `s3://bucket/key`.
    pub(super) url: Url,
    /// The entity tag of the version that was read.
    pub(super) tag: String,
    pub(super) range: Range<u64>,
}

impl CopiedRange {
    /// The range as HTTP writes it.
    pub(super) fn bytes(&self) -> String {
        format!("bytes={}-{}", self.range.start, self.range.end.saturating_sub(1))
    }
}

/// How a store answered the request to copy a part.
pub(super) enum Answered {
    Copied(PartId),
    /// Worth asking again: the store is busy, or did not answer.
    Busy(object_store::Error),
    Refused(object_store::Error),
}

impl Answered {
    /// What an answer that is no success means, by its status and the code of its body.
    pub(super) fn failed(path: &Path, status: u16, body: &str) -> Self {
        let e = || failed(format!("Server returned non-2xx status code: {status}: {body}"));
        let (path, source) = (path.to_string(), Box::new(e()));
        match (status, element(body, "Code").unwrap_or_default()) {
            (412, _) | (404, "NoSuchKey") | (404 | 409, "CannotVerifyCopySource") => {
                Self::Refused(object_store::Error::Precondition { path, source })
            }
            (404, _) => Self::Refused(object_store::Error::NotFound { path, source }),
            (200 | 408 | 429 | 500 | 502..=599, _) => Self::Busy(e()),
            _ => Self::Refused(object_store::Error::NotSupported { source }),
        }
    }
}

/// The text of the first such element of an answer.
pub(super) fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// A client of a bucket that can ask it to copy parts.
pub(super) struct PartCopier {
    store: Arc<dyn MultipartStore>,
    requests: Box<dyn CopyRequests>,
    connector: Connector,
    options: ClientOptions,
    retry: RetryConfig,
    http: OnceLock<HttpClient>,
    /// Whether parts of objects in a bucket are copied, by its URL, once it was asked.
    copies: Mutex<BTreeMap<String, bool>>,
}

impl PartCopier {
    pub(super) fn new(
        store: Arc<dyn MultipartStore>,
        requests: Box<dyn CopyRequests>,
        connector: Connector,
        options: ClientOptions,
        retry: RetryConfig,
    ) -> Self {
        let (http, copies) = (OnceLock::new(), Mutex::default());
        Self { store, requests, connector, options, retry, http, copies }
    }

    /// Begins an upload.
    pub(super) async fn begin(self: Arc<Self>, path: Path) -> object_store::Result<CopyingUpload> {
        let id = self.requests.begin(&path).await?;
        Ok(CopyingUpload { copier: self, path, id, parts: Arc::default(), begun: 0 })
    }

    /// A connection of its own, made once: its requests are counted as all others.
    fn http(&self) -> object_store::Result<&HttpClient> {
        if self.http.get().is_none() {
            let _ = self.http.set(self.connector.connect(&self.options)?);
        }
        self.http.get().ok_or_else(|| failed("no connection"))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn copy_part(
        &self,
        part: NewPart<'_>,
        from: &CopiedRange,
    ) -> object_store::Result<PartId> {
        let (began, mut pause) = (Instant::now(), self.retry.backoff.init_backoff);
        for attempt in 0.. {
            match self.ask(part, from, began).await? {
                Answered::Copied(part) => return Ok(part),
                Answered::Busy(e) => {
                    let is_late = began.elapsed() + pause > self.retry.retry_timeout;
                    if attempt >= self.retry.max_retries || is_late {
                        return Err(e);
                    }
                }
                Answered::Refused(e) => return Err(e),
            }
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(self.retry.backoff.base).min(self.retry.backoff.max_backoff);
        }
        Err(failed("never asked"))
    }

    /// Asks once.
    async fn ask(
        &self,
        part: NewPart<'_>,
        from: &CopiedRange,
        asked: Instant,
    ) -> object_store::Result<Answered> {
        let request = self.requests.request(part, from).await?;
        let answer = match self.http()?.execute(request).await {
            Ok(answer) => answer,
            Err(e) => return Ok(Answered::Busy(failed(e))),
        };
        let status = answer.status().as_u16();
        match answer.into_body().bytes().await {
            Ok(body) => {
                let body = String::from_utf8_lossy(&body);
                Ok(self.requests.understand(part, status, &body, asked))
            }
            Err(e) => Ok(Answered::Busy(failed(e))),
        }
    }
}

/// An upload to a store that may copy parts.
pub(super) struct CopyingUpload {
    copier: Arc<PartCopier>,
    path: Path,
    id: String,
    /// Those that have arrived, by number.
    parts: Arc<Mutex<Vec<Option<PartId>>>>,
    begun: usize,
}

impl CopyingUpload {
    /// Whether it is known that the store copies parts of objects in the bucket of `source`; none
    /// until it was asked.
    pub(super) fn copies(&self, source: &Url) -> Option<bool> {
        self.copier.known().get(&bucket_of(source)).copied()
    }

    /// Whether the store may copy parts of the object at `source`.
    pub(super) fn may_copy_from(&self, source: &Url) -> bool {
        self.copies(source) != Some(false) && self.copier.requests.copies(source, &self.path)
    }

    /// What the store demands of parts.
    pub(super) fn rules(&self) -> PartRules {
        self.copier.requests.rules()
    }

    /// Asks the store to copy the next part. [`object_store::Error::NotSupported`] if it does not
    /// do that: then the part may be uploaded in its place.
    ///
    /// # Errors
    /// [`object_store::Error::Precondition`] if the object is another one by now, and those of
    /// requests.
    pub(super) fn copy_part(&mut self, from: CopiedRange) -> UploadPart {
        let (copier, path, id) = (Arc::clone(&self.copier), self.path.clone(), self.id.clone());
        let (parts, number) = (Arc::clone(&self.parts), self.begun);
        self.begun += 1;
        Box::pin(async move {
            let part = NewPart { path: &path, upload: &id, number };
            let part = copier.copy_part(part, &from).await;
            match &part {
                Ok(_) => {
                    copier.known().insert(bucket_of(&from.url), true);
                    copier.connector.traffic.add_copied(from.range.end - from.range.start);
                }
                Err(object_store::Error::NotSupported { .. }) => {
                    copier.known().insert(bucket_of(&from.url), false);
                }
                Err(_) => {}
            }
            arrive(&parts, number, part?);
            Ok(())
        })
    }

    /// Gives the number of the last part back, which was not copied.
    pub(super) fn take_back(&mut self) {
        self.begun -= 1;
    }
}

fn bucket_of(source: &Url) -> String {
    split(source, source.as_str()).map_or_else(|_| source.to_string(), |(root, _)| root.to_string())
}

fn arrive(parts: &Mutex<Vec<Option<PartId>>>, number: usize, part: PartId) {
    let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
    if parts.len() <= number {
        parts.resize_with(number + 1, || None);
    }
    if let Some(place) = parts.get_mut(number) {
        *place = Some(part);
    }
}

/// An error of the store that is no answer of its own.
pub(super) fn failed(
    source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
) -> object_store::Error {
    object_store::Error::Generic { store: "copy", source: source.into() }
}

impl fmt::Debug for CopyingUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopyingUpload({}, {})", self.path, self.id)
    }
}

#[async_trait]
impl MultipartUpload for CopyingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (copier, path, id) = (Arc::clone(&self.copier), self.path.clone(), self.id.clone());
        let (parts, number) = (Arc::clone(&self.parts), self.begun);
        self.begun += 1;
        Box::pin(async move {
            let part = copier.store.put_part(&path, &id, number, data).await?;
            arrive(&parts, number, part);
            Ok(())
        })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        let arrived = {
            let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.iter().flatten().cloned().collect::<Vec<_>>()
        };
        if arrived.len() != self.begun {
            return Err(failed("an upload is completed before all parts have arrived"));
        }
        self.copier.store.complete_multipart(&self.path, &self.id, arrived).await
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.copier.store.abort_multipart(&self.path, &self.id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_parts_are_left_to_what_is_sent() {
        assert!(PartRules::S3.may_copy(4_999) && !PartRules::S3.may_copy(5_000));
    }
}
