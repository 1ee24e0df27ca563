//! The loop that copies rows: steps in, full pages out.
//!
//! ```text
//! step (source, len) ─▶ cursor of the source ─▶ page        one row: a store; many: a copy
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

use std::sync::Arc;

use plait_core::packed_runs::{PackedRun, PackedRuns, Taken};
use plait_core::{Error, Kind, Result};

use super::context::{LeafContext, PageOut};
use super::cursor::{Form, Rows, SourceCursor};
use super::cursors::SourceCursors;
use super::footers::BATCH_BYTES_MAX;
use super::lanes;
use crate::block::decode::is_ids;
use crate::block::reader::Skipping;
use crate::block::{Block, BlockReader, Layout, Values};
use crate::encode::buffer::PageAppender;
use crate::encode::facts::Facts;
use crate::options::VerifyPages;
use crate::page::PageLoc;
use crate::page::header::{PageHeader, PageKind};
use crate::page::pages::Stored;

/// Pages below this share of a full page are not worth ending another one for.
const SPLICE_SHARE_MIN: usize = 8;

/// Pages above this many times a full page are cut down instead of kept.
const SPLICE_TIMES_MAX: usize = 4;

/// Rows that are moved before limits are looked at again.
const FAST_ROWS_MAX: usize = 32 << 10;

/// Levels a row of a leaf that repeats has room for, on average.
const REPEATED_LEVELS: usize = 64;

/// So many threads have to be idle for one to unpack the next page. The first one packs pages: with
/// two threads, it costs more to fetch a page from the cache of the other.
const IDLE_MIN: usize = 2;

