//! The last step: count, compare, rename.
//!
//! # Invariants
//! Outputs get their names only after the rows add up, the sources are what they were, and, if
//! asked for, the contents are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use parquet::basic::LogicalType;
use plait_core::key::decode;
use plait_core::{Error, Kind, Result};
use sha2::{Digest, Sha256};

use super::prepare::{Prepared, check_free, is_ours};
use super::run::Made;
use crate::content;
use crate::context::Context;
use crate::options::{MergeOptions, Verify};
use crate::report::{
    ConflictReport, Copied, Memory, MergeReport, OutputReport, Overlap, SourceReport, Times,
};
use crate::target::Published;
use plait_core::plan::Dropped;

/// Rows that were dropped, by reasons that there were.
fn reasons(dropped: Dropped) -> BTreeMap<String, u64> {
    let all = [
        ("duplicate", dropped.duplicate),
        ("deleted", dropped.deleted),
        ("expired", dropped.expired),
    ];
    let some = all.into_iter().filter(|(_, rows)| *rows > 0);
    some.map(|(reason, rows)| (reason.to_owned(), rows)).collect()
}

pub(super) fn publish(
    prepared: &Prepared,
    made: Made,
    options: &MergeOptions,
    context: &Context,
    times: &mut Times,
) -> Result<MergeReport> {
    let started = Instant::now();
    let rows_in = prepared.rows();
    let rows_out: u64 = made.outputs.iter().map(|o| o.rows).sum();
    let dropped = made.dropped;
    if rows_in != rows_out + dropped.rows() {
        return Err(Error::new(Kind::Internal, "rows do not add up, nothing was published")
            .with_got(format!("{rows_out} rows and {} dropped out of {rows_in}", dropped.rows()))
            .with_hint("please report this"));
    }
    let made_tiers = [("chunk", made.chunk), ("page", made.page), ("dict", made.dict)];
    let value = made.value;
    let mut content_hash = None;
    if options.verify == Some(Verify::Content) {
        context.enter_stage(3);
        content_hash =
            Some(content::compare_outputs(prepared_view(prepared), &made.outputs, context)?);
        times.verify_s = started.elapsed().as_secs_f64();
    }
    let publishing = Instant::now();
    context.enter_stage(2);
    for source in prepared.sources.iter() {
        source.store.check_unchanged()?;
    }
    context.check_cancelled()?;
    let mut outputs = Vec::new();
    for (i, (finished, oversized)) in made.outputs.into_iter().zip(made.oversized).enumerate() {
        let name = prepared.output_name(i);
        let path = prepared.target.location(&name);
        let sha256 = options.sha256.then(|| sha256(finished.temp.local_path())).transpose()?;
        let (key_min, key_max) = match &finished.key_range {
            Some((min, max)) => (key_text(prepared, min)?, key_text(prepared, max)?),
            None => (Vec::new(), Vec::new()),
        };
        outputs.push((
            finished.temp,
            name,
            OutputReport {
                path,
                rows: finished.rows,
                bytes: finished.bytes,
                row_groups: finished.row_groups,
                key_min,
                key_max,
                sha256,
                oversized,
            },
        ));
    }
    // Looked at again, right before the first name: another merge may have come meanwhile.
    let (target, stores, task) = (&prepared.target, &prepared.stores, &prepared.task);
    check_free(target, options, &prepared.sources, stores, task)?;
    let mut reports = Vec::new();
    for (temp, name, report) in outputs {
        // A folder's names carry the task, so a file of that name has the same bytes.
        let published = match target.file_name() {
            Some(_) if !is_ours(stores, &report.path, task) => temp.publish_new(target, &name)?,
            _ => temp.publish(target, &name)?,
        };
        if published == Published::Occupied && !is_ours(stores, &report.path, task) {
            let what = "the output was written by somebody else meanwhile";
            return Err(Error::new(Kind::OutputExists, what)
                .with_path(report.path)
                .with_hint("run merges into one file one after the other"));
        }
        reports.push(report);
    }
    target.sync()?;
    times.write_s += publishing.elapsed().as_secs_f64();
    Ok(MergeReport {
        sort_by: prepared.order.to_string(),
        rows_in,
        rows_out,
        rows_dropped: reasons(dropped),
        sources: prepared
            .sources
            .iter()
            .map(|s| SourceReport {
                path: s.path().to_owned(),
                rows: s.rows(),
                bytes: s.store.len(),
                row_groups: s.num_row_groups(),
            })
            .collect(),
        outputs: reports,
        copied: by_tier(&made_tiers, value, rows_out, prepared.leaves.len() as u64),
        overlap: Overlap {
            regions: prepared.regions.len(),
            depth_max: prepared.regions.iter().map(|r| r.depth_max).max().unwrap_or(0),
        },
        metadata_conflicts: prepared
            .reconciled
            .metadata_conflicts
            .iter()
            .map(|c| ConflictReport { key: c.key.clone(), kept: c.kept, files: c.paths.to_vec() })
            .collect(),
        time: Times::default(),
        memory: Memory::default(),
        assumed_sorted: options.assume_sorted,
        content_hash,
        warnings: warnings(prepared),
    })
}

fn prepared_view(prepared: &Prepared) -> content::Rows<'_> {
    content::Rows { sources: &prepared.sources, leaves: &prepared.leaves }
}

/// What was done to the schema that the caller may not expect.
fn warnings(prepared: &Prepared) -> Vec<String> {
    let mut columns = BTreeSet::new();
    for column in
        prepared.sources.iter().flat_map(|s| s.meta.file_metadata().schema_descr().columns())
    {
        if matches!(column.logical_type_ref(), Some(LogicalType::_Unknown { .. })) {
            columns.insert(column.path().string());
        }
    }
    let text = |column: String| {
        format!(
            "the logical type of `{column}` is newer than this version of Plait and was left out; values are unchanged"
        )
    };
    columns.into_iter().map(text).collect()
}

fn key_text(prepared: &Prepared, key: &[u8]) -> Result<Vec<Option<String>>> {
    use plait_core::key::KeyValue;
    let values = decode(&prepared.keys.shape, key)?;
    let text = |v: KeyValue| (!matches!(v, KeyValue::Null)).then(|| v.to_string());
    Ok(values.into_iter().map(text).collect())
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
    let store = crate::store::open(&path.display().to_string())?;
    let mut hash = Sha256::new();
    let mut at = 0;
    while at < store.len() {
        let end = store.len().min(at + (1 << 20));
        hash.update(&store.read(at..end)?);
        at = end;
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}
