//! A local file, read at positions.
//!
//! ```text
//! the files opened last   descriptor kept open        read = pread
//! all others              opened again and compared   read = open, compare, pread
//! ```
//!
//! # Invariants
//! Both ways read the very file that was opened first: the descriptor pins it, or its identity
//! (device, inode, length, time of change) is compared when it is opened again. Thousands of sources
//! therefore never exhaust the descriptors of the process. A file of a compaction that moved to its
//! visible name is the same file.
//!
//! # Not here
//! Object stores (`object`); finding files (`list`); which descriptors stay open (`descriptors`).

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use plait_core::{Error, Kind, Result};

use super::descriptors::{DescriptorId, Descriptors, HELD_FILES_MAX};
use super::moved::{ends_in, folder_after, is_visible};
use super::reader::{RangeReader, changed, check_range, not_found, short_read};
use super::watched::Watch;

/// The descriptors of the process.
static DESCRIPTORS: Descriptors = Descriptors::new(HELD_FILES_MAX);

/// A local file. There may be a million of them.
pub(super) struct LocalReader {
    location: Box<str>,
    /// Where it is, unless the location is its path.
    path: Option<Box<PathBuf>>,
    identity: Identity,
    descriptor: DescriptorId,
    /// Who counts its reads, if anybody does.
    watch: Option<Watch>,
}

/// A version of a file by when it was written.
pub(super) fn version_of(modified: SystemTime) -> Option<String> {
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(format!("{}.{:09}", since.as_secs(), since.subsec_nanos()))
}

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    len: u64,
    modified: Option<SystemTime>,
    /// Zeros where files have neither.
    device_and_inode: (u64, u64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let device_and_inode = {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino())
        };
        #[cfg(not(unix))]
        let device_and_inode = (0, 0);
        Self { len: metadata.len(), modified: metadata.modified().ok(), device_and_inode }
    }
}

impl LocalReader {
    /// Opens the file at `path`; errors name it `location`, and `watch` counts its reads.
    pub(super) fn open(path: &Path, location: &str, watch: Option<Watch>) -> Result<Self> {
        let (path, (file, metadata)) = match open_file(path, location) {
            Err(e) if e.kind() == Kind::SourceNotFound => {
                let path = moved(path).ok_or(e)?;
                let opened = open_file(&path, location)?;
                (path, opened)
            }
            opened => (path.to_owned(), opened?),
        };
        if metadata.is_dir() {
            return Err(Error::new(Kind::Storage, "location is a directory, not a file")
                .with_path(location)
                .with_hint("list the directory to get the files in it"));
        }
        if !metadata.is_file() {
            return Err(Error::new(Kind::Storage, "location is not a regular file")
                .with_path(location)
                .with_hint("pipes and devices cannot be read by position; copy to a file first"));
        }
        let descriptor = DESCRIPTORS.another();
        DESCRIPTORS.hold(&descriptor, Arc::new(file));
        Ok(Self {
            path: Some(path).filter(|path| path.as_os_str() != location).map(Box::new),
            location: location.into(),
            identity: Identity::of(&metadata),
            descriptor,
            watch,
        })
    }
}

impl Drop for LocalReader {
    fn drop(&mut self) {
        DESCRIPTORS.close(&self.descriptor);
    }
}

impl LocalReader {
    fn file_path(&self) -> &Path {
        self.path.as_ref().map_or(Path::new(&*self.location), |path| path.as_path())
    }

    /// Opens what is there now; none if it is gone.
    fn again(&self) -> Result<Option<(File, Metadata)>> {
        let opened = match open_file(self.file_path(), &self.location) {
            Err(e) if e.kind() == Kind::SourceNotFound => match moved(self.file_path()) {
                Some(path) => open_file(&path, &self.location),
                None => return Ok(None),
            },
            opened => opened,
        };
        opened.map(Some)
    }
}

impl RangeReader for LocalReader {
    fn path(&self) -> &str {
        &self.location
    }

    fn len(&self) -> u64 {
        self.identity.len
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let len = check_range(&range, self.len(), &self.location)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|e| {
            Error::new(Kind::MemoryLimit, "not enough memory for one read")
                .with_path(&*self.location)
                .with_got(format!("{len} bytes"))
                .with_cause(e)
        })?;
        bytes.resize(len, 0);
        self.read_into(range.start, &mut bytes)?;
        Ok(bytes.into())
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let range = offset..offset.saturating_add(out.len() as u64);
        if let Some(watch) = &self.watch {
            watch.read(&range, &self.location)?;
        }
        check_range(&range, self.len(), &self.location)?;
        let file = match DESCRIPTORS.file(&self.descriptor) {
            Some(file) => file,
            None => {
                // It was there when the source was opened.
                let again = self.again()?;
                let (file, metadata) = again.ok_or_else(|| changed(&self.location))?;
                if Identity::of(&metadata) != self.identity {
                    return Err(changed(&self.location));
                }
                let file = Arc::new(file);
                DESCRIPTORS.hold(&self.descriptor, Arc::clone(&file));
                file
            }
        };
        match read_exact_at(&file, out, offset) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(short_read(&range, &self.location))
            }
            Err(e) => Err(storage_error(e, &self.location).with_offset(offset)),
        }
    }

    fn check_unchanged(&self) -> Result<()> {
        // By path, not by descriptor: rows that a replacement brought would be lost unnoticed.
        let found = match std::fs::metadata(self.file_path()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => match moved(self.file_path()) {
                Some(path) => std::fs::metadata(path),
                None => return Err(changed(&self.location).with_got("no file")),
            },
            found => found,
        };
        match found {
            Ok(metadata) if Identity::of(&metadata) == self.identity => Ok(()),
            Ok(_) => Err(changed(&self.location)),
            Err(e) => Err(storage_error(e, &self.location)),
        }
    }

    fn version(&self) -> Option<String> {
        self.identity.modified.and_then(version_of)
    }

    fn written_at(&self) -> Option<SystemTime> {
        self.identity.modified
    }

    fn is_local(&self) -> bool {
        true
    }
}

