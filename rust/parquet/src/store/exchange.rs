//! A local folder that is exchanged for another one in one step.
//!
//! ```text
//! build      events ─ links ─▶ .events.plait-ID        what stays, under the names it will have
//! exchange   events ◀───────▶ .events.plait-ID         one rename: a list sees one or the other
//! carry      .events.plait-ID ─ what came or went meanwhile ─▶ events
//! remove     .events.plait-ID-old                      link by link, never by what a folder has
//! ```
//!
//! # Invariants
//! Files are links: nothing is copied, and whoever writes to an open file goes on. What is in the
//! old folder and was not linked is carried over before it is removed, and files that went from it
//! go from the new one, unless somebody has put another one there. Whoever goes on after a crash
//! knows what was linked by the marker, which is in the new folder alone.
//!
//! # Cost
//! A link for every file, and a name made durable for every folder, twice.
//!
//! # Not here
//! Which files stay (`compact`); who must not commit meanwhile (`table`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::local::storage_error;
use super::root::sync_folder;

/// What tells a file from another of its name: device and inode.
type FileId = (u64, u64);

/// What was linked, or left out, by the path below the folder.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Links {
    linked: BTreeMap<String, FileId>,
    omitted: BTreeMap<String, FileId>,
}

/// A folder, and the one next to it that takes its place.
pub(crate) struct Exchange {
    folder: PathBuf,
    beside: PathBuf,
    id: String,
}

/// What the new folder has otherwise than the old one.
#[derive(Default)]
pub(crate) struct Difference {
    /// Files that it does not have.
    pub(crate) omitted: BTreeSet<String>,
    /// Files that it has under another name, by their old one.
    pub(crate) moved: BTreeMap<String, String>,
}

