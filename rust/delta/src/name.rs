//! Names of files: in the log, and of data files as the log writes them.
//!
//! ```text
//! 00000000000000000012.json                      version 12
//! 00000000000000000010.checkpoint.parquet        all of version 10, in one file
//! 00000000000000000010.checkpoint.…1.…3.parquet  the same, part 1 of 3
//! 00000000000000000010.checkpoint.<id>.parquet   the same with sidecars
//!
//! path    day%3D1/a%20b.parquet  ◀──▶  name    day=1/a b.parquet
//! ```
//!
//! # Not here
//! What is in the files.

/// The folder of the log.
pub(crate) const FOLDER: &str = "_delta_log";

/// Which checkpoint is the last, for readers that would rather not list.
pub(crate) const LAST: &str = "_delta_log/_last_checkpoint";

/// A file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogFile {
    /// The actions of a version.
    Commit(u64),
    /// All of a version in one file.
    Checkpoint(u64),
    /// A part of all of a version.
    Part(Part),
    /// All of a version, with files of its own besides.
    WithSidecars(u64),
}

/// One of several files of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) version: u64,
    /// From 1 on.
    pub(crate) number: u32,
    pub(crate) parts: u32,
}

impl LogFile {
    /// What the name of a file in the log says; `None` for what is not read.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let name = name.strip_prefix(FOLDER)?.strip_prefix('/')?;
        let (digits, rest) = name.split_once('.')?;
        let version = number(digits, 20)?;
        if rest == "json" {
            return Some(Self::Commit(version));
        }
        let rest = rest.strip_prefix("checkpoint.")?;
        if rest == "parquet" {
            return Some(Self::Checkpoint(version));
        }
        let (middle, end) = rest.rsplit_once('.')?;
        match middle.split_once('.') {
            Some((at, of)) if end == "parquet" => {
                let (at, parts) = (number(at, 10)?, number(of, 10)?);
                let part = Part {
                    version,
                    number: u32::try_from(at).ok()?,
                    parts: u32::try_from(parts).ok()?,
                };
                Some(Self::Part(part))
            }
            None if end == "parquet" || end == "json" => Some(Self::WithSidecars(version)),
            _ => None,
        }
    }
}

fn number(digits: &str, len: usize) -> Option<u64> {
    let is_number = digits.len() == len && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// The name of the commit of a version.
pub(crate) fn commit(version: u64) -> String {
    format!("{FOLDER}/{version:020}.json")
}

/// The name of the checkpoint of a version.
pub(crate) fn checkpoint(version: u64) -> String {
    format!("{FOLDER}/{version:020}.checkpoint.parquet")
}

/// The name of the file that a path of the log stands for. A path with bytes that are no text stands
/// for no name that a file could have, and is taken as it is.
pub(crate) fn decoded(path: &str) -> String {
    if !path.contains('%') {
        return path.to_owned();
    }
    let (bytes, mut name, mut at) = (path.as_bytes(), Vec::with_capacity(path.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
        match (byte, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                name.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
            }
            _ => {
                name.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(name).unwrap_or_else(|_| path.to_owned())
}

/// The path by which the log names a file.
pub(crate) fn encoded(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/=+!$'()*,:@&".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// Whether a name is of a file in the table, and not of one elsewhere.
pub(crate) fn is_inside(name: &str) -> bool {
    let is_url = name.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    }) && name.contains(":/");
    !is_url && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_log_say_what_they_are() {
        let of = |name: &str| LogFile::of(&format!("{FOLDER}/{name}"));
        assert_eq!(of("00000000000000000012.json"), Some(LogFile::Commit(12)));
        assert_eq!(of("00000000000000000012.checkpoint.parquet"), Some(LogFile::Checkpoint(12)));
        let part = Part { version: 3, number: 1, parts: 2 };
        let name = "00000000000000000003.checkpoint.0000000001.0000000002.parquet";
        assert_eq!(of(name), Some(LogFile::Part(part)));
        for end in ["json", "parquet"] {
            let name = format!("00000000000000000003.checkpoint.a-b-c.{end}");
            assert_eq!(of(&name), Some(LogFile::WithSidecars(3)));
        }
        for other in ["_last_checkpoint", "12.json", "00000000000000000012.crc", "x.tmp"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(LogFile::of(&commit(7)), Some(LogFile::Commit(7)));
        assert_eq!(LogFile::of(&checkpoint(7)), Some(LogFile::Checkpoint(7)));
    }

    #[test]
    fn paths_and_names_are_each_others_inverse() {
        for name in ["day=1/a b.parquet", "é/ü%20.parquet", "a#?[]{}<>\"\\^`|.parquet", "a:b"] {
            assert_eq!(decoded(&encoded(name)), name);
        }
        assert_eq!(encoded("day=1/a b%.parquet"), "day=1/a%20b%25.parquet");
        assert_eq!(decoded("50%"), "50%");
        assert_eq!(decoded("%ff"), "%ff");
        assert!(is_inside("a/b:c") && !is_inside("../x") && !is_inside("/x"));
        assert!(!is_inside("s3://bucket/x") && !is_inside("file:/x"));
    }
}
