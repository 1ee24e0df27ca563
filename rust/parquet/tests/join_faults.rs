//! Every write of a join's state is made to fail in turn: the step does not count, and the next
//! goes on.
//!
//! ```text
//! n       0       1      2     …                   fails, alone or with all after it
//! step    create  write  sync  rename  … manifest  all there: the loop ends
//! ```

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "tests of merges use the rest")]
mod support;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use plait_core::{Error, Kind, Result};
use plait_parquet::Context;
use plait_parquet::{HowOption, Join, JoinOptions, Reader};
use support::{Folder, names};

/// More operations than any step here has.
const OPERATIONS_MAX: usize = 2_000;
/// All operations fail with `CI=true`, one in so many otherwise.
const STRIDE: usize = 4;
/// The step whose writes fail; runs are merged in it.
const FAULTY: u64 = 4;

/// Operation, key, foreign key and name of a change or, with no operation, of a row.
type Row = (String, i64, Option<i64>, Option<String>);

fn options(folder: &Path) -> JoinOptions {
    JoinOptions {
        left_key: vec!["id".to_owned()],
        foreign_key: vec!["fk".to_owned()],
        right_key: vec!["key".to_owned()],
        how: HowOption::Left,
        state: Some(folder.to_str().unwrap().to_owned()),
        memory_limit: 64_000_000,
        threads: Some(1),
        ..JoinOptions::default()
    }
}

/// Changes of a step: inserts, moves, deletes.
fn changes(step: u64) -> (RecordBatch, RecordBatch) {
    let step = i64::try_from(step).unwrap();
    let numbers =
        |of: &dyn Fn(i64) -> i64| -> ArrayRef { Arc::new((0..20).map(of).collect::<Int64Array>()) };
    let texts = |of: &dyn Fn(i64) -> String| -> ArrayRef {
        Arc::new((0..20).map(|i| Some(of(i))).collect::<StringArray>())
    };
    let is_deleted = |i: i64| if (step + i) % 5 == 4 { "delete" } else { "upsert" }.to_owned();
    let left = RecordBatch::try_from_iter([
        ("id", numbers(&|i| (step * 7 + i) % 40)),
        ("fk", numbers(&|i| (i + step) % 9)),
        ("_op", texts(&is_deleted)),
    ]);
    let right = RecordBatch::try_from_iter([
        ("key", numbers(&|i| i % 9)),
        ("name", texts(&|i| format!("n{step}-{i}"))),
        ("_op", texts(&|i| is_deleted(i % 9))),
    ]);
    (left.unwrap(), right.unwrap())
}

fn reader(batch: RecordBatch) -> Reader {
    let schema = batch.schema();
    Box::new(RecordBatchIterator::new([Ok(batch)], schema))
}

fn rows(batches: impl Iterator<Item = Result<RecordBatch, arrow_schema::ArrowError>>) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in batches {
        let batch = batch.unwrap();
        let number = |name| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>();
        let text = |name, i| -> Option<String> {
            let column = batch.column_by_name(name)?.as_string::<i32>();
            column.iter().nth(i).flatten().map(str::to_owned)
        };
        rows.extend((0..batch.num_rows()).map(|i| {
            let foreign = number("fk").iter().nth(i).flatten();
            (text("_op", i).unwrap_or_default(), number("id").value(i), foreign, text("name", i))
        }));
    }
    rows.sort();
    rows
}

fn good() -> Context {
    Context::new(64_000_000)
}

fn apply(join: &mut Join, step: u64, context: &Context) -> Result<Vec<Row>> {
    let (left, right) = changes(step);
    join.apply(Some(reader(left)), Some(reader(right)), Some(step), context).map(rows)
}

/// The operations that fail, one after the other.
fn operations() -> impl Iterator<Item = usize> {
    (0..OPERATIONS_MAX).step_by(if are_all() { 1 } else { STRIDE })
}

/// Whether every operation fails once, not some of them.
fn are_all() -> bool {
    std::env::var_os("CI").is_some()
}

/// What fails: the n-th operation alone, or all after it, too.
#[derive(Clone, Copy, Debug)]
struct Fault {
    at: usize,
    lasts: bool,
}

/// A context in which operations fail, and the first that did.
fn faulty(fault: Fault) -> (Context, Arc<Mutex<Option<String>>>) {
    let (count, failed) = (AtomicUsize::new(0), Arc::<Mutex<Option<String>>>::default());
    let seen = Arc::clone(&failed);
    let check = move |operation: &str| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        if n == fault.at || fault.lasts && n > fault.at {
            seen.lock().unwrap().get_or_insert_with(|| operation.to_owned());
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space, says a test"));
        }
        Ok(())
    };
    (Context::with_faults(64_000_000, Box::new(check)), failed)
}

fn check_error(e: &Error, told: &str) {
    assert_eq!(e.kind(), Kind::Storage, "{told}: {e}");
    assert!(e.to_string().contains("no space, says a test"), "{told}: {e}");
    assert!(e.path().is_some(), "{told} names no file: {e}");
}

/// What every step changes, and the table after it.
fn expected() -> Vec<(Vec<Row>, Vec<Row>)> {
    let options = JoinOptions { state: None, ..options(Path::new("")) };
    let mut join = Join::try_new(options, [None, None], None, &good()).unwrap();
    let step = |step| (apply(&mut join, step, &good()).unwrap(), rows(join.table().unwrap()));
    (0..FAULTY + 3).map(step).collect()
}

/// A state with the steps before the faulty one.
fn prepared(folder: &Path) {
    let mut join = Join::try_new(options(folder), [None, None], None, &good()).unwrap();
    (0..FAULTY).for_each(|step| drop(apply(&mut join, step, &good()).unwrap()));
}

