//! Answers to requests that nobody waits for, until someone takes them.
//!
//! ```text
//! driver thread ── Arrival::send ──▶ Arrivals ── take ──▶ windows
//!                                     └ wait: until there is another one
//! ```
//!
//! # Invariants
//! Each request gives one answer, whatever becomes of it. Only bytes are held here, nothing that
//! leads to the driver: the driver thread drops the last of them without waiting for itself.
//!
//! # Not here
//! Where the bytes go (`windows`).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

/// Which window bytes are for: the file, and where in it they begin.
pub(super) type WindowKey = (u64, u64);

/// Answers that wait.
#[derive(Default)]
pub(super) struct Arrivals {
    waiting: Mutex<Answers>,
    changed: Condvar,
}

#[derive(Default)]
struct Answers {
    /// How many there were so far.
    count: u64,
    answers: Vec<(WindowKey, Option<Bytes>)>,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the answers that are here; also gives how many there were so far.
    pub(super) fn take(&self) -> (Vec<(WindowKey, Option<Bytes>)>, u64) {
        let mut waiting = self.lock();
        (std::mem::take(&mut waiting.answers), waiting.count)
    }

    /// Waits until there were more than `count`, not longer than `most`.
    pub(super) fn wait(&self, count: u64, most: Duration) {
        let waiting = self.lock();
        let is_same = |waiting: &mut Answers| waiting.count == count;
        drop(self.changed.wait_timeout_while(waiting, most, is_same));
    }
}

/// The answer to one request, which is still out: none, if this is dropped.
pub(super) struct Arrival {
    to: Arc<Arrivals>,
    key: WindowKey,
    bytes: Option<Bytes>,
}

impl Arrival {
    /// An answer for the window `key`.
    pub(super) fn new(to: &Arc<Arrivals>, key: WindowKey) -> Self {
        Self { to: Arc::clone(to), key, bytes: None }
    }

    /// Answers.
    pub(super) fn send(mut self, bytes: Option<Bytes>) {
        self.bytes = bytes;
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut waiting = self.to.lock();
        waiting.count += 1;
        waiting.answers.push((self.key, self.bytes.take()));
        drop(waiting);
        self.to.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_gives_one_answer() {
        let arrivals = Arc::new(Arrivals::default());
        let (sent, dropped) = (Arrival::new(&arrivals, (1, 0)), Arrival::new(&arrivals, (1, 9)));
        assert_eq!(arrivals.take(), (vec![], 0));
        arrivals.wait(0, Duration::from_millis(1));
        let sender = std::thread::spawn(move || sent.send(Some(Bytes::from_static(b"abc"))));
        arrivals.wait(0, Duration::from_secs(60));
        sender.join().unwrap();
        drop(dropped);
        let (answers, count) = arrivals.take();
        assert_eq!(answers, [((1, 0), Some(Bytes::from_static(b"abc"))), ((1, 9), None)]);
        assert_eq!(count, 2);
    }
}
