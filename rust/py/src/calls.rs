//! The functions of `_native` that take options as JSON and return a report as JSON.
//!
//! ```text
//! _native.merge(options, progress, bucket, known) ── run ──▶ plait_parquet::merge_in
//! ```
//!
//! # Invariants
//! One line of the table is one function; all of them take the same arguments.
//!
//! # Not here
//! Functions that take or return Arrow data (`lib`); the conversion of JSON (`border`).

use plait_parquet as engine;
use pyo3::prelude::*;
use pyo3::wrap_pyfunction;

use crate::border::run;
use crate::known::{PyKnown, remember};

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident => $call:path;)*) => {
        $(
            $(#[$doc])*
            #[pyfunction]
            #[pyo3(signature = (options, progress=None, bucket=None, known=None))]
            fn $name(
                py: Python<'_>,
                options: &str,
                progress: Option<Py<PyAny>>,
                bucket: Option<Py<PyAny>>,
                known: Option<Py<PyKnown>>,
            ) -> PyResult<String> {
                run(py, options, progress, bucket, |options, stores, context| {
                    remember(known, stores);
                    $call(options, stores, context)
                })
            }
        )*

        /// Adds the functions to the module.
        pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            Ok(())
        }
    };
}

calls! {
    /// Merges sorted files.
    merge => engine::merge_in;
    /// Plans a merge.
    plan => engine::plan_in;
    /// Executes tasks of a plan, which is one of the options.
    execute => engine::execute_in;
    /// Checks the options of a merge.
    check => engine::check_in;
    /// Lists the files that patterns name.
    list_sources => engine::list_in;
    /// Finds the tables of other formats that patterns name, as a whole or in part.
    tables_of => engine::tables_in;
    /// Summarizes the columns of files, for one frozen schema.
    summarize_scan => engine::summarize;
    /// Chooses files of a folder by a policy.
    survey => engine::survey_in;
    /// Chooses among files that need not exist by a policy.
    choose => engine::choose_in;
    /// Commits a change of a folder.
    commit => engine::commit_in;
    /// Removes replaced files of a folder.
    expire => engine::expire_in;
    /// Checks that files are sorted, disjoint and complete.
    verify => engine::verify_in;
    /// Describes one file.
    inspect => engine::inspect_in;
    /// Overlays files.
    overlay_files => engine::overlay_files_in;
}
