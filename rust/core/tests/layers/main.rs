//! The arrows between the modules of this crate point one way, and nothing here does I/O.

#![allow(clippy::unwrap_used, reason = "tests")]

mod check;

use std::path::PathBuf;

/// Lowest first: a module and what it imports.
const LAYERS: &[(&str, &str)] = &[
    ("error", ""),
    ("run", ""),
    ("validate", "error"),
    ("workers", "error"),
    ("interleave", "error run"),
    ("schema", "error"),
    ("overlay", "error schema"),
    ("key", "error"),
    ("steps", "error run"),
    ("plan", "error key run steps"),
    ("region", "run"),
    ("policy", "region run"),
    ("join", "error interleave key workers"),
    ("stream", "error interleave key plan run schema workers"),
];

fn src() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn imports_point_one_way() {
    check::assert_layers(&check::arrows(&src(), "error"), LAYERS);
}

#[test]
fn the_core_has_no_files_threads_clocks_or_environment() {
    for (path, text) in check::own_code(&src()) {
        for door in ["fs", "io", "net", "thread", "time", "env", "process", "os"] {
            assert!(!text.contains(&format!("std::{door}")), "{}: std::{door}", path.display());
        }
    }
}

#[test]
#[should_panic(expected = "`b` may not import `c`, which is above it")]
fn an_arrow_that_points_back_is_found() {
    check::assert_layers(&check::Arrows::new(), &[("a", ""), ("b", "a c"), ("c", "")]);
}

#[test]
fn words_are_found_in_names_and_in_prose() {
    let words = [("shard", "region"), ("job", "task")];
    let found = check::rejected("let next_shard = 1;\n/// Jobs wait.\njobless sharding", &words);
    assert_eq!(found, [(1, "shard", "region"), (2, "job", "task")]);
}
