//! Which files do these patterns name?
//!
//! ```text
//! a.parquet              itself
//! folder                 every *.parquet below it, sorted
//! folder/2024-*.parquet  every match, sorted
//! s3://bucket/folder     the same there; `*` is a glob, `[` is not, `?` would end the path
//! ```
//!
//! # Invariants
//! Of a folder with a manifest, the live files are listed, in the places of those they
//! replaced. Folders that are tables of other formats are refused, and so are globs that lead into
//! one. Items stay in the order given; only what one item names is sorted. Names that start with
//! `.` or `_` are skipped unless written out. No file is named twice: its rows would be doubled.
//!
//! # Not here
//! Opening files (`Stores::open`).

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plait_core::{Error, Kind, Result};

use super::bucket::Place;
use super::local::storage_error;
use super::reader::not_found;
use super::registry::{Location, Stores};
use super::root::below;
use super::{foreign, live, table};

/// Which files of a folder are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Parquet files.
    Parquet,
    /// Files of text as well, see [`is_text_name`].
    ParquetAndText,
}

impl Wanted {
    /// Whether files of a folder that have this name are listed.
    fn is_wanted(self, name: &str) -> bool {
        name.ends_with(".parquet") || (self == Self::ParquetAndText && is_text_name(name))
    }
}

/// Whether a file of this name has rows as text: JSON, one on each line, or CSV.
pub(crate) fn is_text_name(name: &str) -> bool {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    [".jsonl", ".ndjson", ".csv"].iter().any(|ending| name.ends_with(ending))
}

/// Folders inside folders, at most; more means a loop of symbolic links.
const DEPTH_MAX: usize = 64;

impl Stores {
    /// Finds the files that `patterns` name: files, folders, globs and URLs.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`] when an item names nothing, [`Kind::InvalidArgument`] when two
    /// items name the same file, [`Kind::ForeignTable`] for a folder whose files a log counts.
    pub(crate) fn list(&self, patterns: &[String], wanted: Wanted) -> Result<Vec<String>> {
        list(self, patterns, wanted)
    }

    /// The same for each pattern by itself, with the folder that it names, if it does not name a
    /// file.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub(crate) fn list_each(
        &self,
        patterns: &[String],
        wanted: Wanted,
    ) -> Result<Vec<(Option<String>, Vec<String>)>> {
        let listed = list_each(self, patterns, wanted)?.into_iter().zip(patterns);
        listed.map(|(found, pattern)| Ok((folder_of(self, pattern, &found)?, found))).collect()
    }
}

/// As [`Stores::list`].
fn list(stores: &Stores, patterns: &[String], wanted: Wanted) -> Result<Vec<String>> {
    Ok(list_each(stores, patterns, wanted)?.concat())
}

/// As [`Stores::list_each`].
fn list_each(stores: &Stores, patterns: &[String], wanted: Wanted) -> Result<Vec<Vec<String>>> {
    let mut all = Vec::with_capacity(patterns.len());
    for pattern in patterns {
        let mut found = Vec::new();
        match stores.locate(pattern)? {
            Location::Object(place) => list_objects(&place, pattern, wanted, &mut found)?,
            Location::Local(path) => list_local(&path, pattern, wanted, &mut found)?,
        }
        if found.is_empty() {
            return Err(nothing(pattern, wanted));
        }
        all.push(found);
    }
    check_distinct(stores, &all.concat())?;
    Ok(all)
}

/// The error for a pattern, or a folder, that no file matches.
fn nothing(pattern: &str, wanted: Wanted) -> Error {
    if pattern.contains(['*', '?', '[']) {
        return Error::new(Kind::SourceNotFound, "nothing matches")
            .with_path(pattern)
            .with_hint("check the pattern; relative patterns start at the working directory");
    }
    let (what, hint) = match wanted {
        Wanted::Parquet => (
            "the folder has no Parquet file",
            "folders are searched for names that end in .parquet",
        ),
        Wanted::ParquetAndText => (
            "the folder has no Parquet file, and none of JSON lines or CSV",
            "folders are searched for names that end in .parquet, .jsonl, .ndjson or .csv",
        ),
    };
    let error = Error::new(Kind::SourceNotFound, what).with_path(pattern).with_hint(hint);
    let entries = std::fs::read_dir(pattern).into_iter().flatten().flatten();
    match entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).min() {
        Some(name) => error.with_got(format!("others, such as `{name}`")),
        None => error,
    }
}