impl Exchange {
    /// The exchange called `id` of the folder at `path`.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a folder that has none around it, [`Kind::Storage`].
    pub(crate) fn of(path: &Path, id: &str) -> Result<Self> {
        let folder = fs::canonicalize(path).map_err(|e| failed(path, e))?;
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
            return Err(unsupported(path, "it is the root of the file system"));
        };
        let name = name.to_string_lossy().into_owned();
        let beside = parent.join(format!(".{name}.plait-{id}"));
        Ok(Self { folder, beside, id: id.to_owned() })
    }

    /// Refuses systems that cannot exchange folders, by exchanging two empty ones.
    ///
    /// # Errors
    /// [`Kind::Unsupported`], [`Kind::Storage`] where folders cannot be made next to it.
    pub(crate) fn probe(&self) -> Result<()> {
        let parent = self.folder.parent().unwrap_or(&self.folder);
        let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
        let (own, around) = (device(&self.folder), device(parent));
        if own.map_err(|e| failed(&self.folder, e))? != around.map_err(|e| failed(parent, e))? {
            return Err(unsupported(&self.folder, "another file system is mounted there"));
        }
        let [a, b] =
            ["a", "b"].map(|end| PathBuf::from(format!("{}-{end}", self.beside.display())));
        let made = fs::create_dir(&a).and_then(|()| fs::create_dir(&b));
        let outcome = made
            .map_err(|e| failed(&a, e))
            .and_then(|()| exchange(&a, &b).map_err(|e| unsupported(&self.folder, &e.to_string())));
        let _ = (fs::remove_dir(&a), fs::remove_dir(&b));
        outcome
    }

    /// Builds the new folder.
    ///
    /// # Errors
    /// [`Kind::Storage`], [`Kind::Unsupported`] for a folder that cannot be made alike.
    pub(crate) fn build(&self, difference: &Difference) -> Result<Links> {
        let mut links = Links::default();
        self.make_folder("")?;
        let FolderTree { folders, files } = walk(&self.folder)?;
        for folder in &folders {
            self.make_folder(folder)?;
        }
        for (name, id) in files {
            let to = match difference.moved.get(&name) {
                Some(to) => to,
                None if difference.omitted.contains(&name) => {
                    links.omitted.insert(name, id);
                    continue;
                }
                None => &name,
            };
            let target = self.beside.join(to);
            if let Some(above) = target.parent() {
                fs::create_dir_all(above).map_err(|e| failed(above, e))?;
            }
            match fs::hard_link(self.folder.join(&name), &target) {
                // Somebody has removed it since it was seen.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                linked => linked.map_err(|e| failed(&target, e))?,
            }
            let is_moved = *to != name;
            if is_moved { &mut links.omitted } else { &mut links.linked }.insert(name, id);
        }
        let text = serde_json::to_vec(&links)
            .map_err(|e| Error::new(Kind::Internal, "cannot write a marker").with_cause(e))?;
        let marker = self.beside.join(self.marker());
        fs::write(&marker, text).map_err(|e| failed(&marker, e))?;
        for folder in folders.iter().map(String::as_str).chain([""]) {
            let path = self.beside.join(folder);
            sync_folder(&path).map_err(|e| failed(&path, e))?;
        }
        Ok(links)
    }

    /// Exchanges both folders.
    ///
    /// # Errors
    /// [`Kind::Unsupported`].
    pub(crate) fn exchange(&self) -> Result<()> {
        exchange(&self.beside, &self.folder)
            .map_err(|e| unsupported(&self.folder, &e.to_string()))?;
        self.sync_around()
    }

    /// Ends an exchange: carries over what came meanwhile, and removes the other folder. Of one that
    /// was given up, the new folder is removed.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn finish(&self) -> Result<()> {
        let old = PathBuf::from(format!("{}-old", self.beside.display()));
        let marker = self.folder.join(self.marker());
        let links = match fs::read(&marker) {
            Ok(text) => serde_json::from_slice::<Links>(&text).map_err(|e| {
                Error::new(Kind::CorruptSource, "the marker of an exchange is damaged")
                    .with_path(marker.display().to_string())
                    .with_cause(e)
            })?,
            // Nothing was exchanged: the other folder has links to what is in this one.
            Err(e) if e.kind() == ErrorKind::NotFound => return remove_links(&self.beside),
            Err(e) => return Err(failed(&marker, e)),
        };
        if self.beside.is_dir() {
            self.carry(&links)?;
            fs::rename(&self.beside, &old).map_err(|e| failed(&old, e))?;
            self.sync_around()?;
        }
        self.remove(&old, &links)?;
        fs::remove_file(&marker).map_err(|e| failed(&marker, e))
    }

    fn carry(&self, links: &Links) -> Result<()> {
        let FolderTree { folders, files } = walk(&self.beside)?;
        for folder in &folders {
            let path = self.folder.join(folder);
            fs::create_dir_all(&path).map_err(|e| failed(&path, e))?;
        }
        let mut there = BTreeSet::new();
        for (name, id) in files {
            if !links.has(&name, id) {
                self.carry_file(&self.beside, &name, links)?;
            }
            there.insert(name);
        }
        for (name, id) in &links.linked {
            let path = self.folder.join(name);
            if !there.contains(name) && id_at(&path) == Some(*id) {
                fs::remove_file(&path).map_err(|e| failed(&path, e))?;
            }
        }
        Ok(())
    }

    /// Gives the new folder a file that came to the old one, unless it has got one of its own.
    fn carry_file(&self, old: &Path, name: &str, links: &Links) -> Result<()> {
        let (from, to) = (old.join(name), self.folder.join(name));
        let is_ours = id_at(&to).is_none_or(|id| links.linked.get(name) == Some(&id));
        if !is_ours {
            return Ok(());
        }
        let hidden = to.with_file_name(format!(".plait-{}", self.id));
        let _ = fs::remove_file(&hidden);
        match fs::hard_link(&from, &hidden) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            linked => linked.and_then(|()| fs::rename(&hidden, &to)).map_err(|e| failed(&to, e)),
        }
    }

    /// Removes the old folder, file by file; what comes to it meanwhile is carried over.
    fn remove(&self, old: &Path, links: &Links) -> Result<()> {
        for _ in 0..REMOVALS_MAX {
            if !old.is_dir() {
                return Ok(());
            }
            let FolderTree { mut folders, files } = walk(old)?;
            for (name, id) in files {
                if !links.has(&name, id) && id_at(&self.folder.join(&name)) != Some(id) {
                    if let Some(above) = self.folder.join(&name).parent() {
                        fs::create_dir_all(above).map_err(|e| failed(above, e))?;
                    }
                    self.carry_file(old, &name, links)?;
                }
                let path = old.join(&name);
                match fs::remove_file(&path) {
                    Err(e) if e.kind() == ErrorKind::NotFound => {}
                    removed => removed.map_err(|e| failed(&path, e))?,
                }
            }
            folders.sort();
            for folder in folders.iter().rev().map(String::as_str).chain([""]) {
                // Not empty: somebody has put a file there in the meantime.
                let _ = fs::remove_dir(old.join(folder));
            }
        }
        Err(Error::new(Kind::Storage, "files come to a folder while it is removed")
            .with_path(old.display().to_string())
            .with_hint("its writers have it open under its old name; expire again"))
    }

    fn marker(&self) -> String {
        format!("_plait/exchange-{}.json", self.id)
    }

    /// A folder of the new tree, with the owner and the permissions of the old one.
    fn make_folder(&self, name: &str) -> Result<()> {
        let (from, to) = (self.folder.join(name), self.beside.join(name));
        let found = fs::metadata(&from).map_err(|e| failed(&from, e))?;
        fs::create_dir(&to).map_err(|e| failed(&to, e))?;
        let made = fs::metadata(&to).map_err(|e| failed(&to, e))?;
        let owner = |of: &Metadata| (of.uid(), of.gid());
        if owner(&made) != owner(&found) {
            std::os::unix::fs::chown(&to, Some(found.uid()), Some(found.gid()))
                .map_err(|e| unsupported(&from, &format!("it is owned by somebody else: {e}")))?;
        }
        let mode = fs::Permissions::from_mode(found.mode());
        fs::set_permissions(&to, mode).map_err(|e| failed(&to, e))
    }

    fn sync_around(&self) -> Result<()> {
        let parent = self.folder.parent().unwrap_or(&self.folder);
        sync_folder(parent).map_err(|e| failed(parent, e))
    }
}

