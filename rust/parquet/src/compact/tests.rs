//! `expire` that fails at every one of its steps, on disks and in buckets: what a process leaves that
//! is killed there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use plait_core::{Kind, Result, SourceId};

use super::expire::{ExpireOptions, Expired, expire_in};
use crate::files::open_source;
use crate::folder::put_new;
use crate::runtime::Context;
use crate::store::root::tests::{Twins, twins};
use crate::store::root::{Root, is_name};
use crate::store::table::{Made, Manifest, Replaced};
use crate::store::{Stores, Wanted};

const MADE: [&str; 2] = ["_plait/files/part-0-x.parquet", "_plait/files/d=1/part-0-y.parquet"];
const SHOWN: [&str; 2] = ["b.part-0-x.parquet", "d=1/c.part-0-y.parquet"];

/// Two groups of which each has replaced something, as far as a folder knows of files by names.
fn compacted(root: &Root, stores: &Stores, context: &Context) {
    for name in root.names("", true).unwrap() {
        root.remove(&name).unwrap();
    }
    let put = |name: &str, bytes: &[u8]| {
        assert!(is_name(name) && put_new(root, name, bytes, stores, context).unwrap());
    };
    for name in ["a.parquet", "b.parquet", "d=1/c.parquet", MADE[0], MADE[1]] {
        put(name, name.as_bytes());
    }
    let made = |path: &str, place: &str, group| Made {
        path: path.into(),
        place: place.into(),
        to: None,
        group,
    };
    let gone = |path: &str, group| Replaced {
        path: path.into(),
        since: 1.0,
        footer: String::new(),
        group,
    };
    let manifest = Manifest {
        number: 1,
        files: vec![made(MADE[0], "b.parquet", 1), made(MADE[1], "d=1/c.parquet", 2)],
        replaced: vec![gone("a.parquet", 1), gone("b.parquet", 1), gone("d=1/c.parquet", 2)],
        ..Manifest::none()
    };
    put("_plait/manifest-00000001.json", &serde_json::to_vec(&manifest).unwrap());
}

fn expired(root: &Root, stores: &Stores, context: &Context, swap: Option<&str>) -> Result<Expired> {
    let swap = swap.map(str::to_owned);
    let options =
        ExpireOptions { folder: root.location(""), yes: true, swap, ..Default::default() };
    expire_in(&options, stores, context)
}

/// The same by a process that ends at one of its steps; whether it came to its end.
fn killed(root: &Root, stores: &Stores, swap: Option<&str>, step: usize) -> bool {
    let left = AtomicUsize::new(step);
    let fault = move |_: &str| {
        assert!(left.fetch_sub(1, Ordering::Relaxed) != 0, "killed");
        Ok(())
    };
    let faulty = Context::with_faults(1 << 24, Box::new(fault));
    let call = AssertUnwindSafe(|| expired(root, stores, &faulty, swap).unwrap());
    catch_unwind(call).is_ok()
}

/// What those who read manifests read: each file that counts once, by what is in it.
fn read(root: &Root, stores: &Stores) -> Vec<String> {
    let listed = stores.list(&[format!("{}/", root.location(""))], Wanted::Parquet).unwrap();
    let text = |location: &String| {
        let file = stores.open(location).unwrap();
        String::from_utf8(file.read(0..file.len()).unwrap().to_vec()).unwrap()
    };
    listed.iter().map(text).collect()
}

/// Kills `expire` at every step, and checks what is left, and that the next one ends it.
fn kill_at_every_step(
    root: &Root,
    stores: &Stores,
    context: &Context,
    swap: Option<&str>,
) -> usize {
    for steps in 0.. {
        compacted(root, stores, context);
        let is_whole = killed(root, stores, swap, steps);
        assert_eq!(read(root, stores), MADE, "step {steps}");
        // Who listed before still finds what it listed.
        for name in MADE {
            assert_eq!(stores.open(&root.location(name)).unwrap().len(), name.len() as u64);
        }
        expired(root, stores, context, None).unwrap();
        let names = root.names("", true).unwrap();
        let parquet: Vec<_> = names.iter().filter(|n| n.ends_with(".parquet")).collect();
        assert_eq!(parquet, SHOWN, "step {steps}");
        assert_eq!(read(root, stores), MADE, "step {steps}");
        let manifest = Manifest::newest(root).unwrap();
        assert!(manifest.replaced.is_empty() && manifest.exchange.is_none());
        assert!(manifest.files.iter().all(|made| made.to.is_none()));
        if is_whole {
            return steps;
        }
    }
    0
}

