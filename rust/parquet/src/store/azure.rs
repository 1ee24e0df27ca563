//! Requests that make bytes of an Azure blob a block of an upload.
//!
//! ```text
//! credential    block of the upload     blob that is copied
//! account key   signed URL              signed URL
//! SAS token     URL with the token      URL with the token
//! bearer token  Authorization           x-ms-copy-source-authorization
//!
//! PUT ?comp=block&blockid=, x-ms-copy-source, x-ms-source-range, x-ms-source-if-match ──▶ 201
//! ```
//!
//! # Invariants
//! A block is copied from the version of a blob that was read (`x-ms-source-if-match`). What lets
//! the store read the source goes to the store of the output, which is asked to read it.
//!
//! # Cost
//! One request a block. Signing needs none.
//!
//! # Not here
//! Asking again, and blocks of bytes (`copied`).
//!
//! Source: Azure Storage REST API, Put Block From URL.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use object_store::StaticCredentialProvider;
use object_store::azure::{
    AzureAccessKey, AzureAuthorizer, AzureCredential, AzureCredentialProvider, MicrosoftAzure,
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
    /// Whether a key signs addresses.
    signs: AtomicBool,
    /// Clients of containers, by URL: those that sign addresses, or tell them. A client tells none
    /// without a signature.
    containers: Mutex<BTreeMap<String, Arc<MicrosoftAzure>>>,
    /// The addresses that were signed last.
    signed: Mutex<VecDeque<Signed>>,
}

/// The signed address of a blob, for one kind of request.
struct Signed {
    root: Url,
    path: Path,
    method: Method,
    url: Url,
    at: Instant,
}

/// So many signed addresses are kept, for half of the time that they are valid.
const SIGNED_MAX: usize = 64;

/// A signature is valid from its second on, by the clock of this machine. So long may that be ahead
/// of the clock of the store.
const CLOCK_AHEAD: Duration = Duration::from_secs(3);

impl AzureRequests {
    pub(super) fn new(root: Url, store: Arc<MicrosoftAzure>, make: MakeAzure) -> Self {
        let signs = AtomicBool::default();
        let (containers, signed) = (Mutex::default(), Mutex::default());
        Self { root, store, make, signs, containers, signed }
    }

    fn container(&self, root: &Url) -> object_store::Result<Arc<MicrosoftAzure>> {
        let signs = self.signs.load(Ordering::Relaxed);
        if signs && *root == self.root {
            return Ok(Arc::clone(&self.store));
        }
        let mut containers = lock(&self.containers);
        if let Some(container) = containers.get(root.as_str()) {
            return Ok(Arc::clone(container));
        }
        let credentials = signs.then(|| Arc::clone(self.store.credentials()));
        let container = Arc::new((self.make)(root, credentials)?);
        containers.insert(root.to_string(), Arc::clone(&container));
        Ok(container)
    }

