//! Which key-value metadata of the files still holds for their merge?
//!
//! ```text
//! equal in every file      kept            differs, or absent somewhere   drop, first or error, as asked
//! describes the schema     kept if the schema is still the same, else dropped; may be absent
//! bounds of one file       kept if equal in every file, else dropped
//! describes one file       dropped
//! computed anew            bounds of `geo`, the range index of `pandas` (`described`)
//! meaning of dates         as the first file has it, and said
//! plait.*, ARROW:schema    not carried here
//! ```
//!
//! # Invariants
//! Keys keep the order first seen. What is not simply carried is listed, whatever the policy.
//!
//! # Not here
//! The Arrow hint (`hints`); Plait's own keys (`sink`).

use std::borrow::Cow;
use std::collections::HashMap;

use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::{FileMetaData, KeyValue};

use plait_core::schema::conflict::Conflict;
use plait_core::stream::MetadataConflicts;

use super::described::{geo, pandas};

/// What an entry says something of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntrySubject {
    /// Columns and types: a stale one hides columns or fails.
    Schema,
    /// Bounds and filters, by which readers skip files: those of one file would hide rows of
    /// another.
    Bounds,
    /// Something else of one file: how often it was merged, how its rows and row groups lie.
    File,
    /// What dates and times mean to their readers.
    Dates,
    /// Geometry columns and their bounds.
    Geo,
    /// Nobody knows.
    Unknown,
}

/// The entries that are known. docs/guide/merge.md lists them.
const KNOWN: [(&str, EntrySubject); 29] = [
    ("pandas", EntrySubject::Schema),
    ("org.apache.spark.sql.parquet.row.metadata", EntrySubject::Schema),
    ("parquet.avro.schema", EntrySubject::Schema),
    ("avro.schema", EntrySubject::Schema),
    ("iceberg.schema", EntrySubject::Schema),
    ("parquet.proto.descriptor", EntrySubject::Schema),
    ("huggingface", EntrySubject::Schema),
    ("gdal:schema", EntrySubject::Schema),
    ("geo", EntrySubject::Geo),
    // Hudi reads keys and the filter when it looks for the file that has a record.
    ("hoodie_min_record_key", EntrySubject::Bounds),
    ("hoodie_max_record_key", EntrySubject::Bounds),
    ("hoodie_bloom_filter_type_code", EntrySubject::Bounds),
    ("org.apache.hudi.bloomfilter", EntrySubject::Bounds),
    ("com.uber.hoodie.bloomfilter", EntrySubject::Bounds),
    // Quickwit skips files by row keys and zone maps; how they are sorted and cut is the file's
    // own.
    ("qh.row_keys", EntrySubject::File),
    ("qh.row_keys_json", EntrySubject::File),
    ("qh.zonemap_regexes", EntrySubject::File),
    ("qh.num_merge_ops", EntrySubject::File),
    ("qh.sort_fields", EntrySubject::File),
    ("qh.rg_partition_prefix_len", EntrySubject::File),
    // Iceberg: which rows of which files a delete file deletes.
    ("delete-type", EntrySubject::File),
    ("delete-field-ids", EntrySubject::File),
    ("org.apache.spark.legacyDateTime", EntrySubject::Dates),
    ("org.apache.spark.legacyINT96", EntrySubject::Dates),
    ("org.apache.spark.timeZone", EntrySubject::Dates),
    ("org.apache.spark.version", EntrySubject::Dates),
    ("writer.time.zone", EntrySubject::Dates),
    ("writer.date.proleptic", EntrySubject::Dates),
    ("writer.zone.conversion.legacy", EntrySubject::Dates),
];

fn about(key: &str) -> EntrySubject {
    KNOWN.iter().find(|(known, _)| *known == key).map_or(EntrySubject::Unknown, |(_, about)| *about)
}

/// Whether an entry of file metadata says something of the schema or content of its file as a
/// whole.
#[must_use]
pub(crate) fn describes_one_file(key: &str) -> bool {
    !matches!(about(key), EntrySubject::Dates | EntrySubject::Unknown)
}

/// Whether an entry lists columns, so that it is wrong where one of them is missing.
pub(super) fn lists_columns(key: &str) -> bool {
    about(key) == EntrySubject::Schema
}

/// A key of file metadata that was not simply carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetadataConflict {
    /// The key.
    pub key: String,
    /// Why.
    pub why: &'static str,
    /// The first file with the key, and the one that differs from it.
    pub paths: [String; 2],
    /// Whether the output has the entry.
    pub kept: bool,
}

/// What becomes of an entry that is not the same in every file.
struct Verdict<'a> {
    why: &'static str,
    /// The source that differs.
    other: usize,
    value: Option<Cow<'a, str>>,
    is_kept: bool,
    /// Whether [`MetadataConflicts`] decides.
    is_asked: bool,
}

