//! Values of rows that share a key, column by column, from batches in memory.
//!
//! ```text
//! group  row 3 of the part: rows 7, 8 of slot 0, row 2 of slot 1
//! rule   the last that is not null ─▶ row 8 of slot 0
//!        the sum, all elements ─▶ a new value, in an array behind the slots
//! ```
//!
//! # Not here
//! What rules there are (`crate::plan::ValueRule`); lists (`collected`); copying (`gather`).

use std::collections::BTreeMap;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;

use super::collected::NewLists;
use super::cursor::{Slots, lost};
use super::rules::ColumnRule;
use crate::key::render;
use crate::packed_runs::Replaced;
use crate::plan::{
    ColumnValues, Folded, KeyGroups, NewValue, Number, NumberType, SourceRow, does_not_fit,
    number_array, number_at,
};
use plait_base::{Error, Kind, Result, SourceId};

impl ColumnRule {
    /// The rows that have the values of `groups` in column `column`, and values that no row has:
    /// those are rows of the place behind the last slot.
    pub(super) fn combine(
        &self,
        groups: &KeyGroups,
        slots: &Slots,
        column: usize,
    ) -> Result<(Vec<Replaced>, Option<ArrayRef>)> {
        let mut values = SlotValues { rule: self, slots, column, nulls: BTreeMap::new() };
        let (mut replaced, mut numbers) = (Vec::with_capacity(groups.len()), Vec::new());
        let mut lists = match self.rule.makes() {
            None | Some(NewValue::Number(_)) => None,
            Some(how) => Some(NewLists::new(how, &self.data_type)),
        };
        for group in groups.iter() {
            let (source, source_row) = match self.rule.choose(group, &mut values)? {
                Some(chosen) if chosen + 1 == group.rows.len() => continue,
                Some(chosen) => (group.rows[chosen].source(), group.rows[chosen].row()),
                None => {
                    let made = match &mut lists {
                        Some(lists) => {
                            let rows = group.rows.iter();
                            lists.push(rows.map(|row| {
                                Ok((row.source(), values.array(row.source())?, place(*row)))
                            }))?;
                            lists.len()
                        }
                        None => {
                            numbers.push(self.fold(group.rows, slots, &mut values)?);
                            numbers.len()
                        }
                    };
                    let behind = u32::try_from(slots.len()).unwrap_or(u32::MAX);
                    (SourceId(behind), made as u64 - 1)
                }
            };
            replaced.push(Replaced { row: group.row, source, source_row });
        }
        let new = match lists {
            Some(lists) => lists.finish()?,
            None if numbers.is_empty() => None,
            None => Some(number_array(&self.data_type, &numbers)?),
        };
        Ok((replaced, new))
    }

    fn fold(
        &self,
        rows: &[SourceRow],
        slots: &Slots,
        values: &mut SlotValues<'_>,
    ) -> Result<Option<Number>> {
        let (Some(NewValue::Number(function)), Some(number)) =
            (self.rule.makes(), NumberType::of(&self.data_type))
        else {
            return Err(Error::new(Kind::Internal, "a column without numbers was aggregated"));
        };
        match number.fold(function, rows.iter().map(|row| values.number(*row)))? {
            Folded::Fits(made) => Ok(made),
            Folded::DoesNotFit(made) => {
                let key = self.key_of(rows, slots).unwrap_or_default();
                Err(does_not_fit(made, &self.data_type, &key).with_column(&self.name))
            }
        }
    }

    /// The key of some rows of one key, in words.
    fn key_of(&self, rows: &[SourceRow], slots: &Slots) -> Option<String> {
        let at = rows.last()?;
        let held = slots.get(at.source().index())?.as_ref()?;
        let arrays = self.sort.arrays(&held.columns).ok()?;
        let keys = self.sort.encode(&arrays, usize::try_from(at.row()).ok()?, 1).ok()?;
        Some(render(&self.sort.shape, &keys.to_bytes(&self.sort.shape, 0)))
    }
}

/// The values of one column in the slots.
struct SlotValues<'a> {
    rule: &'a ColumnRule,
    slots: &'a Slots,
    column: usize,
    /// The nulls of the slots that were asked.
    nulls: BTreeMap<SourceId, Option<NullBuffer>>,
}

impl SlotValues<'_> {
    fn array(&self, slot: SourceId) -> Result<&ArrayRef> {
        let held = self.slots.get(slot.index()).and_then(Option::as_ref).ok_or_else(lost)?;
        held.columns.get(self.column).ok_or_else(lost)
    }

    fn number(&self, row: SourceRow) -> Result<Option<Number>> {
        Ok(number_at(self.array(row.source())?, place(row)))
    }
}

fn place(row: SourceRow) -> usize {
    usize::try_from(row.row()).unwrap_or(usize::MAX)
}

impl ColumnValues for SlotValues<'_> {
    fn is_null(&mut self, row: SourceRow) -> Result<bool> {
        if !self.nulls.contains_key(&row.source()) {
            let nulls = self.array(row.source())?.logical_nulls();
            self.nulls.insert(row.source(), nulls);
        }
        let nulls = self.nulls.get(&row.source()).and_then(Option::as_ref);
        Ok(nulls.is_some_and(|nulls| nulls.is_null(place(row))))
    }

    fn key(&mut self, row: SourceRow) -> Result<Option<Vec<u8>>> {
        if self.is_null(row)? {
            return Ok(None);
        }
        let Some(key) = &self.rule.key else { return Ok(None) };
        let one = self.array(row.source())?.slice(place(row), 1);
        let keys = key.encode(&[one], 0, 1)?;
        Ok(Some(keys.to_bytes(&key.shape, 0)))
    }
}
