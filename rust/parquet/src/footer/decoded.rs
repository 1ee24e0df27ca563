//! Which footers stay decoded: as many as fit a share of the memory limit.
//!
//! ```text
//! decoded last ─▶ f9 f8 f7 f3 │ f1      the oldest go where a new one does not fit
//!                 └── share ──┘
//! ```
//!
//! # Invariants
//! Those that stay fit the share, or are one. Who holds one that goes keeps it as long. They are not
//! accounted: how much is woven at a time goes by what is, and they are a share of their own.
//!
//! # Cost
//! To decode a footer again takes about a microsecond a chunk.
//!
//! # Not here
//! How footers are stored (`stored`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use parquet::file::metadata::ParquetMetaData;

use crate::runtime::{Context, MemoryStage};

/// What is decoded of one footer, for as long as somebody holds it.
#[derive(Default)]
pub(super) struct DecodedSlot(Mutex<Weak<ParquetMetaData>>);

impl DecodedSlot {
    pub(super) fn lock(&self) -> MutexGuard<'_, Weak<ParquetMetaData>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Footers that stay decoded, whose slots are part of an `S`.
pub(super) struct DecodedFooters<S> {
    held: Mutex<HeldFooters<S>>,
    bytes_max: usize,
}

struct HeldFooters<S> {
    /// The oldest first.
    footers: VecDeque<HeldFooter<S>>,
    bytes: usize,
}

struct HeldFooter<S> {
    footer: Arc<ParquetMetaData>,
    bytes: usize,
    slot: Weak<S>,
}

impl<S: AsRef<DecodedSlot>> DecodedFooters<S> {
    /// None yet, within their share of the limit of `context`.
    pub(super) fn new(context: &Context) -> Self {
        let bytes_max = context.budget().bytes(MemoryStage::DecodedFooters);
        let held = HeldFooters { footers: VecDeque::new(), bytes: 0 };
        Self { held: Mutex::new(held), bytes_max }
    }

    /// Keeps the footer of `slot` if it fits next to the others.
    pub(super) fn keep_if_it_fits(&self, footer: ParquetMetaData, slot: &Arc<S>) {
        let bytes = footer.memory_size();
        let mut held = self.lock();
        if held.bytes + bytes <= self.bytes_max {
            let footer = Arc::new(footer);
            *(**slot).as_ref().lock() = Arc::downgrade(&footer);
            held.push(&footer, bytes, slot);
        }
    }

    /// Keeps the footer of `slot`, which nobody holds locked, in the place of those that were decoded
    /// before all others.
    pub(super) fn keep(&self, footer: &Arc<ParquetMetaData>, slot: &Arc<S>) {
        let bytes = footer.memory_size();
        let mut gone = Vec::new();
        let mut held = self.lock();
        while held.bytes + bytes > self.bytes_max
            && let Some(oldest) = held.footers.pop_front()
        {
            held.bytes -= oldest.bytes;
            gone.push(oldest);
        }
        held.push(footer, bytes, slot);
        drop(held);
        for HeldFooter { footer, slot, .. } in gone {
            let is_of_nobody = Arc::strong_count(&footer) == 1;
            drop(footer);
            // As long as something refers to it, its memory is not free.
            if let Some(slot) = slot.upgrade().filter(|_| is_of_nobody) {
                *(*slot).as_ref().lock() = Weak::new();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HeldFooters<S>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> HeldFooters<S> {
    fn push(&mut self, footer: &Arc<ParquetMetaData>, bytes: usize, slot: &Arc<S>) {
        self.bytes += bytes;
        let (footer, slot) = (Arc::clone(footer), Arc::downgrade(slot));
        self.footers.push_back(HeldFooter { footer, bytes, slot });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::footer::checks::decode;
    use crate::page::testing::{file, footer};

    impl AsRef<DecodedSlot> for DecodedSlot {
        fn as_ref(&self) -> &DecodedSlot {
            self
        }
    }

    fn meta() -> ParquetMetaData {
        decode(footer(&file("message m { required int64 a; }", &[1], |p| p)), None).unwrap().meta
    }

    fn slots<const N: usize>() -> [Arc<DecodedSlot>; N] {
        std::array::from_fn(|_| Arc::default())
    }

    fn kept(slots: &[Arc<DecodedSlot>]) -> Vec<bool> {
        slots.iter().map(|slot| slot.lock().upgrade().is_some()).collect()
    }

    fn keep(
        footers: &DecodedFooters<DecodedSlot>,
        slot: &Arc<DecodedSlot>,
    ) -> Arc<ParquetMetaData> {
        let footer = Arc::new(meta());
        *slot.lock() = Arc::downgrade(&footer);
        footers.keep(&footer, slot);
        footer
    }

    #[test]
    fn the_oldest_go_where_there_is_no_room() {
        let each = meta().memory_size();
        let footers = DecodedFooters::new(&Context::new(40 * (2 * each + 1)));
        let all = slots::<4>();
        all.iter().take(3).for_each(|slot| footers.keep_if_it_fits(meta(), slot));
        assert_eq!(kept(&all), [true, true, false, false]);
        drop(keep(&footers, &all[3]));
        assert_eq!(kept(&all), [false, true, false, true]);
        assert_eq!(Weak::weak_count(&all[0].lock()), 0, "nothing refers to what is gone");
        assert_eq!(footers.lock().bytes, 2 * each);
    }

    #[test]
    fn a_footer_that_is_larger_than_the_share_stays_alone() {
        let footers = DecodedFooters::new(&Context::new(40));
        let all = slots::<2>();
        all.iter().for_each(|slot| drop(keep(&footers, slot)));
        assert_eq!(kept(&all), [false, true]);
    }

    #[test]
    fn a_footer_that_somebody_holds_is_found_again() {
        let footers = DecodedFooters::new(&Context::new(40));
        let [one, other] = slots::<2>();
        let held = keep(&footers, &one);
        keep(&footers, &other);
        assert!(one.lock().upgrade().is_some_and(|found| Arc::ptr_eq(&found, &held)));
    }
}
