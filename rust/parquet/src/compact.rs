//! Which files of a folder to merge, and the one step that makes a merge count.
//!
//! ```text
//! survey   list ─▶ scopes: folder, schema, order ─▶ policy ─▶ groups
//! commit   manifest n + 1, put where there is none ─▶ the group's files are replaced
//! ```
//!
//! # Invariants
//! Files are merged only with files of the same folder, schema and order. Nothing is removed here.
//!
//! # Not here
//! The policies (`plait_core::policy`); merging a group (`plan`, `merge`); what counts
//! (`store::table`).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use plait_core::key::SortOrder;
use plait_core::policy::{File, Policy, SizeTiered, choose};
use plait_core::run::SourceId;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::files::open_sources;
use crate::order::claimed;
use crate::plan::{KeyRange, entry, key_ranges, merge_level};
use crate::schema::Unite;
use crate::source::Source;
use crate::store::table::{FOLDER, Manifest};
use crate::store::{Location, Stores};
use crate::target::{Published, Target};

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
    let root = local_root(&options.folder, stores)?;
    let manifest = Manifest::newest(&root)?;
    let sources = match open_sources(std::slice::from_ref(&options.folder), 0, stores, context) {
        Err(e) if e.kind() == Kind::SourceNotFound && root.is_dir() => Vec::new(),
        outcome => outcome?,
    };
    let mut skipped = Vec::new();
    let mut scopes: BTreeMap<(String, String, String), Vec<Arc<Source>>> = BTreeMap::new();
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
        let name = name_below(&root, source.path());
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let made = format!("{FOLDER}/files");
        let folder = match folder.strip_prefix(&made) {
            Some(rest) => rest.trim_start_matches('/'),
            None => folder,
        };
        let key = (folder.to_owned(), order.to_string(), schema_text(&source));
        scopes.entry(key).or_default().push(source);
    }
    let policy = options.policy();
    let scopes = scopes.into_iter().map(|((folder, sort_by, _), sources)| {
        scope(&root, folder, sort_by, &sources, &policy, context)
    });
    Ok(Survey { manifest: manifest.number, scopes: scopes.collect::<Result<_>>()?, skipped })
}

fn scope(
    root: &Path,
    folder: String,
    sort_by: String,
    sources: &[Arc<Source>],
    policy: &Policy,
    context: &Context,
) -> Result<Scope> {
    let order = SortOrder::try_parse(&sort_by)?;
    let numbered = sources.iter().enumerate().map(|(i, source)| {
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
    let file = |source: &Arc<Source>| SurveyedFile {
        path: source.path().to_owned(),
        name: name_below(root, source.path()),
        rows: source.rows(),
        bytes: source.store.len(),
        merge_level: merge_level(source),
    };
    Ok(Scope {
        folder,
        sort_by,
        files: sources.iter().map(file).collect(),
        groups: groups
            .map(|group| SurveyedGroup { files: group.files, depth_max: group.depth_max })
            .collect(),
    })
}

fn local_root(folder: &str, stores: &Stores) -> Result<PathBuf> {
    match stores.locate(folder)? {
        Location::Local(path) if path.is_dir() => Ok(path),
        Location::Local(_) => {
            Err(Error::new(Kind::SourceNotFound, "there is no such folder").with_path(folder))
        }
        Location::Object(_) => {
            Err(Error::new(Kind::Unsupported, "only local folders can be compacted")
                .with_path(folder)
                .with_hint("merge its files with plait.merge"))
        }
    }
}

fn name_below(root: &Path, path: &str) -> String {
    let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path));
    below.to_string_lossy().into_owned()
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
    let written: f64 = source.store.stamp()?.parse().ok()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some((now.as_secs_f64() - written).max(0.0))
}

/// A change of what counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommitOptions {
    /// The folder.
    pub folder: String,
    /// Files that count from now on, by their path below the root.
    pub add: Vec<String>,
    /// Files that count no more; all of them must count now.
    pub replace: Vec<String>,
    /// Replaced files that are removed and forgotten.
    pub forget: Vec<String>,
    /// Settings of object stores.
    pub storage_options: BTreeMap<String, String>,
}

/// How a commit ended.
#[derive(Clone, Debug, Serialize)]
pub struct Commit {
    /// Whether the change counts.
    pub committed: bool,
    /// The manifest that counts now.
    pub manifest: Manifest,
}

/// Commits a change in one step, or finds that others have replaced the same files.
///
/// # Errors
/// [`Kind::Storage`] and what a damaged manifest gives.
pub fn commit_in(options: &CommitOptions, stores: &Stores, context: &Context) -> Result<Commit> {
    let root = local_root(&options.folder, stores)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = now.map_or(0.0, |now| now.as_secs_f64());
    let folder = root.join(FOLDER);
    loop {
        context.check_cancelled()?;
        let mut manifest = Manifest::newest(&root)?;
        if options.add.is_empty() && options.replace.is_empty() && options.forget.is_empty() {
            return Ok(Commit { committed: false, manifest });
        }
        let is_made = |path: &str| path.starts_with(&format!("{FOLDER}/"));
        let counts = |path: &String| match is_made(path) {
            true => manifest.files.contains(path),
            false => {
                root.join(path).exists()
                    && !manifest.replaced.iter().any(|replaced| replaced.path == *path)
            }
        };
        if !options.replace.iter().all(counts) {
            return Ok(Commit { committed: false, manifest });
        }
        manifest.number += 1;
        manifest.files.retain(|path| !options.replace.contains(path));
        manifest.files.extend(options.add.iter().cloned());
        let gone = options.replace.iter().map(|path| (path.clone(), since));
        manifest
            .replaced
            .extend(gone.map(|(path, since)| crate::store::table::Replaced { path, since }));
        manifest.replaced.retain(|replaced| !options.forget.contains(&replaced.path));
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|e| Error::new(Kind::Internal, "cannot write a manifest").with_cause(e))?;
        let target = Target::open(&folder.to_string_lossy(), stores, context)?;
        let name = Manifest::name(manifest.number);
        let mut temp = target.create(&name)?;
        let failed = |e| {
            Error::new(Kind::Storage, "cannot write a manifest")
                .with_path(target.location(&name))
                .with_cause(e)
        };
        temp.write_all(&text).map_err(failed)?;
        temp.sync()?;
        // Somebody else may have taken the number: then look again.
        if temp.publish_new(&target, &name)? == Published::Yes {
            target.sync()?;
            return Ok(Commit { committed: true, manifest });
        }
    }
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