/// The folder that `pattern` names, spelled as the files it lists are; none for a pattern that is a
/// file.
///
/// # Errors
/// As [`Stores::locate`].
fn folder_of(stores: &Stores, pattern: &str, found: &[String]) -> Result<Option<String>> {
    let (whole, wildcards): (_, &[char]) = match stores.locate(pattern)? {
        Location::Local(path) => (utf8(&path)?.to_owned(), &['*', '?', '['][..]),
        Location::Object(place) => (place.location(), &['*'][..]),
    };
    if matches!(found, [only] if *only == whole || only == pattern) {
        return Ok(None);
    }
    let is_below = |path: &String| path.starts_with(whole.trim_end_matches('/'));
    match whole.find(wildcards).filter(|_| !found.iter().all(is_below)) {
        Some(at) => {
            let above = whole[..at].rfind('/').map_or("", |slash| &whole[..slash.max(1)]);
            Ok(Some(above.to_owned()))
        }
        None => Ok(Some(whole)),
    }
}

fn list_objects(
    place: &Place,
    pattern: &str,
    wanted: Wanted,
    found: &mut Vec<String>,
) -> Result<()> {
    let key = place.key();
    if let Some(star) = key.find('*') {
        let folder = key[..star].rsplit_once('/').map_or("", |(folder, _)| folder);
        return list_glob_objects(place, folder, pattern, found);
    }
    let is_folder = key.is_empty() || pattern.ends_with('/');
    // Most servers of plain files list nothing: what they have is named, and must not be listed.
    if !is_folder && (wanted.is_wanted(key) || place.bucket().head(key)?.is_some()) {
        found.push(pattern.to_owned());
        return Ok(());
    }
    let visible = until_steady(|| listed_objects(place, wanted))?;
    found.extend(visible.iter().map(Place::location));
    if visible.is_empty() && !is_folder {
        return Err(not_found(pattern));
    }
    Ok(())
}

fn listed_objects(place: &Place, wanted: Wanted) -> Result<Vec<Place>> {
    let key = place.key();
    let (mut names, mut tables) = (Vec::new(), BTreeSet::new());
    let all = place.bucket().list(key, true)?;
    let below_it: Vec<&str> = all.iter().filter_map(|name| below(name, key)).collect();
    foreign::check_objects(place, below_it.iter().copied(), |_| true)?;
    for rest in below_it {
        if wanted.is_wanted(rest) && !rest.split('/').any(is_hidden) {
            names.push(rest.to_owned());
        }
        tables.extend(table::root_above(rest).map(str::to_owned));
    }
    live::visible_objects(place, names, &tables)
}

fn list_glob_objects(
    place: &Place,
    folder: &str,
    pattern: &str,
    found: &mut Vec<String>,
) -> Result<()> {
    let glob = glob::Pattern::new(place.key()).map_err(|e| bad_glob(pattern).with_cause(e))?;
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..Default::default()
    };
    let last = place.key().rsplit('/').next().unwrap_or_default();
    let all = place.bucket().list(folder, true)?;
    let matches = |key: &&String| {
        let name = key.rsplit('/').next().unwrap_or_default();
        glob.matches_with(key, options) && (is_hidden(last) || !is_hidden(name))
    };
    let mut keys: Vec<String> = all.iter().filter(matches).cloned().collect();
    let folder = place.with_key(folder.to_owned());
    let reached: Vec<&str> = keys.iter().filter_map(|key| below(key, folder.key())).collect();
    let leads_into = |root: &str| reached.iter().any(|name| below(name, root).is_some());
    let below_it = all.iter().filter_map(|name| below(name, folder.key()));
    foreign::check_objects(&folder, below_it, leads_into)?;
    keys.sort();
    found.extend(keys.into_iter().map(|key| place.with_key(key).location()));
    Ok(())
}

