//! Log messages of a call while it runs, until the caller's thread takes them.
//!
//! ```text
//! engine's threads ── record ──▶ waiting events ◀── take, 20 times a second ── caller's thread
//! ```
//!
//! # Invariants
//! No thread of the engine waits for the caller's. Messages are formatted only if their level is
//! enabled. Memory is bounded: at most [`WAITING_MAX`] events wait, the others are counted.
//!
//! # Cost
//! One relaxed load for an event of a disabled level, a lock and a text for the others. Events are
//! of outputs, failing requests and files; never of rows or pages.
//!
//! # Not here
//! Where events go (`plait-py`, `python/plait/_observe.py`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many events wait at most.
const WAITING_MAX: usize = 1_000;

/// The level of an event; the numbers are those of Python's `logging`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Helps to find the cause of a problem.
    Debug = 10,
    /// Worth a line in a log.
    Info = 20,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its level, a number of Python's `logging`.
    pub level: u8,
    /// The part of the engine, such as `store`.
    pub part: &'static str,
    /// What happened.
    pub text: String,
}

/// The events of one call.
#[derive(Default)]
pub(crate) struct Events {
    /// The lowest enabled level; 0 when none is.
    level: AtomicUsize,
    waiting: Mutex<WaitingEvents>,
}

#[derive(Default)]
struct WaitingEvents {
    events: Vec<Event>,
    lost: usize,
}

impl Events {
    /// Enables events of `level` (a number of Python's `logging`) and above.
    pub(crate) fn listen(&self, level: usize) {
        self.level.store(level, Ordering::Relaxed);
    }

    /// Records an event if its level is enabled.
    pub(crate) fn record(&self, level: Level, part: &'static str, text: impl FnOnce() -> String) {
        let least = self.level.load(Ordering::Relaxed);
        if least == 0 || (level as usize) < least {
            return;
        }
        let event = Event { level: level as u8, part, text: text() };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.events.len() < WAITING_MAX {
            true => waiting.events.push(event),
            false => waiting.lost += 1,
        }
    }

    /// Takes the events that wait, in the order in which they were recorded.
    pub(crate) fn take(&self) -> Vec<Event> {
        if self.level.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let WaitingEvents { mut events, lost } = std::mem::take(&mut *waiting);
        if lost > 0 {
            let text = format!("{lost} more events came faster than they were taken");
            events.push(Event { level: Level::Info as u8, part: "events", text });
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_too_fast_is_counted() {
        let events = Events::default();
        events.listen(10);
        for n in 0..WAITING_MAX + 7 {
            events.record(Level::Debug, "store", || n.to_string());
        }
        let taken = events.take();
        assert_eq!(taken.len(), WAITING_MAX + 1);
        assert_eq!(taken[WAITING_MAX].text, "7 more events came faster than they were taken");
        assert!(events.take().is_empty());
    }

    #[test]
    fn messages_are_formatted_only_at_levels_that_are_kept() {
        let events = Events::default();
        events.record(Level::Info, "merge", || unreachable!("no level is kept"));
        events.listen(20);
        events.record(Level::Info, "merge", || "done".to_owned());
        events.record(Level::Debug, "merge", || unreachable!("the level is too low"));
        assert_eq!(events.take()[0].text, "done");
        assert!(events.take().is_empty());
    }
}
