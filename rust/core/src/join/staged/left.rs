//! The left side: subscribes to right rows, and resolves what they answer.
//!
//! # Invariants
//! A row in the result was resolved for some version; its key keeps both versions.
//!
//! # Not here
//! The right side (`right`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};

use super::messages::{
    HASH_BYTES, Instruction, Subscriptions, binary, found, hash_of, hashes, numbers, row_hashes,
};
use super::right::{add, blocks_of};
use crate::join::block::schema_of;
use crate::join::emit::{Pairs, emit};
use crate::join::find::View;
use crate::join::fold::{collect, fold_side};
use crate::join::layout::{Layout, Side};
use crate::join::spec::How;
use crate::workers::Alone;
use crate::{Error, Kind, Result};

/// Places in blocks of versions.
const VERSION: usize = 2;
const HASH: usize = 3;
const FOREIGN: usize = 4;
const RIGHT_VERSION: usize = 3;

/// The left side of a staged join.
#[derive(Clone, Debug)]
pub struct StagedLeft {
    layout: Arc<Layout>,
    version: i64,
    /// By primary key: version, hash, foreign key.
    meta: View,
    /// By primary key: the left columns.
    rows: View,
    /// By primary key: the versions that the row in the result was made of; deleted = none.
    out: View,
    out_left: View,
    out_right: View,
}

impl StagedLeft {
    /// A side without rows.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when changes have sequence numbers.
    pub fn try_new(layout: Arc<Layout>) -> Result<Self> {
        if layout.left_sequence || layout.right_sequence {
            let what = "the staged form of a join takes no sequence numbers";
            return Err(Error::new(Kind::Unsupported, what)
                .with_hint("put each side's changes in order before"));
        }
        let [meta, rows, out, out_left, out_right] = Default::default();
        Ok(Self { layout, version: 0, meta, rows, out, out_left, out_right })
    }