fn bad_glob(pattern: &str) -> Error {
    Error::new(Kind::InvalidArgument, "pattern is not a valid glob").with_path(pattern)
}

fn list_local(path: &Path, pattern: &str, wanted: Wanted, found: &mut Vec<String>) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => match foreign::local(path) {
            Some(table) => Err(table.refused()),
            None => list_table(path, wanted, found),
        },
        Ok(_) => push(path, found),
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(storage_error(e, pattern)),
        Err(_) if pattern.contains(['*', '?', '[']) => list_glob(path, pattern, wanted, found),
        Err(_) => Err(not_found(pattern)),
    }
}

/// How often a folder is listed again whose files are replaced and removed meanwhile.
const LISTS_MAX: usize = 16;

/// What `list` finds, once nothing of that was replaced while it looked.
fn until_steady<T>(mut list: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..LISTS_MAX {
        match list() {
            Err(e) if e.what() == live::STALE => {}
            outcome => return outcome,
        }
    }
    list()
}

/// Files of a folder; those that count, if it is a table or a part of one.
fn list_table(folder: &Path, wanted: Wanted, found: &mut Vec<String>) -> Result<()> {
    found.append(&mut until_steady(|| listed_table(folder, wanted))?);
    Ok(())
}

fn listed_table(folder: &Path, wanted: Wanted) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut all = Vec::new();
    list_folder(folder, 0, wanted, &mut all)?;
    // Looked for after the list: the first compaction of the folder may have come meanwhile.
    let Some(root) = table::root_of(folder) else { return Ok(all) };
    let all = all.into_iter().map(PathBuf::from).collect();
    live::visible(&root, folder, all)?.iter().try_for_each(|path| push(path, &mut found))?;
    Ok(found)
}

/// Files of a folder in another; those that count, if it is a table of its own.
fn list_part(folder: &Path, depth: usize, wanted: Wanted, found: &mut Vec<String>) -> Result<()> {
    foreign::check_folder(folder)?;
    let mut all = Vec::new();
    list_folder(folder, depth, wanted, &mut all)?;
    if !folder.join(table::FOLDER).is_dir() {
        found.append(&mut all);
        return Ok(());
    }
    let all = all.into_iter().map(PathBuf::from).collect();
    live::visible(folder, folder, all)?.iter().try_for_each(|path| push(path, found))
}

fn list_folder(folder: &Path, depth: usize, wanted: Wanted, found: &mut Vec<String>) -> Result<()> {
    let name = folder.to_string_lossy();
    if depth > DEPTH_MAX {
        return Err(Error::new(Kind::Storage, "folders are nested too deeply")
            .with_path(name)
            .with_hint("is there a loop of symbolic links?"));
    }
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| storage_error(e, &name))? {
        let entry = entry.map_err(|e| storage_error(e, &name))?;
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        entries.push((entry.path(), is_link));
    }
    entries.retain(|(path, _)| path.file_name().is_some_and(|n| !is_hidden(&n.to_string_lossy())));
    entries.sort();
    for (path, is_link) in entries {
        // What is behind it may be in a table.
        if is_link
            && let Ok(whole) = std::fs::canonicalize(&path)
            && let Some(table) = whole.parent().and_then(foreign::local)
        {
            return Err(table.refused());
        }
        // Through links, as one would expect of a folder of links.
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => list_part(&path, depth + 1, wanted, found)?,
            Ok(_) if wanted.is_wanted(&path.to_string_lossy()) => push(&path, found)?,
            Ok(_) => {}
            Err(e) => return Err(storage_error(e, &path.to_string_lossy())),
        }
    }
    Ok(())
}

