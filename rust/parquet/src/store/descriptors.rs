//! Descriptors of local files that stay open between reads.
//!
//! ```text
//! held   a b c … z      full: the one that was opened first is closed, and opened when it is read
//! ```
//!
//! # Invariants
//! The process holds at most [`HELD_FILES_MAX`] of them, but for those that a thread reads from.
//!
//! # Cost
//! A lock per read. A merge reads few of its files at a time: each is opened once or twice, however
//! many there are.
//!
//! # Not here
//! Whether a file that is opened again is the same (`local`).

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// How many descriptors readers may hold; the usual limit of a process is 1,024.
pub(super) const HELD_FILES_MAX: usize = 512;

/// Descriptors that are open, up to a number, each in a slot that is part of an `R`.
pub(super) struct Descriptors<R> {
    /// Those that hold one, in the order in which they opened it; some are gone.
    holders: Mutex<VecDeque<Weak<R>>>,
    most: usize,
}

/// The descriptor of one reader, if it is open.
#[derive(Default)]
pub(super) struct DescriptorSlot(Mutex<Option<Arc<File>>>);

impl<R: AsRef<DescriptorSlot>> Descriptors<R> {
    pub(super) const fn new(most: usize) -> Self {
        Self { holders: Mutex::new(VecDeque::new()), most }
    }

    /// Keeps `file` open for `reader`, instead of the one that was opened first if there are too many.
    pub(super) fn hold(&self, reader: &Arc<R>, file: Arc<File>) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if holders.len() >= self.most {
            holders.retain(|holder| holder.strong_count() > 0);
        }
        while holders.len() >= self.most
            && let Some(first) = holders.pop_front()
        {
            if let Some(first) = first.upgrade() {
                (*first).as_ref().close();
            }
        }
        holders.push_back(Arc::downgrade(reader));
        *(**reader).as_ref().lock() = Some(file);
    }
}

impl DescriptorSlot {
    /// The file, if it is open.
    pub(super) fn file(&self) -> Option<Arc<File>> {
        self.lock().clone()
    }

    /// Closes it.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<File>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl AsRef<DescriptorSlot> for DescriptorSlot {
        fn as_ref(&self) -> &DescriptorSlot {
            self
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any file will do")]
    fn the_files_that_were_opened_last_are_held() {
        let descriptors = Descriptors::<DescriptorSlot>::new(3);
        let file = || Arc::new(File::open(std::env::current_exe().unwrap()).unwrap());
        let places: Vec<Arc<DescriptorSlot>> = (0..5).map(|_| Arc::default()).collect();
        let held = || -> Vec<bool> { places.iter().map(|place| place.file().is_some()).collect() };
        places.iter().for_each(|place| descriptors.hold(place, file()));
        assert_eq!(held(), [false, false, true, true, true]);
        descriptors.hold(&places[0], file());
        assert_eq!(held(), [true, false, false, true, true]);
        // The first of these takes a place; places that are gone make room for the others.
        (0..5).for_each(|_| descriptors.hold(&Arc::default(), file()));
        assert_eq!(held(), [true, false, false, false, true]);
        descriptors.hold(&places[1], file());
        assert_eq!(held(), [true, true, false, false, true]);
        assert_eq!(descriptors.holders.lock().unwrap().len(), 3);
    }
}
