//! Services of a machine that hand out credentials, and what to say when none does.
//!
//! ```text
//! no keys given ── GET 169.254.169.254 ──▶ answers: as object_store does
//!                                     └──▶ nothing for 5 s: an error that names what was looked for
//! ```
//!
//! # Invariants
//! A service that is silent is waited for [`SILENCE_MAX`] in all, however often it is asked.
//!
//! # Not here
//! Requests to the services (`object_store`); refused keys (`remote`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use object_store::ObjectStoreScheme;
use object_store::client::{HttpError, HttpErrorKind, HttpResponse};
use plait_core::{Error, Kind};
use url::Url;

/// How long a service may be silent. It is on the same machine, and answers within milliseconds.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The addresses of the services where nothing else is configured.
const HOSTS: &[&str] = &["169.254.169.254", "169.254.170.2", "metadata.google.internal"];

/// Settings and variables that hold the address of a service.
const ADDRESSES: &[&str] = &[
    "aws_metadata_endpoint",
    "metadata_endpoint",
    "aws_container_credentials_full_uri",
    "container_credentials_full_uri",
    "azure_msi_endpoint",
    "msi_endpoint",
];
const GOOGLE_VARIABLES: &[&str] = &["GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"];

/// The services that a client may ask for credentials.
#[derive(Debug)]
pub(super) struct MetadataServices {
    authorities: Vec<String>,
    store: &'static str,
    /// Since when there was no answer.
    silent_since: Mutex<Option<Instant>>,
}

/// What an error says when no credentials were found.
const NONE_FOUND: &str = "no credentials for the object store were found";

/// The cause of an error: the service at an address did not answer.
#[derive(Debug)]
pub(super) struct Silent {
    authority: String,
    store: &'static str,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (authority, seconds) = (&self.authority, SILENCE_MAX.as_secs());
        write!(f, "the metadata service at {authority} did not answer for {seconds} s")
    }
}

impl std::error::Error for Silent {}

impl Silent {
    /// The error for callers.
    pub(super) fn error(&self, location: &str) -> Error {
        let looked_for = match self.store {
            "azure" => {
                "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_ID with \
                 AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE, and `azure_storage_account_key` \
                 or `azure_storage_sas_token`"
            }
            "google" => {
                "GOOGLE_SERVICE_ACCOUNT, GOOGLE_SERVICE_ACCOUNT_KEY, \
                 GOOGLE_APPLICATION_CREDENTIALS, and `google_service_account` or \
                 `google_service_account_key`"
            }
            _ => {
                "AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, AWS_WEB_IDENTITY_TOKEN_FILE with \
                 AWS_ROLE_ARN, AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, and `aws_access_key_id` with \
                 `aws_secret_access_key`"
            }
        };
        Error::new(Kind::Storage, NONE_FOUND)
            .with_path(location)
            .with_got(self.to_string())
            .with_hint(format!(
                "looked for in the environment and in `storage_options`: {looked_for}; \
                 storage_options={{\"skip_signature\": \"true\"}} reads what is public"
            ))
    }
}

impl MetadataServices {
    /// Those that a store of `scheme` with `settings` may ask.
    pub(super) fn of(scheme: &ObjectStoreScheme, settings: &BTreeMap<String, String>) -> Self {
        let store = match scheme {
            ObjectStoreScheme::GoogleCloudStorage => "google",
            ObjectStoreScheme::MicrosoftAzure => "azure",
            _ => "aws",
        };
        let mut authorities: Vec<String> = HOSTS.iter().map(|host| (*host).to_owned()).collect();
        let urls = ADDRESSES.iter().filter_map(|name| settings.get(*name));
        authorities.extend(urls.filter_map(|url| authority(&Url::parse(url).ok()?)));
        authorities.extend(GOOGLE_VARIABLES.iter().filter_map(|name| std::env::var(name).ok()));
        Self { authorities, store, silent_since: Mutex::new(None) }
    }

    /// Whether `authority` is that of a service.
    pub(super) fn contains(&self, authority: &str) -> bool {
        self.authorities.iter().any(|known| known == authority)
    }

    /// What comes of `asked`, a request to the service at `authority`.
    pub(super) async fn within_time(
        &self,
        authority: &str,
        asked: impl Future<Output = Result<HttpResponse, HttpError>>,
    ) -> Result<HttpResponse, HttpError> {
        let lock = || self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        let since = {
            let mut since = lock();
            // Asked once more right after it was given up, by another address: no time is left.
            since.take_if(|since| since.elapsed() > 2 * SILENCE_MAX);
            *since.get_or_insert_with(Instant::now)
        };
        let left = SILENCE_MAX.saturating_sub(since.elapsed());
        let answer = tokio::time::timeout(left, asked).await;
        match answer {
            // Asked again by `object_store`, as long as there is time.
            Ok(Err(e)) if since.elapsed() < SILENCE_MAX => Err(e),
            Ok(Ok(answer)) => {
                *lock() = None;
                Ok(answer)
            }
            _ => {
                let silent = Silent { authority: authority.to_owned(), store: self.store };
                // Of a kind that is not asked again.
                Err(HttpError::new(HttpErrorKind::Unknown, silent))
            }
        }
    }
}

/// Host and port as a request names them.
fn authority(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// The silence behind an error, if it is the cause.
pub(super) fn silence(e: &object_store::Error) -> Option<&Silent> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(error) = cause {
        if let Some(silent) = error.downcast_ref::<Silent>() {
            return Some(silent);
        }
        cause = error.source();
    }
    None
}
