//! Requests that make bytes of an Azure blob a block of an upload.
//!
//! ```text
//! credential    block of the upload              blob that is copied
//! account key   signed URL                       signed URL
//! SAS token     URL with the token               URL with the token
//! bearer token  Authorization                    x-ms-copy-source-authorization
//!
//! PUT ?comp=block&blockid=, x-ms-copy-source, x-ms-source-range, x-ms-source-if-match ──▶ 201
//! ```
//!
//! # Invariants
//! A block is copied from the version of a blob that was read (`x-ms-source-if-match`). Credentials
//! go to the endpoint of the settings alone.
//!
//! # Cost
//! One request a block. Signing needs none.
//!
//! # Not here
//! Asking again, and blocks of bytes (`copied`).
//!
//! Source: Azure Storage REST API, Put Block From URL.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use object_store::StaticCredentialProvider;
use object_store::azure::{
    AzureAccessKey, AzureCredential, AzureCredentialProvider, MicrosoftAzure,
};
use object_store::client::{HttpRequest, HttpRequestBody};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::signer::{HeaderName, HeaderValue, Method, Signer};
use url::Url;

use super::copied::{Answered, CopiedRange, CopyRequests, NewPart, PartRules, SIGNED_TIME, failed};
use super::urls::{is_azure, split};

/// The version of the service whose rules the requests follow.
const VERSION: &str = "2023-11-03";

/// A key that signs nothing that is sent.
pub(super) const NO_KEY: &str = "AA==";

/// Makes a client of the container of a URL, with credentials or with [`NO_KEY`].
pub(super) type MakeAzure = Box<
    dyn Fn(&Url, Option<AzureCredentialProvider>) -> object_store::Result<MicrosoftAzure>
        + Send
        + Sync,
>;

/// Copies to a container of Azure.
pub(super) struct AzureRequests {
    /// The URL of the container.
    root: Url,
    store: Arc<MicrosoftAzure>,
    make: MakeAzure,
    /// Whether requests are signed, by a key.
    signs: AtomicBool,
    /// Those that were copied from or to, by URL.
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
}

/// A container whose blobs have addresses.
struct Container {
    /// Signs URLs.
    signing: MicrosoftAzure,
    /// Tells URLs: the client gives none without a signature.
    plain: MicrosoftAzure,
}

impl Container {
    /// The URL of a blob, without a signature.
    async fn url(&self, path: &Path) -> object_store::Result<Url> {
        let mut url = self.plain.signed_url(Method::GET, path, SIGNED_TIME).await?;
        url.set_query(None);
        Ok(url)
    }
}

/// Where a blob is for a request, and the token that lets it in.
struct Address {
    url: Url,
    bearer: Option<HeaderValue>,
}

impl AzureRequests {
    pub(super) fn new(root: Url, store: Arc<MicrosoftAzure>, make: MakeAzure) -> Self {
        Self { root, store, make, signs: AtomicBool::default(), containers: Mutex::default() }
    }

    fn container(&self, root: &Url) -> object_store::Result<Arc<Container>> {
        let mut containers = self.containers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(container) = containers.get(root.as_str()) {
            return Ok(Arc::clone(container));
        }
        let credentials = Arc::clone(self.store.credentials());
        let signing = (self.make)(root, Some(credentials))?;
        let container = Arc::new(Container { signing, plain: (self.make)(root, None)? });
        containers.insert(root.to_string(), Arc::clone(&container));
        Ok(container)
    }

    /// The address of the blob at `path` of the container `root`.
    async fn address(
        &self,
        root: &Url,
        path: &Path,
        method: Method,
    ) -> object_store::Result<Address> {
        let container = self.container(root)?;
        let credential = self.store.credentials().get_credential().await?;
        Ok(match &*credential {
            AzureCredential::AccessKey(_) => {
                let url = container.signing.signed_url(method.clone(), path, SIGNED_TIME).await?;
                Address { url, bearer: None }
            }
            AzureCredential::SASToken(pairs) => {
                let mut url = container.url(path).await?;
                url.query_pairs_mut().extend_pairs(pairs);
                Address { url, bearer: None }
            }
            AzureCredential::BearerToken(token) => {
                let bearer = secret(&format!("Bearer {token}"))?;
                Address { url: container.url(path).await?, bearer: Some(bearer) }
            }
        })
    }
}

