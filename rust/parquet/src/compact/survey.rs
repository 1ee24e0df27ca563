//! What a folder holds by scope, and what of it a policy wants merged.
//!
//! ```text
//! list ─▶ scopes: folder, schema, order ─▶ policy ─▶ groups
//! ```
//!
//! # Invariants
//! Files are merged only with files of the same folder, schema and order. The files of a scope are
//! in the order in which they are read, which is that of their age.
//!
//! # Cost
//! The footer of every file, and its first and last key where the footer has none: all its keys, if
//! unsorted files are to be sorted or skipped.
//!
//! # Not here
//! The policies (`plait_core::policy`); merging a group (`plan`, `merge`); what counts (`commit`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use plait_core::SourceId;
use plait_core::key::SortOrder;
use plait_core::policy::{File, Group, Keep, Policy, SizeTiered, choose, is_oldest};
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::retention;
use crate::drops::Expiry;
use crate::files::{is_of_the_file, open_each};
use crate::options::{MergeOptions, OnDuplicateOption, UnsortedOption};
use crate::order::claimed;
use crate::plan::{KeyLook, KeyRange, entry, key_ranges, merge_level};
use crate::runtime::Context;
use crate::schema::{Unite, data_type};
use crate::source::Source;
use crate::store::Stores;
use crate::store::root::Root;
use crate::store::table::{FOLDER, Manifest, table_around, tables_below};

/// How files are chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SurveyOptions {
    /// The folder.
    pub(crate) folder: String,
    /// The order; absent = as each file declares.
    pub(crate) sort_by: Option<String>,
    /// `full`, `overlap` or `size_tiered`.
    pub(crate) policy: PolicyOption,
    /// See [`Policy::Overlap`].
    pub(crate) max_depth: usize,
    /// See [`SizeTiered`].
    pub(crate) merge_factor: usize,
    /// See [`SizeTiered`].
    pub(crate) merge_factor_max: usize,
    /// See [`SizeTiered`].
    pub(crate) mature_size: u64,
    /// See [`SizeTiered`].
    pub(crate) mature_level: u64,
    /// See [`SizeTiered`]; absent = never.
    pub(crate) mature_age: Option<f64>,
    /// See [`SizeTiered`].
    pub(crate) finalize: bool,
    /// What becomes of rows with one key.
    pub(crate) on_duplicate: OnDuplicateOption,
    /// Column of their versions.
    pub(crate) version_by: Option<String>,
    /// Whether there are rows that delete their key.
    pub(crate) deletes: bool,
    /// What becomes of files that are not sorted: left alone in any case, unless they are sorted.
    pub(crate) unsorted: UnsortedOption,
    /// Locations of files that an earlier survey found sorted.
    pub(crate) sorted: BTreeSet<String>,
    /// What merges of the groups are asked for: the columns that it names must be there, and rows
    /// past their retention are a reason to write a file again.
    pub(crate) merge: Option<MergeOptions>,
    /// Locations of files to leave alone, and why.
    pub(crate) leave: BTreeMap<String, String>,
    /// Bytes of memory to stay within.
    pub(crate) memory_limit: u64,
    /// Settings of object stores.
    pub(crate) storage_options: BTreeMap<String, String>,
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
            on_duplicate: OnDuplicateOption::KeepAll,
            version_by: None,
            deletes: false,
            unsorted: UnsortedOption::Error,
            sorted: BTreeSet::new(),
            merge: None,
            leave: BTreeMap::new(),
            memory_limit: 512_000_000,
            storage_options: BTreeMap::new(),
        }
    }
}

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PolicyOption {
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
    /// How many merges lie behind it.
    pub(crate) merge_level: u64,
    /// SHA-256 of its footer.
    pub(crate) footer: String,
    /// Whether its rows are in order, as far as was looked.
    pub(crate) is_sorted: bool,
}

/// A group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SurveyedGroup {
    /// Places in `files`.
    pub(crate) files: Vec<usize>,
    /// The most of them that share one key.
    pub(crate) depth_max: usize,
    /// Whether rows that delete must stay: there may be others to delete, in other files.
    pub(crate) keep_tombstones: bool,
    /// Why these files.
    pub(crate) why: Why,
}

