//! The arrows between the modules of this crate point one way, only two of them open files, and one
//! word stands for one thing.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../core/tests/layers/check.rs"]
mod check;
#[path = "../../core/tests/layers/cycles.rs"]
mod cycles;
#[path = "../../core/tests/layers/names.rs"]
mod names;

use std::fs;
use std::path::{Path, PathBuf};

/// Lowest first: a module and what it imports.
const LAYERS: &[(&str, &str)] = &[
    ("runtime", ""),
    ("report", ""),
    ("json", ""),
    ("file_values", ""),
    ("schema", ""),
    ("unzstd", ""),
    ("store", "runtime unzstd"),
    ("output", "runtime store"),
    ("guard", ""),
    ("folder", "guard json runtime store output"),
    ("thrift", ""),
    ("selection", ""),
    ("footer", "guard runtime store thrift"),
    ("source", "footer output selection store"),
    ("page", "guard runtime source store thrift unzstd"),
    ("spill", "page runtime store output"),
    ("leaf", "page runtime schema source store"),
    ("block", "leaf page runtime schema source store"),
    ("arrow_file", "block footer leaf page runtime schema source store"),
    ("deleted", "arrow_file runtime source store"),
    ("options", "deleted runtime"),
    ("properties", "leaf options page schema source"),
    ("scan", "arrow_file file_values json runtime source store"),
    ("stream", "arrow_file json options runtime source store"),
    ("ranks", "block leaf page properties runtime schema source"),
    ("keys", "block leaf page ranks runtime schema source"),
    ("order", "keys leaf runtime schema source"),
    ("ends", "keys leaf order runtime schema source store"),
    ("files", "deleted ends footer options runtime selection source store"),
    ("partition", "keys options schema"),
    ("zone", "block leaf options runtime source"),
    ("drops", "keys leaf options order page runtime schema source"),
    ("encode", "block leaf options page properties runtime source spill zone"),
    ("check", "block encode page thrift"),
    ("chunk", "check leaf options page properties runtime schema source spill"),
    ("weave", "block check encode leaf options page properties runtime schema source spill zone"),
    ("combine", "block drops keys leaf order runtime schema source weave"),
    ("queue", "encode weave"),
    ("sink", "check chunk encode leaf page source spill output weave zone"),
    ("row_map", "arrow_file block deleted encode json page runtime sink source spill store output"),
    (
        "overlay",
        "arrow_file check chunk files json leaf options page properties report runtime schema sink source spill store output weave",
    ),
    (
        "plan",
        "chunk drops ends files footer json keys leaf options order page partition properties report runtime schema sink source store",
    ),
    (
        "read",
        "arrow_file deleted file_values files footer keys leaf options order output page partition plan properties runtime schema selection source store",
    ),
    (
        "sort",
        "block encode files keys leaf options order plan properties queue ranks runtime selection sink source spill output weave",
    ),
    ("content", "leaf runtime schema sink source store"),
    ("inspect", "files footer keys leaf order page plan runtime schema source store zone"),
    ("verify", "content files keys leaf options order plan report runtime schema source store"),
    (
        "merge",
        "chunk combine content drops encode files keys leaf options order page partition plan properties queue ranks report row_map runtime schema sink sort source spill store output weave zone",
    ),
    (
        "compact",
        "drops ends files folder guard json leaf merge options order plan report runtime schema source store output",
    ),
    ("join", "arrow_file json leaf merge options page runtime source store output"),
    (
        "run_writer",
        "guard join json merge options partition report runtime sort source store output",
    ),
    ("calls", "compact inspect json merge overlay plan row_map runtime scan store verify"),
];

/// What is not said, and the word of the glossary in docs/concepts.md that is.
const REJECTED: &[(&str, &str)] = &[
    ("inputs", "sources"),
    ("shard", "region or output"),
    ("fragment", "run or region"),
    ("job", "task"),
    ("sorter", "merge"),
    ("destination", "sink or output"),
];

