//! Makes a file durable while it is written, so that little is left to wait for at its end.
//!
//! ```text
//! write write write write ...   sync
//!    └─ 16 MiB ─▶ sync_data         └─ waits for the thread, its error is the caller's
//! ```
//!
//! # Invariants
//! An error of the thread is given by [`Early::finish`]: the system reports it once, and not again
//! to whoever syncs the same file later. The thread ends with the file.
//!
//! # Cost
//! Bytes are sent to the disk once, as without it; the thread waits for the disk and does little
//! else.
//!
//! # Not here
//! The last sync, which is what makes a file durable ([`super::local`]).

use std::fs::File;
use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

/// Bytes that are written between two syncs.
const EVERY_BYTES: u64 = 16 << 20;

/// The bytes that were not synced yet, and the thread that syncs.
#[derive(Default)]
pub(super) struct Early {
    bytes: u64,
    worker: Option<Worker>,
    /// Whether the file is synced at its end only: there is no thread to be had.
    is_off: bool,
}

struct Worker {
    asks: SyncSender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl Early {
    /// Counts `bytes` more bytes of `file`, and has them synced if they are many.
    pub(super) fn wrote(&mut self, file: &File, bytes: u64) {
        self.bytes += bytes;
        if self.bytes < EVERY_BYTES || self.is_off {
            return;
        }
        self.bytes = 0;
        if self.worker.is_none() {
            self.worker = begin(file).ok();
            self.is_off = self.worker.is_none();
        }
        if let Some(worker) = &self.worker {
            // Whoever syncs still will take these bytes along, or the next ask will.
            let _ = worker.asks.try_send(());
        }
    }

    /// Ends the thread.
    ///
    /// # Errors
    /// What a sync failed with.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let Some(Worker { asks, thread }) = self.worker.take() else { return Ok(()) };
        drop(asks);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the syncing thread died")))
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

fn begin(file: &File) -> io::Result<Worker> {
    let file = file.try_clone()?;
    let (asks, asked) = mpsc::sync_channel(1);
    let thread = thread::Builder::new()
        .name("plait-sync".to_owned())
        .spawn(move || asked.iter().try_for_each(|()| file.sync_data()))?;
    Ok(Worker { asks, thread })
}
