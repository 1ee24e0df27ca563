//! What every call needs while it runs, whatever it does.
//!
//! ```text
//! Context ─┬─ cancel     the caller wants the call to stop
//!          ├─ account    bytes held now, and at the most
//!          ├─ buffers    page buffers that wait for the next page
//!          ├─ counters   bytes read, rows written, the stage: Progress
//!          ├─ faults     operations that a test makes fail
//!          └─ events     log messages that wait for the caller's thread
//!
//! budget     every share of the memory limit
//! pool       threads that stay for one merge        workers    threads that stay for one piece of work
//! ```
//!
//! # Invariants
//! Nothing here knows Parquet, files or rows.

mod account;
mod budget;
mod buffers;
mod cancel;
mod context;
mod events;
mod faults;
mod pool;
mod progress;
mod workers;

pub use account::Charge;
pub(crate) use budget::{Budget, MemoryStage, MergeSizes, ReaderSizes, ScanSizes, TaskShares};
pub use context::Context;
pub use events::Event;
pub(crate) use events::Level;
pub(crate) use pool::Pool;
pub use progress::Progress;
pub(crate) use progress::Stage;
pub(crate) use workers::{ScopedWorkers, threads_or_cores};
