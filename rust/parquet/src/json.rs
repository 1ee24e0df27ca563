//! JSON at the boundary of the crate: options are read, reports are written.
//!
//! # Not here
//! Plans and manifests, which have versions and errors of their own (`plan`, `store::table`).

use plait_core::{Error, Kind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads options.
///
/// # Errors
/// [`Kind::InvalidArgument`] for text that is not JSON, or not these options.
pub fn from_json<T: DeserializeOwned>(options: &str) -> Result<T> {
    serde_json::from_str(options)
        .map_err(|e| Error::new(Kind::InvalidArgument, "cannot read the options").with_cause(e))
}

/// Writes a report.
///
/// # Errors
/// [`Kind::Internal`] for what JSON cannot express.
pub fn to_json(report: &impl Serialize) -> Result<String> {
    serde_json::to_string(report)
        .map_err(|e| Error::new(Kind::Internal, "cannot write the report").with_cause(e))
}