#[test]
fn every_step_of_expire_leaves_each_live_file_once_and_the_next_one_ends_it() {
    let Twins { dir, roots } = twins("steps");
    for (root, stores, context) in roots {
        let steps = kill_at_every_step(&root, &stores, &context, None);
        assert!(steps >= 8, "{steps} steps");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_folder_that_is_exchanged_is_the_old_or_the_new_one_at_every_step() {
    let Twins { dir, roots } = twins(&format!("swaps-{}/events", std::process::id()));
    for (root, stores, context) in roots {
        let id = Some("0123456789abcdef");
        if matches!(root, Root::Objects(_)) {
            compacted(&root, &stores, &context);
            let e = expired(&root, &stores, &context, id).err().unwrap();
            assert_eq!(e.kind(), Kind::Unsupported);
            assert_eq!(Manifest::newest(&root).unwrap().number, 1, "before any work");
            continue;
        }
        let steps = kill_at_every_step(&root, &stores, &context, id);
        assert!(steps > 6, "{steps} steps");
        let around = dir.parent().unwrap();
        assert_eq!(std::fs::read_dir(around).unwrap().count(), 1, "nothing is left beside it");
    }
    std::fs::remove_dir_all(dir.parent().unwrap()).unwrap();
}

#[test]
fn a_visible_file_stays_until_what_holds_its_rows_may_be_seen() {
    let Twins { dir, roots } = twins("waits");
    for (root, stores, context) in roots {
        compacted(&root, &stores, &context);
        let mut manifest = Manifest::newest(&root).unwrap();
        manifest.number = 2;
        manifest.replaced[1].since = 1e12;
        let text = serde_json::to_vec(&manifest).unwrap();
        assert!(put_new(&root, "_plait/manifest-00000002.json", &text, &stores, &context).unwrap());
        let done = expired(&root, &stores, &context, None).unwrap();
        assert_eq!(done.waiting, ["a.parquet"]);
        assert_eq!(
            (done.replaced, done.shown),
            (vec!["d=1/c.parquet".into()], vec![SHOWN[1].into()])
        );
        assert!(root.look("a.parquet").unwrap().is_some() && root.look(MADE[0]).unwrap().is_some());
        assert_eq!(read(&root, &stores), MADE);
        // People may remove visible files.
        root.remove(SHOWN[1]).unwrap();
        assert_eq!(read(&root, &stores), [MADE[0]]);
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// A Parquet file with one row.
fn parquet(value: i64) -> Vec<u8> {
    let array: ArrayRef = Arc::new(Int64Array::from(vec![value]));
    let batch = RecordBatch::try_from_iter([("k", array)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn a_file_that_is_touched_while_expire_runs_goes_and_one_that_is_overwritten_stays() {
    let Twins { dir, roots } = twins("touched");
    for (root, stores, context) in roots {
        for (is_other, left) in [(false, vec![]), (true, vec!["a.parquet"])] {
            compacted(&root, &stores, &context);
            let put = {
                let (root, stores, context) = (root.clone(), stores.clone(), context.clone());
                move |name: &str, bytes: &[u8]| {
                    root.remove(name).unwrap();
                    assert!(put_new(&root, name, bytes, &stores, &context).unwrap());
                }
            };
            put("a.parquet", &parquet(1));
            let source = open_source(&root.location("a.parquet"), SourceId(0), &stores, &context);
            let mut manifest = Manifest::newest(&root).unwrap();
            manifest.number = 2;
            manifest.replaced[0].footer = source.unwrap().footer_text();
            put("_plait/manifest-00000002.json", &serde_json::to_vec(&manifest).unwrap());
            // The first link is made after files were looked at, and before one is removed.
            let links = AtomicUsize::new(0);
            let steps = Box::new(move |step: &str| {
                if step == "link" && links.fetch_add(1, Ordering::Relaxed) == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    put("a.parquet", &parquet(1 + i64::from(is_other)));
                }
                Ok(())
            });
            let touched = Context::with_faults(1 << 24, steps);
            expired(&root, &stores, &touched, None).unwrap();
            let names = root.names("", true).unwrap();
            let names: Vec<_> = names.iter().filter(|name| name.ends_with("a.parquet")).collect();
            assert_eq!(names, left);
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
}
