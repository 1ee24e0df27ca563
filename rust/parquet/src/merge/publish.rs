//! The last step: count, compare, rename.
//!
//! # Invariants
//! Outputs get their names only after the rows add up, the sources are what they were, and, if
//! asked for, the contents are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use plait_core::{Error, Kind, Result};
use sha2::{Digest, Sha256};

use super::attempt::Attempt;
use super::chosen::ChosenTasks;
use super::frame::Frame;
use super::name::{Unnamed, WrittenOutput, name_all};
use super::run::RunOutputs;
use crate::content::{self, HashedRows};
use crate::files::check_unchanged;
use crate::leaf::output_leaves;
use crate::options::Verify;
use crate::plan::{Plan, PlanSource};
use crate::report::{Copied, Memory, MergeReport, Metrics, OutputReport, SourceReport, Times};
use crate::runtime::Stage;
use crate::source::{Source, hexadecimal};

/// A task that was executed, and not yet published.
pub(super) struct FinishedTask {
    pub(super) made: RunOutputs,
    /// Reports of its outputs; without paths.
    pub(super) outputs: Vec<OutputReport>,
    /// How many rows of which sources of the plan.
    pub(super) rows: Vec<(usize, u64)>,
    pub(super) leaves: u64,
    pub(super) content: Option<u128>,
    pub(super) warnings: Vec<String>,
    pub(super) passes: u64,
}

pub(super) fn publish(
    frame: &Frame<'_>,
    what: &ChosenTasks<'_>,
    all: Vec<FinishedTask>,
    attempt: &mut Attempt<'_>,
) -> Result<MergeReport> {
    let Attempt { options, context, .. } = *attempt;
    let publishing = Instant::now();
    context.counters().enter(Stage::Publish);
    let plan = what.plan;
    let axis = Axis::of(plan, &all)?;
    let sources = sources(plan, &all, &axis)?;
    let rows_in: u64 = sources.iter().map(|source| source.rows).sum();
    let rows_out: u64 = all.iter().flat_map(|done| &done.outputs).map(|output| output.rows).sum();
    let is_whole = what.tasks.len() as u64 == plan.outputs;
    let rows_all = match is_whole {
        true => plan.sources.iter().map(|source| Ok(source?.rows)).sum::<Result<u64>>()?,
        false => plan.rows,
    };
    let rows_dropped = reasons(&all);
    let values_merged = all.iter().map(|done| done.made.values_merged).sum();
    let dropped: u64 = rows_dropped.values().sum();
    if rows_in != rows_out + dropped || (is_whole && rows_in != rows_all) {
        return Err(Error::new(Kind::Internal, "rows do not add up, nothing was published")
            .with_got(format!(
                "{rows_out} rows and {dropped} dropped out of {rows_in}, of {rows_all} in all"
            ))
            .with_hint("please report this"));
    }
    let opened: Vec<&Arc<Source>> = frame.open_sources().chain(what.files).collect();
    check_unchanged(&opened, options.threads, context)?;
    context.check_cancelled()?;
    let mut tiers = [Copied::default(); 4];
    let (mut leaves, mut passes) = (1, 1);
    let (mut content, mut warnings) = (0_u128, plan.warnings.clone());
    let mut outputs = Vec::new();
    for (task, done) in what.tasks.iter().zip(all) {
        let made = done.made;
        let of = [made.chunk, made.page, made.dict, made.value];
        for (sum, more) in tiers.iter_mut().zip(of) {
            sum.rows += more.rows;
            sum.bytes += more.bytes;
        }
        leaves = done.leaves.max(1);
        passes = passes.max(done.passes);
        content = content.wrapping_add(done.content.unwrap_or(0));
        warnings.extend(done.warnings);
        let name = frame.output_name(task.index);
        let named = [("chunk", made.chunk), ("page", made.page), ("dict", made.dict)];
        let mut map = made.map.map(|map| map.temp);
        for (finished, mut report) in made.outputs.into_iter().zip(done.outputs) {
            let copied = by_tier(&named, made.value, report.rows, leaves);
            report.tiers = copied.into_iter().map(|(tier, copied)| (tier, copied.rows)).collect();
            report.span = finished.key_range.as_ref().and_then(|(min, max)| axis.span(min, max));
            report.path = frame.target.location(&name);
            report.sha256 =
                options.sha256.then(|| sha256(finished.temp.local_path())).transpose()?;
            let output = Some(WrittenOutput { temp: finished.temp, report });
            outputs.push(Unnamed { name: name.clone(), output, map: map.take() });
        }
        if map.is_some() {
            // All rows were dropped, and only the map tells of them.
            outputs.push(Unnamed { name, output: None, map });
        }
    }
    let mut seen = BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    if options.verify.is_some() && !what.files.is_empty() {
        verify_files(frame, what.files, content, attempt)?;
    }
    let outputs = name_all(frame, outputs, options)?;
    attempt.times.write_s += publishing.elapsed().as_secs_f64();
    let [chunk, page, dict, value] = tiers;
    Ok(MergeReport {
        sort_by: plan.sort_by.clone(),
        rows_in,
        rows_out,
        rows_dropped,
        values_merged,
        sources,
        outputs,
        copied: by_tier(
            &[("chunk", chunk), ("page", page), ("dict", dict)],
            value,
            rows_out,
            leaves,
        ),
        overlap: plan.overlap,
        metadata_conflicts: plan.metadata_conflicts.clone(),
        time: Times::default(),
        memory: Memory::default(),
        metrics: Metrics::default(),
        passes,
        sort: None,
        assumed_sorted: options.assume_sorted,
        content_hash: options.verify.map(|Verify::Content| format!("{content:032x}")),
        warnings,
    })
}

