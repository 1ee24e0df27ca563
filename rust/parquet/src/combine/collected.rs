//! Elements of lists and entries of maps in rows that share a key, for one leaf.
//!
//! ```text
//! row 7: {a: 1, b: 2}   row 2: {b: 3}      keys say which entries stay: (7, a) (2, b)
//! leaf of the values    levels of entries  ─▶ 1 3
//! ```
//!
//! # Cost
//! The values of one group. Each leaf of a map reads the keys once more, each leaf of distinct
//! elements all leaves.
//!
//! # Not here
//! Which elements stay (`plait_core::plan::distinct_elements`).

use plait_core::plan::{ColumnValues, KeyGroup, distinct_elements};
use plait_core::{Error, Kind, Result};

use super::column::CombinedColumn;
use super::slots::Slots;
use super::values::SourceValues;
use crate::leaf::OutputLeaf;
use crate::weave::WeaveContext;

/// Parts of the path of a leaf that name the keys of a map: `map.key_value.key`.
const KEY_PARTS: usize = 3;

/// New values of one leaf.
pub(super) struct CollectedValues<'a> {
    /// The definition level from which on elements are there.
    def_min: u8,
    own: SourceValues<'a>,
    /// Most bytes of the values of one group.
    bytes_max: usize,
    /// The leaves that say which elements are equal; none if all stay.
    named: Vec<SourceValues<'a>>,
}

impl<'a> CollectedValues<'a> {
    pub(super) fn new(
        weaving: &'a WeaveContext,
        column: &'a CombinedColumn,
        leaves: &'a [OutputLeaf],
        leaf: &'a OutputLeaf,
        is_distinct: bool,
    ) -> Self {
        let all = leaves.get(column.leaves.clone()).unwrap_or_default();
        let head = |leaf: &'a OutputLeaf| leaf.descr.path().parts().get(..KEY_PARTS);
        let first = all.first().and_then(head);
        let is_named =
            |leaf: &&'a OutputLeaf| is_distinct && (!column.has_keys() || head(leaf) == first);
        let named = all.iter().filter(is_named);
        Self {
            def_min: 1 + u8::from(column.is_nullable),
            own: SourceValues::new(weaving, column, leaf),
            bytes_max: weaving.context.call_budget().made_value(),
            named: named.map(|leaf| SourceValues::new(weaving, column, leaf)).collect(),
        }
    }

    /// Adds the value of a group.
    ///
    /// # Errors
    /// [`Kind::MemoryLimit`], and whatever is wrong with a source.
    pub(super) fn put(&mut self, group: KeyGroup<'_>, to: &mut Slots) -> Result<()> {
        let (mut values, mut all_identities) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for row in group.rows {
            if self.own.is_null(*row)? {
                continue;
            }
            let mut value = Slots::default();
            self.own.slots(*row, &mut value)?;
            let elements = value.elements(self.def_min);
            bytes += value.memory_size();
            if !self.named.is_empty() {
                let mut identities = vec![Vec::new(); elements.len()];
                for leaf in &mut self.named {
                    let mut part = Slots::default();
                    leaf.slots(*row, &mut part)?;
                    let of_part = part.elements(self.def_min);
                    for (identity, levels) in identities.iter_mut().zip(of_part) {
                        part.identify(levels, identity);
                    }
                }
                bytes += identities.iter().map(Vec::len).sum::<usize>();
                all_identities.push(identities);
            }
            if bytes > self.bytes_max {
                let error = Error::new(Kind::MemoryLimit, "the values of one key are too large")
                    .with_got(format!("{bytes} bytes, of which {} are allowed", self.bytes_max))
                    .with_hint("raise `memory_limit`, or collect less in one key");
                return Err(self.own.named(error));
            }
            values.push((value, elements));
        }
        let start = to.len();
        let mut put = |value: &Slots, levels| {
            let rep = u8::from(to.len() > start);
            to.extend(value, levels, rep);
        };
        if self.named.is_empty() {
            for (value, elements) in values {
                elements.into_iter().for_each(|levels| put(&value, levels));
            }
        } else {
            for (value, element) in distinct_elements(&all_identities) {
                if let Some((value, elements)) = values.get(value)
                    && let Some(levels) = elements.get(element)
                {
                    put(value, levels.clone());
                }
            }
        }
        if to.len() == start {
            to.push(0, self.def_min - 1, &[]); // an empty list
        }
        Ok(())
    }
}
