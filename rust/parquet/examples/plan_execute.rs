//! Plans a merge, then executes its tasks one by one, as processes on several machines would: each
//! task makes one output and needs only the plan, which is JSON.
//!
//! ```text
//! cargo run --example plan_execute -- FOLDER OUT SORT_BY OUTPUTS
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what it did")]

use std::env;

use plait_core::{Error, Kind, Result};
use plait_parquet::{Context, ExecuteOptions, MergeOptions, execute, plan};

const MEMORY_LIMIT: usize = 256_000_000;

fn main() -> Result<()> {
    let usage =
        || Error::new(Kind::InvalidArgument, "usage: plan_execute FOLDER OUT SORT_BY OUTPUTS");
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, out, sort_by, outputs] = arguments.as_slice() else { return Err(usage()) };
    let options = MergeOptions {
        sources: vec![folder.clone()],
        out: out.clone(),
        sort_by: Some(sort_by.clone()),
        outputs: Some(outputs.parse().map_err(|e| usage().with_cause(e))?),
        memory_limit: MEMORY_LIMIT as u64,
        ..MergeOptions::default()
    };
    let plan = plan(&options, &Context::new(MEMORY_LIMIT))?;
    println!("{plan}");
    let json = plan.to_json()?;
    for task in &plan.tasks {
        let options = ExecuteOptions {
            plan: json.clone(),
            out: out.clone(),
            tasks: Some(vec![task.index]),
            memory_limit: MEMORY_LIMIT as u64,
            ..ExecuteOptions::default()
        };
        println!("task {}: {}", task.index, execute(&options, &Context::new(MEMORY_LIMIT))?);
    }
    Ok(())
}