fn list_glob(path: &Path, pattern: &str, wanted: Wanted, found: &mut Vec<String>) -> Result<()> {
    let text = utf8(path)?;
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
    let matches = glob::glob_with(text, options).map_err(|e| bad_glob(pattern).with_cause(e))?;
    let mut paths = Vec::new();
    for path in matches {
        paths.push(path.map_err(|e| {
            let place = e.path().to_string_lossy().into_owned();
            storage_error(e.into(), &place)
        })?);
    }
    let last = text.rsplit('/').next().unwrap_or_default();
    if !is_hidden(last) {
        paths.retain(|path| path.file_name().is_some_and(|n| !is_hidden(&n.to_string_lossy())));
    }
    paths.sort();
    let mut checked = foreign::Checked::default();
    for path in paths {
        let is_folder = path.is_dir();
        let whole = path.as_path();
        checked.check(if is_folder { whole } else { whole.parent().unwrap_or(whole) })?;
        if is_folder {
            let listed = until_steady(|| {
                let mut listed = Vec::new();
                list_folder(&path, 0, wanted, &mut listed).map(|()| listed)
            });
            found.append(&mut listed?);
        } else {
            push(&path, found)?;
        }
    }
    Ok(())
}

fn push(path: &Path, found: &mut Vec<String>) -> Result<()> {
    found.push(utf8(path)?.to_owned());
    Ok(())
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::new(Kind::InvalidArgument, "file name is not valid Unicode")
            .with_path(path.to_string_lossy())
            .with_hint("rename the file")
    })
}

fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}