/// Where rows come from that no source has.
pub(super) type NextMade<'a> = Option<&'a mut (dyn Iterator<Item = Result<Block>> + 'a)>;

/// Moves the rows of one window to `out`.
pub(super) fn gather(
    weaving: &LeafContext<'_>,
    cursors: &mut SourceCursors,
    steps: &PackedRuns,
    made: NextMade<'_>,
    out: &mut impl PageOut,
) -> Result<()> {
    cursors.begin(weaving.united.as_ref(), out.writes_ids());
    let mut words = steps.words();
    let mut gather = Gather { weaving, cursors, made, moved: words.len() };
    for taken in steps.taken() {
        gather.enter(taken)?;
    }
    while !words.is_empty() {
        gather.moved = gather.fast(words, out);
        words = &words[gather.moved..];
        if let Some((step, taken)) = PackedRun::first(words) {
            match step.is_gap {
                true => gather.skip(step.source as usize, u64::from(step.len))?,
                false => gather.slow(step, out)?,
            }
            words = &words[taken..];
        }
    }
    out.flush()
}

struct Gather<'a, 'm> {
    weaving: &'a LeafContext<'a>,
    cursors: &'a mut SourceCursors,
    made: NextMade<'m>,
    /// How many steps were moved at once the last time.
    moved: usize,
}

impl Gather<'_, '_> {
    /// Moves rows as long as they are here, of the usual form, and the page has room. Returns how
    /// many steps were done, which is as many words.
    fn fast(&mut self, words: &[u32], out: &mut impl PageOut) -> usize {
        // One row more than fits is found by the slow way, which ends the page.
        let rows = out.rows_left().saturating_sub(1).min(FAST_ROWS_MAX);
        let bytes = out.bytes_left().saturating_sub(1);
        let writes_ids = out.writes_ids();
        let page = out.page();
        let cursors = self.cursors.cursors.as_mut_slice();
        if self.weaving.repeats() {
            let Layout::Fixed(width) = self.weaving.layout else { return 0 };
            if writes_ids {
                return 0;
            }
            let levels = rows.saturating_mul(REPEATED_LEVELS);
            let bytes = bytes.min(levels * width);
            return page.fill(rows, levels, 0, bytes, |out| {
                walk(words, cursors, Form::Fixed, out, |cursor, rows, out| {
                    rows == 1 && cursor.rows == Rows::Repeated && cursor.put_repeated(width, out)
                })
            });
        }
        let nullable = page.has_def();
        let takes_lanes = !nullable && lanes::are_worth_it(self.moved, cursors.len());
        let is_known = move |cursor: &SourceCursor| cursor.rows == Rows::Flat || nullable;
        macro_rules! fixed {
            ($n:literal) => {{
                let rows = rows.min(bytes / $n);
                page.fill(rows, rows, 0, rows * $n, |out| {
                    if takes_lanes {
                        return lanes::put_fixed::<$n>(words, cursors, out);
                    }
                    walk(words, cursors, Form::Fixed, out, |cursor, rows, out| {
                        is_known(cursor) && {
                            cursor.put_fixed::<$n>(rows, nullable, out);
                            true
                        }
                    })
                })
            }};
        }
        match self.weaving.layout {
            _ if writes_ids => page.fill(rows, rows, rows, 0, |out| {
                if takes_lanes {
                    return lanes::put_ids(words, cursors, out);
                }
                walk(words, cursors, Form::Ids, out, |cursor, rows, out| {
                    is_known(cursor) && {
                        cursor.put_ids(rows, nullable, out);
                        true
                    }
                })
            }),
            Layout::Fixed(1) => fixed!(1),
            Layout::Fixed(4) => fixed!(4),
            Layout::Fixed(8) => fixed!(8),
            Layout::Fixed(12) => fixed!(12),
            Layout::Fixed(16) => fixed!(16),
            Layout::Fixed(_) => 0,
            Layout::Prefixed => page.fill(rows, rows, 0, bytes, |out| {
                walk(words, cursors, Form::Prefixed, out, |cursor, rows, out| {
                    rows == 1 && is_known(cursor) && cursor.put_prefixed(nullable, out)
                })
            }),
        }
    }

    fn slow(&mut self, step: PackedRun, out: &mut impl PageOut) -> Result<()> {
        let mut left = step.len as usize;
        let source = step.source as usize;
        while left > 0 {
            if self.cursors.cursors[source].left == 0 {
                left -= self.refill(source, left, out)?;
                continue;
            }
            let cursor = &mut self.cursors.cursors[source];
            let rows =
                left.min(cursor.left).min(out.rows_left().max(1)).min(self.weaving.batch_rows);
            let rows = cursor.rows_within(rows, BATCH_BYTES_MAX, self.weaving.layout);
            cursor.take(out.page(), rows, self.weaving.layout);
            left -= rows;
            if out.is_full() {
                self.cursors.account(out.memory_size());
                out.flush()?;
            }
        }
        Ok(())
    }

    /// Passes over rows that were dropped between the window before and this one.
    fn enter(&mut self, taken: Taken) -> Result<()> {
        let source = taken.source.index();
        let at = self.cursors.rows[source].0 - self.cursors.cursors[source].left as u64;
        match taken.start.checked_sub(at) {
            Some(gap) => self.skip(source, gap),
            None => Err(broken("a window begins before the end of the last one")),
        }
    }

    /// Passes over the rows of a gap.
    fn skip(&mut self, source: usize, rows: u64) -> Result<()> {
        let len = usize::try_from(rows).unwrap_or(usize::MAX);
        let def_max = self.weaving.output.descr.max_def_level();
        let cursor = &mut self.cursors.cursors[source];
        let here = len.min(cursor.left);
        if here > 0 {
            cursor.skip(here, self.weaving.layout, u8::try_from(def_max).unwrap_or(u8::MAX));
        }
        let rest = len - here;
        if rest > 0 {
            let (row, end) = &mut self.cursors.rows[source];
            *row += rest as u64;
            if *row > *end {
                return Err(broken("a gap reaches behind the rows of its window"));
            }
            if let Some(reader) = &mut cursor.reader {
                reader.skip(rest)?;
            }
        }
        Ok(())
    }

    /// Gives the cursor of `source` its next rows, or moves a whole page past it: returns how many
    /// of the `wanted` rows that were.
    fn refill(&mut self, source: usize, wanted: usize, out: &mut impl PageOut) -> Result<usize> {
        self.weaving.context().check_cancelled()?;
        self.cursors.sweep();
        let (start, end) = self.cursors.rows[source];
        if start >= end {
            self.cursors.cursors[source].close();
            return Err(broken("a run names more rows than its window"));
        }
        let cursor = &mut self.cursors.cursors[source];
        self.cursors.held -= cursor.memory_size();
        if source == self.weaving.weaving.sources.len() {
            let made = self.made.as_mut().and_then(|made| made.next()).transpose()?;
            let block = made.ok_or_else(|| broken("a run names rows that were not made"))?;
            return self.load(source, (block, 0), None, out);
        }
        let mut reader = match cursor.reader.take() {
            Some(reader) => reader,
            None => self.weaving.open(source, start)?,
        };
        let splice = match self.weaving.may_splice(source) {
            true => reader.peek()?.filter(|page| is_worth_it(page, wanted, out)),
            false => None,
        };
        let block = match splice {
            None => {
                let rows = usize::try_from(end - start).unwrap_or(usize::MAX);
                let rows = rows.min(self.weaving.batch_rows);
                reader.next(rows)?.ok_or_else(|| {
                    broken("a run reaches behind the end of its source").with_row(start)
                })?
            }
            Some(_) => {
                let stored =
                    reader.take(self.weaving.weaving.verify_pages == VerifyPages::Checksum)?;
                let is_ids = stored.header.data_encoding().is_some_and(is_ids);
                let keeps = !is_ids || (out.has_dictionary() && reader.keeps_ids());
                let fits_version = match stored.header.kind {
                    PageKind::DataV2 { .. } => out.takes_version(2),
                    _ => out.takes_version(1),
                };
                let unpacked_max = SPLICE_TIMES_MAX * out.bytes_max();
                let fits = stored.header.uncompressed_len as usize <= unpacked_max;
                let facts = match keeps && fits_version && fits {
                    true => self.facts(&stored, &mut reader, out)?,
                    false => None,
                };
                if let Some(facts) = facts {
                    let rows = facts.rows;
                    out.flush()?;
                    out.splice(&stored, facts)?;
                    self.cursors.rows[source].0 += rows as u64;
                    self.keep(source, Some(reader));
                    return Ok(rows);
                }
                let page = reader.decode(&stored)?;
                (Block::new(page), 0)
            }
        };
        self.load(source, block, Some(reader), out)
    }

    /// Gives the cursor of `source` a block whose first rows are not wanted.
    fn load(
        &mut self,
        source: usize,
        (block, skip): Skipping,
        reader: Option<BlockReader>,
        out: &mut impl PageOut,
    ) -> Result<usize> {
        if out.writes_ids() && matches!(block.values, Values::Plain(_)) && block.value_count > 0 {
            // The format lets pages of ids be followed by plain ones.
            out.flush()?;
            out.fall_back()?;
            if let Some(united) = &self.weaving.united {
                self.cursors
                    .cursors
                    .iter_mut()
                    .for_each(|cursor| cursor.fall_back(&united.dictionary));
            }
        }
        self.cursors.load(source, (block, skip), self.weaving.layout, out.writes_ids());
        self.keep(source, reader);
        self.unpack_ahead(source);
        self.cursors.account(out.memory_size());
        Ok(0)
    }

    /// What is known of a page that stays as it is; `None` if its header says something else, so
    /// that it cannot stay.
    fn facts(
        &self,
        stored: &Stored,
        reader: &mut BlockReader,
        out: &mut impl PageOut,
    ) -> Result<Option<Facts>> {
        if self.weaving.weaving.verify_pages == VerifyPages::Checksum
            && let Some(known) = reader.known(stored)?
            && let Ok(rows) = usize::try_from(stored.place.rows)
            && let Some(facts) = out.take_over(rows, known)
        {
            return Ok(fits(&stored.header, facts.levels, facts.nulls).then_some(facts));
        }
        let page = reader.decode(stored)?;
        let levels = if page.rep.is_empty() { page.rows } else { page.rep.len() };
        match fits(&stored.header, levels, levels.saturating_sub(page.value_count)) {
            true => out.facts_of(&page).map(Some),
            false => Ok(None),
        }
    }

    /// Gives the next page of `source` to a thread that has nothing to do.
    fn unpack_ahead(&mut self, source: usize) {
        let Some(share) = self.weaving.share else { return };
        if share.idle() < IDLE_MIN {
            return;
        }
        let Some(reader) = &mut self.cursors.cursors[source].reader else { return };
        if let Some(page) = reader.unpack_ahead(|bytes| share.has_room(bytes as u64)) {
            share.offer(Arc::new(move || page.unpack()));
        }
    }

    fn keep(&mut self, source: usize, reader: Option<BlockReader>) {
        let (row, end) = self.cursors.rows[source];
        if let Some(own) = reader.as_ref().and_then(BlockReader::own_dictionary) {
            self.cursors.keep_dictionary(own);
        }
        let cursor = &mut self.cursors.cursors[source];
        // The last page of the window needs no reader, and its read-ahead no memory.
        cursor.reader = reader.filter(|_| row < end);
        self.cursors.held += cursor.memory_size();
    }
}

/// Whether a page's header counts its levels and nulls as they are. Writers differ in what they
/// call a null of a list.
fn fits(header: &PageHeader, levels: usize, nulls: usize) -> bool {
    match header.kind {
        PageKind::Data { num_values, .. } => num_values as usize == levels,
        PageKind::DataV2 { num_values, num_nulls, .. } => {
            (num_values as usize, num_nulls as usize) == (levels, nulls)
        }
        PageKind::Dictionary { .. } | PageKind::Index => false,
    }
}

/// Gives the rows of the steps in `words` to `put` as long as they are here, in `form`, fit, and
/// `put` says that it moved them. Returns how many steps were done.
#[inline(always)]
fn walk(
    words: &[u32],
    cursors: &mut [SourceCursor],
    form: Form,
    out: &mut PageAppender<'_>,
    mut put: impl FnMut(&mut SourceCursor, usize, &mut PageAppender<'_>) -> bool,
) -> usize {
    let mut done = 0;
    for word in words {
        // Long runs go the slow way, which costs them nothing.
        let Some(step) = PackedRun::of_word(*word) else { break };
        let rows = step.len as usize;
        let Some(cursor) = cursors.get_mut(step.source as usize) else { break };
        if rows > cursor.left || cursor.form != form || rows > out.rows_left() {
            break;
        }
        if !put(cursor, rows, out) {
            break;
        }
        done += 1;
    }
    done
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
