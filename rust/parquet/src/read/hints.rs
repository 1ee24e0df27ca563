//! Hints which rows of objects are read next, so that stores request them before.
//!
//! ```text
//! file 3     window 0: read    window 1: hint
//! file 4     first rows: hint
//! …  66      first rows: hint
//! ```
//!
//! # Cost
//! Nothing for local files.
//!
//! # Not here
//! What is requested, and when (`store`).

use std::ops::Range;

use super::decode::in_group;
use super::file::ReadFile;
use super::part::FilePart;
use super::shared::ReadShared;
use crate::page::Locations;

/// Files that come next whose first rows are hinted.
pub(super) const FILES_HINTED: usize = 64;

/// Row groups up to this size are requested before their file is looked at, if they have no indexes.
const GROUP_BYTES_MAX: u64 = 16 << 20;

impl ReadFile {
    /// Says which rows are read first, if that is known before the file is looked at.
    pub(super) fn will_read_first(&self, shared: &ReadShared) {
        let source = &self.known.source;
        let is_known = source.store.takes_hints()
            && shared.conditions.is_none()
            && matches!(*self.part, FilePart::Whole);
        let group = if shared.reverse { self.groups.last() } else { self.groups.first() };
        // Without indexes, whole chunks are requested.
        let is_short = |group: &usize| {
            let bytes = source.row_group_range(*group);
            bytes.is_ok_and(|bytes| bytes.end - bytes.start <= GROUP_BYTES_MAX)
        };
        let group = group.filter(|group| {
            is_known && (is_short(group) || Locations::has_index(source, **group, 0))
        });
        if let Some(group) = group {
            let start = source.row_group_start(*group);
            let end = start + source.row_group_rows(*group);
            let rows = match shared.reverse {
                true => end.saturating_sub(shared.sizes.first_rows).max(start)..end,
                false => start..end.min(start + shared.sizes.first_rows),
            };
            self.will_read(shared, *group, rows);
        }
    }

    /// Says which rows are read behind a window, of which `left` are left.
    pub(super) fn will_read_next(&self, shared: &ReadShared, left: &[Range<u64>], window: u64) {
        let next = if shared.reverse { left.last() } else { left.first() };
        let Some(next) = next.filter(|next| !next.is_empty()) else { return };
        let source = &self.known.source;
        let first = if shared.reverse { next.end - 1 } else { next.start };
        let (group, _) = source.row_group_of(first);
        let start = source.row_group_start(group);
        let end = start + source.row_group_rows(group);
        let rows = match shared.reverse {
            true => next.end.saturating_sub(window).max(next.start).max(start)..next.end,
            false => next.start..next.end.min(end).min(next.start.saturating_add(window)),
        };
        self.will_read(shared, group, rows);
    }

    /// Says that `rows` of a row group are read soon: columns of conditions, if there are any.
    fn will_read(&self, shared: &ReadShared, group: usize, rows: Range<u64>) {
        let (source, adapted) = (&self.known.source, &self.class.adapted);
        if source.store.takes_hints() {
            let leaves = adapted.tested.as_ref().map_or(&adapted.leaves, |tested| &tested.leaves);
            let located = self.located(shared, source, &self.class.schema);
            located.will_read(group, &in_group(source, group, &[rows]), Some(leaves));
        }
    }
}
