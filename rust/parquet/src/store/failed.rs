//! The error for a request to an object store that failed.
//!
//! # Invariants
//! What a store answers in XML is shown as its code and message, never as XML.
//!
//! # Not here
//! Requests, and which of them are repeated (`remote`).

use std::fmt;

use plait_core::{Error, Kind};

use super::credentials::silence;

/// Codes of S3 and Google Cloud Storage, and of Azure.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// The error for a request for `location`.
pub(super) fn request_error(e: object_store::Error, location: &str) -> Error {
    if let Some(silent) = silence(&e) {
        return silent.error(location);
    }
    let answer = Answer::of(&e.to_string());
    if let Some(answer) = answer.as_ref().filter(|a| NO_BUCKET.contains(&a.code.as_str())) {
        let bucket = answer.bucket.as_deref().unwrap_or_else(|| bucket_of(location));
        return Error::new(Kind::Storage, "the bucket does not exist")
            .with_path(location)
            .with_got(format!("`{bucket}`, code {}", answer.code))
            .with_hint("check its name, and the region and endpoint in `storage_options`");
    }
    let failed = match &e {
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => {
            Error::new(Kind::Storage, super::reader::REFUSED)
                .with_path(location)
                .with_hint("credentials are taken from `storage_options` and the environment")
        }
        object_store::Error::NotFound { .. } => super::reader::not_found(location),
        _ => Error::new(Kind::Storage, "a request to the object store failed").with_path(location),
    };
    if let Some(answer) = answer {
        return failed.with_got(answer.to_string());
    }
    let root = root_cause(&e).to_string();
    // The client's own text ends at "error sending request".
    let is_told = failed.kind() != Kind::Storage
        || failed.what() == super::reader::REFUSED
        || e.to_string().contains(&root);
    if is_told { failed.with_cause(e) } else { failed.with_got(root).with_cause(e) }
}

/// What a store answered in XML.
struct Answer {
    code: String,
    message: String,
    bucket: Option<String>,
}

impl Answer {
    /// The answer in the text of an error, if there is one.
    fn of(text: &str) -> Option<Self> {
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            let (inner, _) = rest.split_once(&format!("</{name}>"))?;
            // Azure adds lines with the number and the time of the request.
            Some(inner.lines().next().unwrap_or_default().trim().to_owned())
        };
        let code = element("Code")?;
        let message = element("Message").unwrap_or_default();
        Some(Self { code, message, bucket: element("BucketName") })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

/// The bucket that a URL names.
fn bucket_of(location: &str) -> &str {
    let (_, rest) = location.split_once("://").unwrap_or(("", location));
    rest.split('/').next().unwrap_or(rest)
}

/// The error that made all others: a refused connection, a certificate that is not trusted.
fn root_cause(e: &object_store::Error) -> &dyn std::error::Error {
    let mut cause: &dyn std::error::Error = e;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(body: &str) -> Error {
        let source = format!("Server returned non-2xx status code: 404 Not Found: {body}").into();
        request_error(object_store::Error::Generic { store: "S3", source }, "s3://b/d/k")
    }

    #[test]
    fn answers_in_xml_are_codes_and_messages() {
        let none = "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code>\
                    <Message>The bucket is not there</Message></Error>";
        let hint = "\nhint: check its name, and the region and endpoint in `storage_options`";
        let wanted = "the bucket does not exist: file `s3://b/d/k`, got `b`, code NoSuchBucket";
        assert_eq!(failed(none).to_string(), format!("{wanted}{hint}"));
        let named = none.replace("</Message>", "</Message><BucketName>other</BucketName>");
        assert_eq!(failed(&named).got(), Some("`other`, code NoSuchBucket"));
        let azure = "<Error><Code>ContainerNotFound</Code><Message>No.\nRequestId:1</Message>";
        assert_eq!(failed(azure).got(), Some("`b`, code ContainerNotFound"));
        let busy = "<Error><Code>SlowDown</Code><Message>Please wait.\nTime:1</Message></Error>";
        assert_eq!(
            failed(busy).to_string(),
            "a request to the object store failed: file `s3://b/d/k`, got SlowDown: Please wait."
        );
        assert_eq!(failed("<Code>E</Code>").got(), Some("E"));
        let text = failed("no answer").to_string();
        assert!(text.contains("404 Not Found: no answer"), "{text}");
    }
}
