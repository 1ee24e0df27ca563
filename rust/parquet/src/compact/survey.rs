//! What a folder holds by scope, and what of it a policy wants merged.
//!
//! ```text
//! list ─▶ scopes: folder, schema, order ─▶ policy ─▶ groups
//! ```
//!
//! # Invariants
//! Files are merged only with files of the same folder and order, and of the same schema unless
//! several may be merged. The files of a scope are in the order in which they are read, which is
//! that of their age.
//!
//! # Cost
//! The footer of every file, and its first and last key where the footer has none: all its keys, if
//! unsorted files are to be sorted or skipped.
//!
//! # Not here
//! Groups of a scope (`choose`); keys of files (`look`); which schemas go together (`schemas`); merging a group (`plan`, `merge`); what
//! counts (`commit`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

use plait_core::key::SortOrder;
use plait_core::policy::File;
use plait_core::{Error, Kind, Result};
use serde::Serialize;

use super::choose::{Chooser, SurveyedGroup};
use super::look::{NamedSource, Skipped, in_order, numbered};
use super::options::SurveyOptions;
use super::schemas::ScopeKey;
use super::{retention, schemas};
use crate::ends::EndsReader;
use crate::files::{is_of_the_file, open_each};
use crate::options::MergeOptions;
use crate::order::claimed;
use crate::plan::{KeyLook, KeyRange, entry, merge_level};
use crate::runtime::Context;
use crate::schema::data_type;
use crate::source::Source;
use crate::store::Stores;
use crate::store::root::Root;
use crate::store::table::{FOLDER, Manifest, table_around, tables_below};

/// What a folder holds, and what of it is to be merged.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Survey {
    /// The folder, as locations in it begin.
    pub(crate) folder: String,
    /// Number of the manifest that counts, 0 without one.
    pub(crate) manifest: u64,
    /// Files that may be merged with one another.
    pub(crate) scopes: Vec<Scope>,
    /// Files that are left alone, and why.
    pub(crate) skipped: Vec<Skipped>,
}

/// Files of one folder, schema and order.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Scope {
    /// The folder below the root.
    pub(crate) folder: String,
    /// The order.
    pub(crate) sort_by: String,
    /// The folder that what is made of them belongs into.
    pub(crate) out: String,
    /// Path and type of each column, if files of the folder and order have several schemas.
    pub(crate) columns: Vec<(String, String)>,
    /// Columns that rules name and only files of other scopes have.
    pub(crate) absent_columns: Vec<String>,
    /// The files, in the order that breaks ties.
    pub(crate) files: Vec<SurveyedFile>,
    /// What the policy wants merged: places in `files`.
    pub(crate) groups: Vec<SurveyedGroup>,
}

/// A file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SurveyedFile {
    /// Location.
    pub(crate) path: String,
    /// Path below the root.
    pub(crate) name: String,
    /// Rows.
    pub(crate) rows: u64,
    /// Length.
    pub(crate) bytes: u64,
    /// What the storage says of its version.
    pub(crate) version: Option<String>,
    /// How many merges lie behind it.
    pub(crate) merge_level: u64,
    /// SHA-256 of its footer.
    pub(crate) footer: String,
    /// Whether its rows are in order, as far as was looked.
    pub(crate) is_sorted: bool,
}

/// Looks at a folder and chooses.
///
/// # Errors
/// Whatever is wrong with the folder or a file.
pub(crate) fn survey_in(
    options: &SurveyOptions,
    stores: &Stores,
    context: &Context,
) -> Result<Survey> {
    if let Some(merge) = &options.merge {
        merge.check_values()?;
    }
    let root = Root::open(&options.folder, stores)?;
    loop {
        let before = Manifest::newest(&root)?;
        let error = match survey_once(&root, &before, options, stores, context) {
            Ok(survey) => return Ok(survey),
            Err(error) => error,
        };
        // What was listed may have been replaced and removed since: there is a later manifest then.
        let is_gone = matches!(error.kind(), Kind::SourceNotFound | Kind::SourceChanged);
        if !is_gone || Manifest::newest(&root)?.number == before.number {
            return Err(error);
        }
        context.check_cancelled()?;
    }
}

