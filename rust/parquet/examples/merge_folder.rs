//! Merges the sorted Parquet files of a folder into files of about 128 MB whose key ranges do not
//! overlap.
//!
//! ```text
//! cargo run --example merge_folder -- FOLDER OUT SORT_BY
//! cargo run --example merge_folder -- events/ merged/ 'user_id, timestamp desc'
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what it did")]

use std::env;

use plait_core::{Error, Kind, Result};
use plait_parquet::{Context, MergeOptions, merge};

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, out, sort_by] = arguments.as_slice() else {
        return Err(Error::new(Kind::InvalidArgument, "usage: merge_folder FOLDER OUT SORT_BY"));
    };
    let options = MergeOptions {
        sources: vec![folder.clone()],
        out: out.clone(),
        sort_by: Some(sort_by.clone()),
        target_file_size: Some(128_000_000),
        memory_limit: 256_000_000,
        ..MergeOptions::default()
    };
    let report = merge(&options, &Context::new(256_000_000))?;
    println!("{report}");
    for output in &report.outputs {
        println!("{}: {} rows, {} bytes", output.path, output.rows, output.bytes);
    }
    Ok(())
}
