//! Whether outputs may be written where they are to go.
//!
//! # Invariants
//! What another merge or another tool wrote is never replaced, and readers of a folder never see
//! the rows of two merges unless they were asked to.
//!
//! # Not here
//! Giving names (`publish`).

use plait_core::SourceId;
use plait_core::{Error, Kind, Result};

use crate::options::{IfExists, MergeOptions};
use crate::output::Target;
use crate::plan::PlanSources;
use crate::source::Source;
use crate::store::{Location, Stores};

/// Refuses to add to a folder or replace a file that another merge or another tool wrote.
pub(super) fn check_output(
    target: &Target,
    options: &MergeOptions,
    outputs: u64,
    sources: &PlanSources,
    stores: &Stores,
    task: &str,
) -> Result<()> {
    let exists = |what: &str, path: &str, hint: &str| {
        Err(Error::new(Kind::OutputExists, what).with_path(path).with_hint(hint))
    };
    if let Some(name) = target.file_name() {
        if outputs > 1
            || options.outputs.is_some_and(|n| n > 1)
            || options.target_file_size.is_some()
            || options.target_rows.is_some()
            || !options.partition_by.is_empty()
        {
            return Err(Error::new(
                Kind::InvalidArgument,
                "one output file cannot hold several outputs",
            )
            .with_path(&options.out)
            .with_hint("name a folder"));
        }
        if !target.exists(name)? {
            return Ok(());
        }
        let path = target.location(name);
        let is_output = |source: &str| match stores.locate(source) {
            Ok(Location::Local(source)) => std::fs::canonicalize(source).is_ok_and(|source| {
                std::fs::canonicalize(&path).is_ok_and(|output| output == source)
            }),
            Ok(Location::Object(place)) => place.location() == path,
            Err(_) => false,
        };
        for source in sources.iter() {
            if is_output(&source?.path) {
                return exists("the output is one of the sources", &path, "write to another file");
            }
        }
        return match is_ours(stores, &path, task) {
            true => Ok(()),
            false => exists("the output is there already", &path, "remove it or write elsewhere"),
        };
    }
    if options.if_exists == IfExists::Add {
        return Ok(());
    }
    let names = match options.partition_by.is_empty() {
        true => target.visible()?,
        false => target.visible_below()?,
    };
    let foreign = names.into_iter().find(|name| {
        let name = name.rsplit('/').next().unwrap_or_default();
        !name.contains(task)
    });
    match foreign {
        None => Ok(()),
        Some(name) => exists(
            "the output folder has other Parquet files, readers would see their rows too",
            &target.location(&name),
            "write to an empty folder, or pass if_exists=\"add\"",
        ),
    }
}

/// Whether `path` was written by this very task.
pub(super) fn is_ours(stores: &Stores, path: &str, task: &str) -> bool {
    let source = stores.open(path).and_then(|store| Source::open(SourceId(0), store));
    source.is_ok_and(|source| {
        let entries = source.file().key_value_metadata();
        entries
            .into_iter()
            .flatten()
            .any(|e| e.key == "plait.task" && e.value.as_deref() == Some(task))
    })
}
