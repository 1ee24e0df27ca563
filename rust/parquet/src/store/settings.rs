//! From a URL and `storage_options` to a client.
//!
//! ```text
//! environment (AWS_*, GOOGLE_*, AZURE_*)  <  storage_options  ──▶ builder of the URL's store
//! ```
//!
//! # Invariants
//! Names are those of `object_store`, in any case. What no store knows is refused, never ignored.
//!
//! # Not here
//! Credentials that are fetched (instance metadata, workload identity): `object_store` does.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::multipart::MultipartStore;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use plait_core::{Error, Kind, Result};
use url::{Position, Url};

use super::azure::{AzureRequests, MakeAzure, NO_KEY, no_key};
use super::copied::PartCopier;
use super::credentials::MetadataServices;
use super::s3::S3Requests;
use super::urls::{split, unknown};
use super::wire::{Connector, Traffic};
use crate::runtime::Context;

/// Options that concern every store: how failed requests are repeated.
const RETRY_KEYS: &[&str] =
    &["max_retries", "retry_timeout_ms", "retry_init_backoff_ms", "retry_max_backoff_ms"];

/// Options of delta-rs that say nothing about requests.
const FOREIGN_KEYS: &[&str] = &[
    "allow_unsafe_rename",
    "aws_s3_allow_unsafe_rename",
    "aws_s3_locking_provider",
    "delta_dynamo_table_name",
    "dynamo_lock_table_name",
];

/// Checks that every option has a name that some store knows.
pub(super) fn check(options: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in options {
        let name = name.as_str();
        if RETRY_KEYS.contains(&name) {
            number(name, value)?;
            continue;
        }
        let is_known = FOREIGN_KEYS.contains(&name)
            || AmazonS3ConfigKey::from_str(name).is_ok()
            || GoogleConfigKey::from_str(name).is_ok()
            || AzureConfigKey::from_str(name).is_ok()
            || ClientConfigKey::from_str(name).is_ok();
        if !is_known {
            return Err(Error::new(Kind::InvalidArgument, "`storage_options` has an unknown name")
                .with_got(format!("`{name}`"))
                .with_hint("names are those of delta-rs and Polars, such as aws_region"));
        }
    }
    Ok(())
}

fn number(name: &str, value: &str) -> Result<u64> {
    value.trim().parse().map_err(|e| {
        Error::new(Kind::InvalidArgument, format!("`{name}` is not a whole number"))
            .with_got(format!("`{value}`"))
            .with_cause(e)
    })
}

/// How failed requests are repeated. Where a time for requests is given and none for their retries,
/// it is for both: no attempt begins once it has passed.
pub(super) fn retry(options: &BTreeMap<String, String>) -> Result<RetryConfig> {
    let mut retry = RetryConfig::default();
    if let Some(time) = options.get("timeout").and_then(|text| duration(text)) {
        retry.retry_timeout = retry.retry_timeout.min(time);
    }
    let given = |name: &str| options.get(name).map(|value| number(name, value)).transpose();
    if let Some(most) = given("max_retries")? {
        retry.max_retries = usize::try_from(most).unwrap_or(usize::MAX);
    }
    for (name, place) in [
        ("retry_timeout_ms", &mut retry.retry_timeout),
        ("retry_init_backoff_ms", &mut retry.backoff.init_backoff),
        ("retry_max_backoff_ms", &mut retry.backoff.max_backoff),
    ] {
        if let Some(ms) = given(name)? {
            *place = Duration::from_millis(ms);
        }
    }
    Ok(retry)
}

/// A time such as `10s` or `1m 30s`; `None` for what the client itself refuses.
fn duration(text: &str) -> Option<Duration> {
    let mut all = Duration::ZERO;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let number: u64 = number.parse().ok()?;
        all = all.checked_add(match unit {
            "ms" | "msec" | "millis" => Duration::from_millis(number),
            "s" | "sec" | "secs" | "second" | "seconds" => Duration::from_secs(number),
            "m" | "min" | "mins" | "minute" | "minutes" => {
                Duration::from_secs(number.checked_mul(60)?)
            }
            "h" | "hr" | "hour" | "hours" => Duration::from_secs(number.checked_mul(3600)?),
            _ => return None,
        })?;
        rest = after.trim_start();
    }
    Some(all)
}

