//! Descriptors of local files that stay open between reads.
//!
//! ```text
//! file 0 16 32 …   a b c … z    full: the one that was opened first is closed, and opened when it
//! file 1 17 33 …   a b c …      is read
//! ```
//!
//! # Invariants
//! The process holds at most [`HELD_FILES_MAX`] of them, but for those that a thread reads from.
//!
//! # Cost
//! Eight bytes a file: there may be a million. A read takes a lock that files share in sixteen
//! groups, and looks at 32 numbers. A merge reads few of its files at a time: each is opened once
//! or twice, however many there are.
//!
//! # Not here
//! Whether a file that is opened again is the same (`local`).

use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many descriptors readers may hold; the usual limit of a process is 1,024.
pub(super) const HELD_FILES_MAX: usize = 512;

/// Groups of files, each with a lock of its own.
const GROUPS: usize = 16;

/// Those of a group, the one that was opened last behind the others.
type HeldFiles = VecDeque<(u64, Arc<File>)>;

/// Descriptors that are open, up to a number.
pub(super) struct Descriptors {
    groups: [Mutex<HeldFiles>; GROUPS],
    most_of_group: usize,
    next: AtomicU64,
}

/// A file whose descriptor may be held; of one file, once.
pub(super) struct DescriptorId(u64);

impl Descriptors {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            groups: [const { Mutex::new(VecDeque::new()) }; GROUPS],
            most_of_group: most / GROUPS,
            next: AtomicU64::new(0),
        }
    }

    /// Another file. Files that are opened one after the other are in different groups.
    pub(super) fn another(&self) -> DescriptorId {
        DescriptorId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps `file` open, instead of the one that was opened first if there are too many.
    pub(super) fn hold(&self, id: &DescriptorId, file: Arc<File>) {
        let mut held = self.group(id);
        held.retain(|(other, _)| *other != id.0);
        while held.len() >= self.most_of_group && held.pop_front().is_some() {}
        held.push_back((id.0, file));
    }

    /// The file, if it is open.
    pub(super) fn file(&self, id: &DescriptorId) -> Option<Arc<File>> {
        let held = self.group(id);
        held.iter().rev().find(|(other, _)| *other == id.0).map(|(_, file)| Arc::clone(file))
    }

    /// Closes the file.
    pub(super) fn close(&self, id: &DescriptorId) {
        self.group(id).retain(|(other, _)| *other != id.0);
    }

    fn group(&self, id: &DescriptorId) -> MutexGuard<'_, HeldFiles> {
        // The remainder is a place of the array.
        let group = &self.groups[id.0 as usize % GROUPS];
        group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any file will do")]
    fn the_files_that_were_opened_last_are_held() {
        let descriptors = Descriptors::new(3 * GROUPS);
        let file = || Arc::new(File::open(std::env::current_exe().unwrap()).unwrap());
        let ids: Vec<DescriptorId> = (0..5 * GROUPS).map(|_| descriptors.another()).collect();
        let of_group = || ids.iter().step_by(GROUPS);
        let held =
            || -> Vec<bool> { of_group().map(|id| descriptors.file(id).is_some()).collect() };
        ids.iter().for_each(|id| descriptors.hold(id, file()));
        assert_eq!(held(), [false, false, true, true, true]);
        let all = ids.iter().filter(|id| descriptors.file(id).is_some()).count();
        assert_eq!(all, 3 * GROUPS, "all groups have as many");
        descriptors.hold(&ids[0], file());
        assert_eq!(held(), [true, false, false, true, true]);
        descriptors.hold(&ids[0], file());
        assert_eq!(held(), [true, false, false, true, true], "a file is held once");
        // One that is closed makes room for another.
        descriptors.close(&ids[3 * GROUPS]);
        descriptors.hold(&ids[GROUPS], file());
        assert_eq!(held(), [true, true, false, false, true]);
    }
}