/// Why files are a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    /// The policy wants them merged.
    Policy,
    /// One file with rows past their retention, and others.
    Expired,
    /// All rows of all of them are past their retention: nothing is to be made of them.
    AllExpired,
}

/// A file that is left alone.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Skipped {
    /// Location.
    pub(crate) path: String,
    /// Why.
    pub(crate) why: String,
}

impl Skipped {
    fn new(path: &str, why: impl Into<String>) -> Self {
        Self { path: path.to_owned(), why: why.into() }
    }

    /// A file that cannot be merged, as the error says.
    fn of(path: &str, error: &Error) -> Self {
        Self::new(path, error.why())
    }
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
    let opened = match open_each(&[folder], 0, None, stores, context) {
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
    let mut scopes: BTreeMap<(String, String, String), Vec<NamedSource>> = BTreeMap::new();
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
                let key = (folder.to_owned(), order.to_string(), schema_text(&source));
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
    for ((folder, sort_by, _), named) in scopes {
        let order = SortOrder::try_parse(&sort_by)?;
        let look = KeyLook { unsorted: options.unsorted, sorted: &options.sorted };
        let (named, ranges) = match in_order(named, &order, look, context, &mut skipped)? {
            Ok((named, _)) if named.is_empty() => continue,
            Ok(found) => found,
            Err(e) => {
                misfit.get_or_insert(e);
                continue;
            }
        };
        let ours: BTreeSet<u64> = named.iter().map(|named| named.age).collect();
        let is_stranger = |age: &u64| !ours.contains(age);
        let of_folder = ages.get(&folder).into_iter().flatten();
        let strangers: Vec<u64> = of_folder.copied().filter(is_stranger).collect();
        let chooser = Chooser { policy: &policy, options, strangers: &strangers };
        found.push(scope(root, folder, sort_by, &named, ranges, &chooser, context)?);
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

/// Files, and the first and last key of each with rows.
type InOrder = (Vec<NamedSource>, Vec<Option<KeyRange>>);

/// Files whose keys can be compared, each with its first and last key; others are left alone.
fn in_order(
    named: Vec<NamedSource>,
    order: &SortOrder,
    look: KeyLook<'_>,
    context: &Context,
    skipped: &mut Vec<Skipped>,
) -> Result<Result<InOrder>> {
    let sources = numbered(&named);
    let ranges = match key_ranges(&sources, order, &Unite::default(), look, context) {
        // All of them have one schema, by which they cannot be merged.
        Err(e) if is_of_the_schema(e.kind()) => {
            skipped.extend(sources.iter().map(|source| Skipped::of(source.path(), &e)));
            return Ok(Err(e));
        }
        outcome => outcome?,
    };
    let (mut kept, mut keys) = (Vec::new(), Vec::new());
    for (named, range) in named.into_iter().zip(ranges) {
        match range {
            Ok(range) => {
                kept.push(named);
                keys.push(range);
            }
            Err(e) => skipped.push(Skipped::of(named.source.path(), &e)),
        }
    }
    Ok(Ok((kept, keys)))
}

/// The sources, with ids in their order.
fn numbered(named: &[NamedSource]) -> Vec<Arc<Source>> {
    let id = |i: usize| SourceId(u32::try_from(i).unwrap_or(u32::MAX));
    named.iter().enumerate().map(|(i, named)| Arc::new(named.source.with_id(id(i)))).collect()
}

fn is_of_the_schema(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::UnknownColumn | Kind::UnsupportedKey | Kind::SchemaConflict | Kind::Unsupported
    )
}

/// A source, its name below the root, and its place among all by age.
struct NamedSource {
    source: Arc<Source>,
    name: String,
    age: u64,
}

/// How files of a scope are chosen, and which other files of their folder there are.
struct Chooser<'a> {
    policy: &'a Policy,
    options: &'a SurveyOptions,
    strangers: &'a [u64],
}

impl Chooser<'_> {
    fn groups(&self, files: &[File]) -> Vec<SurveyedGroup> {
        // Where all rows stay, only the order of rows with equal keys is at stake.
        let keep = match self.options.on_duplicate {
            OnDuplicateOption::KeepAll | OnDuplicateOption::Error => Keep::Nothing,
            OnDuplicateOption::KeepFirst | OnDuplicateOption::KeepLast => {
                Keep::Ages(self.strangers)
            }
        };
        let group = |group: Group| SurveyedGroup {
            keep_tombstones: self.options.deletes && !self.is_last_word(files, &group.files),
            files: group.files,
            depth_max: group.depth_max,
            why: Why::Policy,
        };
        choose(files, self.policy, keep).into_iter().map(group).collect()
    }