/// A client of one bucket.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same, where the store may copy parts of objects.
    pub(super) copier: Option<Arc<PartCopier>>,
    /// Whether objects are written by it, too.
    pub(super) is_written: bool,
}

/// A builder of a client, with all settings that are its own.
macro_rules! builder {
    ($builder:ty, $key:ty, $url:expr, $settings:expr, $retry:expr, $connector:expr) => {{
        let mut builder = <$builder>::new()
            .with_url($url)
            .with_retry($retry.clone())
            .with_http_connector($connector.clone());
        for (name, value) in $settings {
            if let Ok(key) = <$key>::from_str(name) {
                builder = builder.with_config(key, value);
            }
        }
        builder
    }};
}

/// Makes the client for the store of `url`.
pub(super) fn client(
    url: &Url,
    location: &str,
    options: &BTreeMap<String, String>,
    traffic: &Arc<Traffic>,
    context: &Context,
) -> Result<Client> {
    let (scheme, _) = ObjectStoreScheme::parse(url).map_err(|e| unknown(location).with_cause(e))?;
    let retry = retry(options)?;
    let settings = settings(url, options);
    let is_conditional = scheme == ObjectStoreScheme::AmazonS3
        && !["aws_conditional_put", "conditional_put"]
            .iter()
            .any(|name| settings.get(*name).is_some_and(|value| value == "disabled"));
    check_http(&scheme, &settings, location)?;
    let connector = Connector {
        traffic: Arc::clone(traffic),
        context: context.clone(),
        is_conditional,
        services: Arc::new(MetadataServices::of(&scheme, &settings)),
    };
    macro_rules! build {
        ($builder:ty, $key:ty, $url:expr) => {
            builder!($builder, $key, $url, &settings, &retry, &connector).build().map(Arc::new)
        };
    }
    let built = match scheme {
        ObjectStoreScheme::AmazonS3 => build!(AmazonS3Builder, AmazonS3ConfigKey, url.to_string())
            .map(|store| {
                let copier = s3_client_options(&settings).map(|options| {
                    let requests = Box::new(S3Requests(Arc::clone(&store)));
                    let parts = Arc::clone(&store) as Arc<dyn MultipartStore>;
                    Arc::new(PartCopier::new(parts, requests, connector, options, retry))
                });
                Client { store, copier, is_written: true }
            }),
        ObjectStoreScheme::GoogleCloudStorage => {
            let store = build!(GoogleCloudStorageBuilder, GoogleConfigKey, url.to_string());
            store.map(|store| Client { store, copier: None, is_written: true })
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let root = split(url, location)?.0;
            build!(MicrosoftAzureBuilder, AzureConfigKey, url.to_string()).map(|store| {
                let copier = azure_client_options(&settings).map(|options| {
                    let make = azure_containers(settings, retry.clone(), connector.clone());
                    let requests = Box::new(AzureRequests::new(root, Arc::clone(&store), make));
                    let parts = Arc::clone(&store) as Arc<dyn MultipartStore>;
                    Arc::new(PartCopier::new(parts, requests, connector, options, retry))
                });
                Client { store, copier, is_written: true }
            })
        }
        ObjectStoreScheme::Http => {
            let root = url[..Position::BeforePath].to_owned();
            let store = build!(HttpBuilder, ClientConfigKey, root);
            store.map(|store| Client { store, copier: None, is_written: false })
        }
        _ => return Err(unknown(location)),
    };
    built.map_err(|e| {
        Error::new(Kind::InvalidArgument, "the settings of the object store are invalid")
            .with_path(location)
            .with_cause(e)
            .with_hint("settings are taken from the environment and `storage_options`")
    })
}

/// The settings of the connections of a client of S3; none if some setting asks for headers that are
/// not sent with requests of our own.
fn s3_client_options(settings: &BTreeMap<String, String>) -> Option<ClientOptions> {
    use AmazonS3ConfigKey::{Checksum, Client, Encryption, RequestPayer, S3Express, SkipSignature};
    let mut options = ClientOptions::new();
    for (name, value) in settings {
        match AmazonS3ConfigKey::from_str(name) {
            Ok(Client(key)) => options = options.with_config(key, value),
            Ok(Checksum | Encryption(_)) => return None,
            Ok(RequestPayer | S3Express | SkipSignature) if is_true(value) => return None,
            _ => {}
        }
    }
    Some(options)
}