    /// The URL of the blob at `path` of the container `root`, signed if a key signs.
    async fn address(&self, root: &Url, path: &Path, method: Method) -> object_store::Result<Url> {
        let signs = self.signs.load(Ordering::Relaxed);
        let is_it = |of: &&Signed| {
            (&of.root, &of.path, &of.method) == (root, path, &method)
                && of.at.elapsed() < SIGNED_TIME / 2
        };
        if let Some(found) = lock(&self.signed).iter().find(is_it) {
            return Ok(found.url.clone());
        }
        let container = self.container(root)?;
        let mut url = container.signed_url(method.clone(), path, SIGNED_TIME).await?;
        if !signs {
            url.set_query(None);
        }
        // A plus is a space to some stores.
        url.set_path(&url.path().replace('+', "%2B"));
        let mut signed = lock(&self.signed);
        signed.truncate(SIGNED_MAX - 1);
        let (root, path, at) = (root.clone(), path.clone(), Instant::now());
        signed.push_front(Signed { root, path, method, url: url.clone(), at });
        Ok(url)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
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
        let credential = self.store.credentials().get_credential().await?;
        let (root, key) = split(&from.url, from.url.as_str()).map_err(failed)?;
        let mut source = self.address(&root, &Path::parse(key)?, Method::GET).await?;
        let mut target = self.address(&self.root, part.path, Method::PUT).await?;
        let block = BASE64_STANDARD.encode(block_of(part));
        target.query_pairs_mut().append_pair("comp", "block").append_pair("blockid", &block);
        let bearer = match &*credential {
            AzureCredential::AccessKey(_) => None,
            AzureCredential::SASToken(pairs) => {
                source.query_pairs_mut().extend_pairs(pairs);
                None
            }
            AzureCredential::BearerToken(token) => Some(secret(&format!("Bearer {token}"))?),
        };

        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = target.as_str().parse().map_err(failed)?;
        let value = |text: &str| text.parse::<HeaderValue>().map_err(failed);
        let headers = [
            ("content-length", Some(value("0")?)),
            ("x-ms-version", Some(value(VERSION)?)),
            ("x-ms-source-range", Some(value(&from.bytes())?)),
            ("x-ms-source-if-match", Some(value(&from.tag)?)),
            ("x-ms-copy-source", Some(secret(source.as_str())?)),
            ("x-ms-copy-source-authorization", bearer),
        ];
        for (name, value) in headers {
            if let Some(value) = value {
                request.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        if !matches!(&*credential, AzureCredential::AccessKey(_)) {
            // Of the account only a key needs to know.
            AzureAuthorizer::new(&credential, "").try_authorize(&mut request)?;
            if let Some(token) = request.headers_mut().get_mut("authorization") {
                token.set_sensitive(true);
            }
        }
        Ok(request)
    }

    fn understand(&self, part: NewPart<'_>, status: u16, body: &str, asked: Instant) -> Answered {
        match status {
            403 if self.signs.load(Ordering::Relaxed) && asked.elapsed() < CLOCK_AHEAD => {
                Answered::Busy(failed(format!("Server returned non-2xx status code: 403: {body}")))
            }
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
        let requests = requests(credential);
        runtime.block_on(async {
            requests.begin(&path).await.unwrap();
            let first = requests.request(part, &from).await.unwrap();
            // Signed once: the signature is older when it is asked again.
            let second = requests.request(part, &from).await.unwrap();
            assert_eq!(first.uri(), second.uri());
            first
        })
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
        let request = request(key, "az://in/d/a+b.parquet");
        let target = Url::parse(&request.uri().to_string()).unwrap();
        assert_eq!(target.host_str(), Some("acc.blob.core.windows.net"));
        assert_eq!(target.path(), "/out/d/new.parquet");
        let asked = query(&target);
        assert_eq!((&*asked["comp"], &*asked["blockid"], &*asked["sp"]), ("block", BLOCK, "w"));
        let source = Url::parse(header(&request, "x-ms-copy-source").unwrap()).unwrap();
        assert_eq!(source.path(), "/in/d/a%2Bb.parquet");
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
        assert!(header(&request, "date").is_some_and(|date| date.ends_with("GMT")));
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
        let now = Instant::now();
        let Answered::Copied(copied) = requests.understand(part, 201, "", now) else {
            panic!("not copied")
        };
        assert_eq!(copied.content_id, "u00000001");
        let answered = |status: u16, code: &str| {
            let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
            match requests.understand(part, status, &body, now) {
                Answered::Copied(_) => "copied",
                Answered::Busy(_) => "busy",
                Answered::Refused(object_store::Error::Precondition { .. }) => "changed",
                Answered::Refused(object_store::Error::NotSupported { .. }) => "refused",
                Answered::Refused(_) => "failed",
            }
        };
        assert_eq!(answered(412, "SourceConditionNotMet"), "changed");
        assert_eq!(answered(404, "CannotVerifyCopySource"), "changed");
        assert_eq!(answered(409, "CannotVerifyCopySource"), "changed");
        assert_eq!(answered(404, "ContainerNotFound"), "failed");
        assert_eq!(answered(403, "CannotVerifyCopySource"), "refused");
        assert_eq!(answered(403, "AuthorizationPermissionMismatch"), "refused");
        assert_eq!(answered(501, "NotImplemented"), "refused");
        assert_eq!(answered(503, "ServerBusy"), "busy");
        assert_eq!(answered(500, "CannotVerifyCopySource"), "busy");
        // A signature that is not valid yet.
        requests.signs.store(true, Ordering::Relaxed);
        assert_eq!(answered(403, "CannotVerifyCopySource"), "busy");
        let long_ago = now.checked_sub(2 * CLOCK_AHEAD).unwrap();
        let late = requests.understand(part, 403, "", long_ago);
        assert!(matches!(late, Answered::Refused(object_store::Error::NotSupported { .. })));
    }
}
