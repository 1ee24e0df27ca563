//! What a folder holds by scope, and what of it a policy wants merged.
//!
//! ```text
//! list ─▶ scopes: folder, schema, order ─▶ policy ─▶ groups
//! ```
//!
//! # Invariants
//! Files are merged only with files of the same folder, schema and order. The files of a scope are in
//! the order in which they are read, which is that of their age.
//!
//! # Cost
//! The footer of every file, and its first and last key where the footer has none.
//!
//! # Not here
//! The policies (`plait_core::policy`); merging a group (`plan`, `merge`); what counts (`commit`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use plait_core::key::SortOrder;
use plait_core::policy::{File, Policy, SizeTiered, choose};
use plait_core::run::SourceId;
use plait_core::{Kind, Result};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::files::open_sources;
use crate::order::claimed;
use crate::plan::{KeyRange, entry, key_ranges, merge_level};
use crate::schema::Unite;
use crate::source::Source;
use crate::store::Stores;
use crate::store::root::Root;
use crate::store::table::{FOLDER, Manifest};

/// How files are chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SurveyOptions {
    /// The folder.
    pub folder: String,
    /// The order; absent = as each file declares.
    pub sort_by: Option<String>,
    /// `full`, `overlap` or `size_tiered`.
    pub policy: PolicyOption,
    /// See [`Policy::Overlap`].
    pub max_depth: usize,
    /// See [`SizeTiered`].
    pub merge_factor: usize,
    /// See [`SizeTiered`].
    pub merge_factor_max: usize,
    /// See [`SizeTiered`].
    pub mature_size: u64,
    /// See [`SizeTiered`].
    pub mature_level: u64,
    /// See [`SizeTiered`]; absent = never.
    pub mature_age: Option<f64>,
    /// See [`SizeTiered`].
    pub finalize: bool,
    /// Bytes of memory to stay within.
    pub memory_limit: u64,
    /// Settings of object stores.
    pub storage_options: BTreeMap<String, String>,
}

impl Default for SurveyOptions {
    fn default() -> Self {
        Self {
            folder: String::new(),
            sort_by: None,
            policy: PolicyOption::SizeTiered,
            max_depth: 1,
            merge_factor: 10,
            merge_factor_max: 12,
            mature_size: 1_000_000_000,
            mature_level: 3,
            mature_age: None,
            finalize: false,
            memory_limit: 512_000_000,
            storage_options: BTreeMap::new(),
        }
    }
}

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyOption {
    /// [`Policy::Full`].
    Full,
    /// [`Policy::Overlap`].
    Overlap,
    /// [`Policy::SizeTiered`].
    SizeTiered,
}

impl SurveyOptions {
    fn policy(&self) -> Policy {
        match self.policy {
            PolicyOption::Full => Policy::Full,
            PolicyOption::Overlap => Policy::Overlap { max_depth: self.max_depth },
            PolicyOption::SizeTiered => Policy::SizeTiered(SizeTiered {
                merge_factor: self.merge_factor,
                merge_factor_max: self.merge_factor_max,
                mature_bytes: self.mature_size,
                mature_level: self.mature_level,
                mature_age_s: self.mature_age.unwrap_or(f64::INFINITY),
                finalize: self.finalize,
            }),
        }
    }
}

/// What a folder holds, and what of it is to be merged.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    /// The folder, as locations in it begin.
    pub folder: String,
    /// Number of the manifest that counts, 0 without one.
    pub manifest: u64,
    /// Files that may be merged with one another.
    pub scopes: Vec<Scope>,
    /// Files that are left alone, and why.
    pub skipped: Vec<Skipped>,
}

/// Files of one folder, schema and order.
#[derive(Clone, Debug, Serialize)]
pub struct Scope {
    /// The folder below the root.
    pub folder: String,
    /// The order.
    pub sort_by: String,
    /// The folder that what is made of them belongs into.
    pub out: String,
    /// The files, in the order that breaks ties.
    pub files: Vec<SurveyedFile>,
    /// What the policy wants merged: places in `files`.
    pub groups: Vec<SurveyedGroup>,
}

/// A file.
#[derive(Clone, Debug, Serialize)]
pub struct SurveyedFile {
    /// Location.
    pub path: String,
    /// Path below the root.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// Length.
    pub bytes: u64,
    /// How many merges lie behind it.
    pub merge_level: u64,
}

/// A group.
#[derive(Clone, Debug, Serialize)]
pub struct SurveyedGroup {
    /// Places in `files`.
    pub files: Vec<usize>,
    /// The most of them that share one key.
    pub depth_max: usize,
}

/// A file that is left alone.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// Location.
    pub path: String,
    /// Why.
    pub why: String,
}

