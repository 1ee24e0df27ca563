//! The arrows between the modules of this crate point one way, and nothing here does I/O.

#![allow(clippy::unwrap_used, reason = "tests")]

mod check;
mod cycles;
mod names;

use std::path::PathBuf;

/// Lowest first: a module and what it imports.
const LAYERS: &[(&str, &str)] = &[
    ("validate", ""),
    ("workers", ""),
    ("schema", ""),
    ("key", ""),
    ("natural", "key"),
    ("overlay", "key schema"),
    ("packed_runs", ""),
    ("plan", "key packed_runs"),
    ("region", ""),
    ("policy", "region"),
    ("join", "key workers"),
    ("stream", "key packed_runs plan schema workers"),
    ("predicate", "key stream"),
];

/// Type names with two meanings, tuple parameters and public items (methods included) of each
/// crate: numbers that may only become smaller, but for a new module: curves brought 11,
/// natural runs 9, indices of an interleave 2,
/// options of staged joins 3, rows that are combined 35.
const COUNTS_MAX: &[(&str, usize, usize, usize)] =
    &[("base", 0, 0, 43), ("interleave", 0, 0, 28), ("core", 0, 0, 420)];

fn src() -> PathBuf {
    src_of("core")
}

fn src_of(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src")
}

#[test]
fn imports_point_one_way() {
    check::assert_layers(&check::arrows(&src(), "lib"), LAYERS);
}

#[test]
fn no_files_import_each_other() {
    for name in ["base", "interleave", "core", "py"] {
        assert_eq!(cycles::cycles(&src_of(name)), Vec::<String>::new());
    }
}

#[test]
fn names_mean_one_thing_and_parameters_have_names() {
    for (name, reused_max, tuples_max, public_max) in COUNTS_MAX {
        let src = src_of(name);
        let (reused, tuples) = (names::reused_types(&src), names::tuple_parameters(&src));
        assert!(reused.len() <= *reused_max, "{name}: {reused:?}");
        assert!(tuples.len() <= *tuples_max, "{name}: {tuples:?}");
        assert!(names::public_items(&src) <= *public_max, "{name}: {}", names::public_items(&src));
    }
    assert!(names::reused_types(&src_of("py")).is_empty(), "py");
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
