//! Every operation on storage is made to fail in turn, and the overlay of files to stop at every
//! one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use plait_core::Kind;
use plait_parquet::{Context, JsonCall, Stores};
use serde_json::{Value, json};
use support::{Folder, names, read_keys, write};

/// More operations than any overlay here has.
const OPERATIONS_MAX: usize = 2_000;

fn fail_everywhere(name: &str, rows_per_group: usize, check: &str) {
    let folder = Folder::new(name);
    let keys: Vec<i64> = (0..40).collect();
    write(&folder.path("base.parquet"), &keys, 20, 10);
    write(&folder.path("patch.parquet"), &keys, 30, rows_per_group);
    let layer = |file: &str, paths: Option<[&str; 1]>| json!({"name": file, "paths": paths, "precedence": 0, "files": [folder.text(file)]});
    let options = json!({
        "overlay": {
            "layers": [layer("base.parquet", None), layer("patch.parquet", Some(["s"]))],
            "index": "k",
            "row_number": null,
            "struct_validity": "any",
            "check_unused": true,
        },
        "out": folder.text("out/o.parquet"),
        "check": check,
        "copy_tiers": ["chunk", "page", "dict"],
        "memory_limit": 64_000_000,
    })
    .to_string();
    let out = folder.path("out");
    let mut met = Vec::new();
    for n in 0..OPERATIONS_MAX {
        let count = AtomicUsize::new(0);
        let operation: Arc<Mutex<Option<String>>> = Arc::default();
        let seen = Arc::clone(&operation);
        let fault = move |operation: &str| {
            if count.fetch_add(1, Ordering::SeqCst) == n {
                *seen.lock().unwrap() = Some(operation.to_owned());
                return Err(io::Error::new(io::ErrorKind::StorageFull, "no space, says a test"));
            }
            Ok(())
        };
        let context = Context::with_faults(64_000_000, Box::new(fault));
        let call = |stores| JsonCall::OverlayFiles.run(options.clone(), &stores, &context);
        let outcome = Stores::try_new(&Default::default(), &context).and_then(call);
        assert_eq!(context.held_bytes(), 0, "memory is still accounted");
        let Some(operation) = operation.lock().unwrap().take() else {
            let report: Value = serde_json::from_str(&outcome.unwrap().0).unwrap();
            let number = |name: &str| report[name].as_u64().unwrap();
            // The row groups are those of the layer that supplies most bytes, the patch.
            let groups = 40_u64.div_ceil(rows_per_group as u64);
            assert_eq!((number("rows"), number("row_groups")), (40, groups));
            assert_eq!(names(&out), ["o.parquet"]);
            assert_eq!(read_keys(&out.join("o.parquet")), keys);
            for name in ["read", "mkdir", "create", "write", "sync", "rename"] {
                assert!(met.iter().any(|o| o == name), "no {name} among {met:?}");
            }
            return;
        };
        let e = outcome.err().unwrap_or_else(|| panic!("{operation} {n} failed unnoticed"));
        assert_eq!(e.kind(), Kind::Storage, "{operation} {n}: {e}");
        assert!(e.to_string().contains("no space, says a test"), "{operation} {n}: {e}");
        assert!(e.path().is_some(), "{operation} {n} names no file: {e}");
        if out.exists() {
            // Only making the rename durable comes after the file is visible, and then it is whole.
            assert_eq!(operation, "sync", "{n}");
            assert_eq!(names(&out), ["o.parquet"]);
            assert_eq!(read_keys(&out.join("o.parquet")), keys);
            std::fs::remove_dir_all(&out).unwrap();
        }
        met.push(operation);
    }
    panic!("the overlay never comes to its end");
}

#[test]
fn any_operation_may_fail_while_chunks_are_copied() {
    fail_everywhere("overlay-chunks", 10, "upfront");
}

#[test]
fn any_operation_may_fail_while_pages_are_copied() {
    fail_everywhere("overlay-pages", 7, "after");
}
