//! Every operation on storage is made to fail in turn, and the merge to stop at every one.
//!
//! ```text
//! n        0      1      2      …   fails or cancels
//! merge    read   read   mkdir  create  write  spill  sync  rename   all there: the loop ends
//! ```

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use plait_core::{Kind, Result};
use plait_parquet::Verify;
use plait_parquet::merge;
use plait_parquet::{Context, MergeOptions, MergeReport};
use support::{Folder, names, read_keys, write};

/// More operations than any merge here has.
const OPERATIONS_MAX: usize = 5_000;

/// What the merge of one test reads and writes.
struct Bench {
    folder: Folder,
    options: MergeOptions,
    keys: Vec<i64>,
}

impl Bench {
    /// Three sources, interleaved at first, then one that is alone.
    fn new(name: &str, text_bytes: usize, change: impl Fn(&mut MergeOptions)) -> Self {
        let folder = Folder::new(name);
        let runs: [Vec<i64>; 3] =
            [(0..40).step_by(2).collect(), (1..40).step_by(2).collect(), (40..60).collect()];
        let mut sources = Vec::new();
        for (i, keys) in runs.iter().enumerate() {
            let name = format!("{i}.parquet");
            write(&folder.path(&name), keys, text_bytes, 10);
            sources.push(folder.text(&name));
        }
        let mut options = MergeOptions {
            sources,
            out: folder.text("out"),
            sort_by: Some("k".to_owned()),
            outputs: Some(3),
            row_group_rows: 16,
            page_rows: 8,
            threads: Some(1),
            memory_limit: 16_000_000,
            ..MergeOptions::default()
        };
        change(&mut options);
        Self { folder, options, keys: (0..60).collect() }
    }

    fn out(&self) -> PathBuf {
        self.folder.path("out")
    }

    /// Merges while `fault` is asked before each operation, with the number of operations so far.
    fn merge(
        &self,
        fault: impl Fn(usize, &str, &Context) -> io::Result<()> + Send + Sync + 'static,
    ) -> (Result<MergeReport>, usize) {
        let count = Arc::new(AtomicUsize::new(0));
        let own: Arc<OnceLock<Context>> = Arc::default();
        let (counted, known) = (Arc::clone(&count), Arc::clone(&own));
        let context = Context::with_faults(
            usize::try_from(self.options.memory_limit).unwrap(),
            Box::new(move |operation| {
                let n = counted.fetch_add(1, Ordering::SeqCst);
                known.get().map_or(Ok(()), |context| fault(n, operation, context))
            }),
        );
        own.set(context.clone()).ok().unwrap();
        let outcome = merge(&self.options, &context);
        assert_eq!(context.held_bytes(), 0, "memory is still accounted after the merge");
        (outcome, count.load(Ordering::SeqCst))
    }

    /// The keys of all visible files, which must be whole; there must be no other file.
    fn visible_keys(&self) -> Vec<i64> {
        let mut keys = Vec::new();
        for name in names(&self.out()) {
            if let Some(output) = name.strip_suffix(".rowmap").filter(|_| self.options.row_map) {
                let output = output.trim_start_matches('.');
                assert!(self.out().join(output).exists(), "{name} was left");
                continue;
            }
            assert!(name.starts_with("part-") && name.ends_with(".parquet"), "{name} was left");
            let map = self.out().join(format!(".{name}.rowmap"));
            assert_eq!(map.exists(), self.options.row_map, "the map of {name}");
            keys.extend(read_keys(&self.out().join(name)));
        }
        keys
    }

    /// Merges undisturbed over whatever is left, and takes everything away again.
    fn merge_again(&self) {
        let (outcome, _) = self.merge(|_, _, _| Ok(()));
        assert_eq!(outcome.unwrap().rows_out, 60);
        assert_eq!(self.visible_keys(), self.keys);
        std::fs::remove_dir_all(self.out()).unwrap();
    }

    /// Lets the n-th operation fail, for every n; and with `lasting`, all operations after it, too.
    fn fail_everywhere(&self, lasting: bool) -> Vec<String> {
        let mut failed = Vec::new();
        for n in 0..OPERATIONS_MAX {
            let operation: Arc<Mutex<Option<String>>> = Arc::default();
            let seen = Arc::clone(&operation);
            let (outcome, _) = self.merge(move |at, operation, _| {
                if at == n || lasting && at > n {
                    seen.lock().unwrap().get_or_insert_with(|| operation.to_owned());
                    return Err(io::Error::new(
                        io::ErrorKind::StorageFull,
                        "no space, says a test",
                    ));
                }
                Ok(())
            });
            let Some(operation) = operation.lock().unwrap().take() else {
                outcome.unwrap();
                assert_eq!(self.visible_keys(), self.keys);
                return failed;
            };
            let e = outcome.err().unwrap_or_else(|| panic!("{operation} {n} failed unnoticed"));
            assert_eq!(e.kind(), Kind::Storage, "{operation} {n}: {e}");
            assert!(e.to_string().contains("no space, says a test"), "{operation} {n}: {e}");
            assert!(e.path().is_some(), "{operation} {n} names no file: {e}");
            let keys = self.visible_keys();
            // Only renaming, and making the renames durable, come after the first visible file.
            assert!(
                keys.is_empty() || matches!(operation.as_str(), "rename" | "sync"),
                "{operation} {n} left files"
            );
            assert_eq!(self.out().exists(), !keys.is_empty(), "{operation} {n}: the folder");
            assert_eq!(keys, self.keys[..keys.len()], "{operation} {n}");
            if !keys.is_empty() {
                self.merge_again();
            }
            failed.push(operation);
        }
        panic!("the merge never comes to its end");
    }