/// Refuses a folder of which one above has manifests, unless it has some itself: then compactions
/// of the one above leave it alone.
///
/// # Errors
/// [`Kind::InvalidArgument`].
pub(super) fn check_not_part(root: &Root, manifest: &Manifest) -> Result<()> {
    if manifest.number > 0 {
        return Ok(());
    }
    let Some((above, _)) = table_around(root)? else { return Ok(()) };
    Err(Error::new(
        Kind::InvalidArgument,
        "the folder lies in a folder that is compacted as a whole",
    )
    .with_path(root.location(""))
    .with_got(format!("a manifest in `{}`", above.location("")))
    .with_hint("compact that folder: it merges files of each subfolder apart"))
}

fn survey_once(
    root: &Root,
    manifest: &Manifest,
    options: &SurveyOptions,
    stores: &Stores,
    context: &Context,
) -> Result<Survey> {
    check_not_part(root, manifest)?;
    // With a slash it is a folder, whatever its name ends in.
    let folder = format!("{}/", root.location("").trim_end_matches('/'));
    let how = options.merge.as_ref().map(MergeOptions::unite).unwrap_or_default();
    let ends = EndsReader::new(options.sort_by.as_deref(), how, context);
    let opened = match open_each(&[folder], &ends, stores, context) {
        // Among objects a folder without files is one that is not there, such as a misspelt one.
        Err(e)
            if e.kind() == Kind::SourceNotFound
                && e.path().is_none_or(|p| p.ends_with('/'))
                && (manifest.number > 0 || matches!(root, Root::Local(_))) =>
        {
            Vec::new()
        }
        outcome => outcome?,
    };
    let mut skipped = Vec::new();
    let mut scopes = schemas::ByScope::new();
    let mut ages: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut named = Vec::new();
    for (age, (path, source)) in (0..).zip(opened) {
        match root.name_of(&path, stores)? {
            Some(name) => named.push((name, path, source, age)),
            None => skipped.push(Skipped::new(&path, "it is not below the folder")),
        }
    }
    let tables = tables_below(root)?;
    for (name, path, source, age) in named {
        if tables.iter().any(|table| Path::new(&name).starts_with(table)) {
            skipped.push(Skipped::new(&path, "it lies in a subfolder that has its own manifest"));
            continue;
        }
        if root.is_behind_link(&name) {
            skipped.push(Skipped::new(&path, "it is behind a symbolic link"));
            continue;
        }
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let made = format!("{FOLDER}/files");
        let folder = match folder.strip_prefix(&made) {
            Some(rest) => rest.trim_start_matches('/'),
            None => folder,
        };
        // Whatever its schema and order, even if it cannot be read, it may hold the same keys.
        ages.entry(folder.to_owned()).or_default().push(age);
        if let Some(why) = options.leave.get(&path) {
            skipped.push(Skipped::new(&path, why));
            continue;
        }
        let known = source.and_then(|source| {
            let order = match &options.sort_by {
                Some(text) => Some(SortOrder::try_parse(text)?),
                None => claimed(&source)?,
            };
            Ok((source, order))
        });
        match known {
            Ok((source, Some(order))) => {
                let key = ScopeKey {
                    folder: folder.to_owned(),
                    sort_by: order.to_string(),
                    schema: schema_text(&source),
                };
                scopes.entry(key).or_default().push(NamedSource { source, name, age });
            }
            Ok((_, None)) => {
                let why = "it declares no sort order; pass sort_by";
                skipped.push(Skipped::new(&path, why));
            }
            Err(e) if is_of_the_file(&e) => skipped.push(Skipped::of(&path, &e)),
            Err(e) => return Err(e),
        }
    }
    let policy = options.policy();
    let (mut found, mut misfit) = (Vec::new(), None);
    if options.across_schemas {
        scopes = schemas::unite(scopes, &how);
    }
    let everywhere = scopes.values().flat_map(|named| schemas::columns(named)).collect();
    for (key, named) in scopes {
        let order = SortOrder::try_parse(&key.sort_by)?;
        let look = KeyLook { unsorted: options.unsorted, sorted: &options.sorted };
        let (named, ranges) = match in_order(named, &order, look, &how, context, &mut skipped)? {
            Ok((named, _)) if named.is_empty() => continue,
            Ok(found) => found,
            Err(e) => {
                misfit.get_or_insert(e);
                continue;
            }
        };
        let ours: BTreeSet<u64> = named.iter().map(|named| named.age).collect();
        let is_stranger = |age: &u64| !ours.contains(age);
        let of_folder = ages.get(&key.folder).into_iter().flatten();
        let strangers: Vec<u64> = of_folder.copied().filter(is_stranger).collect();
        let chooser = Chooser { policy: &policy, options, strangers: &strangers };
        let mut merge = options.merge.clone();
        if let Some(merge) = &mut merge {
            merge.absent_columns = schemas::absent(&merge.asked_drops(), &named, &everywhere);
        }
        found.push(scope(root, key, &named, ranges, &chooser, merge, context)?);
    }
    // An order that fits no file at all is a mistake in the call.
    if let Some(e) = misfit.filter(|_| found.is_empty()) {
        return Err(e);
    }
    skipped.sort_by(|a, b| a.path.cmp(&b.path));
    keep_differing_columns(&mut found);
    Ok(Survey { folder: root.location(""), manifest: manifest.number, scopes: found, skipped })
}

