//! The files of a merge as one: their schema and their order.
//!
//! ```text
//! footers ─ reconcile ─▶ one schema ─┬─ sort_by, or what the files declare ─▶ order
//!                                    └─ partition_by ─▶ columns before those of the order
//! ```
//!
//! # Invariants
//! Options that name columns which are not there, or that contradict the order, are refused before
//! any key is read.
//!
//! # Not here
//! Keys, cuts and tasks (`make`); schemas of files (`schema`); what an order says (`order`).

use std::sync::Arc;

use plait_core::key::SortOrder;
use plait_core::{Error, Kind, Result};

use super::schema::CarriedSchema;
use crate::drops;
use crate::keys::KeyLeaves;
use crate::leaf::output_leaves;
use crate::options::{MergeOptions, MissingOption};
use crate::order::{check_present, from_sources, key_leaves, renamed};
use crate::partition;
use crate::properties::parse_codec;
use crate::schema::{Reconciled, reconcile};
use crate::source::Source;

/// The files of a merge as one: their schema and their order.
pub(crate) struct MergedFiles {
    /// The files.
    pub(crate) files: Arc<Vec<Arc<Source>>>,
    /// Their schema.
    pub(crate) reconciled: Reconciled,
    /// Their order, by the names of the output.
    pub(crate) order: SortOrder,
}

impl MergedFiles {
    /// Brings `files` to one schema, and finds their order.
    ///
    /// # Errors
    /// As those of a plan, but for those of reading keys.
    pub(crate) fn describe(options: &MergeOptions, files: Arc<Vec<Arc<Source>>>) -> Result<Self> {
        let asked = options.sort_by.as_deref().map(SortOrder::try_parse).transpose()?;
        let footers: Vec<_> = files.iter().map(|s| (s.path(), s.file())).collect();
        let reconciled = reconcile(&footers, &options.unite())?;
        // Outputs and tasks know the columns by the names of the output alone.
        let order = match &asked {
            Some(order) => renamed(order, &reconciled)?,
            None => from_sources(&files, &reconciled)?,
        };
        let partition_by = partition::names(options, &reconciled)?;
        let order = partition::order(&partition_by, &order)?;
        let leaves = output_leaves(&reconciled);
        let keys = key_leaves(&order, &reconciled, &leaves)?;
        partition::check(&partition_by, &keys, &reconciled)?;
        check_columns(options, &keys)?;
        if matches!(options.missing_keys, MissingOption::Error) {
            check_present(&order, &keys, &files)?;
        }
        if let Some(codec) = &options.compression {
            parse_codec(codec)?;
        }
        // What is dropped is found when a task is executed; that it can be, now.
        drops::find(options, &order, &reconciled, &leaves)?;
        Ok(Self { files, reconciled, order })
    }

    /// The schema for `runs` of the files, which have it already.
    pub(crate) fn reconcile(
        &self,
        runs: &[Arc<Source>],
        options: &MergeOptions,
    ) -> Result<Reconciled> {
        let carried = CarriedSchema::read(
            &CarriedSchema::write(&self.reconciled)?,
            &self.reconciled.renamed,
        )?;
        carried.reconcile(runs, &options.unite())
    }
}

fn check_columns(options: &MergeOptions, keys: &KeyLeaves) -> Result<()> {
    let sorted = keys.shape.parts().saturating_sub(options.partition_by.len());
    for (name, columns) in
        [("cut_on", options.cut_on.unwrap_or(0)), ("align_row_groups", options.align_row_groups)]
    {
        if columns > sorted {
            return Err(Error::new(
                Kind::InvalidArgument,
                format!("`{name}` counts more columns than the sort order has"),
            )
            .with_got(format!("{columns} of {sorted}"))
            .with_hint("a curve such as `zorder(a, b)` counts as one"));
        }
    }
    let is_cut = options.target_rows.is_some() || options.target_file_size.is_some();
    if is_cut && sorted == 0 && !options.partition_by.is_empty() {
        let what = "files of a partition are cut between keys, and there is no sort column";
        return Err(Error::new(Kind::InvalidArgument, what)
            .with_hint("pass sort_by, or leave out target_rows and target_file_size"));
    }
    Ok(())
}
