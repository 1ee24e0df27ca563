//! The loop that copies rows: steps in, full pages out.
//!
//! ```text
//! step (source, len) ─▶ lane of the source ─▶ page        one row: a store; many: a copy
//!                          └ empty: next page ─ taken whole? ─▶ splice
//! ```
//!
//! # Invariants
//! Every step moves exactly its rows. A page ends at its row or byte limit, at a page that is
//! spliced, and where ids end.
//!
//! # Cost
//! A few nanoseconds a step for flat rows; the bytes of the values.
//!
//! # Not here
//! What a page becomes (`encode`).

use plait_core::{Error, Kind, Result};

use super::lane::{Form, Lane};
use super::steps::{Step, Steps};
use super::{LeafLoom, PageOut};
use crate::block::Layout;
use crate::page::PageLoc;
use crate::page::header::PageKind;

/// Pages below this share of a full page are not worth ending another one for.
const SPLICE_SHARE_MIN: usize = 8;

/// Pages above this many times a full page are cut down instead of kept.
const SPLICE_TIMES_MAX: usize = 4;

pub(super) fn gather(loom: &LeafLoom<'_>, steps: &Steps, out: &mut impl PageOut) -> Result<()> {
    let mut gather = Gather {
        loom,
        lanes: (0..loom.sources()).map(|_| Lane::default()).collect(),
        ends: vec![(0, 0); loom.sources()],
        charge: loom.context().charge(0),
        held: 0,
    };
    for taken in steps.taken() {
        gather.ends[taken.source.index()] = (taken.start, taken.end);
    }
    let all = steps.as_slice();
    let mut at = 0;
    while at < all.len() {
        let done = match (loom.layout, out.writes_ids()) {
            (_, true) => gather.fast(&all[at..], out, Form::Ids, Lane::take_id),
            (Layout::Fixed(1), _) => {
                gather.fast(&all[at..], out, Form::Fixed, Lane::take_array::<1>)
            }
            (Layout::Fixed(4), _) => {
                gather.fast(&all[at..], out, Form::Fixed, Lane::take_array::<4>)
            }
            (Layout::Fixed(8), _) => {
                gather.fast(&all[at..], out, Form::Fixed, Lane::take_array::<8>)
            }
            (Layout::Fixed(16), _) => {
                gather.fast(&all[at..], out, Form::Fixed, Lane::take_array::<16>)
            }
            _ => 0,
        };
        at += done;
        if let Some(step) = all.get(at) {
            gather.slow(*step, out)?;
            at += 1;
        }
    }
    out.flush()
}

struct Gather<'a> {
    loom: &'a LeafLoom<'a>,
    lanes: Vec<Lane>,
    /// First row and end of each source in the window.
    ends: Vec<(u64, u64)>,
    charge: crate::context::Charge,
    held: usize,
}

