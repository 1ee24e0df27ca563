//! Uploads to S3 whose parts the store may copy from other objects.
//!
//! ```text
//! part of bytes ── PUT ?partNumber= ──────────────────────────────────────▶ part
//! part of another object ── PUT ?partNumber=, x-amz-copy-source, -range ──▶ part, no bytes sent
//! ```
//!
//! # Invariants
//! A part is copied from the version of an object that was read (`x-amz-copy-source-if-match`).
//!
//! # Cost
//! One request a part.
//!
//! # Not here
//! Which bytes are copied (`output`); other stores (`upload`).
//!
//! Source: Amazon S3 API Reference, UploadPartCopy.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::aws::AmazonS3;
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::signer::{HeaderName, HeaderValue, Method, SignedUrlOptions, Signer};
use object_store::{
    ClientOptions, MultipartId, MultipartUpload, PutPayload, PutResult, RetryConfig, UploadPart,
};
use url::Url;

use super::wire::Connector;

/// How long the signature of a request is valid.
const SIGNED_TIME: Duration = Duration::from_secs(600);

/// Whether a store copies parts.
const UNKNOWN: u8 = 0;
const COPIES: u8 = 1;
const REFUSES: u8 = 2;

/// A client of a bucket of S3 that can ask it to copy parts.
pub(super) struct PartCopier {
    store: Arc<AmazonS3>,
    connector: Connector,
    options: ClientOptions,
    retry: RetryConfig,
    http: OnceLock<HttpClient>,
    state: AtomicU8,
}

impl PartCopier {
    pub(super) fn new(
        store: Arc<AmazonS3>,
        connector: Connector,
        options: ClientOptions,
        retry: RetryConfig,
    ) -> Self {
        let (http, state) = (OnceLock::new(), AtomicU8::new(UNKNOWN));
        Self { store, connector, options, retry, http, state }
    }

    /// Begins an upload.
    pub(super) async fn begin(self: Arc<Self>, path: Path) -> object_store::Result<CopyingUpload> {
        let id = self.store.create_multipart(&path).await?;
        Ok(CopyingUpload { copier: self, path, id, parts: Arc::default(), begun: 0 })
    }

    /// A connection of its own, made once: its requests are counted as all others.
    fn http(&self) -> object_store::Result<&HttpClient> {
        if self.http.get().is_none() {
            let _ = self.http.set(self.connector.connect(&self.options)?);
        }
        self.http.get().ok_or_else(|| failed("no connection"))
    }
}

/// Bytes of an object in a bucket of S3.
#[derive(Clone)]
pub(super) struct CopiedRange {
    /// `s3://bucket/key`.
    pub(super) url: Url,
    /// The entity tag of the version that was read.
    pub(super) tag: String,
    pub(super) range: Range<u64>,
}

impl CopiedRange {
    /// The headers of a request that copies the range.
    fn headers(&self) -> object_store::Result<[(HeaderName, HeaderValue); 3]> {
        let bucket = self.url.host_str().unwrap_or_default();
        // A plus is a space to some stores.
        let source = format!("{bucket}{}", self.url.path().replace('+', "%2B"));
        let last = self.range.end.saturating_sub(1);
        let range = format!("bytes={}-{last}", self.range.start);
        let value = |text: &str| text.parse().map_err(failed);
        Ok([
            (HeaderName::from_static("x-amz-copy-source"), value(&source)?),
            (HeaderName::from_static("x-amz-copy-source-range"), value(&range)?),
            (HeaderName::from_static("x-amz-copy-source-if-match"), value(&self.tag)?),
        ])
    }
}

/// An upload to S3.
pub(super) struct CopyingUpload {
    copier: Arc<PartCopier>,
    path: Path,
    id: MultipartId,
    /// Those that have arrived, by number.
    parts: Arc<Mutex<Vec<Option<PartId>>>>,
    begun: usize,
}

/// How a store answered the request to copy a part.
enum Answered {
    Copied(PartId),
    /// Worth asking again: the store is busy, or did not answer.
    Busy(object_store::Error),
    Refused(object_store::Error),
}

impl CopyingUpload {
    /// Whether it is known that the store copies parts; none until it was asked.
    pub(super) fn copies_parts(&self) -> Option<bool> {
        match self.copier.state.load(Ordering::Relaxed) {
            UNKNOWN => None,
            state => Some(state == COPIES),
        }
    }

