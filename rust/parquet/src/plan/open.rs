//! Opens the sources of a plan, and compares them with what the plan says of them.
//!
//! # Invariants
//! A source that was written since is [`Kind::SourceChanged`], whichever task needs it.
//!
//! # Not here
//! Which rows of them a task has (`find`).

use std::sync::Arc;

use plait_core::SourceId;
use plait_core::workers::each;
use plait_core::{Error, Kind, Result};

use super::planned_source::PlanSource;
use super::value::{Plan, PlanTask};
use crate::files::{live, open_source_in};
use crate::footer::FooterPool;
use crate::runtime::{Context, ScopedWorkers};
use crate::source::Source;
use crate::store::{Location, Stores};

/// So many sources are opened before others are unpacked.
const OPENED_AT_ONCE: usize = 4096;

/// The sources of `plan` by their index; only those that `tasks` need are open.
///
/// # Errors
/// [`Kind::SourceChanged`] naming the source; what is wrong with a source.
pub(crate) fn open_planned<'a>(
    plan: &Plan,
    tasks: impl IntoIterator<Item = &'a PlanTask>,
    threads: Option<usize>,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<Option<Arc<Source>>>> {
    let mut needed = vec![false; plan.sources.len()];
    for slice in tasks.into_iter().flat_map(|task| &task.slices) {
        *needed.get_mut(slice.source).ok_or_else(|| {
            Error::new(Kind::InvalidArgument, "a task names a source the plan lacks")
        })? = true;
    }
    let indices: Vec<usize> = (0..needed.len()).filter(|i| needed[*i]).collect();
    let mut reader = plan.sources.reader();
    let mut is_local = |i: &usize| {
        let planned = reader.get(*i)?;
        Ok::<_, Error>(matches!(stores.locate(&planned.path), Ok(Location::Local(_))))
    };
    let mut are_local = true;
    for i in &indices {
        are_local = are_local && is_local(i)?;
    }
    let readers = ScopedWorkers::openers(are_local, threads, context);
    let pool = FooterPool::new(context);
    let mut files = Vec::with_capacity(indices.len());
    // Some at a time: unpacked, they take much more.
    for some in indices.chunks(OPENED_AT_ONCE) {
        let planned: Vec<PlanSource> =
            some.iter().map(|i| reader.get(*i)).collect::<Result<_>>()?;
        files.extend(each(&readers, some.len(), |i| {
            context.check_cancelled()?;
            let file = open_source_in(&pool, &planned[i].path, SourceId(0), stores, context)?;
            check_file(&file, &planned[i]).map(|()| Arc::new(file))
        })?);
    }
    let opened = live(files, &plan.options.deletion_vectors, &readers, stores, context)?;
    let mut sources: Vec<Option<Arc<Source>>> = vec![None; plan.sources.len()];
    for (i, source) in indices.into_iter().zip(opened) {
        let planned = reader.get(i)?;
        if source.live_rows() != planned.rows {
            let got = format!("{} rows instead of {}", source.live_rows(), planned.rows);
            return Err(changed(&planned, got));
        }
        sources[i] = Some(source);
    }
    Ok(sources)
}

/// Refuses a file that is not the planned one.
fn check_file(source: &Source, planned: &PlanSource) -> Result<()> {
    let footer = source.footer_text();
    let stamp = source.store.version();
    let is_older = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
    let got = if source.store.len() != planned.bytes {
        format!("{} bytes instead of {}", source.store.len(), planned.bytes)
    } else if footer != planned.footer || source.rows() != planned.rows + planned.deleted {
        "another footer".to_owned()
    } else if is_older(&stamp, &planned.stamp) {
        let [now, then] = [stamp, planned.stamp.clone()].map(Option::unwrap_or_default);
        format!("version {now} instead of {then}")
    } else {
        return Ok(());
    };
    Err(changed(planned, got))
}

fn changed(planned: &PlanSource, got: String) -> Error {
    Error::new(Kind::SourceChanged, "a source changed since it was planned")
        .with_path(planned.path.as_str())
        .with_got(got)
        .with_hint("plan again")
}
