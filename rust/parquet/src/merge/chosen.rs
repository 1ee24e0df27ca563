//! Which tasks of a plan are executed, and what is open already.
//!
//! # Not here
//! Executing them (`execute`).

use std::sync::Arc;

use crate::plan::{Plan, PlanTask};
use crate::source::Source;

/// Tasks of a plan.
pub(super) struct ChosenTasks<'a> {
    pub(super) plan: &'a Plan,
    pub(super) tasks: &'a [&'a PlanTask],
    /// The sources of the plan, if they are open.
    pub(super) sources: Option<&'a [Arc<Source>]>,
    /// The files of which these sources are sorted runs; none if they are the sources.
    pub(super) files: &'a [Arc<Source>],
}