fn copied(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for name in names(from) {
        std::fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

/// Goes on from `step`, which `join` is to do next, to the end.
fn goes_on(join: &mut Join, step: u64, expected: &[(Vec<Row>, Vec<Row>)], told: &str) {
    for (number, (changed, table)) in (0..).zip(expected).skip(usize::try_from(step).unwrap()) {
        assert_eq!(apply(join, number, &good()).unwrap(), *changed, "{told}, step {number}");
        assert_eq!(rows(join.table().unwrap()), *table, "{told}, step {number}");
    }
    drop(join.compact(&good()));
    assert_eq!(rows(join.table().unwrap()), expected.last().unwrap().1, "{told}");
}

fn stats(join: &Join) -> serde_json::Value {
    serde_json::from_str(&join.stats().unwrap()).unwrap()
}

/// Only files that the newest manifest names are there once the state was opened again.
fn opened_again(folder: &Path, told: &str) -> Join {
    let join = Join::restore(&options(folder), None, &good()).unwrap();
    let stats = stats(&join);
    let runs =
        ["left_runs", "place_runs", "right_runs"].map(|runs| stats[runs].as_array().unwrap());
    let runs: usize = runs.iter().map(|runs| runs.len()).sum();
    assert_eq!(names(folder).len(), runs + 2, "{told}: {:?}", names(folder));
    join
}

/// Lets every operation of `call` on a state of `FAULTY` steps fail; gives what failed.
fn fail_everywhere(
    name: &str,
    lasts: bool,
    call: impl Fn(&mut Join, &Context) -> Result<()>,
    next: u64,
) -> Vec<String> {
    let (folder, expected) = (Folder::new(name), expected());
    let (first, state) = (folder.path("first"), folder.path("state"));
    prepared(&first);
    let mut met = Vec::new();
    for at in operations() {
        copied(&first, &state);
        let mut join = Join::restore(&options(&state), None, &good()).unwrap();
        let (context, failed) = faulty(Fault { at, lasts });
        let outcome = call(&mut join, &context);
        let Some(operation) = failed.lock().unwrap().take() else {
            outcome.unwrap();
            goes_on(&mut join, next, &expected, "without faults");
            return met;
        };
        let told = format!("{name}: {operation} {at}");
        let e = outcome.err().unwrap_or_else(|| panic!("{told} failed unnoticed"));
        check_error(&e, &told);
        let before = usize::try_from(FAULTY).unwrap() - 1;
        if lasts {
            // The step may be there already, and only durable not: then it counts.
            drop(join);
            let mut join = opened_again(&state, &told);
            let step = join.step().unwrap();
            assert!(step + 1 == FAULTY || step == FAULTY && operation == "sync", "{told}");
            let again = rows(join.apply(None, None, Some(step), &good()).unwrap());
            let (changed, table) = &expected[usize::try_from(step).unwrap()];
            assert_eq!((again, rows(join.table().unwrap())), (changed.clone(), table.clone()));
            goes_on(&mut join, step + 1, &expected, &told);
        } else {
            assert_eq!(rows(join.table().unwrap()), expected[before].1, "{told}");
            goes_on(&mut join, FAULTY, &expected, &told);
            drop(join);
            let join = opened_again(&state, &told);
            assert_eq!(rows(join.table().unwrap()), expected.last().unwrap().1, "{told}");
        }
        met.push(operation);
    }
    panic!("it never comes to its end");
}

fn assert_met(met: &[String]) {
    assert!(!met.is_empty());
    for name in ["create", "write", "sync", "rename"] {
        let is_met = met.iter().any(|operation| operation == name);
        assert!(is_met || !are_all(), "no {name} among {met:?}");
    }
}

fn faulty_step(join: &mut Join, context: &Context) -> Result<()> {
    let merges = |join: &Join| stats(join)["merges"].as_u64().unwrap();
    let before = merges(join);
    apply(join, FAULTY, context)?;
    assert!(merges(join) > before, "no run is merged in the step");
    Ok(())
}

#[test]
fn any_write_of_a_step_may_fail_and_the_step_be_given_again() {
    assert_met(&fail_everywhere("step", false, faulty_step, FAULTY + 1));
}

#[test]
fn all_writes_may_fail_from_any_on_and_the_state_be_opened_again() {
    assert_met(&fail_everywhere("step-lasts", true, faulty_step, FAULTY + 1));
}

#[test]
fn any_write_of_a_compaction_may_fail() {
    for (name, lasts) in [("compact", false), ("compact-lasts", true)] {
        assert_met(&fail_everywhere(name, lasts, Join::compact, FAULTY));
    }
}

#[test]
fn any_write_of_a_snapshot_may_fail_and_it_be_written_again() {
    let (folder, expected) = (Folder::new("snapshot"), expected());
    prepared(&folder.path("state"));
    let join = Join::restore(&options(&folder.path("state")), None, &good()).unwrap();
    let (copy, before) = (folder.path("copy"), usize::try_from(FAULTY).unwrap() - 1);
    for at in operations() {
        let (context, failed) = faulty(Fault { at, lasts: false });
        let outcome = join.snapshot(copy.to_str().unwrap(), &context);
        let is_done = failed.lock().unwrap().is_none();
        if !is_done {
            check_error(&outcome.unwrap_err(), &format!("snapshot {at}"));
            join.snapshot(copy.to_str().unwrap(), &good()).unwrap();
        }
        let mut copied = opened_again(&copy, "the copy");
        assert_eq!(rows(copied.table().unwrap()), expected[before].1, "{at}");
        goes_on(&mut copied, FAULTY, &expected, "the copy");
        drop(copied);
        std::fs::remove_dir_all(&copy).unwrap();
        if is_done {
            return;
        }
    }
    panic!("it never comes to its end");
}