/// How often a folder is emptied into which others write.
const REMOVALS_MAX: usize = 64;

impl Links {
    fn has(&self, name: &str, id: FileId) -> bool {
        [&self.linked, &self.omitted].into_iter().any(|known| known.get(name) == Some(&id))
    }
}

fn failed(path: &Path, e: io::Error) -> Error {
    storage_error(e, &path.to_string_lossy())
}

fn unsupported(path: &Path, why: &str) -> Error {
    Error::new(Kind::Unsupported, "the folder cannot be exchanged in one step")
        .with_path(path.display().to_string())
        .with_got(why)
        .with_hint("leave out `swap` or `in_place`: files are then replaced one after the other")
}

fn id_at(path: &Path) -> Option<FileId> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// What lies below a folder.
#[derive(Default)]
struct FolderTree {
    /// Folders, above before below.
    folders: Vec<String>,
    /// Files; links are files.
    files: Vec<(String, FileId)>,
}

/// All that lies below `root`.
fn walk(root: &Path) -> Result<FolderTree> {
    let (mut tree, mut open) = (FolderTree::default(), vec![String::new()]);
    while let Some(folder) = open.pop() {
        let path = root.join(&folder);
        for entry in fs::read_dir(&path).map_err(|e| failed(&path, e))? {
            let entry = entry.map_err(|e| failed(&path, e))?;
            let own = entry.file_name();
            let own = own.to_str().ok_or_else(|| unsupported(&entry.path(), "it is no Unicode"))?;
            let name = if folder.is_empty() { own.to_owned() } else { format!("{folder}/{own}") };
            match entry.metadata() {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(failed(&entry.path(), e)),
                Ok(found) if found.is_dir() => {
                    tree.folders.push(name.clone());
                    open.push(name);
                }
                Ok(found) => tree.files.push((name, (found.dev(), found.ino()))),
            }
        }
    }
    Ok(tree)
}