/// Where the file at `path` is, if a compaction made it and it moved since.
fn moved(path: &Path) -> Option<PathBuf> {
    let name = path.to_str()?;
    let folder = folder_after(name)?;
    let folder = if folder.is_empty() { "." } else { folder.as_str() };
    let found = std::fs::read_dir(folder).ok()?.flatten().find(|entry| {
        let own = entry.file_name();
        own.to_str().is_some_and(|own| is_visible(own) && ends_in(own, name))
    });
    Some(found?.path())
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that opens files to read")]
pub(super) fn open_file(path: &Path, location: &str) -> Result<(File, Metadata)> {
    // Opening a pipe would wait for a writer, for ever.
    let kind = std::fs::metadata(path).map_err(|e| storage_error(e, location))?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(Error::new(Kind::Storage, "source is not a regular file")
            .with_path(location)
            .with_hint("write the data to a file first"));
    }
    let opened = File::open(path).and_then(|file| file.metadata().map(|m| (file, m)));
    opened.map_err(|e| storage_error(e, location))
}

/// Our error for an error of the operating system.
pub(super) fn storage_error(e: io::Error, location: &str) -> Error {
    match e.kind() {
        io::ErrorKind::NotFound => not_found(location),
        io::ErrorKind::PermissionDenied => {
            Error::new(Kind::Storage, super::reader::DENIED).with_path(location)
        }
        _ => {
            Error::new(Kind::Storage, "reading the source failed").with_path(location).with_cause(e)
        }
    }
}

/// Reads exactly the bytes at `offset`.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

/// Reads exactly the bytes at `offset`.
#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                bytes = bytes.get_mut(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes all of `bytes` at `offset`.
#[cfg(unix)]
pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

/// Writes all of `bytes` at `offset`.
#[cfg(windows)]
pub(crate) fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = bytes.get(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &str) -> Result<LocalReader> {
        LocalReader::open(Path::new(path), path, None)
    }

    /// A directory of its own for one test, removed at the end.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("plait-local-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, bytes: &[u8]) -> String {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).unwrap();
            path.to_str().unwrap().to_owned()
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn ranges_are_read_exactly_and_never_past_the_end() {
        let dir = Dir::new("ranges");
        let store = open(&dir.file("a", b"0123456789")).unwrap();
        assert!(store.is_local() && store.len() == 10);
        assert_eq!(&store.read(3..7).unwrap()[..], b"3456");
        assert!(store.read(10..10).unwrap().is_empty());
        assert_eq!(store.read(8..11).unwrap_err().kind(), Kind::CorruptSource);
        assert_eq!(store.read(0..u64::MAX).unwrap_err().kind(), Kind::CorruptSource);
    }

    #[test]
    fn missing_files_and_directories_are_told_apart() {
        let dir = Dir::new("missing");
        let missing = dir.0.join("b").to_str().unwrap().to_owned();
        assert_eq!(open(&missing).err().unwrap().kind(), Kind::SourceNotFound);
        let e = open(dir.0.to_str().unwrap()).err().unwrap();
        assert_eq!((e.kind(), e.what()), (Kind::Storage, "location is a directory, not a file"));
    }

    #[test]
    fn a_written_replaced_or_removed_file_is_noticed() {
        let dir = Dir::new("changed");
        let path = dir.file("a", b"0123");
        let store = open(&path).unwrap();
        store.check_unchanged().unwrap();
        let other = dir.file("b", b"4567");
        std::fs::rename(other, &path).unwrap();
        assert_eq!(store.check_unchanged().unwrap_err().kind(), Kind::SourceChanged);
        assert_eq!(&store.read(0..4).unwrap()[..], b"0123", "the descriptor pins the old file");
        std::fs::write(&path, b"01234").unwrap();
        let store = open(&path).unwrap();
        std::fs::write(&path, b"01").unwrap();
        assert_eq!(store.check_unchanged().unwrap_err().kind(), Kind::SourceChanged);
        assert_eq!(store.read(0..5).unwrap_err().kind(), Kind::CorruptSource);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(store.check_unchanged().unwrap_err().kind(), Kind::SourceChanged);
    }

    #[test]
    fn files_beyond_the_descriptor_limit_are_read_all_the_same() {
        let dir = Dir::new("many");
        let path = dir.file("a", b"0123456789");
        let store = open(&path).unwrap();
        DESCRIPTORS.close(&store.descriptor);
        assert_eq!(&store.read(3..7).unwrap()[..], b"3456");
        assert!(DESCRIPTORS.file(&store.descriptor).is_some(), "it is opened once");
        DESCRIPTORS.close(&store.descriptor);
        std::fs::write(&path, b"01234567890").unwrap();
        assert_eq!(store.read(3..7).unwrap_err().kind(), Kind::SourceChanged);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(store.read(3..7).unwrap_err().kind(), Kind::SourceChanged);
    }
}
