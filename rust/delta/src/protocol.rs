//! What a table demands of those who read and change it, and what of that is not kept: refused by
//! name before any work.
//!
//! ```text
//! read     live files are all there is to know                  no mapped columns
//! scan     the same, by the names of the table                  no feature but those listed
//! rewrite  other files with the same rows                       the same
//! append   more rows       also: no constraints, no columns that are mapped, computed or not null
//! delete   fewer rows          also: no mapped columns, neither append-only nor a change feed
//! ```
//!
//! # Invariants
//! The lists are of what is kept. What comes later is in none of them. Columns of a mapped table
//! have other names in its files: whoever asks for these says by the intent that this is known.
//!
//! # Not here
//! Deletion vectors, which single files have (`snapshot`).

use plait_core::{Error, Kind, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::action::{Metadata, Protocol};
use crate::mapping::{Mapping, is_mapped, mode};

/// What is to be done with a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Intent {
    /// Its live files are read.
    #[default]
    Read,
    /// Its live files are read by the field ids of its columns.
    Scan,
    /// Files are replaced by others with the same rows.
    Rewrite,
    /// Rows come in.
    Append,
    /// Rows go.
    Delete,
}

impl Intent {
    /// Whether the table stays as it is.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Scan)
    }
}

/// Features that change nothing of how rows are read from live files.
const READ: &[&str] = &[
    "columnMapping", // a table whose columns are mapped is another matter
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
];
/// Features whose rules a commit keeps that adds and removes whole files.
const WRITTEN: &[&str] = &[
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors", // a file that has one is refused
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
];
const READER_VERSION_MAX: u32 = 3;
/// The last writer version without a list of features that has none but these.
const WRITER_VERSION_MAX: u32 = 5;
/// The writer version that has a list of features.
const WRITER_VERSION_LISTED: u32 = 7;
/// Versions without such lists that have mapped columns, and for writers those after it.
const MAPPED_READER_VERSION: u32 = 2;
const MAPPED_WRITER_VERSION: u32 = 5;

/// Refuses a table with rules that would not be kept.
///
/// # Errors
/// [`Kind::Unsupported`], which names the feature; [`Kind::CorruptSource`] for names of columns that
/// do not tell them apart.
pub(crate) fn check(
    protocol: &Protocol,
    metadata: &Metadata,
    intent: Intent,
    location: &str,
) -> Result<()> {
    let setting = |name: &str| metadata.configuration.get(name).and_then(Option::as_deref);
    let refused =
        |what: &str, got: String| Err(refused(location, what, got).with_hint(hint(intent)));
    if let Some(mode) = mode(metadata).filter(|mode| is_mapped(Some(mode))) {
        let is_kept = matches!(intent, Intent::Scan | Intent::Rewrite);
        if !is_kept || !matches!(mode, "name" | "id") {
            let error = self::refused(location, "maps column names", format!("mode `{mode}`"));
            return Err(error.with_hint(mapped_hint(intent)));
        }
        if !may_be_mapped(protocol, intent) {
            let what = "maps column names without the feature for it";
            return refused(what, format!("mode `{mode}`"));
        }
        Mapping::of(metadata, location)?;
    }
    let readers = protocol.reader_features.iter().flatten();
    let writers = protocol.writer_features.iter().flatten();
    let mut features: Vec<&String> = match intent {
        Intent::Read | Intent::Scan => readers.filter(|f| !READ.contains(&f.as_str())).collect(),
        _ => readers.chain(writers).filter(|f| !WRITTEN.contains(&f.as_str())).collect(),
    };
    features.sort();
    if let Some(feature) = features.first() {
        let what = "uses a feature that Plait does not support";
        return refused(what, format!("`{feature}`"));
    }
    let version = protocol.min_reader_version;
    if version > READER_VERSION_MAX {
        let what = "uses a reader version that Plait does not support";
        return refused(what, format!("reader version {version}"));
    }
    if intent.is_read() {
        return Ok(());
    }
    let version = protocol.min_writer_version;
    if version > WRITER_VERSION_MAX && version != WRITER_VERSION_LISTED {
        let what = "uses a writer version that Plait does not support";
        return refused(what, format!("version {version}"));
    }
    if metadata.format.provider != "parquet" {
        let what = "has data files that are not Parquet";
        return refused(what, format!("`{}`", metadata.format.provider));
    }
    let is_on = |name: &str| setting(name) == Some("true");
    if intent == Intent::Append {
        let mut names = metadata.configuration.keys();
        if let Some(name) = names.find(|name| name.starts_with("delta.constraints.")) {
            return refused("has a constraint, which Plait does not check", format!("`{name}`"));
        }
        for rule in ["delta.invariants", "delta.generationExpression", "delta.identity."] {
            if metadata.schema_string.contains(rule) {
                let what = "has a column with a rule, which Plait does not check";
                return refused(what, format!("`{rule}`"));
            }
        }
        let schema: Value = serde_json::from_str(&metadata.schema_string).unwrap_or_default();
        if let Some(column) = without_nulls(&schema) {
            let what = "has a column that takes no nulls, which Plait does not check";
            return refused(what, format!("`{column}`"));
        }
    }
    if intent == Intent::Delete {
        if is_on("delta.appendOnly") {
            return refused("takes no deletes", "`delta.appendOnly`".to_owned());
        }
        if is_on("delta.enableChangeDataFeed") {
            let what = "has a feed of deleted rows, which Plait does not write";
            return refused(what, "`delta.enableChangeDataFeed`".to_owned());
        }
    }
    Ok(())
}