#[async_trait]
impl CopyRequests for AzureRequests {
    /// `object_store` signs names as URLs write them, where Azure wants them as they are.
    fn copies(&self, source: &Url, target: &Path) -> bool {
        let mut url = self.root.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(target.parts());
        }
        let is_plain = |url: &Url| !url.path().contains('%');
        let signs = self.signs.load(Ordering::Relaxed);
        is_azure(source) && (!signs || is_plain(source) && is_plain(&url))
    }

    fn rules(&self) -> PartRules {
        PartRules { bytes_min: 1, parts_max: 50_000 }
    }

    /// Blocks have names, and those of two uploads to one blob must differ.
    async fn begin(&self, _path: &Path) -> object_store::Result<String> {
        let credential = self.store.credentials().get_credential().await?;
        let signs = matches!(&*credential, AzureCredential::AccessKey(_));
        self.signs.store(signs, Ordering::Relaxed);
        let random = |seed: u8| RandomState::new().hash_one((seed, std::process::id()));
        Ok(format!("{:016x}{:08x}", random(0), random(1) >> 32))
    }

    async fn request(
        &self,
        part: NewPart<'_>,
        from: &CopiedRange,
    ) -> object_store::Result<HttpRequest> {
        let (root, key) = split(&from.url, from.url.as_str()).map_err(failed)?;
        let source = self.address(&root, &Path::parse(key)?, Method::GET).await?;
        let mut target = self.address(&self.root, part.path, Method::PUT).await?;
        let block = BASE64_STANDARD.encode(block_of(part));
        target.url.query_pairs_mut().append_pair("comp", "block").append_pair("blockid", &block);

        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = target.url.as_str().parse().map_err(failed)?;
        let value = |text: &str| text.parse::<HeaderValue>().map_err(failed);
        let headers = [
            ("content-length", Some(value("0")?)),
            ("x-ms-version", Some(value(VERSION)?)),
            ("x-ms-source-range", Some(value(&from.bytes())?)),
            ("x-ms-source-if-match", Some(value(&from.tag)?)),
            ("x-ms-copy-source", Some(secret(source.url.as_str())?)),
            ("x-ms-copy-source-authorization", source.bearer),
            ("authorization", target.bearer),
        ];
        for (name, value) in headers {
            if let Some(value) = value {
                request.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        Ok(request)
    }

    fn understand(&self, part: NewPart<'_>, status: u16, body: &str) -> Answered {
        match status {
            201 => Answered::Copied(PartId { content_id: block_of(part) }),
            _ => Answered::failed(part.path, status, body),
        }
    }
}

/// The name of a block: as long as those that `object_store` gives, as all of a blob must be.
fn block_of(part: NewPart<'_>) -> String {
    format!("{}{:08x}", part.upload, part.number)
}

/// A header that no message may show.
fn secret(text: &str) -> object_store::Result<HeaderValue> {
    let mut value: HeaderValue = text.parse().map_err(failed)?;
    value.set_sensitive(true);
    Ok(value)
}

/// What signs URLs that are only looked at.
pub(super) fn no_key() -> object_store::Result<AzureCredentialProvider> {
    let key = AzureCredential::AccessKey(AzureAccessKey::try_new(NO_KEY)?);
    Ok(Arc::new(StaticCredentialProvider::new(key)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use object_store::azure::MicrosoftAzureBuilder;
    use object_store::multipart::MultipartStore;

    use super::*;

    /// Copies to `az://out` of an account that has `credential`.
    fn requests(credential: AzureCredential) -> AzureRequests {
        drop(rustls::crypto::ring::default_provider().install_default());
        let make = |url: &Url, credentials: Option<AzureCredentialProvider>| {
            MicrosoftAzureBuilder::new()
                .with_account("acc")
                .with_url(url.as_str())
                .with_credentials(credentials.map_or_else(no_key, Ok)?)
                .build()
        };
        let root = Url::parse("az://out").unwrap();
        let store = make(&root, Some(Arc::new(StaticCredentialProvider::new(credential)))).unwrap();
        AzureRequests::new(root, Arc::new(store), Box::new(make))
    }

    /// The request that copies bytes of `source`.
    fn request(credential: AzureCredential, source: &str) -> HttpRequest {
        let from = CopiedRange {
            url: Url::parse(source).unwrap(),
            tag: "\"0x1\"".to_owned(),
            range: 5..12,
        };
        let path = Path::from("d/new.parquet");
        let part = NewPart { path: &path, upload: "0123456789abcdef01234567", number: 10 };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(requests(credential).request(part, &from)).unwrap()
    }

    fn header<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
        request.headers().get(name).map(|value| value.to_str().unwrap())
    }

    fn query(url: &Url) -> BTreeMap<String, String> {
        url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    }

    const BLOCK: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3MDAwMDAwMGE=";

    #[test]
    fn a_key_signs_the_addresses_of_both_blobs() {
        let key = AzureCredential::AccessKey(AzureAccessKey::try_new("c2VjcmV0").unwrap());
        let request = request(key, "az://in/d/a%20b.parquet");
        let target = Url::parse(&request.uri().to_string()).unwrap();
        assert_eq!(target.host_str(), Some("acc.blob.core.windows.net"));
        assert_eq!(target.path(), "/out/d/new.parquet");
        let asked = query(&target);
        assert_eq!((&*asked["comp"], &*asked["blockid"], &*asked["sp"]), ("block", BLOCK, "w"));
        let source = Url::parse(header(&request, "x-ms-copy-source").unwrap()).unwrap();
        assert_eq!(source.path(), "/in/d/a%20b.parquet");
        assert_eq!(query(&source)["sp"], "r");
        assert_eq!(header(&request, "x-ms-source-range"), Some("bytes=5-11"));
        assert_eq!(header(&request, "x-ms-source-if-match"), Some("\"0x1\""));
        assert_eq!(header(&request, "authorization"), None);
        assert!(request.headers()["x-ms-copy-source"].is_sensitive());
    }

    #[test]
    fn a_token_is_sent_for_both_and_signs_nothing() {
        let pairs =
            vec![("sig".to_owned(), "a+b/=".to_owned()), ("sp".to_owned(), "rw".to_owned())];
        let request_with =
            request(AzureCredential::SASToken(pairs), "abfss://in@acc.dfs.core.windows.net/a");
        let target = Url::parse(&request_with.uri().to_string()).unwrap();
        let source = Url::parse(header(&request_with, "x-ms-copy-source").unwrap()).unwrap();
        assert_eq!(source.path(), "/in/a");
        for url in [&target, &source] {
            assert_eq!(query(url)["sig"], "a+b/=");
            assert_eq!(query(url).get("se"), None);
        }
        let bearer = AzureCredential::BearerToken("t".to_owned());
        let request = request(bearer, "az://in/a");
        assert_eq!(
            header(&request, "x-ms-copy-source"),
            Some("https://acc.blob.core.windows.net/in/a")
        );
        for name in ["authorization", "x-ms-copy-source-authorization"] {
            assert_eq!(header(&request, name), Some("Bearer t"));
            assert!(request.headers()[name].is_sensitive());
        }
        let target = Url::parse(&request.uri().to_string()).unwrap();
        assert_eq!(query(&target).len(), 2);
    }

    #[test]
    fn a_key_copies_blobs_whose_names_are_written_as_they_are() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let copies = |credential: AzureCredential, source: &str, target: &str| {
            let (requests, path) = (requests(credential), Path::from(target));
            runtime.block_on(requests.begin(&path)).unwrap();
            requests.copies(&Url::parse(source).unwrap(), &path)
        };
        let key = || AzureCredential::AccessKey(AzureAccessKey::try_new("c2VjcmV0").unwrap());
        let token = || AzureCredential::BearerToken("t".to_owned());
        assert!(copies(key(), "az://in/day=1/a+b.parquet", "day=1/c.parquet"));
        assert!(!copies(key(), "az://in/day=1/a%20b.parquet", "day=1/c.parquet"));
        assert!(!copies(key(), "az://in/day=1/a.parquet", "day 1/c.parquet"));
        assert!(copies(token(), "az://in/day=1/a%20b.parquet", "day 1/c.parquet"));
        assert!(!copies(token(), "s3://in/a.parquet", "c.parquet"));
    }

    #[test]
    fn uploads_to_one_blob_have_blocks_of_other_names_and_of_one_length() {
        let requests = requests(AzureCredential::BearerToken("t".to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let path = Path::from("a");
        let begin = || runtime.block_on(requests.begin(&path)).unwrap();
        let (one, other) = (begin(), begin());
        assert_ne!(one, other);
        let name = |upload: &str, number| block_of(NewPart { path: &path, upload, number });
        assert_eq!([name(&one, 0), name(&other, 49_999)].map(|name| name.len()), [32, 32]);
        // `MultipartStore` of the client sends the names that it gets.
        assert_eq!(runtime.block_on(requests.store.create_multipart(&path)).unwrap(), "");
    }

    #[test]
    fn answers_are_copies_or_tell_what_to_do() {
        let requests = requests(AzureCredential::BearerToken("t".to_owned()));
        let path = Path::from("a");
        let part = NewPart { path: &path, upload: "u", number: 1 };
        let Answered::Copied(copied) = requests.understand(part, 201, "") else {
            panic!("not copied")
        };
        assert_eq!(copied.content_id, "u00000001");
        let answered = |status: u16, code: &str| {
            let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
            match requests.understand(part, status, &body) {
                Answered::Copied(_) => "copied",
                Answered::Busy(_) => "busy",
                Answered::Refused(object_store::Error::Precondition { .. }) => "changed",
                Answered::Refused(object_store::Error::NotSupported { .. }) => "refused",
                Answered::Refused(_) => "failed",
            }
        };
        assert_eq!(answered(412, "SourceConditionNotMet"), "changed");
        assert_eq!(answered(404, "CannotVerifyCopySource"), "changed");
        assert_eq!(answered(404, "ContainerNotFound"), "failed");
        assert_eq!(answered(403, "CannotVerifyCopySource"), "refused");
        assert_eq!(answered(403, "AuthorizationPermissionMismatch"), "refused");
        assert_eq!(answered(501, "NotImplemented"), "refused");
        assert_eq!(answered(503, "ServerBusy"), "busy");
        assert_eq!(answered(500, "CannotVerifyCopySource"), "busy");
    }
}
