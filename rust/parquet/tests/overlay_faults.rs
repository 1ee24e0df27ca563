//! Every operation on storage is made to fail in turn, and the overlay of files to stop at every
//! one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use plait_core::Kind;
use plait_parquet::Context;
use plait_parquet::Tier;
use plait_parquet::overlay_files;
use plait_parquet::{
    Check, LayerOptions, MarkOption, OverlayFilesOptions, OverlayOptions, PathOption,
};
use support::{Folder, names, read_keys, write};

/// More operations than any overlay here has.
const OPERATIONS_MAX: usize = 2_000;

fn fail_everywhere(name: &str, rows_per_group: usize, check: Check) {
    let folder = Folder::new(name);
    let keys: Vec<i64> = (0..40).collect();
    write(&folder.path("base.parquet"), &keys, 20, 10);
    write(&folder.path("patch.parquet"), &keys, 30, rows_per_group);
    let layer = |file: &str, paths: Option<Vec<PathOption>>| LayerOptions {
        name: file.to_owned(),
        paths,
        precedence: 0,
        files: vec![folder.text(file)],
    };
    let owned = vec![PathOption::Text("s".to_owned())];
    let options = OverlayFilesOptions {
        overlay: OverlayOptions {
            layers: vec![layer("base.parquet", None), layer("patch.parquet", Some(owned))],
            index: Some(MarkOption::Name("k".to_owned())),
            row_number: None,
            struct_validity: "any".to_owned(),
            check_unused: true,
            batch_rows: None,
        },
        out: folder.text("out/o.parquet"),
        check,
        copy_tiers: vec![Tier::Chunk, Tier::Page, Tier::Dict],
        memory_limit: 64_000_000,
        storage_options: Default::default(),
    };
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
        let outcome = overlay_files(&options, &context);
        assert_eq!(context.held_bytes(), 0, "memory is still accounted");
        let Some(operation) = operation.lock().unwrap().take() else {
            let report = outcome.unwrap();
            // The row groups are those of the layer that supplies most bytes, the patch.
            assert_eq!((report.rows, report.row_groups), (40, 40_usize.div_ceil(rows_per_group)));
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
    fail_everywhere("overlay-chunks", 10, Check::Upfront);
}

#[test]
fn any_operation_may_fail_while_pages_are_copied() {
    fail_everywhere("overlay-pages", 7, Check::After);
}
