//! URLs of objects: which kind of store, which bucket, which key.
//!
//! ```text
//! s3://bucket/d/k                                    s3://bucket                  d/k
//! abfss://box@acc.dfs.core.windows.net/d/k           abfss://box@acc…             d/k
//! https://acc.blob.core.windows.net/box/d/k          https://acc…/box             d/k
//! ```
//!
//! # Not here
//! Clients of stores (`settings`).

use object_store::ObjectStoreScheme;
use plait_core::{Error, Kind, Result};
use url::{Position, Url};

/// Whether the URL is one of S3, and names the bucket as its host.
pub(super) fn is_s3(url: &Url) -> bool {
    matches!(url.scheme(), "s3" | "s3a")
}

/// Whether the URL is one of Azure.
pub(super) fn is_azure(url: &Url) -> bool {
    matches!(ObjectStoreScheme::parse(url), Ok((ObjectStoreScheme::MicrosoftAzure, _)))
}

/// Splits a URL into that of its bucket and the key.
pub(super) fn split(url: &Url, location: &str) -> Result<(Url, String)> {
    let parsed = ObjectStoreScheme::parse(url);
    let (_, path) = parsed.map_err(|e| unknown(location).with_cause(e))?;
    let mut root =
        Url::parse(&url[..Position::AfterPath]).map_err(|e| unknown(location).with_cause(e))?;
    if let Ok(mut segments) = root.path_segments_mut() {
        segments.pop_if_empty();
        for _ in path.parts() {
            segments.pop();
        }
    }
    Ok((root, path.as_ref().to_owned()))
}

/// The error for a URL of no store.
pub(super) fn unknown(location: &str) -> Error {
    let buckets = ["s3", "s3a", "gs", "az", "abfs", "abfss"];
    if let Some((scheme, rest)) = location.split_once("://")
        && buckets.contains(&scheme)
        && (rest.is_empty() || rest.starts_with('/'))
    {
        return Error::new(Kind::InvalidArgument, "the URL names no bucket")
            .with_path(location)
            .with_hint(format!("write {scheme}://BUCKET/{}", rest.trim_start_matches('/')));
    }
    Error::new(Kind::InvalidArgument, "location is not one of a known object store")
        .with_path(location)
        .with_hint("known are local paths and file, s3, gs, az, abfs(s), http(s) URLs")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn urls_are_split_into_bucket_and_key() {
        for (text, root, key) in [
            ("s3://b/d/k.parquet", "s3://b/", "d/k.parquet"),
            ("s3://b", "s3://b", ""),
            ("http://h:1/d/a%20b", "http://h:1/", "d/a b"),
            ("https://s3.eu-1.amazonaws.com/b/d/k", "https://s3.eu-1.amazonaws.com/b", "d/k"),
            ("az://box/k", "az://box/", "k"),
            (
                "abfss://box@a.dfs.core.windows.net/d/k",
                "abfss://box@a.dfs.core.windows.net/",
                "d/k",
            ),
            ("https://a.blob.core.windows.net/box/k", "https://a.blob.core.windows.net/box", "k"),
        ] {
            let url = Url::parse(text).unwrap();
            let found = split(&url, text).unwrap();
            assert_eq!((found.0.as_str(), &*found.1), (root, key));
            assert_eq!(is_s3(&url), text.starts_with("s3:"));
            assert_eq!(
                is_azure(&url),
                ["az:", "abfss:"].iter().any(|s| text.starts_with(s)) || text.contains(".blob.")
            );
        }
    }
}