fn check_distinct(stores: &Stores, found: &[String]) -> Result<()> {
    let mut seen = BTreeSet::new();
    let mut files = BTreeSet::new();
    for location in found {
        let is_new = match stores.locate(location)? {
            // A second link to a file, or spelling of its path, has the same file behind it.
            Location::Local(path) => match std::fs::metadata(&path) {
                Ok(metadata) => files.insert((metadata.dev(), metadata.ino())),
                Err(_) => seen.insert(path.to_string_lossy().into_owned()),
            },
            Location::Object(place) => seen.insert(place.location()),
        };
        if !is_new {
            return Err(Error::new(Kind::InvalidArgument, "same source given twice")
                .with_path(location.as_str())
                .with_hint("its rows would appear twice; name every file once"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Context;
    use crate::store::remote::tests::memory;

    fn list(items: &[String]) -> Result<Vec<String>> {
        let stores = Stores::try_new(&Default::default(), &Context::new(1 << 24))?;
        super::list(&stores, items, Wanted::Parquet)
    }

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[&str]) -> Self {
            let root =
                std::env::temp_dir().join(format!("plait-list-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&root);
            for file in files {
                let path = root.join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, b"").unwrap();
            }
            Self(root)
        }

        /// Lists items below the tree, and gives the names below the tree.
        fn list(&self, items: &[&str]) -> Result<Vec<String>> {
            let root = self.0.to_str().unwrap();
            let items: Vec<String> = items.iter().map(|i| format!("{root}/{i}")).collect();
            let found = list(&items)?;
            let below =
                |p: &String| p.strip_prefix(root).unwrap().trim_start_matches('/').to_owned();
            Ok(found.iter().map(below).collect())
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn folders_are_searched_below_in_order_and_hidden_names_skipped() {
        let tree = Tree::new(
            "folders",
            &[
                "b.parquet",
                "a/z.parquet",
                "a/c.parquet",
                "a/n.txt",
                ".h/x.parquet",
                "_t/y.parquet",
                "_s.parquet",
            ],
        );
        assert_eq!(tree.list(&[""]).unwrap(), ["a/c.parquet", "a/z.parquet", "b.parquet"]);
        assert_eq!(
            tree.list(&["b.parquet", "a"]).unwrap(),
            ["b.parquet", "a/c.parquet", "a/z.parquet"]
        );
        assert_eq!(tree.list(&["_s.parquet", "a/n.txt"]).unwrap(), ["_s.parquet", "a/n.txt"]);
    }

    #[test]
    fn globs_match_sorted_and_a_literal_name_wins() {
        let tree = Tree::new(
            "globs",
            &["2.parquet", "1.parquet", "_3.parquet", "d/4.parquet", "[1].parquet"],
        );
        assert_eq!(tree.list(&["?.parquet"]).unwrap(), ["1.parquet", "2.parquet"]);
        assert_eq!(tree.list(&["[1].parquet"]).unwrap(), ["[1].parquet"]);
        assert_eq!(tree.list(&["_*"]).unwrap(), ["_3.parquet"]);
        assert_eq!(tree.list(&["d*", "2*"]).unwrap(), ["d/4.parquet", "2.parquet"]);
        assert_eq!(tree.list(&["**/4.parquet"]).unwrap(), ["d/4.parquet"]);
    }

    #[test]
    fn an_item_that_names_nothing_is_not_found() {
        let tree = Tree::new("nothing", &["a.txt"]);
        for item in ["", "x.parquet", "x*.parquet", "x/"] {
            let e = tree.list(&[item]).unwrap_err();
            assert_eq!(e.kind(), Kind::SourceNotFound, "{item}");
            assert!(e.hint().is_some());
        }
        assert_eq!(tree.list(&["a[.parquet"]).unwrap_err().kind(), Kind::InvalidArgument);
    }

    #[test]
    fn the_same_file_twice_is_refused_however_it_is_written() {
        let tree = Tree::new("twice", &["a.parquet", "d/b.parquet"]);
        for items in
            [["a.parquet", "d/../a.parquet"], ["", "a.parquet"], ["*.parquet", "./a.parquet"]]
        {
            let e = tree.list(&items).unwrap_err();
            assert_eq!(e.kind(), Kind::InvalidArgument, "{items:?}");
        }
        let url = "s3://bucket/a.parquet".to_owned();
        assert_eq!(list(std::slice::from_ref(&url)).unwrap(), std::slice::from_ref(&url));
        assert_eq!(list(&[url.clone(), url]).unwrap_err().kind(), Kind::InvalidArgument);
    }

    #[test]
    fn file_urls_name_local_paths() {
        let tree = Tree::new("urls", &["a b.parquet"]);
        let path = tree.0.join("a b.parquet");
        let url = url::Url::from_file_path(&path).unwrap().to_string();
        assert!(url.ends_with("a%20b.parquet"));
        assert_eq!(list(&[url]).unwrap(), [path.to_str().unwrap()]);
    }

    #[test]
    fn a_second_link_to_a_file_is_the_same_file() {
        let tree = Tree::new("links", &["a.parquet"]);
        std::fs::hard_link(tree.0.join("a.parquet"), tree.0.join("b.parquet")).unwrap();
        let error = list(&[tree.0.display().to_string()]).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
    }

    #[test]
    fn objects_are_found_as_files_are() {
        let names = ["d/b.parquet", "d/a/z.parquet", "d/n.txt", "d/.h.parquet", "d/_t/y.parquet"];
        let objects: Vec<(&str, &'static [u8])> = names.iter().map(|n| (*n, &b"x"[..])).collect();
        let bucket = memory(&objects);
        let context = Context::new(1 << 24);
        let stores = Stores::with_bucket(&Default::default(), bucket, &context).unwrap();
        let list = |item: &str| super::list(&stores, &[item.to_owned()], Wanted::Parquet);
        let all = ["d/a/z.parquet", "d/b.parquet"];
        for item in ["d", "d/", "/d/", ""] {
            assert_eq!(list(item).unwrap(), all, "{item}");
        }
        // Folders that a pattern names are looked into, whatever their names, as locally.
        let named = ["d/_t/y.parquet", "d/a/z.parquet", "d/b.parquet"];
        assert_eq!(list("d/**/*.parquet").unwrap(), named);
        assert_eq!(list("d/*").unwrap(), ["d/b.parquet", "d/n.txt"]);
        assert_eq!(list("d/n.txt").unwrap(), ["d/n.txt"]);
        assert_eq!(list("d/.h.parquet").unwrap(), ["d/.h.parquet"]);
        for item in ["x", "d/x*", "e/"] {
            assert_eq!(list(item).unwrap_err().kind(), Kind::SourceNotFound, "{item}");
        }
        let twice =
            super::list(&stores, &["d".to_owned(), "d/b.parquet".to_owned()], Wanted::Parquet);
        assert_eq!(twice.unwrap_err().kind(), Kind::InvalidArgument);
    }
}
