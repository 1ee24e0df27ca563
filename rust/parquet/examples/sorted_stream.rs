//! Reads the sorted Parquet files of a folder as one sorted stream of record batches, on one
//! thread, without writing a file.
//!
//! ```text
//! cargo run --example sorted_stream -- FOLDER SORT_BY
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what it read")]

use std::collections::BTreeMap;
use std::env;

use plait_core::key::SortOrder;
use plait_core::plan::DropOptions;
use plait_core::stream::{Alone, MergeStream, MergeStreamOptions, Unite};
use plait_core::{Error, Kind, Result};
use plait_parquet::{Context, Stores, open_files};

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, sort_by] = arguments.as_slice() else {
        return Err(Error::new(Kind::InvalidArgument, "usage: sorted_stream FOLDER SORT_BY"));
    };
    let context = Context::new(256_000_000);
    let stores = Stores::try_new(&BTreeMap::new(), &context)?;
    let options = MergeStreamOptions {
        order: SortOrder::try_parse(sort_by)?,
        batch_rows: 8_192,
        assume_sorted: false,
        unite: Unite::default(),
        drops: DropOptions::default(),
    };
    let files = open_files(std::slice::from_ref(folder), options.batch_rows, &stores, &context)?;
    let sources = files.into_iter().flatten().collect();
    let mut rows = 0;
    for batch in MergeStream::try_new(sources, &options, Box::new(Alone))? {
        rows += batch.map_err(Error::from_arrow)?.num_rows();
    }
    println!("{rows} rows, sorted by {}", options.order);
    Ok(())
}