/// Leaves the columns of scopes only where schemas keep files apart.
fn keep_differing_columns(scopes: &mut [Scope]) {
    let mut schemas: BTreeMap<(String, String), usize> = BTreeMap::new();
    for scope in &*scopes {
        *schemas.entry((scope.folder.clone(), scope.sort_by.clone())).or_default() += 1;
    }
    for scope in scopes {
        if schemas.get(&(scope.folder.clone(), scope.sort_by.clone())) == Some(&1) {
            scope.columns.clear();
        }
    }
}

fn scope(
    root: &Root,
    key: ScopeKey,
    named: &[NamedSource],
    ranges: Vec<Option<KeyRange>>,
    chooser: &Chooser<'_>,
    merge: Option<MergeOptions>,
    context: &Context,
) -> Result<Scope> {
    let facts = |(named, range): (&NamedSource, Option<KeyRange>)| {
        let (source, is_empty) = (&named.source, range.is_none());
        let is_unsorted = range.as_ref().is_some_and(|range| !range.is_sorted);
        let (first, last) = range.map(|range| (range.first, range.last)).unwrap_or_default();
        File {
            first,
            last,
            is_unsorted,
            bytes: source.store.len(),
            level: merge_level(source),
            task: entry(source, "plait.task").unwrap_or_default().to_owned(),
            age_s: age_s(source).unwrap_or(0.0),
            age: named.age,
            is_empty,
        }
    };
    let facts: Vec<File> = named.iter().zip(ranges).map(facts).collect();
    let file = |(NamedSource { source, name, .. }, fact): (&NamedSource, &File)| SurveyedFile {
        path: source.path().to_owned(),
        name: name.clone(),
        rows: source.rows(),
        bytes: source.store.len(),
        version: source.store.version(),
        merge_level: merge_level(source),
        footer: source.footer_text(),
        is_sorted: !fact.is_unsorted,
    };
    let ScopeKey { folder, sort_by, .. } = key;
    let made = format!("{FOLDER}/files{}{folder}", if folder.is_empty() { "" } else { "/" });
    let mut groups = chooser.groups(&facts);
    if let Some(merge) = &merge {
        let order = SortOrder::try_parse(&sort_by)?;
        let expired = retention::expiry_of(&numbered(named), &order, merge, context)?;
        groups.extend(chooser.expired(&facts, &groups, &expired));
    }
    Ok(Scope {
        folder,
        sort_by,
        // With a slash it is a folder, whatever its name ends in.
        out: format!("{}/", root.location(&made)),
        columns: named.first().map(|named| columns(&named.source)).unwrap_or_default(),
        absent_columns: merge.map(|merge| merge.absent_columns).unwrap_or_default(),
        files: named.iter().zip(&facts).map(file).collect(),
        groups,
    })
}

fn columns(source: &Source) -> Vec<(String, String)> {
    let leaves = source.schema().columns();
    leaves.iter().map(|leaf| (leaf.path().string(), data_type(leaf))).collect()
}

fn schema_text(source: &Source) -> String {
    let mut text = Vec::new();
    let root = source.file().schema();
    root.get_fields().iter().for_each(|field| {
        parquet::schema::printer::print_schema(&mut text, field);
    });
    String::from_utf8_lossy(&text).into_owned()
}

fn age_s(source: &Source) -> Option<f64> {
    let written = source.store.written_at()?;
    Some(SystemTime::now().duration_since(written).map_or(0.0, |age| age.as_secs_f64()))
}