impl Gather<'_> {
    /// Moves single rows as long as they are here, flat, of one form, and the page has room.
    /// Returns how many steps were done.
    #[inline]
    fn fast(
        &mut self,
        steps: &[Step],
        out: &mut impl PageOut,
        form: Form,
        take: impl Fn(&mut Lane, &mut crate::encode::PageBuffer),
    ) -> usize {
        let width = match self.loom.layout {
            Layout::Fixed(width) => width,
            Layout::Prefixed => 0,
        };
        // One row more than fits is found by the slow way, which ends the page.
        let mut room = out.rows_left().saturating_sub(1);
        if width > 0 && form == Form::Fixed {
            room = room.min(out.bytes_left().saturating_sub(1) / width);
        }
        let page = out.page();
        page.reserve(room.min(steps.len()) * width);
        let mut done = 0;
        for step in steps.iter().take(room) {
            let Some(lane) = self.lanes.get_mut(step.source as usize) else { break };
            if step.len != 1 || lane.left == 0 || !lane.is_flat || lane.form != form {
                break;
            }
            take(lane, page);
            done += 1;
        }
        done
    }

    fn slow(&mut self, step: Step, out: &mut impl PageOut) -> Result<()> {
        let mut left = step.len as usize;
        let source = step.source as usize;
        while left > 0 {
            if self.lanes[source].left == 0 {
                left -= self.refill(source, left, out)?;
                continue;
            }
            let lane = &mut self.lanes[source];
            let rows = left.min(lane.left).min(out.rows_left().max(1)).min(self.loom.batch_rows);
            lane.take(out.page(), rows, self.loom.layout);
            left -= rows;
            if out.is_full() {
                out.flush()?;
            }
        }
        Ok(())
    }

    /// Gives the lane of `source` its next rows, or moves a whole page past it: returns how many
    /// of the `wanted` rows that were.
    fn refill(&mut self, source: usize, wanted: usize, out: &mut impl PageOut) -> Result<usize> {
        self.loom.context().check_cancelled()?;
        let (start, end) = self.ends[source];
        if start >= end {
            self.lanes[source].close();
            return Err(broken("a run names more rows than its window"));
        }
        let lane = &mut self.lanes[source];
        self.held -= lane.memory_size();
        let mut reader = match lane.reader.take() {
            Some(reader) => reader,
            None => self.loom.open(source, start)?,
        };
        let splice = match self.loom.may_splice(source) {
            true => reader.peek()?.filter(|page| is_worth_it(page, wanted, out)),
            false => None,
        };
        let (block, skip) = match splice {
            None => {
                let rows = usize::try_from(end - start).unwrap_or(usize::MAX);
                let rows = rows.min(self.loom.batch_rows);
                reader.next(rows)?.ok_or_else(|| {
                    broken("a run reaches behind the end of its source").with_row(start)
                })?
            }
            Some(_) => {
                let stored = reader.take()?;
                let block = reader.decode(&stored)?;
                let is_ids = matches!(block.values, crate::block::Values::Ids(..));
                let keeps = !is_ids || (out.writes_ids() && reader.keeps_ids());
                let fits_version = match stored.header.kind {
                    PageKind::DataV2 { .. } => out.takes_version(2),
                    _ => out.takes_version(1),
                };
                let unpacked_max = SPLICE_TIMES_MAX * out.bytes_max();
                let fits = stored.header.uncompressed_len as usize <= unpacked_max;
                if keeps && fits_version && fits {
                    out.flush()?;
                    out.splice(&stored, &block)?;
                    self.ends[source].0 += block.rows as u64;
                    self.keep(source, Some(reader));
                    return Ok(block.rows);
                }
                (block, 0)
            }
        };
        if out.writes_ids()
            && matches!(block.values, crate::block::Values::Plain(_))
            && block.value_count > 0
        {
            // The format lets pages of ids be followed by plain ones.
            out.flush()?;
            out.fall_back();
            self.lanes.iter_mut().for_each(Lane::fall_back);
        }
        self.ends[source].0 += (block.rows - skip) as u64;
        let writes_ids = out.writes_ids();
        self.lanes[source].load(block, skip, self.loom.layout, writes_ids);
        self.keep(source, Some(reader));
        self.charge.set(self.held + out.memory_size());
        Ok(0)
    }

    fn keep(&mut self, source: usize, reader: Option<crate::block::BlockReader>) {
        let (row, end) = self.ends[source];
        let lane = &mut self.lanes[source];
        // The last page of the window needs no reader, and its read-ahead no memory.
        lane.reader = reader.filter(|_| row < end);
        self.held += lane.memory_size();
    }
}

/// Whether a page lies inside the rows that are wanted and is neither too small nor too large.
fn is_worth_it(page: &PageLoc, wanted: usize, out: &mut impl PageOut) -> bool {
    let Ok(rows) = usize::try_from(page.rows) else { return false };
    let (rows_max, bytes_max) = (out.rows_max(), out.bytes_max());
    let len = page.len as usize;
    let is_large = rows >= rows_max / SPLICE_SHARE_MIN || len >= bytes_max / SPLICE_SHARE_MIN;
    let is_small = rows <= rows_max.saturating_mul(SPLICE_TIMES_MAX);
    // A page under construction with few rows is ended early only for a long stretch.
    let held = out.page().rows();
    let ends_little = held == 0
        || held >= rows_max / SPLICE_SHARE_MIN
        || out.page().values().len() >= bytes_max / SPLICE_SHARE_MIN
        || wanted >= SPLICE_TIMES_MAX * rows;
    rows <= wanted && is_large && is_small && ends_little
}

fn broken(what: &str) -> Error {
    Error::new(Kind::Internal, what)
}
