//! The threads of one merge: there when it starts, joined before it returns.
//!
//! # Invariants
//! No thread outlives its pool. rayon only asks its threads to end; a process that forks meanwhile
//! (Spark's worker daemon does) would copy one that may hold the allocator's lock. So the handles
//! are kept and joined.
//!
//! # Not here
//! What the threads do (`sink`).

use std::thread::{Builder, JoinHandle};

use plait_core::{Error, Kind, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads that end with this value.
pub(crate) struct Pool {
    pool: Option<ThreadPool>,
    handles: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `threads` threads; none when one is asked for.
    ///
    /// # Errors
    /// [`Kind::Storage`] when the system has no more threads to give.
    pub(crate) fn new(threads: usize) -> Result<Option<Self>> {
        if threads <= 1 {
            return Ok(None);
        }
        let mut handles = Vec::new();
        let built = ThreadPoolBuilder::new()
            .num_threads(threads)
            .spawn_handler(|thread| {
                let name = format!("plait-{}", thread.index());
                handles.push(Builder::new().name(name).spawn(|| thread.run())?);
                Ok(())
            })
            .build();
        match built {
            Ok(pool) => Ok(Some(Self { pool: Some(pool), handles })),
            Err(e) => {
                join(&mut handles);
                Err(Error::new(Kind::Storage, "cannot start threads")
                    .with_hint("pass threads=1")
                    .with_cause(e))
            }
        }
    }

    /// The threads.
    pub(crate) fn threads(&self) -> Option<&ThreadPool> {
        self.pool.as_ref()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.pool.take());
        join(&mut self.handles);
    }
}

fn join(handles: &mut Vec<JoinHandle<()>>) {
    for handle in handles.drain(..) {
        // A panic was reported by whoever waited for the work.
        let _ = handle.join();
    }
}
