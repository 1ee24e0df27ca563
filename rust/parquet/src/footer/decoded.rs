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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parquet::file::metadata::ParquetMetaData;

use crate::runtime::{Context, MemoryStage};

/// Footers that stay decoded.
pub(super) struct DecodedFooters {
    held: Mutex<HeldFooters>,
    bytes_max: usize,
}

#[derive(Default)]
struct HeldFooters {
    /// With their bytes, the oldest first.
    footers: VecDeque<(Arc<ParquetMetaData>, usize)>,
    bytes: usize,
}

impl DecodedFooters {
    /// None yet, within their share of the limit of `context`.
    pub(super) fn new(context: &Context) -> Self {
        let bytes_max = context.budget().bytes(MemoryStage::DecodedFooters);
        Self { held: Mutex::default(), bytes_max }
    }

    /// Keeps `footer` if it fits next to the others.
    pub(super) fn keep_if_it_fits(&self, footer: &Arc<ParquetMetaData>) {
        let bytes = footer.memory_size();
        let mut held = self.lock();
        if held.bytes + bytes <= self.bytes_max {
            held.push(footer, bytes);
        }
    }

    /// Keeps `footer` in the place of those that were decoded before all others.
    pub(super) fn keep(&self, footer: &Arc<ParquetMetaData>) {
        let bytes = footer.memory_size();
        let mut held = self.lock();
        while held.bytes + bytes > self.bytes_max
            && let Some((_, gone)) = held.footers.pop_front()
        {
            held.bytes -= gone;
        }
        held.push(footer, bytes);
    }

    fn lock(&self) -> MutexGuard<'_, HeldFooters> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldFooters {
    fn push(&mut self, footer: &Arc<ParquetMetaData>, bytes: usize) {
        self.bytes += bytes;
        self.footers.push_back((Arc::clone(footer), bytes));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::footer::checks::decode;
    use crate::page::testing::{file, footer};

    fn meta() -> ParquetMetaData {
        decode(footer(&file("message m { required int64 a; }", &[1], |p| p)), None).unwrap().meta
    }

    fn kept(footers: &[Arc<ParquetMetaData>]) -> Vec<usize> {
        footers.iter().map(|footer| Arc::strong_count(footer) - 1).collect()
    }

    #[test]
    fn the_oldest_go_where_there_is_no_room() {
        let each = meta().memory_size();
        let footers = DecodedFooters::new(&Context::new(32 * (2 * each + 1)));
        let all: Vec<_> = (0..4).map(|_| Arc::new(meta())).collect();
        all.iter().take(3).for_each(|footer| footers.keep_if_it_fits(footer));
        assert_eq!(kept(&all), [1, 1, 0, 0]);
        footers.keep(&all[3]);
        assert_eq!(kept(&all), [0, 1, 0, 1]);
        assert_eq!(footers.lock().bytes, 2 * each);
    }

    #[test]
    fn a_footer_that_is_larger_than_the_share_stays_alone() {
        let footers = DecodedFooters::new(&Context::new(32));
        let all = [(); 2].map(|()| Arc::new(meta()));
        all.iter().for_each(|footer| footers.keep(footer));
        assert_eq!(kept(&all), [0, 1]);
    }
}