    /// Cancels at the n-th operation, for every n.
    fn cancel_everywhere(&self) {
        let (mut cancelled, mut late) = (0, 0);
        for n in 0..OPERATIONS_MAX {
            let operation: Arc<Mutex<Option<String>>> = Arc::default();
            let seen = Arc::clone(&operation);
            let (outcome, _) = self.merge(move |at, operation, context| {
                if at == n {
                    *seen.lock().unwrap() = Some(operation.to_owned());
                    context.cancel();
                }
                Ok(())
            });
            let operation = operation.lock().unwrap().take();
            match outcome {
                Err(e) => {
                    assert_eq!(e.kind(), Kind::Cancelled, "{operation:?} {n}: {e}");
                    assert!(!self.out().exists(), "{operation:?} {n} left the folder");
                    cancelled += 1;
                }
                Ok(_) => {
                    assert_eq!(self.visible_keys(), self.keys);
                    let Some(operation) = operation else {
                        assert!(cancelled > 20 && late > 0, "{cancelled} cancelled, {late} late");
                        return;
                    };
                    // Too late: half of the files must not be published.
                    assert!(matches!(operation.as_str(), "rename" | "sync"), "{operation} {n}");
                    std::fs::remove_dir_all(self.out()).unwrap();
                    late += 1;
                }
            }
        }
        panic!("the merge never comes to its end");
    }
}

fn assert_met(operations: &[String], expected: &[&str]) {
    for name in expected {
        assert!(operations.iter().any(|o| o == name), "no {name} among {operations:?}");
    }
}

#[test]
fn any_operation_may_fail_once_while_rows_are_woven() {
    let bench = Bench::new("woven", 20, |o| o.copy_tiers.clear());
    let met = bench.fail_everywhere(false);
    assert_met(&met, &["read", "mkdir", "create", "write", "sync", "rename"]);
}

#[test]
fn any_operation_may_fail_once_while_row_groups_are_copied() {
    let bench = Bench::new("copied", 20, |_| ());
    let (outcome, _) = bench.merge(|_, _, _| Ok(()));
    assert!(outcome.unwrap().copied["chunk"].rows > 0, "nothing is copied in this test");
    std::fs::remove_dir_all(bench.out()).unwrap();
    bench.fail_everywhere(false);
}

#[test]
fn storage_may_fail_for_good_at_any_operation() {
    let bench = Bench::new("for-good", 20, |_| ());
    bench.fail_everywhere(true);
}

#[test]
fn any_operation_may_fail_while_contents_are_compared() {
    let bench = Bench::new("verified", 20, |o| {
        o.verify = Some(Verify::Content);
        o.sha256 = true;
    });
    bench.fail_everywhere(false);
}

#[test]
fn any_operation_may_fail_while_chunks_wait_on_disk() {
    // Chunks wait in half of the memory at most: 20 texts of 450 kB are too large for it.
    let bench = Bench::new("spilled", 450_000, |o| {
        o.row_group_rows = 20;
        o.copy_tiers.clear();
    });
    let met = bench.fail_everywhere(false);
    assert_met(&met, &["spill", "create", "write"]);
}

#[test]
fn any_operation_may_fail_while_row_maps_are_written() {
    let new = |name| {
        Bench::new(name, 20, |o| {
            o.row_map = true;
            o.copy_tiers.clear();
        })
    };
    let met = new("row-maps").fail_everywhere(false);
    assert_met(&met, &["read", "mkdir", "create", "write", "sync", "rename"]);
    new("row-maps-for-good").fail_everywhere(true);
}

#[test]
fn a_merge_stops_at_any_operation() {
    Bench::new("cancel-woven", 20, |o| o.copy_tiers.clear()).cancel_everywhere();
    Bench::new("cancel-copied", 20, |o| o.verify = Some(Verify::Content)).cancel_everywhere();
}

/// Two of the three tasks run at the same time.
fn together(options: &mut MergeOptions) {
    options.threads = Some(8);
    options.memory_limit = 512_000_000;
    options.copy_tiers.clear();
}

#[test]
fn any_operation_may_fail_while_tasks_run_at_the_same_time() {
    Bench::new("together", 20, together).fail_everywhere(false);
    Bench::new("together-for-good", 20, together).fail_everywhere(true);
}

#[test]
fn tasks_that_run_at_the_same_time_stop_at_any_operation() {
    Bench::new("cancel-together", 20, together).cancel_everywhere();
}
