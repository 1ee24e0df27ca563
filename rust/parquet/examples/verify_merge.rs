//! Checks that merged files are sorted, do not overlap, and have exactly the rows of their sources,
//! before somebody deletes the sources.
//!
//! ```text
//! cargo run --example verify_merge -- MERGED SOURCES SORT_BY
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what it found")]

use std::env;
use std::process::ExitCode;

use plait_core::{Error, Kind, Result};
use plait_parquet::{Context, VerifyOptions, verify};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [merged, sources, sort_by] = arguments.as_slice() else {
        return Err(Error::new(
            Kind::InvalidArgument,
            "usage: verify_merge MERGED SOURCES SORT_BY",
        ));
    };
    let options = VerifyOptions {
        files: vec![merged.clone()],
        against: Some(vec![sources.clone()]),
        sort_by: Some(sort_by.clone()),
        ..VerifyOptions::default()
    };
    let report = verify(&options, &Context::new(256_000_000))?;
    println!("{report}");
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
