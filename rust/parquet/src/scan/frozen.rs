//! A scan in parts: files are summed up anywhere, one schema is frozen for all, and parts are read
//! with it.
//!
//! ```text
//! some files ─ summarize ─▶ summary ─┐                       ┌─▶ scan of some files
//! some files ─ summarize ─▶ summary ─┴─ freeze ─▶ frozen ────┴─▶ scan of some files
//! ```
//!
//! # Invariants
//! However files are grouped, the frozen schema is that of one scan of all of them, and so are the
//! columns that it takes of each: what matches by id for all matches by id in every part.
//!
//! # Cost
//! A summary has one entry for each distinct schema, a frozen schema one for each column.
//!
//! # Not here
//! Deciding (`plait_core::schema`).

use std::sync::Arc;

use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_schema::{Schema, SchemaRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use parquet::arrow::encode_arrow_schema;
use plait_core::schema::{Class, Decision, Frozen, Request, SchemaPolicy, Summary, freeze};
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::options::ScanOptions;
use super::resolve::{footers, summary};
use super::sources::ScanSources;
use crate::json::from_json;
use crate::runtime::Context;
use crate::store::Stores;

/// A summary as it is sent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SentSummary {
    classes: Vec<SentClass>,
}

/// Sources whose columns are equal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentClass {
    /// Their columns, as Arrow writes a schema, base64.
    schema: String,
    first: String,
    sources: u64,
    has_rows: bool,
}

/// A frozen schema as it is sent.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentFrozen {
    /// As Arrow writes a schema, base64.
    schema: String,
    decision: Decision,
}

/// What the sources of `options` say of their columns.
///
/// # Errors
/// As `Scan::open`, but for those of deciding.
pub(crate) fn summarize(
    options: &ScanOptions,
    stores: &Stores,
    context: &Context,
) -> Result<SentSummary> {
    let sources = ScanSources::find(options.clone(), Vec::new(), None, None, stores, context)?;
    let (known, shapes) = footers(&sources)?;
    let summary = summary(&sources, &known, &shapes);
    let classes = summary.classes().into_iter().map(|class| SentClass {
        schema: encode_arrow_schema(&Schema::new(class.fields.clone())),
        first: class.first.clone(),
        sources: class.sources,
        has_rows: class.has_rows,
    });
    Ok(SentSummary { classes: classes.collect() })
}

/// Decides the schema of a scan of all sources of `options`, JSON, from the `summaries` of their
/// parts; gives what scans of parts are given, and the schema of every batch.
///
/// # Errors
/// As `Scan::open`.
pub fn freeze_scan(
    options: &str,
    given: Option<SchemaRef>,
    summaries: &[String],
    stores: &Stores,
    context: &Context,
) -> Result<(String, SchemaRef)> {
    let options: ScanOptions = from_json(options)?;
    options.check_effects(given.is_some())?;
    let sources = ScanSources::find(options, Vec::new(), None, None, stores, context)?;
    let mut summary = Summary::default();
    for text in summaries {
        let sent: SentSummary = serde_json::from_str(text).map_err(unreadable)?;
        for class in sent.classes {
            let fields = schema(&class.schema)?.fields().clone();
            let SentClass { first, sources, has_rows, .. } = class;
            summary.add(Class { fields, first, sources, has_rows });
        }
    }
    let frozen = decide(&summary, &sources.request(given)?)?;
    Ok((write(&frozen)?, Arc::clone(frozen.output())))
}

/// Freezes the schema of all sources, which adapt to it.
pub(super) fn decide(summary: &Summary, request: &Request) -> Result<Frozen> {
    let frozen = freeze(summary, request).map_err(with_missing)?;
    check(&frozen, summary)?;
    Ok(frozen)
}

/// Names the option of scans that reads a column which no source has.
fn with_missing(e: Error) -> Error {
    let (Kind::UnknownColumn, Some(hint)) = (e.kind(), e.hint()) else { return e };
    let hint = format!("{hint}; missing=\"null\" reads unknown columns as null");
    // A hint is given once: this is the same error with a longer one.
    let named = Error::new(e.kind(), e.what()).with_hint(hint);
    match e.column() {
        Some(column) => named.with_column(column),
        None => named,
    }
}

/// Refuses sources that do not adapt. Without rows there is nothing to adapt.
pub(super) fn check(frozen: &Frozen, summary: &Summary) -> Result<()> {
    for class in summary.classes().into_iter().filter(|class| class.has_rows) {
        let adapter = frozen.adapter_template(&Schema::new(class.fields.clone()));
        adapter.map_err(|e| e.with_path(class.first.as_str()))?;
    }
    Ok(())
}

pub(super) fn write(frozen: &Frozen) -> Result<String> {
    let schema = encode_arrow_schema(frozen.schema());
    let sent = SentFrozen { schema, decision: frozen.decision().clone() };
    serde_json::to_string(&sent)
        .map_err(|e| Error::new(Kind::Internal, "cannot write the frozen schema").with_cause(e))
}

pub(super) fn read(text: &str, policy: SchemaPolicy) -> Result<Frozen> {
    let sent: SentFrozen = serde_json::from_str(text).map_err(unreadable)?;
    Frozen::restore(Arc::new(schema(&sent.schema)?), policy, sent.decision)
}

fn schema(text: &str) -> Result<Schema> {
    let bytes = BASE64.decode(text).map_err(unreadable)?;
    try_schema_from_ipc_buffer(&bytes).map_err(unreadable)
}

fn unreadable(cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(Kind::InvalidArgument, "cannot read the frozen schema or a summary")
        .with_hint("freeze the schema again, by the same version")
        .with_cause(cause)
}