/// The metadata of the output, without the Arrow hint. `unchanged`: whether the output has the
/// source's schema.
pub(super) fn merge(
    sources: &[(&str, &FileMetaData)],
    unchanged: &[bool],
    policy: MetadataConflicts,
    lines: &mut Vec<Conflict>,
) -> (Vec<KeyValue>, Vec<MetadataConflict>) {
    let maps: Vec<HashMap<&str, Option<&str>>> = sources
        .iter()
        .map(|(_, footer)| {
            let pairs = footer.key_value_metadata().into_iter().flatten();
            pairs.map(|pair| (pair.key.as_str(), pair.value.as_deref())).collect()
        })
        .collect();
    let mut seen = HashMap::new();
    let (mut kept, mut conflicts) = (Vec::new(), Vec::new());
    for (first, (_, footer)) in sources.iter().enumerate() {
        for pair in footer.key_value_metadata().into_iter().flatten() {
            let key = pair.key.as_str();
            let ours = key == ARROW_SCHEMA_META_KEY || key.starts_with("plait.");
            if ours || seen.insert(key, ()).is_some() {
                continue;
            }
            let values: Vec<_> = maps.iter().map(|map| map.get(key).copied()).collect();
            let Some(verdict) = judge(key, first, &values, unchanged) else {
                kept.push(KeyValue { key: key.to_owned(), value: pair.value.clone() });
                continue;
            };
            let Verdict { why, other, value, mut is_kept, is_asked } = verdict;
            if is_asked {
                match policy {
                    MetadataConflicts::First => {}
                    MetadataConflicts::Drop => is_kept = false,
                    MetadataConflicts::Error => lines.push(Conflict {
                        column: key.to_owned(),
                        why: "is a metadata key that differs",
                        sides: [first, other].map(|source| {
                            let value = values.get(source).copied().flatten();
                            (quote(value), path(sources, source))
                        }),
                    }),
                }
            }
            if is_kept {
                let value = value.map(Cow::into_owned);
                kept.push(KeyValue { key: key.to_owned(), value });
            }
            let paths = [path(sources, first), path(sources, other)];
            conflicts.push(MetadataConflict { key: key.to_owned(), why, paths, kept: is_kept });
        }
    }
    (kept, conflicts)
}

/// What becomes of `key`, which `first` is the first to have; `None` if it is simply carried.
/// `values` has the value of every source, if there is one.
fn judge<'a>(
    key: &str,
    first: usize,
    values: &[Option<Option<&'a str>>],
    unchanged: &[bool],
) -> Option<Verdict<'a>> {
    let about = about(key);
    let value = values.get(first).copied().flatten().flatten();
    let verdict = |why, other, is_kept| Verdict {
        why,
        other,
        value: value.map(Cow::Borrowed),
        is_kept,
        is_asked: false,
    };
    let differs = values.iter().position(|other| match other {
        Some(other) => *other != value,
        None => !matches!(about, EntrySubject::Schema),
    });
    match about {
        EntrySubject::File => Some(verdict("describes one file", differs.unwrap_or(first), false)),
        EntrySubject::Bounds => {
            differs.map(|other| verdict("describes the content of one file", other, false))
        }
        EntrySubject::Dates => differs.map(|other| {
            // As the first source has it, and that may be: not at all.
            verdict("says what dates and times mean, and is not the same", other, first == 0)
        }),
        EntrySubject::Geo => differs.map(|other| match geo(values) {
            Some(value) => Verdict {
                value: Some(Cow::Owned(value)),
                ..verdict("was computed anew", other, true)
            },
            None => verdict("describes the content of one file", other, false),
        }),
        EntrySubject::Schema => {
            let mut pairs = values.iter().zip(unchanged);
            if let Some(other) = pairs.position(|(value, same)| value.is_some() && !same) {
                return Some(verdict("describes a schema that changed", other, false));
            }
            let plain: Vec<Option<Cow<'a, str>>> = match key {
                "pandas" => values.iter().map(|value| value.flatten().map(pandas)).collect(),
                _ => values.iter().map(|value| value.flatten().map(Cow::Borrowed)).collect(),
            };
            let own = plain.get(first).cloned().flatten();
            let differs = plain.iter().position(|other| other.is_some() && *other != own);
            if let Some(other) = differs {
                let verdict = verdict("has different values", other, true);
                return Some(Verdict { value: own, is_asked: true, ..verdict });
            }
            let is_new = own.as_deref() != value;
            is_new.then(|| Verdict { value: own, ..verdict("was computed anew", first, true) })
        }
        EntrySubject::Unknown => differs.map(|other| {
            let why = match values.get(other) {
                Some(Some(_)) => "has different values",
                _ => "is not in every file",
            };
            Verdict { is_asked: true, ..verdict(why, other, true) }
        }),
    }
}

fn path(sources: &[(&str, &FileMetaData)], source: usize) -> String {
    sources.get(source).map_or_else(String::new, |(path, _)| (*path).to_owned())
}

/// A value as messages show it: not more than a line of it.
fn quote(value: Option<Option<&str>>) -> String {
    const CHARS_MAX: usize = 40;
    match value {
        None => "absent".to_owned(),
        Some(None) => "no value".to_owned(),
        Some(Some(value)) if value.chars().count() > CHARS_MAX => {
            format!("`{}...`", value.chars().take(CHARS_MAX).collect::<String>())
        }
        Some(Some(value)) => format!("`{value}`"),
    }
}