/// Said of schema trees and processes, never where rows are ordered and copied.
const REJECTED_OF_SOURCES: &[(&str, &str)] =
    &[("child", "source"), ("children", "sources"), ("stream", "source")];
const OF_SOURCES: &[&str] = &["plan", "region", "merge", "run.rs", "keys.rs", "weave", "sink.rs"];

/// Words of Spark and of schedulers, which their pages speak of.
const OF_OTHERS: &[&str] = &["job", "shard"];
const OTHERS: &[&str] = &["spark", "airflow", "dagster", "github-action"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn imports_point_one_way() {
    let found = check::arrows(&root().join("rust/parquet/src"), "lib");
    check::assert_layers(&found, LAYERS);
}

#[test]
fn no_files_import_each_other() {
    assert_eq!(cycles::cycles(&root().join("rust/parquet/src")), Vec::<String>::new());
}

/// May only become smaller, but for a new call.
const PUBLIC_ITEMS_MAX: usize = 150;

#[test]
fn names_mean_one_thing_and_parameters_have_names() {
    let src = root().join("rust/parquet/src");
    assert_eq!(names::reused_types(&src), [], "type names with two meanings");
    assert_eq!(names::tuple_parameters(&src), Vec::<String>::new(), "tuples as parameters");
    let public = names::public_items(&src);
    assert!(public <= PUBLIC_ITEMS_MAX, "{public} public items");
}

#[test]
fn only_the_store_and_the_output_open_files() {
    for (path, text) in check::own_code(&root().join("rust/parquet/src")) {
        let may = path.starts_with("store") || path.starts_with("output");
        for door in ["File::open", "File::create", "OpenOptions", "fs::write", "fs::rename"] {
            assert!(may || !text.contains(door), "{}: {door}", path.display());
        }
    }
}

/// The last name before a division: `context.limit_bytes()` of
/// `let a = context.limit_bytes() / 16`.
fn dividends(line: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |c: char| c.is_alphanumeric() || "_.():".contains(c);
    line.match_indices(" / ").map(move |(at, _)| {
        let before = &line[..at];
        before.rfind(|c| !is_of_name(c)).map_or(before, |start| &before[start..])
    })
}

#[test]
fn only_the_budget_divides_the_memory_limit() {
    for (path, text) in check::own_code(&root().join("rust/parquet/src")) {
        if path.ends_with("runtime/budget.rs") {
            continue;
        }
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let divides = dividends(line).any(|name| name.contains("limit"));
            assert!(!divides, "{}: {line}: take the size from `Budget`", path.display());
        }
    }
    assert_eq!(dividends("x = a.limit_bytes() / 16 + b").collect::<Vec<_>>(), [" a.limit_bytes()"]);
}

#[test]
fn one_word_for_one_thing() {
    let mut texts = Vec::new();
    for folder in ["rust/core/src", "rust/parquet/src", "rust/py/src"] {
        let own = check::own_code(&root().join(folder));
        texts.extend(own.into_iter().map(|(path, text)| (Path::new(folder).join(path), text)));
    }
    for folder in [
        "python/plait",
        "python/plait/cli",
        "docs",
        "docs/decisions",
        "docs/guide",
        "docs/formats",
        "docs/recipes",
        "",
    ] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "py" || e == "md") {
                let below = path.strip_prefix(root()).unwrap_or(&path).to_owned();
                texts.push((below, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(texts.len() > 60, "only {} files were read", texts.len());
    let mut found = Vec::new();
    for (path, text) in &texts {
        let is_of_sources = path.iter().any(|part| OF_SOURCES.iter().any(|of| part == *of));
        let more = if is_of_sources { REJECTED_OF_SOURCES } else { &[] };
        let mut words = [REJECTED, more].concat();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if OTHERS.iter().any(|other| name.starts_with(other)) {
            words.retain(|(bad, _)| !OF_OTHERS.contains(bad));
        }
        for (line, bad, good) in check::rejected(text, &words) {
            found.push(format!("{}:{line}: `{bad}`, say {good}", path.display()));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}