/// Whether readers, and writers if it is changed, must know that columns are mapped.
fn may_be_mapped(protocol: &Protocol, intent: Intent) -> bool {
    let lists = |list: &Option<Vec<String>>| list.iter().flatten().any(|f| f == "columnMapping");
    let readers = match protocol.min_reader_version {
        MAPPED_READER_VERSION => true,
        version => version > MAPPED_READER_VERSION && lists(&protocol.reader_features),
    };
    let writers = match protocol.min_writer_version {
        MAPPED_WRITER_VERSION..WRITER_VERSION_LISTED => true,
        version => version >= WRITER_VERSION_LISTED && lists(&protocol.writer_features),
    };
    readers && (writers || intent.is_read())
}

/// A column that may not be null. What nested members say is not asked: writers rarely mean it.
fn without_nulls(schema: &Value) -> Option<&str> {
    let fields = schema.get("fields")?.as_array()?;
    let field = fields.iter().find(|field| field["nullable"] == Value::Bool(false))?;
    Some(field["name"].as_str().unwrap_or_default())
}

/// The error for a table that is not read, or not changed, as it is; a hint is added.
pub(crate) fn refused(location: &str, what: &str, got: String) -> Error {
    Error::new(Kind::Unsupported, format!("the Delta table {what}"))
        .with_path(location)
        .with_got(got)
}

fn hint(intent: Intent) -> &'static str {
    match intent {
        Intent::Read | Intent::Scan => "read it with the engine that wrote it",
        Intent::Rewrite => "compact it with the engine that wrote it",
        Intent::Append | Intent::Delete => "use the engine that wrote it",
    }
}

/// What to do with a table whose columns are mapped.
fn mapped_hint(intent: Intent) -> &'static str {
    match intent {
        Intent::Read => "read it with plait.scan, alone and without `schema`",
        other => hint(other),
    }
}

/// Refuses vectors for a table whose readers need not know them.
///
/// # Errors
/// [`Kind::Unsupported`].
pub(crate) fn check_vectors(protocol: &Protocol, location: &str) -> Result<()> {
    let lists = [&protocol.reader_features, &protocol.writer_features];
    let has = |list: &Option<Vec<String>>| list.iter().flatten().any(|f| f == "deletionVectors");
    match lists.into_iter().all(has) {
        true => Ok(()),
        false => Err(refused(location, "has no deletion vectors", "no such feature".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(features: &[&str], settings: &[(&str, &str)], intent: Intent) -> Option<String> {
        let list: Vec<String> = features.iter().map(|f| (*f).to_owned()).collect();
        let protocol = Protocol {
            min_reader_version: 3,
            min_writer_version: 7,
            reader_features: Some(list.clone()),
            writer_features: Some(list),
        };
        let mut metadata = Metadata::default();
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), Some((*value).to_owned()));
        metadata.configuration.extend(settings.iter().map(pair));
        check(&protocol, &metadata, intent, "t").err().map(|e| e.to_string())
    }

    #[test]
    fn what_is_not_kept_is_refused_by_name() {
        use Intent::{Append, Delete, Read, Rewrite, Scan};
        for intent in [Read, Scan, Rewrite, Append, Delete] {
            assert_eq!(found(&["deletionVectors", "timestampNtz"], &[], intent), None);
            let later = found(&["something later"], &[], intent).unwrap();
            assert!(later.contains("`something later`"), "{later}");
            let mapped = found(&[], &[("delta.columnMapping.mode", "name")], intent).unwrap();
            assert!(mapped.contains("maps column names"), "{mapped}");
            let kept = found(&["columnMapping"], &[("delta.columnMapping.mode", "id")], intent);
            let expected = match intent {
                Scan | Rewrite => "a schema that cannot be read",
                _ => "maps column names: file `t`, got mode `id`",
            };
            assert!(kept.as_ref().unwrap().contains(expected), "{kept:?}");
            assert_eq!(found(&["columnMapping"], &[], intent), None);
        }
        let constraint = [("delta.constraints.positive", "x > 0")];
        assert_eq!(found(&["checkConstraints"], &constraint, Rewrite), None);
        assert!(found(&["checkConstraints"], &constraint, Append).unwrap().contains("positive"));
        assert_eq!(found(&[], &[("delta.appendOnly", "true")], Append), None);
        for setting in ["delta.appendOnly", "delta.enableChangeDataFeed"] {
            assert!(found(&[], &[(setting, "true")], Delete).unwrap().contains(setting));
            assert_eq!(found(&[], &[(setting, "false")], Delete), None);
        }
    }

    #[test]
    fn columns_that_take_no_nulls_take_no_rows() {
        let asked = |schema: &str, intent| {
            let metadata = Metadata { schema_string: schema.to_owned(), ..Metadata::default() };
            check(&Protocol::default(), &metadata, intent, "t").err().map(|e| e.to_string())
        };
        let field = |rest: &str| format!(r#"{{"type":"struct","fields":[{{"name":"a",{rest}}}]}}"#);
        let free = field(r#""type":"long","nullable": true,"metadata":{"nullable":false}"#);
        assert_eq!(asked(&free, Intent::Append), None);
        let of = |rest: &str| asked(&field(rest), Intent::Append).unwrap();
        assert!(of(r#""type":"long","nullable": false,"metadata":{}"#).contains("`a`"));
        let list = r#""type":{"type":"array","elementType":"long","containsNull":false}"#;
        let list = field(&format!(r#"{list},"nullable":true"#));
        assert_eq!(asked(&list, Intent::Append), None);
        let strict = field(r#""type":"long","nullable":false"#);
        assert_eq!(asked(&strict, Intent::Rewrite), None);
    }
}
