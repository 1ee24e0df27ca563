//! What passes between this process and object stores: counted, and one header added.
//!
//! ```text
//! object_store ── request ──▶ Counted ── POST ?uploadId= gets if-none-match: * ──▶ network
//! ```
//!
//! # Invariants
//! Completing a multipart upload to S3 never replaces an object, unless the store was declared
//! not to know conditions (`aws_conditional_put = "disabled"`). Retries count as requests.
//!
//! # Cost
//! Two atomic additions a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use super::credentials::MetadataServices;
use crate::runtime::{Context, Level};

/// Requests made and bytes moved.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    failed: AtomicU64,
    sent_bytes: AtomicU64,
    asked_bytes: AtomicU64,
    copied_bytes: AtomicU64,
}

impl Traffic {
    /// Requests, retries among them.
    #[must_use]
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Requests that found no server, or one with an error of its own.
    #[must_use]
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Bytes of bodies sent.
    #[must_use]
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that stores copied from one object to another.
    #[must_use]
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that a store copied.
    pub(super) fn add_copied(&self, bytes: u64) {
        self.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of bodies that answers announced.
    #[must_use]
    pub(crate) fn received_bytes(&self) -> u64 {
        self.asked_bytes.load(Ordering::Relaxed)
    }
}

/// Makes clients whose requests are counted.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    pub(super) traffic: Arc<Traffic>,
    pub(super) context: Context,
    /// Whether completing an upload asks that nothing be there.
    pub(super) is_conditional: bool,
    pub(super) services: Arc<MetadataServices>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // The first provider of a process stays; one that is there already does as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let inner = ReqwestConnector::default().connect(options)?;
        let traffic = Arc::clone(&self.traffic);
        let (context, is_conditional) = (self.context.clone(), self.is_conditional);
        let services = Arc::clone(&self.services);
        Ok(HttpClient::new(Counted { inner, traffic, context, is_conditional, services }))
    }
}

#[derive(Debug)]
struct Counted {
    inner: HttpClient,
    traffic: Arc<Traffic>,
    context: Context,
    is_conditional: bool,
    services: Arc<MetadataServices>,
}

#[async_trait]
impl HttpService for Counted {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let query = request.uri().query().unwrap_or_default();
        let completes = request.method() == "POST" && query.contains("uploadId=");
        if self.is_conditional
            && completes
            && let Ok(nothing) = "*".parse()
        {
            // Not among the signed headers, as S3 allows.
            request.headers_mut().insert("if-none-match", nothing);
        }
        let traffic = &self.traffic;
        let is_head = request.method() == "HEAD";
        // Without the query: it may carry a signature.
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let tell = |what: String| {
            self.context
                .events()
                .record(Level::Debug, "store", || format!("{method} {path}: {what}"));
        };
        traffic.requests.fetch_add(1, Ordering::Relaxed);
        traffic.sent_bytes.fetch_add(request.body().content_length() as u64, Ordering::Relaxed);
        let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let answer = self.inner.execute(request);
        let answer = match self.services.contains(&authority) {
            true => self.services.within_time(&authority, answer).await,
            false => answer.await,
        };
        match &answer {
            Ok(answer) if answer.status().is_server_error() => {
                tell(format!("answered {}", answer.status().as_u16()));
                traffic.failed.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer) if !is_head => {
                let length = answer.headers().get("content-length");
                let length = length.and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
                traffic.asked_bytes.fetch_add(length.unwrap_or(0), Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(e) => {
                tell(format!("no answer, {e}"));
                traffic.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        answer
    }
}
