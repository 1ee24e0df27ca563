//! The sources of a scan, in order: files that are found, and streams.
//!
//! # Not here
//! What lies where (`store`); opening sources (`sources`).

use std::collections::BTreeSet;

use plait_core::{Error, Kind, Result};

use super::options::{Named, ScanOptions};
use crate::store::{Stores, Wanted, is_text_name};

/// One source of a scan.
pub(super) struct ScanSource {
    pub(super) name: String,
    /// The file's path, or none for a stream.
    pub(super) path: Option<String>,
    /// Whether it is a file of text.
    pub(super) is_text: bool,
    /// The folder that was named to find it; none if the file itself was.
    pub(super) folder: Option<String>,
    /// The number of the stream among those passed.
    pub(super) stream: usize,
    /// The place of what was named, among all that was.
    pub(super) named: usize,
}

pub(super) fn entries(options: &ScanOptions, stores: &Stores) -> Result<Vec<ScanSource>> {
    let mut entries = Vec::new();
    let wanted = if options.text_files { Wanted::ParquetAndText } else { Wanted::Parquet };
    // Consecutive patterns are listed together.
    let mut patterns: Vec<(usize, String)> = Vec::new();
    let flush = |patterns: &mut Vec<(usize, String)>,
                 entries: &mut Vec<ScanSource>|
     -> Result<()> {
        let (places, texts): (Vec<usize>, Vec<String>) =
            std::mem::take(patterns).into_iter().unzip();
        if texts.is_empty() {
            return Ok(());
        }
        for (named, (folder, paths)) in places.into_iter().zip(stores.list_each(&texts, wanted)?) {
            for path in paths {
                let (name, folder) = (path.clone(), folder.clone());
                let is_text = options.text_files && is_text_name(&path);
                let path = Some(path);
                entries.push(ScanSource { name, path, is_text, folder, stream: 0, named });
            }
        }
        Ok(())
    };
    for (place, named) in options.sources.iter().enumerate() {
        match named {
            Named::Files(pattern) => patterns.push((place, pattern.clone())),
            Named::Stream(stream) => {
                flush(&mut patterns, &mut entries)?;
                entries.push(ScanSource {
                    name: format!("<stream {stream}>"),
                    path: None,
                    is_text: false,
                    folder: None,
                    stream: *stream,
                    named: place,
                });
            }
        }
    }
    flush(&mut patterns, &mut entries)?;
    let mut seen = BTreeSet::new();
    for entry in &entries {
        if !seen.insert(&entry.name) {
            return Err(Error::new(Kind::InvalidArgument, "same source given twice")
                .with_path(entry.name.as_str())
                .with_hint("its rows would appear twice; name every source once"));
        }
    }
    Ok(entries)
}