/// Looks at a folder and chooses.
///
/// # Errors
/// Whatever is wrong with the folder or a file.
pub fn survey_in(options: &SurveyOptions, stores: &Stores, context: &Context) -> Result<Survey> {
    let root = Root::open(&options.folder, stores)?;
    let manifest = Manifest::newest(&root)?;
    // With a slash it is a folder, whatever its name ends in.
    let folder = format!("{}/", root.location("").trim_end_matches('/'));
    let sources = match open_sources(&[folder], 0, stores, context) {
        Err(e) if e.kind() == Kind::SourceNotFound && e.path().is_none_or(|p| p.ends_with('/')) => {
            Vec::new()
        }
        outcome => outcome?,
    };
    let mut skipped = Vec::new();
    let mut scopes: BTreeMap<(String, String, String), Vec<Named>> = BTreeMap::new();
    for source in sources {
        let order = match &options.sort_by {
            Some(text) => Some(SortOrder::try_parse(text)?),
            None => claimed(&source)?,
        };
        let Some(order) = order else {
            let why = "it does not say how it is sorted; pass sort_by".to_owned();
            skipped.push(Skipped { path: source.path().to_owned(), why });
            continue;
        };
        let Some(name) = root.name_of(source.path(), stores)? else {
            let why = "it is not below the folder".to_owned();
            skipped.push(Skipped { path: source.path().to_owned(), why });
            continue;
        };
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let made = format!("{FOLDER}/files");
        let folder = match folder.strip_prefix(&made) {
            Some(rest) => rest.trim_start_matches('/'),
            None => folder,
        };
        let key = (folder.to_owned(), order.to_string(), schema_text(&source));
        scopes.entry(key).or_default().push((source, name));
    }
    let policy = options.policy();
    let scopes = scopes.into_iter().map(|((folder, sort_by, _), sources)| {
        scope(&root, folder, sort_by, &sources, &policy, context)
    });
    Ok(Survey {
        folder: root.location(""),
        manifest: manifest.number,
        scopes: scopes.collect::<Result<_>>()?,
        skipped,
    })
}

/// A source and its name below the root.
type Named = (Arc<Source>, String);

fn scope(
    root: &Root,
    folder: String,
    sort_by: String,
    named: &[Named],
    policy: &Policy,
    context: &Context,
) -> Result<Scope> {
    let order = SortOrder::try_parse(&sort_by)?;
    let numbered = named.iter().enumerate().map(|(i, (source, _))| {
        Arc::new(source.with_id(SourceId(u32::try_from(i).unwrap_or(u32::MAX))))
    });
    let sources: Vec<Arc<Source>> = numbered.collect();
    let ranges = key_ranges(&sources, &order, &Unite::default(), context)?;
    let facts = |(source, range): (&Arc<Source>, Option<KeyRange>)| {
        let (first, last) = range.unwrap_or_default();
        File {
            first,
            last,
            bytes: source.store.len(),
            level: merge_level(source),
            task: entry(source, "plait.task").unwrap_or_default().to_owned(),
            age_s: age_s(source).unwrap_or(0.0),
        }
    };
    let facts: Vec<File> = sources.iter().zip(ranges).map(facts).collect();
    let groups = choose(&facts, policy).into_iter();
    let file = |(source, name): &Named| SurveyedFile {
        path: source.path().to_owned(),
        name: name.clone(),
        rows: source.rows(),
        bytes: source.store.len(),
        merge_level: merge_level(source),
    };
    let made = format!("{FOLDER}/files{}{folder}", if folder.is_empty() { "" } else { "/" });
    Ok(Scope {
        folder,
        sort_by,
        out: root.location(&made),
        files: named.iter().map(file).collect(),
        groups: groups
            .map(|group| SurveyedGroup { files: group.files, depth_max: group.depth_max })
            .collect(),
    })
}

fn schema_text(source: &Source) -> String {
    let mut text = Vec::new();
    let root = source.meta.file_metadata().schema();
    root.get_fields().iter().for_each(|field| {
        parquet::schema::printer::print_schema(&mut text, field);
    });
    String::from_utf8_lossy(&text).into_owned()
}

fn age_s(source: &Source) -> Option<f64> {
    let written = source.store.written_at()?;
    Some(SystemTime::now().duration_since(written).map_or(0.0, |age| age.as_secs_f64()))
}

/// What a policy is asked about files that need not exist.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChooseOptions {
    /// The policy; its folder is not looked at.
    pub policy: SurveyOptions,
    /// First and last key, bytes, level, task, age of each.
    pub files: Vec<(u64, u64, u64, u64, String, f64)>,
}

/// Chooses among files of one scope by numbers alone: for simulations.
///
/// # Errors
/// None.
pub fn choose_in(
    options: &ChooseOptions,
    _stores: &Stores,
    _context: &Context,
) -> Result<Vec<Vec<usize>>> {
    let file =
        |(first, last, bytes, level, task, age_s): &(u64, u64, u64, u64, String, f64)| File {
            first: first.to_be_bytes().to_vec(),
            last: last.to_be_bytes().to_vec(),
            bytes: *bytes,
            level: *level,
            task: task.clone(),
            age_s: *age_s,
        };
    let files: Vec<File> = options.files.iter().map(file).collect();
    Ok(choose(&files, &options.policy.policy()).into_iter().map(|group| group.files).collect())
}