    /// Takes changes of the left table, and gives subscriptions for the right side.
    ///
    /// # Errors
    /// As [`fold`](crate::join::fold).
    pub fn send(&mut self, changes: &RecordBatch) -> Result<RecordBatch> {
        let mut folded = fold_side(&self.layout, Side::Left, changes)?;
        let probes: Vec<&[u8]> = (0..folded.len()).map(|i| folded.keys.value(i)).collect();
        let known = self.meta.find(&probes)?;
        let keep: Vec<bool> =
            (0..folded.len()).map(|i| !folded.deleted[i] || known.is_live(i)).collect();
        let known = known.at(keep.iter().enumerate().filter(|(_, k)| **k).map(|(i, _)| Some(i)));
        folded.filter(&keep)?;
        let probes: Vec<&[u8]> = (0..folded.len()).map(|i| folded.keys.value(i)).collect();
        let shown = self.out.find(&probes)?;
        let known = known.live();
        let old = known.bytes(FOREIGN)?;
        let version = self.version + 1;
        let all = row_hashes(&self.layout.left, &folded.columns)?;
        let is_outer = self.layout.spec.how == How::Left;
        let mut out = Subscriptions::default();
        let (mut row_hash, mut foreign) = (Vec::new(), Vec::new());
        for (i, key) in probes.iter().enumerate() {
            let row = folded.rows[i] as usize;
            let new = folded.foreign.as_ref().filter(|_| !folded.deleted[i]);
            let new = new.map(|foreign| foreign.value(row));
            let hash = if folded.deleted[i] { [0; 16] } else { all[row] };
            if let Some(old) = old.get(i).filter(|old| new.is_some_and(|new| new != *old)) {
                out.push(Some(old), key, version, hash, Instruction::DeleteKeyNoPropagate);
            }
            match new {
                Some(new) => {
                    // What is shown must go or change, so an answer is needed in any case.
                    let how = match is_outer || shown.is_live(i) {
                        true => Instruction::PropagateNullIfNoFkValAvailable,
                        false => Instruction::PropagateOnlyIfFkValAvailable,
                    };
                    out.push(Some(new), key, version, hash, how);
                }
                None => {
                    out.push(old.get(i), key, version, hash, Instruction::DeleteKeyAndPropagate);
                }
            }
            row_hash.push(hash);
            foreign.push(new);
        }
        let len = probes.len();
        let keys = folded.keys.clone();
        let deleted = folded.deleted_array();
        let meta: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![version; len])),
            hashes(&row_hash)?,
            Arc::new(foreign.into_iter().collect::<BinaryArray>()),
        ];
        let taken = folded.taken(&Alone)?;
        let meta = blocks_of(meta_schema(), &keys, &deleted, meta)?;
        let rows = blocks_of(self.layout.left_blocks(), &keys, &deleted, taken)?;
        add(&mut self.meta, meta)?;
        add(&mut self.rows, rows)?;
        self.version = version;
        out.finish()
    }

    /// Takes responses of the right side, and gives the changes of the join; `None` without any.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for what is no batch of responses.
    pub fn resolve(&mut self, responses: &RecordBatch) -> Result<Option<RecordBatch>> {
        let keys = binary(responses, "_pk")?;
        let version = numbers(responses, "_version")?;
        let right_version = numbers(responses, "_right_version")?;
        let (hash, is_found) = (hash_of(responses)?, found(responses)?);
        // Of one key the newest answer; of one left version that of the newest right row.
        let mut order: Vec<usize> = (0..responses.num_rows()).collect();
        let rank = |i: &usize| (keys.value(*i), version.value(*i), right_version.value(*i), *i);
        order.sort_unstable_by(|a, b| rank(a).cmp(&rank(b)));
        let mut last: Vec<usize> = Vec::with_capacity(order.len());
        for i in order {
            match last.last_mut() {
                Some(before) if keys.value(*before) == keys.value(i) => *before = i,
                _ => last.push(i),
            }
        }
        let probes: Vec<&[u8]> = last.iter().map(|i| keys.value(*i)).collect();
        let (meta, shown) = (self.meta.find(&probes)?, self.out.find(&probes)?);
        let number = |picked: &crate::join::picked::Picked, place| -> Result<ArrayRef> {
            picked.column(place, &DataType::Int64)
        };
        let current = number(&meta, VERSION)?;
        let stored_hash = meta.column(HASH, &DataType::FixedSizeBinary(HASH_BYTES))?;
        let (shown_left, shown_right) = (number(&shown, VERSION)?, number(&shown, RIGHT_VERSION)?);
        let (current, shown_left, shown_right) = (
            current.as_primitive::<Int64Type>(),
            shown_left.as_primitive::<Int64Type>(),
            shown_right.as_primitive::<Int64Type>(),
        );
        let counts = |place: &usize| {
            let (i, place) = (last[*place], *place);
            let is_current = meta.is_found(place)
                && current.value(place) == version.value(i)
                && stored_hash.as_fixed_size_binary().value(place) == hash.value(i);
            let is_newer = !shown.is_found(place)
                || shown_left.value(place) != version.value(i)
                || shown_right.value(place) <= right_version.value(i);
            is_current && is_newer
        };
        let places: Vec<usize> = (0..last.len()).filter(counts).collect();
        let probes: Vec<&[u8]> = places.iter().map(|place| probes[*place]).collect();
        let rows: Vec<usize> = places.iter().map(|place| last[*place]).collect();
        self.show(responses, &probes, &rows, is_found, (version, right_version))
    }

    /// Puts the rows of the responses in the result, and says what that changes.
    fn show(
        &mut self,
        responses: &RecordBatch,
        probes: &[&[u8]],
        rows: &[usize],
        is_found: &BooleanArray,
        (version, right_version): (&Int64Array, &Int64Array),
    ) -> Result<Option<RecordBatch>> {
        let layout = Arc::clone(&self.layout);
        let is_outer = layout.spec.how == How::Left;
        let keys = collect(probes.iter().map(|key| [*key, &[]]))?;
        let left = self.rows.find(probes)?.live();
        let absent: Vec<bool> = rows.iter().map(|i| !is_found.value(*i)).collect();
        let absent = BooleanArray::from(absent);
        let wanted: UInt32Array = rows.iter().map(|i| u32::try_from(*i).ok()).collect();
        let mut taken = Vec::new();
        for field in &layout.right {
            let column = responses.column_by_name(field.name()).ok_or_else(|| {
                let what = "a response of a join lacks a column of the right table";
                Error::new(Kind::InvalidArgument, what).with_column(field.name())
            })?;
            taken.push(arrow_select::take::take(column, &wanted, None).map_err(Error::from_arrow)?);
        }
        let answer = blocks_of(layout.right_blocks(), &keys, &absent, taken)?;
        let right = View::default().with(answer.clone()).find(probes)?.live();
        let is_there: Vec<bool> =
            (0..probes.len()).map(|i| left.is_live(i) && (is_outer || right.is_live(i))).collect();
        let before = Pairs {
            left: self.out_left.find(probes)?.live(),
            right: self.out_right.find(probes)?.live(),
            is_there: {
                let shown = self.out.find(probes)?;
                (0..probes.len()).map(|i| shown.is_live(i)).collect()
            },
        };
        let hidden = BooleanArray::from(is_there.iter().map(|there| !there).collect::<Vec<_>>());
        let columns = layout.left.iter().enumerate();
        let columns = columns.map(|(place, f)| left.column(2 + place, f.data_type()));
        let shown_left =
            blocks_of(layout.left_blocks(), &keys, &hidden, columns.collect::<Result<_>>()?)?;
        let of = |numbers: &Int64Array| -> ArrayRef {
            Arc::new(rows.iter().map(|i| numbers.value(*i)).collect::<Int64Array>())
        };
        let versions = vec![of(version), of(right_version)];
        let out = blocks_of(out_schema(), &keys, &hidden, versions)?;
        let changes = emit(&layout, &before, &Pairs { left, right, is_there }, |_| false)?;
        add(&mut self.out, out)?;
        add(&mut self.out_left, shown_left)?;
        add(&mut self.out_right, answer)?;
        Ok(changes)
    }
}

fn meta_schema() -> SchemaRef {
    let fields: [FieldRef; 3] = [
        Arc::new(Field::new("_version", DataType::Int64, false)),
        Arc::new(Field::new("_hash", DataType::FixedSizeBinary(HASH_BYTES), false)),
        Arc::new(Field::new("_fk", DataType::Binary, true)),
    ];
    schema_of(false, false, &fields)
}

fn out_schema() -> SchemaRef {
    let fields: [FieldRef; 2] = [
        Arc::new(Field::new("_version", DataType::Int64, false)),
        Arc::new(Field::new("_right_version", DataType::Int64, false)),
    ];
    schema_of(false, false, &fields)
}

/// Only for tests: what the side holds, as text.
#[cfg(test)]
impl StagedLeft {
    pub(super) fn dump(&self) -> String {
        let views = [&self.meta, &self.rows, &self.out, &self.out_left, &self.out_right];
        format!("{} {}", self.version, super::right::dump(&views))
    }
}
