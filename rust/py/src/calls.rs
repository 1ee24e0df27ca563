//! The functions of `_native` that take options as JSON and return a report as JSON.
//!
//! ```text
//! _native.merge(options, progress, bucket, known) ── run ──▶ plait_parquet::JsonCall::Merge
//! ```
//!
//! # Invariants
//! One line of the table is one function; all of them take the same arguments. Options are a text,
//! or a function that gives one.
//!
//! # Not here
//! Functions that take or return Arrow data (`lib`); JSON (`plait_parquet::JsonCall`).

use plait_core::Error;
use plait_parquet::{Context, JsonCall};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyo3::wrap_pyfunction;

use crate::border::reach;
use crate::enter::enter;
use crate::known::{PyKnown, remember};

/// The objects of Python that a call is given besides its options.
struct Given {
    progress: Option<Py<PyAny>>,
    bucket: Option<Py<PyAny>>,
    known: Option<Py<PyKnown>>,
}

/// A report, and blocks of bytes that come with it.
type Answer = (String, Vec<Box<[u8]>>);

/// A plan, and the blocks of its sources.
type PlanAnswer<'py> = (String, Bound<'py, PyList>);

/// Makes `call` behind the gate.
fn run(
    py: Python<'_>,
    call: JsonCall,
    options: &Bound<'_, PyAny>,
    given: Given,
) -> PyResult<Answer> {
    let options = text(options)?;
    let reached = reach(&options, given.bucket);
    let (context, stores) = reached.map_err(|e: Error| crate::errors::exception(py, &e))?;
    remember(given.known, &stores);
    // The last to hold the stores is the call's own thread: it may wait for requests to end.
    let make = move |context: &Context| call.run(options, &stores, context);
    enter(py, &context, given.progress, make)
}

/// A text, or what a function gives: nobody holds that while the call is made, and the names of a
/// million files take 50 MB.
fn text(options: &Bound<'_, PyAny>) -> PyResult<String> {
    match options.is_callable() {
        true => options.call0()?.extract(),
        false => options.extract(),
    }
}

/// Plans a merge.
#[pyfunction]
#[pyo3(signature = (options, progress=None, bucket=None, known=None))]
fn plan<'py>(
    py: Python<'py>,
    options: &Bound<'py, PyAny>,
    progress: Option<Py<PyAny>>,
    bucket: Option<Py<PyAny>>,
    known: Option<Py<PyKnown>>,
) -> PyResult<PlanAnswer<'py>> {
    let given = Given { progress, bucket, known };
    with_blocks(py, run(py, JsonCall::Plan, options, given)?)
}

/// Checks a plan, which is JSON and one of the options.
#[pyfunction]
fn read_plan<'py>(py: Python<'py>, options: &Bound<'py, PyAny>) -> PyResult<PlanAnswer<'py>> {
    let given = Given { progress: None, bucket: None, known: None };
    with_blocks(py, run(py, JsonCall::ReadPlan, options, given)?)
}

/// Each block goes as it becomes one of Python: there may be a million sources.
fn with_blocks<'py>(py: Python<'py>, answer: Answer) -> PyResult<PlanAnswer<'py>> {
    let (text, blocks) = answer;
    let list = PyList::empty(py);
    for block in blocks {
        list.append(PyBytes::new(py, &block))?;
    }
    Ok((text, list))
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident => $call:ident;)*) => {
        $(
            $(#[$doc])*
            #[pyfunction]
            #[pyo3(signature = (options, progress=None, bucket=None, known=None))]
            fn $name(
                py: Python<'_>,
                options: &Bound<'_, PyAny>,
                progress: Option<Py<PyAny>>,
                bucket: Option<Py<PyAny>>,
                known: Option<Py<PyKnown>>,
            ) -> PyResult<String> {
                run(py, JsonCall::$call, options, Given { progress, bucket, known })
                    .map(|(report, _)| report)
            }
        )*

        /// Adds the functions to the module.
        pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            module.add_function(wrap_pyfunction!(plan, module)?)?;
            module.add_function(wrap_pyfunction!(read_plan, module)?)
        }
    };
}

calls! {
    /// Merges sorted files.
    merge => Merge;
    /// Executes tasks of a plan, which is one of the options.
    execute => Execute;
    /// Finds how merges of several plans share threads and memory.
    share => Share;
    /// Checks the options of a merge.
    check => Check;
    /// Lists the files that patterns name.
    list_sources => List;
    /// Finds the tables of other formats that patterns name, as a whole or in part.
    tables_of => Tables;
    /// Summarizes the columns of files, for one frozen schema.
    summarize_scan => SummarizeScan;
    /// Chooses files of a folder by a policy.
    survey => Survey;
    /// Chooses among files that need not exist by a policy.
    choose => Choose;
    /// Looks at the keys of files that may be in no order.
    look => Look;
    /// Merges files of a compaction, and sorts those that are in no order.
    sort_merge => SortMerge;
    /// Commits a change of a folder.
    commit => Commit;
    /// Removes replaced files of a folder.
    expire => Expire;
    /// Checks that files are sorted, disjoint and complete.
    verify => Verify;
    /// Describes one file.
    inspect => Inspect;
    /// Looks a row up in row maps.
    trace => Trace;
    /// Carries deletes from sources of a merge to its outputs.
    carry_deletes => CarryDeletes;
    /// Overlays files.
    overlay_files => OverlayFiles;
}