/// The same for Azure.
fn azure_client_options(settings: &BTreeMap<String, String>) -> Option<ClientOptions> {
    use AzureConfigKey::{Client, EncryptionKey, SkipSignature, UseEmulator};
    let mut options = ClientOptions::new();
    for (name, value) in settings {
        match AzureConfigKey::from_str(name) {
            Ok(Client(key)) => options = options.with_config(key, value),
            Ok(UseEmulator) if is_true(value) => options = options.with_allow_http(true),
            Ok(EncryptionKey) => return None,
            Ok(SkipSignature) if is_true(value) => return None,
            _ => {}
        }
    }
    Some(options)
}

/// Makes clients of containers that have the same settings.
fn azure_containers(
    settings: BTreeMap<String, String>,
    retry: RetryConfig,
    connector: Connector,
) -> MakeAzure {
    Box::new(move |url, credentials| {
        let builder = builder!(
            MicrosoftAzureBuilder,
            AzureConfigKey,
            url.to_string(),
            &settings,
            &retry,
            &connector
        );
        match credentials {
            Some(credentials) => builder.with_credentials(credentials).build(),
            // The emulator takes no provider of credentials.
            None => builder.with_credentials(no_key()?).with_access_key(NO_KEY).build(),
        }
    })
}

/// Refuses an endpoint without TLS that was not allowed: requests to it would fail one by one.
fn check_http(
    scheme: &ObjectStoreScheme,
    settings: &BTreeMap<String, String>,
    location: &str,
) -> Result<()> {
    let is_endpoint = |name: &str| match scheme {
        ObjectStoreScheme::AmazonS3 => {
            use AmazonS3ConfigKey::{Endpoint, S3Endpoint};
            matches!(AmazonS3ConfigKey::from_str(name), Ok(Endpoint | S3Endpoint))
        }
        ObjectStoreScheme::MicrosoftAzure => {
            matches!(AzureConfigKey::from_str(name), Ok(AzureConfigKey::Endpoint))
        }
        _ => false,
    };
    let plain = settings.iter().find(|(name, value)| {
        is_endpoint(name) && value.trim_start().to_lowercase().starts_with("http://")
    });
    let is_allowed = settings.iter().any(|(name, value)| {
        (name.ends_with("allow_http") || name.ends_with("use_emulator")) && is_true(value)
    });
    let Some((name, value)) = plain.filter(|_| !is_allowed) else { return Ok(()) };
    Err(Error::new(Kind::InvalidArgument, "the endpoint of the object store has no TLS")
        .with_path(location)
        .with_got(format!("{name}={value}"))
        .with_hint("if that is right, pass storage_options={\"allow_http\": \"true\"}"))
}

/// Whether a setting is on, in the words that `object_store` knows.
fn is_true(value: &str) -> bool {
    ["1", "true", "on", "yes", "y"].contains(&value.to_lowercase().as_str())
}