    /// Groups of files that no other group has and that have rows past their retention.
    fn expired(
        &self,
        files: &[File],
        chosen: &[SurveyedGroup],
        all: &[Expiry],
    ) -> Vec<SurveyedGroup> {
        let taken: BTreeSet<usize> =
            chosen.iter().flat_map(|group| &group.files).copied().collect();
        let of = |wanted: Expiry| {
            let places = all.iter().enumerate().filter(move |(_, expiry)| **expiry == wanted);
            places.map(|(i, _)| i).filter(|i| !taken.contains(i)).collect::<Vec<usize>>()
        };
        let group = |files: Vec<usize>, keep_tombstones, why| SurveyedGroup {
            files,
            depth_max: 1,
            keep_tombstones,
            why,
        };
        let whole = of(Expiry::All);
        let whole = (!whole.is_empty()).then(|| group(whole, false, Why::AllExpired));
        let again = of(Expiry::Some).into_iter().map(|i| {
            let keeps = self.options.deletes && !self.is_last_word(files, &[i]);
            group(vec![i], keeps, Why::Expired)
        });
        whole.into_iter().chain(again).collect()
    }

    /// Whether a row that deletes has nothing left to delete outside of the group.
    fn is_last_word(&self, files: &[File], members: &[usize]) -> bool {
        let of_any_age = self.options.version_by.is_some();
        // Where the first stays, a row that deletes is there for whatever comes.
        self.options.on_duplicate == OnDuplicateOption::KeepLast
            && is_oldest(files, self.strangers, members, of_any_age)
    }
}

fn scope(
    root: &Root,
    folder: String,
    sort_by: String,
    named: &[NamedSource],
    ranges: Vec<Option<KeyRange>>,
    chooser: &Chooser<'_>,
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
        merge_level: merge_level(source),
        footer: footer_text(source),
        is_sorted: !fact.is_unsorted,
    };
    let made = format!("{FOLDER}/files{}{folder}", if folder.is_empty() { "" } else { "/" });
    let mut groups = chooser.groups(&facts);
    if let Some(merge) = &chooser.options.merge {
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
        files: named.iter().zip(&facts).map(file).collect(),
        groups,
    })
}

/// SHA-256 of the footer, as text.
pub(super) fn footer_text(source: &Source) -> String {
    source.footer_hash.iter().map(|b| format!("{b:02x}")).collect()
}

fn columns(source: &Source) -> Vec<(String, String)> {
    let leaves = source.meta.file_metadata().schema_descr().columns();
    leaves.iter().map(|leaf| (leaf.path().string(), data_type(leaf))).collect()
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
pub(crate) struct ChooseOptions {
    /// The policy; its folder is not looked at.
    pub(crate) policy: SurveyOptions,
    /// First and last key, bytes, level, task, age of each.
    pub(crate) files: Vec<(u64, u64, u64, u64, String, f64)>,
    /// Places of those that are not sorted.
    pub(crate) unsorted: BTreeSet<usize>,
}

/// Chooses among files of one scope by numbers alone: for simulations.
///
/// # Errors
/// None.
pub(crate) fn choose_in(
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
            ..File::default()
        };
    let mut files: Vec<File> = options.files.iter().map(file).collect();
    for (i, file) in files.iter_mut().enumerate() {
        file.is_unsorted = options.unsorted.contains(&i);
    }
    let groups = choose(&files, &options.policy.policy(), Keep::Nothing);
    Ok(groups.into_iter().map(|group| group.files).collect())
}