    /// Asks the store to copy the next part. [`object_store::Error::NotSupported`] if it does not do
    /// that: then the part may be uploaded in its place.
    ///
    /// # Errors
    /// [`object_store::Error::Precondition`] if the object is another one by now, and those of
    /// requests.
    pub(super) fn copy_part(&mut self, from: CopiedRange) -> UploadPart {
        let (copier, path, id) = (Arc::clone(&self.copier), self.path.clone(), self.id.clone());
        let (parts, number) = (Arc::clone(&self.parts), self.begun);
        self.begun += 1;
        Box::pin(async move {
            let part = copy_part(&copier, &path, &id, number, &from).await;
            match &part {
                Ok(_) => {
                    copier.state.store(COPIES, Ordering::Relaxed);
                    copier.connector.traffic.add_copied(from.range.end - from.range.start);
                }
                Err(object_store::Error::NotSupported { .. }) => {
                    copier.state.store(REFUSES, Ordering::Relaxed);
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

async fn copy_part(
    copier: &PartCopier,
    path: &Path,
    id: &str,
    number: usize,
    from: &CopiedRange,
) -> object_store::Result<PartId> {
    let (began, mut pause) = (Instant::now(), copier.retry.backoff.init_backoff);
    for attempt in 0.. {
        match ask(copier, path, id, number, from).await? {
            Answered::Copied(part) => return Ok(part),
            Answered::Busy(e) => {
                let is_late = began.elapsed() + pause > copier.retry.retry_timeout;
                if attempt >= copier.retry.max_retries || is_late {
                    return Err(e);
                }
            }
            Answered::Refused(e) => return Err(e),
        }
        tokio::time::sleep(pause).await;
        pause = pause.mul_f64(copier.retry.backoff.base).min(copier.retry.backoff.max_backoff);
    }
    Err(failed("never asked"))
}

/// Asks once.
async fn ask(
    copier: &PartCopier,
    path: &Path,
    id: &str,
    number: usize,
    from: &CopiedRange,
) -> object_store::Result<Answered> {
    let part = (number + 1).to_string();
    let mut options =
        SignedUrlOptions::new().with_query([("partNumber", &*part), ("uploadId", id)]);
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    for (name, value) in from.headers()? {
        request.headers_mut().insert(name.clone(), value.clone());
        options = options.with_signed_header(name, value);
    }
    let url = copier.store.signed_url_opts(Method::PUT, path, SIGNED_TIME, &options).await?;
    *request.method_mut() = Method::PUT;
    *request.uri_mut() = url.as_str().parse().map_err(failed)?;
    let answer = match copier.http()?.execute(request).await {
        Ok(answer) => answer,
        Err(e) => return Ok(Answered::Busy(failed(e))),
    };
    let status = answer.status().as_u16();
    match answer.into_body().bytes().await {
        Ok(body) => Ok(understand(status, &String::from_utf8_lossy(&body), path)),
        Err(e) => Ok(Answered::Busy(failed(e))),
    }
}

/// What an answer means. S3 begins some with 200 before it knows whether it fails.
fn understand(status: u16, body: &str, path: &Path) -> Answered {
    let element = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    if let (200, Some(tag)) = (status, element("ETag")) {
        let content_id = tag.trim().replace("&quot;", "\"").replace("&#34;", "\"");
        return Answered::Copied(PartId { content_id });
    }
    let code = element("Code").unwrap_or_default();
    let e = || failed(format!("Server returned non-2xx status code: {status}: {body}"));
    let (path, source) = (path.to_string(), Box::new(e()));
    match (status, code) {
        (412, _) | (404, "NoSuchKey") => {
            Answered::Refused(object_store::Error::Precondition { path, source })
        }
        (404, _) => Answered::Refused(object_store::Error::NotFound { path, source }),
        (200 | 408 | 429 | 500 | 502..=599, _) => Answered::Busy(e()),
        _ => Answered::Refused(object_store::Error::NotSupported { source }),
    }
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

fn failed(
    source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: source.into() }
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
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;

    fn answered(status: u16, body: &str) -> &'static str {
        match understand(status, body, &Path::from("k")) {
            Answered::Copied(_) => "copied",
            Answered::Busy(_) => "busy",
            Answered::Refused(object_store::Error::Precondition { .. }) => "changed",
            Answered::Refused(object_store::Error::NotSupported { .. }) => "refused",
            Answered::Refused(_) => "failed",
        }
    }

    #[test]
    fn answers_are_copies_or_tell_what_to_do() {
        let done = "\n\n<CopyPartResult><ETag>&quot;ab&quot;</ETag></CopyPartResult>";
        let Answered::Copied(part) = understand(200, done, &Path::from("k")) else {
            panic!("not copied")
        };
        assert_eq!(part.content_id, "\"ab\"");
        let error = |code: &str| format!("<Error><Code>{code}</Code></Error>");
        // An error that S3 found after it had begun to answer.
        assert_eq!(answered(200, &error("InternalError")), "busy");
        assert_eq!(answered(200, "<CopyPartResult><ETag>"), "busy");
        assert_eq!(answered(503, &error("SlowDown")), "busy");
        assert_eq!(answered(412, &error("PreconditionFailed")), "changed");
        assert_eq!(answered(404, &error("NoSuchKey")), "changed");
        assert_eq!(answered(404, &error("NoSuchUpload")), "failed");
        assert_eq!(answered(501, &error("NotImplemented")), "refused");
        assert_eq!(answered(403, &error("AccessDenied")), "refused");
        assert_eq!(answered(400, ""), "refused");
    }

    #[test]
    fn the_source_is_named_as_a_url_with_its_version() {
        let url = Url::parse("s3://b/d/a%20b+c.parquet").unwrap();
        let from = CopiedRange { url, tag: "\"t\"".to_owned(), range: 5..12 };
        let headers = from.headers().unwrap();
        let of = |name: &str| {
            let found = headers.iter().find(|(n, _)| n.as_str() == name).unwrap();
            found.1.to_str().unwrap().to_owned()
        };
        assert_eq!(of("x-amz-copy-source"), "b/d/a%20b%2Bc.parquet");
        assert_eq!(of("x-amz-copy-source-range"), "bytes=5-11");
        assert_eq!(of("x-amz-copy-source-if-match"), "\"t\"");
    }
}
