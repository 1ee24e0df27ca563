//! Values that no source has, as rows of a source of their own: sums, lists of all elements.
//!
//! ```text
//! group of 3 rows ─ numbers  ─ fold    ─▶ 42         ─▶ row 0 of the source behind all others
//! group of 2 rows ─ elements ─ collect ─▶ [a, b, c]  ─▶ row 0 of it in another leaf
//! ```
//!
//! # Invariants
//! Rows are numbered through all windows of a batch. They are made when they are woven.
//!
//! # Cost
//! Four bytes a value, and a block of values at a time.
//!
//! # Not here
//! How numbers are added, which elements stay (`plait_core::plan`).

use std::sync::Arc;

use plait_core::plan::{Folded, KeyGroup, KeyGroups, NewValue, NumberType, does_not_fit};
use plait_core::{Error, Kind, Result, SourceId};

use super::collected::CollectedValues;
use super::column::CombinedColumn;
use super::numbers::put_plain;
use super::slots::Slots;
use super::values::SourceValues;
use crate::block::Block;
use crate::keys::KeyLeaves;
use crate::leaf::OutputLeaf;
use crate::runtime::Charge;
use crate::weave::{MadeRows, WeaveContext};

/// Values are made until they have so many bytes.
const BLOCK_BYTES: usize = 128 << 10;

/// Which groups of the windows of a batch become new values.
pub(super) struct MadeGroups {
    source: SourceId,
    rows: u64,
    /// Those of the current window, by their place in it.
    places: Vec<u32>,
}

impl MadeGroups {
    /// None yet, of a source behind `sources` others.
    pub(super) fn new(sources: usize) -> Self {
        let source = SourceId(u32::try_from(sources).unwrap_or(u32::MAX));
        Self { source, rows: 0, places: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a group of the window; the row that its value is.
    pub(super) fn push(&mut self, place: usize) -> (SourceId, u64) {
        self.places.push(u32::try_from(place).unwrap_or(u32::MAX));
        self.rows += 1;
        (self.source, self.rows - 1)
    }

    /// The groups since they were taken last.
    pub(super) fn take(&mut self) -> Arc<[u32]> {
        std::mem::take(&mut self.places).into()
    }
}

/// The values of one window, block by block.
pub(super) struct MadeValues<'a> {
    keys: &'a KeyLeaves,
    column: &'a CombinedColumn,
    leaf: &'a OutputLeaf,
    groups: Box<dyn Iterator<Item = KeyGroup<'a>> + 'a>,
    source: MadeOf<'a>,
    charge: Charge,
}

/// What values are made of.
enum MadeOf<'a> {
    Numbers(SourceValues<'a>),
    Elements(CollectedValues<'a>),
}

impl<'a> MadeValues<'a> {
    /// The values of those of `groups` that `places` name, for leaf `leaf` of `leaves`.
    pub(super) fn rows(
        keys: &'a KeyLeaves,
        weaving: &'a WeaveContext,
        column: &'a CombinedColumn,
        leaves: &'a [OutputLeaf],
        leaf: &'a OutputLeaf,
        groups: &'a KeyGroups,
        places: Arc<[u32]>,
    ) -> Option<MadeRows<'a>> {
        if places.is_empty() {
            return None;
        }
        let source = match column.rule.makes() {
            None | Some(NewValue::Number(_)) => {
                MadeOf::Numbers(SourceValues::new(weaving, column, leaf))
            }
            Some(how) => {
                let is_distinct = how == NewValue::DistinctElements;
                MadeOf::Elements(CollectedValues::new(weaving, column, leaves, leaf, is_distinct))
            }
        };
        let mut next = 0;
        let groups = Box::new(groups.iter().enumerate().filter_map(move |(place, group)| {
            let is_made = places.get(next).is_some_and(|wanted| *wanted as usize == place);
            next += usize::from(is_made);
            is_made.then_some(group)
        }));
        let charge = weaving.context.charge(0);
        Some(Box::new(Self { keys, column, leaf, groups, source, charge }))
    }

    fn block(&mut self) -> Result<Option<Block>> {
        let mut made = Slots::default();
        for group in self.groups.by_ref() {
            match &mut self.source {
                MadeOf::Numbers(values) => {
                    let column = self.column;
                    let number = NumberType::of(&column.data_type);
                    let (Some(NewValue::Number(function)), Some(number)) =
                        (column.rule.makes(), number)
                    else {
                        let what = "a column without numbers was aggregated";
                        return Err(Error::new(Kind::Internal, what));
                    };
                    let numbers = group.rows.iter().map(|row| values.number_of(*row));
                    match number.fold(function, numbers)? {
                        Folded::Fits(Some(sum)) => {
                            let mut plain = Vec::new();
                            put_plain(sum, &self.leaf.descr, &mut plain)?;
                            let def_max = self.leaf.descr.max_def_level();
                            made.push(0, u8::try_from(def_max).unwrap_or(u8::MAX), &plain);
                        }
                        Folded::Fits(None) => made.push(0, 0, &[]),
                        Folded::DoesNotFit(sum) => {
                            let key = values.key_text(group, self.keys);
                            let error = does_not_fit(sum, &column.data_type, &key);
                            return Err(values.named(error));
                        }
                    }
                }
                MadeOf::Elements(values) => values.put(group, &mut made)?,
            }
            self.charge.set(made.memory_size());
            if made.memory_size() > BLOCK_BYTES {
                break;
            }
        }
        self.charge.set(0); // whoever takes the block accounts for it
        Ok((made.len() > 0).then(|| made.take(&self.leaf.descr)))
    }
}

impl Iterator for MadeValues<'_> {
    type Item = Result<Block>;

    fn next(&mut self) -> Option<Self::Item> {
        self.block().transpose()
    }
}
