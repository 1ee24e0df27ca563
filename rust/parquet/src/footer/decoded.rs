//! Which footers stay decoded: as many as fit a share of the memory limit.
//!
//! ```text
//! decoded last ─▶ f9 f8 f7 f3 │ f1      the oldest go where a new one does not fit
//!                 └── share ──┘
//! ```
//!
//! # Invariants
//! A decoded footer is accounted for as long as anybody holds it, whether it stays here or not.
//!
//! # Cost
//! To decode a footer again takes about a microsecond a chunk.
//!
//! # Not here
//! How footers are stored (`stored`).

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parquet::file::metadata::ParquetMetaData;

use crate::runtime::{Charge, Context, MemoryStage};

/// A decoded footer.
pub(crate) struct DecodedFooter {
    meta: ParquetMetaData,
    /// Its memory, if it is one of many.
    charge: Option<Charge>,
}

/// Footers that stay decoded.
pub(super) struct DecodedFooters {
    held: Mutex<HeldFooters>,
    bytes_max: usize,
    context: Context,
}

#[derive(Default)]
struct HeldFooters {
    /// The oldest first.
    footers: VecDeque<Arc<DecodedFooter>>,
    bytes: usize,
}

impl DecodedFooter {
    /// The footer of a file that is opened alone.
    pub(super) fn alone(meta: ParquetMetaData) -> Self {
        Self { meta, charge: None }
    }

    fn bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }
}

impl Deref for DecodedFooter {
    type Target = ParquetMetaData;

    fn deref(&self) -> &ParquetMetaData {
        &self.meta
    }
}

impl DecodedFooters {
    /// None yet, within their share of the limit of `context`.
    pub(super) fn new(context: &Context) -> Self {
        let bytes_max = context.budget().bytes(MemoryStage::DecodedFooters);
        Self { held: Mutex::default(), bytes_max, context: context.clone() }
    }

    /// One of them, which does not stay for it.
    pub(super) fn footer(&self, meta: ParquetMetaData) -> Arc<DecodedFooter> {
        let charge = Some(self.context.charge(meta.memory_size()));
        Arc::new(DecodedFooter { meta, charge })
    }

    /// Keeps `footer` if it fits next to the others.
    pub(super) fn keep_if_it_fits(&self, footer: &Arc<DecodedFooter>) {
        let mut held = self.lock();
        if held.bytes + footer.bytes() <= self.bytes_max {
            held.push(footer);
        }
    }

    /// Keeps `footer` in the place of those that were decoded before all others.
    pub(super) fn keep(&self, footer: &Arc<DecodedFooter>) {
        let mut held = self.lock();
        while held.bytes + footer.bytes() > self.bytes_max
            && let Some(gone) = held.footers.pop_front()
        {
            held.bytes -= gone.bytes();
        }
        held.push(footer);
    }

    fn lock(&self) -> MutexGuard<'_, HeldFooters> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldFooters {
    fn push(&mut self, footer: &Arc<DecodedFooter>) {
        self.bytes += footer.bytes();
        self.footers.push_back(Arc::clone(footer));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::footer::checks::decode;
    use crate::page::testing::{file, footer};

    fn meta() -> ParquetMetaData {
        decode(footer(&file("message m { required int64 a; }", &[1], |p| p)), None).unwrap()
    }

    fn kept(footers: &[Arc<DecodedFooter>]) -> Vec<usize> {
        footers.iter().map(|footer| Arc::strong_count(footer) - 1).collect()
    }

    #[test]
    fn the_oldest_go_where_there_is_no_room() {
        let each = meta().memory_size();
        let context = Context::new(32 * (2 * each + 1));
        let footers = DecodedFooters::new(&context);
        let all: Vec<_> = (0..4).map(|_| footers.footer(meta())).collect();
        all.iter().take(3).for_each(|footer| footers.keep_if_it_fits(footer));
        assert_eq!(kept(&all), [1, 1, 0, 0]);
        footers.keep(&all[3]);
        assert_eq!(kept(&all), [0, 1, 0, 1]);
        assert_eq!(context.account().held_bytes(), 4 * each as u64, "as long as they are used");
        drop(all);
        assert_eq!(context.account().held_bytes(), 2 * each as u64);
    }

    #[test]
    fn a_footer_that_is_larger_than_the_share_stays_alone() {
        let footers = DecodedFooters::new(&Context::new(32));
        let all = [(); 2].map(|()| footers.footer(meta()));
        all.iter().for_each(|footer| footers.keep(footer));
        assert_eq!(kept(&all), [0, 1]);
    }
}