/// Compares the files of which sorted runs were merged with the outputs, whose hash is `content`.
fn verify_files(
    frame: &Frame<'_>,
    files: &[Arc<Source>],
    content: u128,
    attempt: &mut Attempt<'_>,
) -> Result<()> {
    let comparing = Instant::now();
    let reconciled = frame.schema.reconcile(files, &attempt.options.unite())?;
    let leaves = output_leaves(&reconciled);
    let (rows, constants) = (content::whole(files), BTreeMap::new());
    let rows = HashedRows { sources: files, rows: &rows, leaves: &leaves, constants: &constants };
    let hash = content::hash(&rows, attempt.options.threads, attempt.context)?;
    attempt.times.verify_s += comparing.elapsed().as_secs_f64();
    if hash.total == content {
        return Ok(());
    }
    Err(Error::new(Kind::VerificationFailed, "outputs do not have the rows of the sources")
        .with_hint("nothing was published; please report this"))
}

/// Rows that were dropped, by the reasons that there were.
fn reasons(all: &[FinishedTask]) -> BTreeMap<String, u64> {
    let mut reasons = BTreeMap::new();
    for dropped in all.iter().map(|done| done.made.dropped) {
        for (reason, rows) in dropped.by_reason() {
            if rows > 0 {
                *reasons.entry(reason.to_owned()).or_insert(0) += rows;
            }
        }
    }
    reasons
}

/// First and last keys of all sources and outputs, in order: pictures need no more of keys.
struct Axis(Vec<Vec<u8>>);

impl Axis {
    fn of(plan: &Plan, all: &[FinishedTask]) -> Result<Self> {
        let mut keys = BTreeSet::new();
        for source in plan.sources.iter() {
            let PlanSource { first, last, .. } = source?;
            keys.extend([first, last].into_iter().flatten().map(|key| key.0));
        }
        let outputs = all.iter().flat_map(|done| &done.made.outputs);
        for (min, max) in outputs.filter_map(|output| output.key_range.as_ref()) {
            keys.extend([min.clone(), max.clone()]);
        }
        keys.remove(&Vec::new());
        Ok(Self(keys.into_iter().collect()))
    }

    fn span(&self, first: &Vec<u8>, last: &Vec<u8>) -> Option<(usize, usize)> {
        Some((self.0.binary_search(first).ok()?, self.0.binary_search(last).ok()?))
    }
}

/// The sources and the rows that were merged of each; without rows too if the whole plan was.
fn sources(plan: &Plan, all: &[FinishedTask], axis: &Axis) -> Result<Vec<SourceReport>> {
    let mut rows: Vec<Option<u64>> = vec![None; plan.sources.len()];
    for (source, more) in all.iter().flat_map(|done| &done.rows) {
        if let Some(rows) = rows.get_mut(*source) {
            *rows = Some(rows.unwrap_or(0) + more);
        }
    }
    let mut reports = Vec::new();
    for (source, rows) in plan.sources.iter().zip(rows) {
        let source = source?;
        let Some(rows) = rows.or((source.rows == 0).then_some(0)) else { continue };
        reports.push(SourceReport {
            rows,
            bytes: source.bytes,
            row_groups: usize::try_from(source.row_groups).unwrap_or(usize::MAX),
            span: match (&source.first, &source.last) {
                (Some(first), Some(last)) => axis.span(&first.0, &last.0),
                _ => None,
            },
            path: source.path,
        });
    }
    Ok(reports)
}

/// Rows and bytes by tier. Below whole row groups every leaf has its own tiers: a row counts in the
/// shares in which its leaves were copied, and what rounding leaves counts as `value`.
fn by_tier(
    tiers: &[(&'static str, Copied); 3],
    value: Copied,
    rows_out: u64,
    leaves: u64,
) -> BTreeMap<&'static str, Copied> {
    let mut copied = BTreeMap::new();
    let mut rows_left = rows_out;
    for (name, tier) in tiers {
        let rows = if *name == "chunk" { tier.rows } else { tier.rows / leaves.max(1) };
        rows_left = rows_left.saturating_sub(rows);
        copied.insert(*name, Copied { rows, bytes: tier.bytes });
    }
    copied.insert("value", Copied { rows: rows_left, bytes: value.bytes });
    copied
}

fn sha256(path: Option<&Path>) -> Result<String> {
    let path = path
        .ok_or_else(|| Error::new(Kind::Internal, "an output that is to be hashed is not here"))?;
    let store = crate::store::open_local(path)?;
    let mut hash = Sha256::new();
    let mut at = 0;
    while at < store.len() {
        let end = store.len().min(at + (1 << 20));
        hash.update(&store.read(at..end)?);
        at = end;
    }
    Ok(hexadecimal(&hash.finalize()))
}
