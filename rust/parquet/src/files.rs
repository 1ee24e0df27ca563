//! Opens every source once, in the order that breaks ties, and ties its leaves to the output's.
//!
//! # Invariants
//! Ids follow the order given. Every read of a source passes the context's fault switch. Nothing
//! depends on threads: of several files that cannot be opened the first is named.
//!
//! # Not here
//! Which rows are deleted (`deleted`), which order they have (`order`); the bytes (`store`); the
//! footer (`source`).

use std::collections::BTreeSet;
use std::sync::Arc;

use plait_core::SourceId;
use plait_core::workers::each;
use plait_core::{Error, Kind, Result};

use crate::deleted::{DeletionVectors, LiveRows};
use crate::ends::EndsReader;
use crate::footer::FooterPool;
use crate::options::MergeOptions;
use crate::runtime::{Context, ScopedWorkers};
use crate::selection::Selection;
use crate::source::Source;
use crate::store::{Location, RangeReader, Stores, Wanted, is_denied};

/// Opens every source named by `patterns`, in order, with ids from `first_id` on; `threads` of them
/// at a time, one per core if that is none.
///
/// # Errors
/// As [`Stores::list`], [`Stores::open`], [`Source::open`]. Of damaged files all are named.
pub(crate) fn open_sources(
    patterns: &[String],
    first_id: usize,
    threads: Option<usize>,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<Arc<Source>>> {
    let pool = FooterPool::new(context);
    let open = |id, store| Source::open_in(&pool, id, store).map(Arc::new);
    open_all_by(patterns, first_id, threads, stores, context, open)
}

/// Checks `options` of a merge, and opens its sources.
///
/// # Errors
/// [`Kind::InvalidArgument`] for options, and as [`open_live`].
pub(crate) fn open_merged(
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<Arc<Source>>> {
    options.check()?;
    open_live(&options.sources, options, stores, context)
}

/// Opens every source of a merge, with the rows of it that are not deleted.
///
/// # Errors
/// As [`open_sources`], [`LiveRows::of`]; [`Kind::InvalidArgument`] for a deletion vector of another
/// file, as it may be that of a source under another name.
pub(crate) fn open_live(
    patterns: &[String],
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<Arc<Source>>> {
    let pool = FooterPool::new(context);
    let ends = EndsReader::new(options.sort_by.as_deref(), options.unite(), context);
    let open = |id, store| Source::open_in(&pool, id, store).map(|of| Arc::new(ends.with_ends(of)));
    let files = open_all_by(patterns, 0, options.threads, stores, context, open)?;
    if options.deletion_vectors.is_empty() {
        return Ok(files);
    }
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path()).collect();
    if let Some(other) = options.deletion_vectors.keys().find(|of| !paths.contains(of.as_str())) {
        return Err(Error::new(Kind::InvalidArgument, "a deletion vector is of no source")
            .with_got(format!("`{other}`"))
            .with_hint("name each source as its deletion vector does"));
    }
    let workers = readers(&files, options.threads, context);
    live(files, &options.deletion_vectors, &workers, stores, context)
}

/// Files without the rows that are deleted of them.
///
/// # Errors
/// As [`LiveRows::of`].
pub(crate) fn live(
    files: Vec<Arc<Source>>,
    vectors: &DeletionVectors,
    workers: &ScopedWorkers,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<Arc<Source>>> {
    if vectors.is_empty() {
        return Ok(files);
    }
    let rows = LiveRows { vectors, stores, workers, context }.of(&files)?;
    let select = |(file, rows): (&Arc<Source>, Option<Vec<_>>)| match rows {
        Some(rows) => Arc::new(file.with_selection(Selection::try_new(rows).unwrap_or_default())),
        None => Arc::clone(file),
    };
    Ok(files.iter().zip(rows).map(select).collect())
}

/// What `open` makes of every file named by `patterns`, as [`open_sources`].
///
/// # Errors
/// As [`open_sources`].
pub(crate) fn open_all_by<T: Send>(
    patterns: &[String],
    first_id: usize,
    threads: Option<usize>,
    stores: &Stores,
    context: &Context,
    open: impl Fn(SourceId, Arc<dyn RangeReader>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (mut opened, mut damaged) = (Vec::new(), Vec::new());
    for (_, source) in open_each_by(patterns, first_id, threads, stores, context, open)? {
        match source {
            Ok(source) => opened.push(source),
            Err(e) => damaged.push(e),
        }
    }
    let what = format!("{} sources cannot be read", damaged.len());
    Error::every(&what, damaged).map_or(Ok(opened), Err)
}

/// A location, and the source that is there unless it is damaged.
pub(crate) type Opened = (String, Result<Arc<Source>>);

/// The same, with the error of each file that is damaged in its place.
///
/// # Errors
/// As [`Stores::list`], [`Stores::open`].
pub(crate) fn open_each(
    patterns: &[String],
    ends: &EndsReader<'_>,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<Opened>> {
    let pool = FooterPool::new(context);
    let open = |id, store| Source::open_in(&pool, id, store).map(|of| Arc::new(ends.with_ends(of)));
    open_each_by(patterns, 0, None, stores, context, open)
}

fn open_each_by<T: Send>(
    patterns: &[String],
    first_id: usize,
    threads: Option<usize>,
    stores: &Stores,
    context: &Context,
    open: impl Fn(SourceId, Arc<dyn RangeReader>) -> Result<T> + Sync,
) -> Result<Vec<(String, Result<T>)>> {
    let paths = stores.list(patterns, Wanted::Parquet)?;
    let is_local = |path: &String| matches!(stores.locate(path), Ok(Location::Local(_)));
    let readers = ScopedWorkers::openers(paths.iter().all(is_local), threads, context);
    let opened = each(&readers, paths.len(), |i| {
        context.check_cancelled()?;
        let id = SourceId(u32::try_from(first_id + i).map_err(|_| {
            Error::new(Kind::InvalidArgument, "there are more sources than fit 32 bits")
        })?);
        match stores.open_source(&paths[i], context).and_then(|store| open(id, store)) {
            Ok(source) => Ok(Ok(source)),
            Err(e) if is_of_the_file(&e) => Ok(Err(e)),
            Err(e) => Err(e),
        }
    })?;
    Ok(paths.into_iter().zip(opened).collect())
}

/// Whether an error is about one file: others can be read all the same.
pub(crate) fn is_of_the_file(error: &Error) -> bool {
    is_denied(error)
        || matches!(
            error.kind(),
            Kind::CorruptSource | Kind::EncryptedSource | Kind::Unsupported | Kind::UnsortedSource
        )
}

/// Workers that read keys of all `sources`.
pub(crate) fn readers(
    sources: &[Arc<Source>],
    threads: Option<usize>,
    context: &Context,
) -> ScopedWorkers {
    let are_local = sources.iter().all(|source| source.store.is_local());
    ScopedWorkers::readers(are_local, threads, context)
}

/// Refuses sources of which one is not the file any more that was opened.
///
/// # Errors
/// As [`RangeReader::check_unchanged`].
pub(crate) fn check_unchanged(
    sources: &[&Arc<Source>],
    threads: Option<usize>,
    context: &Context,
) -> Result<()> {
    let are_local = sources.iter().all(|source| source.store.is_local());
    let workers = ScopedWorkers::openers(are_local, threads, context);
    each(&workers, sources.len(), |i| {
        context.check_cancelled()?;
        sources[i].store.check_unchanged()
    })?;
    Ok(())
}

/// Opens the source at `path`.
///
/// # Errors
/// As [`Stores::open`], [`Source::open`].
pub(crate) fn open_source(
    path: &str,
    id: SourceId,
    stores: &Stores,
    context: &Context,
) -> Result<Source> {
    Source::open(id, stores.open_source(path, context)?)
}

/// The same for one of several, with a footer in `pool`.
///
/// # Errors
/// As [`open_source`].
pub(crate) fn open_source_in(
    pool: &Arc<FooterPool>,
    path: &str,
    id: SourceId,
    stores: &Stores,
    context: &Context,
) -> Result<Source> {
    Source::open_in(pool, id, stores.open_source(path, context)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::page::testing::file;

    #[test]
    fn files_of_one_schema_hold_it_once() {
        let dir = std::env::temp_dir().join(format!("plait-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let schemas = ["required int64 a;", "required int64 a;", "required int64 b;"];
        let paths: Vec<String> = schemas
            .iter()
            .enumerate()
            .map(|(i, columns)| {
                let path = dir.join(format!("{i}.parquet"));
                std::fs::write(&path, file(&format!("message m {{ {columns} }}"), &[i + 1], |p| p))
                    .unwrap();
                path.to_str().unwrap().to_owned()
            })
            .collect();
        let context = Context::new(1 << 24);
        let stores = Stores::try_new(&Default::default(), &context).unwrap();
        let sources = open_sources(&paths, 0, Some(1), &stores, &context).unwrap();
        let schema = |i: usize| sources[i].file().schema_descr_ptr();
        assert!(Arc::ptr_eq(&schema(0), &schema(1)));
        assert!(!Arc::ptr_eq(&schema(0), &schema(2)));
        assert_eq!(sources.iter().map(|source| source.rows()).collect::<Vec<_>>(), [1, 2, 3]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
