//! Requests that make bytes of an object of S3 a part of an upload.
//!
//! ```text
//! PUT ?partNumber=&uploadId=, x-amz-copy-source, -range, -if-match ──▶ 200 <CopyPartResult>
//! ```
//!
//! # Invariants
//! A part is copied from the version of an object that was read (`x-amz-copy-source-if-match`).
//!
//! # Cost
//! One request a part.
//!
//! # Not here
//! Asking again, and parts of bytes (`copied`).
//!
//! Source: Amazon S3 API Reference, UploadPartCopy.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use object_store::aws::AmazonS3;
use object_store::client::{HttpRequest, HttpRequestBody};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::signer::{HeaderName, HeaderValue, Method, SignedUrlOptions, Signer};
use url::Url;

use super::copied::{
    Answered, CopiedRange, CopyRequests, NewPart, PartRules, SIGNED_TIME, element, failed,
};
use super::urls::is_s3;

/// Copies of a bucket of S3.
pub(super) struct S3Requests(pub(super) Arc<AmazonS3>);

#[async_trait]
impl CopyRequests for S3Requests {
    fn copies(&self, source: &Url, _target: &Path) -> bool {
        is_s3(source)
    }

    fn rules(&self) -> PartRules {
        PartRules::S3
    }

    async fn begin(&self, path: &Path) -> object_store::Result<String> {
        self.0.create_multipart(path).await
    }

    async fn request(
        &self,
        part: NewPart<'_>,
        from: &CopiedRange,
    ) -> object_store::Result<HttpRequest> {
        let number = (part.number + 1).to_string();
        let mut options = SignedUrlOptions::new()
            .with_query([("partNumber", &*number), ("uploadId", part.upload)]);
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        for (name, value) in headers(from)? {
            request.headers_mut().insert(name.clone(), value.clone());
            options = options.with_signed_header(name, value);
        }
        let url = self.0.signed_url_opts(Method::PUT, part.path, SIGNED_TIME, &options).await?;
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = url.as_str().parse().map_err(failed)?;
        Ok(request)
    }

    /// S3 begins some answers with 200 before it knows whether it fails.
    fn understand(&self, part: NewPart<'_>, status: u16, body: &str, _: Instant) -> Answered {
        understand(part.path, status, body)
    }
}

fn understand(path: &Path, status: u16, body: &str) -> Answered {
    match (status, element(body, "ETag")) {
        (200, Some(tag)) => {
            let content_id = tag.trim().replace("&quot;", "\"").replace("&#34;", "\"");
            Answered::Copied(PartId { content_id })
        }
        _ => Answered::failed(path, status, body),
    }
}

/// The headers of a request that copies a range.
fn headers(from: &CopiedRange) -> object_store::Result<[(HeaderName, HeaderValue); 3]> {
    let bucket = from.url.host_str().unwrap_or_default();
    // A plus is a space to some stores.
    let source = format!("{bucket}{}", from.url.path().replace('+', "%2B"));
    let value = |text: &str| text.parse().map_err(failed);
    Ok([
        (HeaderName::from_static("x-amz-copy-source"), value(&source)?),
        (HeaderName::from_static("x-amz-copy-source-range"), value(&from.bytes())?),
        (HeaderName::from_static("x-amz-copy-source-if-match"), value(&from.tag)?),
    ])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;

    fn answered(status: u16, body: &str) -> &'static str {
        match understand(&Path::from("k"), status, body) {
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
        let Answered::Copied(part) = understand(&Path::from("k"), 200, done) else {
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
        let headers = headers(&from).unwrap();
        let of = |name: &str| {
            let found = headers.iter().find(|(n, _)| n.as_str() == name).unwrap();
            found.1.to_str().unwrap().to_owned()
        };
        assert_eq!(of("x-amz-copy-source"), "b/d/a%20b%2Bc.parquet");
        assert_eq!(of("x-amz-copy-source-range"), "bytes=5-11");
        assert_eq!(of("x-amz-copy-source-if-match"), "\"t\"");
    }
}
