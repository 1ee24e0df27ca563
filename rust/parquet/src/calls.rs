//! Calls by JSON: options as one text in, the report as one text out, for shells in other
//! languages.
//!
//! # Invariants
//! An option that the call does not know is an error, never ignored (`deny_unknown_fields` of the
//! options).
//!
//! # Not here
//! The texts (`json`); calls that take or return Arrow data; what each call does (its own module).

use plait_core::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::compact::{choose_in, commit_in, expire_in, look_in, sort_merge_in, survey_in};
use crate::inspect::inspect_in;
use crate::json::{from_json, to_json};
use crate::merge::{check_in, execute_in, merge_in, plan_in, share_in};
use crate::overlay::overlay_files;
use crate::plan::{list_in, read_plan, tables_in};
use crate::row_map::{carry_in, trace_in};
use crate::runtime::Context;
use crate::scan::summarize;
use crate::store::Stores;
use crate::verify::verify_in;

/// A call whose options and report are JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonCall {
    /// Merges sorted files.
    Merge,
    /// Plans a merge; the sources of the plan are in blocks, and slices of tasks are text.
    Plan,
    /// Checks a plan, and gives it back like [`Plan`](Self::Plan).
    ReadPlan,
    /// Executes tasks of a plan.
    Execute,
    /// Finds how merges of several plans share threads and memory.
    Share,
    /// Checks the options of a merge.
    Check,
    /// Lists the files that patterns name.
    List,
    /// Finds the tables of other formats that patterns name, as a whole or in part.
    Tables,
    /// Summarizes the columns of files, for one frozen schema.
    SummarizeScan,
    /// Selects files of a folder by a policy.
    Survey,
    /// Selects among files that need not exist by a policy.
    Choose,
    /// Looks at the keys of files that may be in no order.
    Look,
    /// Merges files of a compaction, and sorts those that are in no order.
    SortMerge,
    /// Commits a change of a folder.
    Commit,
    /// Removes replaced files of a folder.
    Expire,
    /// Checks that files are sorted, disjoint and complete.
    Verify,
    /// Describes one file.
    Inspect,
    /// Looks a row up in row maps.
    Trace,
    /// Carries deletes from sources of a merge to its outputs.
    CarryDeletes,
    /// Overlays files.
    OverlayFiles,
}

impl JsonCall {
    /// Makes the call and returns its report, and with a plan the blocks of its sources, which are
    /// bytes. Limits and settings of stores among `options` are those of `context` and `stores`,
    /// which the caller makes.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use plait_parquet::{Context, JsonCall, Stores};
    ///
    /// let context = Context::new(64 << 20);
    /// let stores = Stores::try_new(&BTreeMap::new(), &context)?;
    /// let options = r#"{"sources": ["Cargo.toml"]}"#.to_owned();
    /// let (files, blocks) = JsonCall::List.run(options, &stores, &context)?;
    /// assert_eq!((files.as_str(), blocks.len()), (r#"["Cargo.toml"]"#, 0));
    /// # Ok::<(), plait_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`](plait_core::Kind::InvalidArgument) for options that cannot be
    /// read, and those of the call.
    pub fn run(
        self,
        options: String,
        stores: &Stores,
        context: &Context,
    ) -> Result<(String, Vec<Box<[u8]>>)> {
        let call = Reach { options, stores, context };
        let report = match self {
            Self::Plan => {
                let (plan, blocks) = plan_in(call.read()?, stores, context)?.packed()?;
                return Ok((to_json(&plan)?, blocks));
            }
            Self::ReadPlan => {
                let (plan, blocks) = read_plan(&call.read()?)?;
                return Ok((to_json(&plan)?, blocks));
            }
            Self::Merge => call.run(merge_in),
            Self::Execute => call.run(execute_in),
            Self::Share => call.run(share_in),
            Self::Check => call.run(check_in),
            Self::List => call.run(list_in),
            Self::Tables => call.run(tables_in),
            Self::SummarizeScan => call.run(summarize),
            Self::Survey => call.run(survey_in),
            Self::Choose => call.run(choose_in),
            Self::Look => call.run(look_in),
            Self::SortMerge => call.run(sort_merge_in),
            Self::Commit => call.run(commit_in),
            Self::Expire => call.run(expire_in),
            Self::Verify => call.run(verify_in),
            Self::Inspect => call.run(inspect_in),
            Self::Trace => call.run(trace_in),
            Self::CarryDeletes => call.run(carry_in),
            Self::OverlayFiles => call.run(overlay_files),
        };
        Ok((report?, Vec::new()))
    }
}

/// What every call takes.
struct Reach<'a> {
    options: String,
    stores: &'a Stores,
    context: &'a Context,
}

impl Reach<'_> {
    fn run<O: DeserializeOwned, R: Serialize>(
        self,
        call: impl FnOnce(&O, &Stores, &Context) -> Result<R>,
    ) -> Result<String> {
        let Self { stores, context, .. } = self;
        to_json(&call(&self.read()?, stores, context)?)
    }

    /// The options, whose text goes: it may name a million files.
    fn read<O: DeserializeOwned>(self) -> Result<O> {
        from_json(&self.options)
    }
}
