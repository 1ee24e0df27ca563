//! The arrows between the modules of this crate point one way, and it opens no files itself.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../core/tests/layers/check.rs"]
#[expect(dead_code, reason = "words are checked in other crates")]
mod check;
#[path = "../../core/tests/layers/cycles.rs"]
mod cycles;
#[path = "../../core/tests/layers/names.rs"]
mod names;

use std::path::PathBuf;

/// Lowest first: a module and what it imports.
const LAYERS: &[(&str, &str)] = &[
    ("action", ""),
    ("bound", ""),
    ("interval", ""),
    ("name", ""),
    ("packed", "action"),
    ("rest", ""),
    ("vector", "action name"),
    ("new_vector", "action vector"),
    ("schema", "action"),
    ("mapping", "action schema"),
    ("columns", "mapping"),
    ("stats", "bound mapping"),
    ("protocol", "action mapping"),
    ("snapshot", "action name packed"),
    ("checkpoint", "action interval mapping name snapshot"),
    ("load", "action checkpoint name snapshot"),
    ("prune", "action schema snapshot"),
    ("log", "action load mapping name protocol prune snapshot vector"),
    ("added", "action log mapping new_vector stats"),
    ("stored", "log mapping protocol"),
    ("clean", "action interval load log name protocol vector"),
    ("commit", "action added checkpoint load log mapping name new_vector protocol schema snapshot"),
    ("history", "load log"),
];

const PUBLIC_ITEMS_MAX: usize = 17;

fn src() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn imports_point_one_way() {
    check::assert_layers(&check::arrows(&src(), "lib"), LAYERS);
}

#[test]
fn no_files_import_each_other() {
    assert_eq!(cycles::cycles(&src()), Vec::<String>::new());
}

#[test]
fn names_mean_one_thing_and_the_door_is_small() {
    assert_eq!(names::reused_types(&src()), [], "type names with two meanings");
    assert_eq!(names::tuple_parameters(&src()), Vec::<String>::new(), "tuples as parameters");
    let public = names::public_items(&src());
    assert!(public <= PUBLIC_ITEMS_MAX, "{public} public items");
}

#[test]
fn all_files_are_reached_through_the_folder_of_the_engine() {
    for (path, text) in check::own_code(&src()) {
        assert!(!text.contains("std::fs"), "{}", path.display());
    }
}