/// Removes a folder whose files are links to files that are elsewhere, too.
fn remove_links(root: &Path) -> Result<()> {
    match fs::remove_dir_all(root) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(failed(root, e)),
        _ => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    let [a, b] = [a, b].map(|path| CString::new(path.as_os_str().as_bytes()));
    renameat_with(CWD, a?.as_c_str(), CWD, b?.as_c_str(), RenameFlags::EXCHANGE)
        .map_err(|e| io::Error::from_raw_os_error(e.raw_os_error()))
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::new(ErrorKind::Unsupported, "only Linux exchanges folders"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef";

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As writers do: an entry of a folder is one file or another.
        let hidden = root.join(".writing");
        fs::write(&hidden, text).unwrap();
        fs::rename(hidden, path).unwrap();
    }

    fn texts(root: &Path) -> BTreeMap<String, String> {
        let files = walk(root).unwrap().files;
        files
            .into_iter()
            .map(|(n, _)| (n.clone(), fs::read_to_string(root.join(n)).unwrap()))
            .collect()
    }

    fn expected(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    /// A folder that was built anew and has changed since, in a folder of its own.
    fn exchanged(test: &str) -> (PathBuf, Exchange, Links) {
        let around = std::env::temp_dir().join(format!("plait-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&around);
        let root = around.join("events");
        for name in ["old", "stays", "d/stays", "d/goes", "again", "_plait/files/new", ".tmp"] {
            write(&root, name, name);
        }
        let exchange = Exchange::of(&root, ID).unwrap();
        exchange.probe().unwrap();
        let moved = BTreeMap::from([("_plait/files/new".to_owned(), "new".to_owned())]);
        let omitted = ["old", "again"].map(str::to_owned).into();
        let links = exchange.build(&Difference { omitted, moved }).unwrap();
        // Before the exchange, others go on in the old folder.
        write(&root, "late", "late");
        write(&root, "e/late", "e/late");
        write(&root, "stays", "written again");
        write(&root, "again", "written again");
        fs::remove_file(root.join("d/goes")).unwrap();
        fs::rename(root.join(".tmp"), root.join("renamed")).unwrap();
        exchange.exchange().unwrap();
        // After it, in the new one.
        write(&root, "late", "later");
        (root, exchange, links)
    }

    fn check(root: &Path) {
        let files = [
            ("again", "written again"),
            ("d/stays", "d/stays"),
            ("e/late", "e/late"),
            ("late", "later"),
            ("new", "_plait/files/new"),
            ("renamed", ".tmp"),
            ("stays", "written again"),
        ];
        assert_eq!(texts(root), expected(&files));
        let around = root.parent().unwrap();
        assert_eq!(fs::read_dir(around).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_dir_all(around).unwrap();
    }

    #[test]
    fn what_came_or_went_meanwhile_is_so_in_the_new_folder() {
        let (root, exchange, _) = exchanged("exchange");
        exchange.finish().unwrap();
        check(&root);
    }

    #[test]
    fn whoever_finds_an_exchange_half_done_ends_it() {
        for step in 0..4 {
            let (root, exchange, links) = exchanged(&format!("half-{step}"));
            let old = PathBuf::from(format!("{}-old", exchange.beside.display()));
            exchange.carry(&links).unwrap();
            if step > 0 {
                fs::rename(&exchange.beside, &old).unwrap();
            }
            if step > 1 {
                fs::remove_file(old.join("d/stays")).unwrap();
                fs::remove_file(old.join("stays")).unwrap();
            }
            if step > 2 {
                exchange.remove(&old, &links).unwrap();
            }
            Exchange::of(&root, ID).unwrap().finish().unwrap();
            check(&root);
        }
    }

    #[test]
    fn an_exchange_that_is_given_up_leaves_the_folder_as_it_is() {
        let around = std::env::temp_dir().join(format!("plait-given-up-{}", std::process::id()));
        let root = around.join("events");
        write(&root, "_plait/m", "m");
        write(&root, "a", "a");
        let exchange = Exchange::of(&root, ID).unwrap();
        exchange.build(&Difference::default()).unwrap();
        exchange.finish().unwrap();
        assert_eq!(texts(&root), expected(&[("_plait/m", "m"), ("a", "a")]));
        assert_eq!(fs::read_dir(&around).unwrap().count(), 1);
        let e = Exchange::of(Path::new("/"), ID).err().unwrap();
        assert_eq!(e.kind(), Kind::Unsupported);
        fs::remove_dir_all(around).unwrap();
    }
}