/// The environment's settings, overridden by `options`.
fn settings(url: &Url, options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?.to_lowercase(), value.into_string().ok()?))
    });
    // Short names such as `region` or `timeout` are for options: variables have prefixes.
    let prefixes = ["aws_", "google_", "azure_"];
    let mut settings: BTreeMap<String, String> =
        variables.filter(|(name, _)| prefixes.iter().any(|p| name.starts_with(p))).collect();
    // What the caller writes in the short form wins over the variable with the long name.
    for (name, value) in options {
        for prefix in prefixes {
            settings.remove(&format!("{prefix}{name}"));
        }
        settings.insert(name.clone(), value.clone());
    }
    // Plain HTTP is what the caller asked for by writing http://.
    if url.scheme() == "http" {
        settings.insert("allow_http".to_owned(), "true".to_owned());
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn names_of_delta_rs_and_polars_are_known() {
        check(&map(&[
            ("aws_access_key_id", "x"),
            ("aws_endpoint_url", "http://127.0.0.1:1"),
            ("skip_signature", "true"),
            ("allow_http", "true"),
            ("google_service_account", "x"),
            ("azure_storage_account_name", "x"),
            ("account_key", "x"),
            ("timeout", "10s"),
            ("max_retries", "3"),
            ("aws_s3_allow_unsafe_rename", "true"),
        ]))
        .unwrap();
        assert!(check(&map(&[("max_retries", "many")])).is_err());
        assert!(check(&map(&[("access_kye", "x")])).is_err());
    }

    #[test]
    fn an_option_wins_over_the_environment_and_retries_are_read() {
        let url = Url::parse("http://127.0.0.1/a").unwrap();
        let merged = settings(&url, &map(&[("region", "here")]));
        assert_eq!(merged.get("region").unwrap(), "here");
        assert!(!merged.contains_key("aws_region"));
        assert_eq!(merged.get("allow_http").unwrap(), "true");
        let retry = retry(&map(&[("max_retries", "2"), ("retry_timeout_ms", "1500")])).unwrap();
        assert_eq!((retry.max_retries, retry.retry_timeout), (2, Duration::from_millis(1500)));
    }

    #[test]
    fn the_time_of_a_request_is_that_of_its_retries_unless_they_have_their_own() {
        let time = |pairs: &[(&str, &str)]| retry(&map(pairs)).unwrap().retry_timeout;
        assert_eq!(time(&[("timeout", "2s")]), Duration::from_secs(2));
        assert_eq!(time(&[("timeout", "1m 30s")]), Duration::from_secs(90));
        assert_eq!(time(&[("timeout", "1h")]), Duration::from_secs(180));
        let both = [("timeout", "2s"), ("retry_timeout_ms", "9000")];
        assert_eq!(time(&both), Duration::from_secs(9));
        assert_eq!(time(&[("timeout", "soon")]), Duration::from_secs(180));
    }

    #[test]
    fn an_endpoint_without_tls_is_refused_unless_it_is_allowed() {
        let scheme = ObjectStoreScheme::AmazonS3;
        let check = |pairs: &[(&str, &str)]| check_http(&scheme, &map(pairs), "s3://b/a");
        let endpoint = ("aws_endpoint_url", "http://127.0.0.1:9000");
        let error = check(&[endpoint]).unwrap_err().to_string();
        assert!(error.contains("storage_options={\"allow_http\": \"true\"}"), "{error}");
        assert!(check(&[endpoint, ("allow_http", "false")]).is_err());
        check(&[endpoint, ("aws_allow_http", "TRUE")]).unwrap();
        check(&[("aws_endpoint_url", "https://127.0.0.1:9000")]).unwrap();
        check(&[("proxy_url", "http://127.0.0.1:9000")]).unwrap();
        let google = ObjectStoreScheme::GoogleCloudStorage;
        check_http(&google, &map(&[endpoint]), "gs://b/a").unwrap();
        let azure = ObjectStoreScheme::MicrosoftAzure;
        let of_azure = [("azure_endpoint", "http://127.0.0.1:10000")];
        assert!(check_http(&azure, &map(&of_azure), "az://b/a").is_err());
    }

    #[test]
    fn requests_of_our_own_are_not_sent_where_others_are_asked_for() {
        for (name, value) in
            [("azure_skip_signature", "true"), ("azure_storage_encryption_key", "AA==")]
        {
            assert!(azure_client_options(&map(&[("timeout", "9s")])).is_some());
            assert!(azure_client_options(&map(&[("timeout", "9s"), (name, value)])).is_none());
        }
        assert!(azure_client_options(&map(&[("azure_skip_signature", "false")])).is_some());
        for name in ["aws_checksum_algorithm", "aws_request_payer", "aws_skip_signature"] {
            assert!(s3_client_options(&map(&[("timeout", "9s")])).is_some());
            assert!(s3_client_options(&map(&[("timeout", "9s"), (name, "true")])).is_none());
        }
        assert!(s3_client_options(&map(&[("aws_skip_signature", "false")])).is_some());
    }

    #[test]
    fn settings_of_another_kind_of_store_are_left_to_it() {
        let url = Url::parse("gopher://host/a").unwrap();
        let (traffic, context) = (Arc::default(), Context::new(1 << 24));
        assert!(client(&url, "gopher://host/a", &map(&[]), &traffic, &context).is_err());
        let url = Url::parse("s3://b/a").unwrap();
        let options = map(&[("aws_region", "x"), ("google_service_account", "/absent")]);
        assert!(client(&url, "s3://b/a", &options, &traffic, &context).is_ok());
    }
}
