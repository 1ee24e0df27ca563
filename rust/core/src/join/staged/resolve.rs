//! The left side: which responses count, and what they change in the result.
//!
//! ```text
//! response  to another epoch of this side    passed over; to a later one: a new epoch, all keys owed
//!           to the current version           counts, unless one of a newer right row has counted
//!           to it, of another right epoch    passed over: a new epoch, all keys owed
//!           of a right side not heard of     as these; and all keys owed
//! due       the answer that the result shows, once more: it goes with the row as it is now
//! ```
//!
//! # Not here
//! Subscribing (`left`).

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, UInt32Array,
    new_null_array,
};
use arrow_schema::{ArrowError, DataType, SchemaRef};

use super::keeper::{Added, Clock, Keeper, Received, block_of, nothing, view_of};
use super::left::{
    HASH, LEFT_EPOCH, PLACE, RESULT, RESULT_LEFT, RESULT_RIGHT, RIGHT_EPOCH, RIGHT_VERSION, ROWS,
    StagedLeft, VERSION, result_schema,
};
use super::messages::{
    HASH_BYTES, found, hash_of, in_response_order, keys_of, numbers, response_schema,
};
use crate::join::block::Block;
use crate::join::deduplicate::collect;
use crate::join::emit::{Pairs, emit, values};
use crate::join::find::View;
use crate::join::layout::{Layout, Side};
use crate::join::picked::Picked;
use crate::join::range::Ranges;
use crate::join::spec::How;
use plait_base::{Error, Result};

/// Responses, column by column.
struct Responses<'a> {
    batch: &'a RecordBatch,
    keys: &'a BinaryArray,
    left_epoch: &'a Int64Array,
    version: &'a Int64Array,
    right_epoch: &'a Int64Array,
    right_version: &'a Int64Array,
    is_found: &'a BooleanArray,
}

impl<'a> Responses<'a> {
    fn of(batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            batch,
            keys: keys_of(batch)?,
            left_epoch: numbers(batch, "_left_epoch")?,
            version: numbers(batch, "_version")?,
            right_epoch: numbers(batch, "_right_epoch")?,
            right_version: numbers(batch, "_right_version")?,
            is_found: found(batch)?,
        })
    }

    /// Of each key the newest answer to this epoch: of the newest version, then of the newest right row.
    /// And whether two right sides answered to one version.
    fn newest(&self, epoch: i64) -> (Vec<usize>, bool) {
        let is_ours = |i: &usize| self.keys.is_valid(*i) && self.left_epoch.value(*i) == epoch;
        let mut order: Vec<usize> = (0..self.keys.len()).filter(is_ours).collect();
        let at = |i: usize| (self.version.value(i), self.right_version.value(i));
        order.sort_unstable_by_key(|i| (self.keys.value(*i), at(*i), *i));
        let (mut last, mut is_odd) = (Vec::<usize>::with_capacity(order.len()), false);
        for i in order {
            match last.last_mut() {
                Some(before) if self.keys.value(*before) == self.keys.value(i) => {
                    is_odd |= self.version.value(*before) == self.version.value(i)
                        && self.right_epoch.value(*before) != self.right_epoch.value(i);
                    *before = i;
                }
                _ => last.push(i),
            }
        }
        (last, is_odd)
    }
}

impl StagedLeft {
    /// Takes responses of right sides, if there are any, and gives the changes of the join, those of rows
    /// that are due among them; `None` without any.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`](plait_base::Kind::InvalidArgument) for what is no batch of responses,
    /// what the joiner gives, and what reading and writing give: then nothing changed.
    pub fn resolve(
        &mut self,
        keeper: &mut dyn Keeper,
        responses: Option<&RecordBatch>,
    ) -> Result<Option<RecordBatch>> {
        let responses = self.with_due(responses)?;
        let responses = Responses::of(&responses)?;
        let (last, is_odd) = responses.newest(self.clock.epoch);
        let (rows, is_odd_now) = self.counting(&responses, &last)?;
        let clock = self.heard(&responses, is_odd || is_odd_now);
        let owes = clock != self.clock;
        if rows.is_empty() && !owes {
            self.due.clear();
            return Ok(None);
        }
        let blocks = self.shown(&responses, &rows)?;
        let last: Vec<View> = blocks.iter().map(view_of).collect();
        let changes = self.changes_again(&self.tables, &last)?;
        let added = Added { clock: &clock, blocks, received: Received::default() };
        self.tables = keeper.add(&self.tables, added)?;
        self.clock = clock;
        self.due.clear();
        if owes {
            self.owe()?;
        }
        Ok(changes)
    }

    /// The responses, behind the answers that the result shows for rows that are due.
    fn with_due(&self, responses: Option<&RecordBatch>) -> Result<RecordBatch> {
        let fields = &self.layout.right;
        let responses = responses.map(|responses| in_response_order(fields, responses));
        let mut all: Vec<RecordBatch> = responses.transpose()?.into_iter().collect();
        if !self.due.is_empty() {
            all.insert(0, self.stored_answers()?);
        }
        arrow_select::concat::concat_batches(&response_schema(fields), &all)
            .map_err(Error::from_arrow)
    }

    /// What right sides answered, for rows that are due.
    fn stored_answers(&self) -> Result<RecordBatch> {
        let keys: Vec<&[u8]> = self.due.iter().map(AsRef::as_ref).collect();
        let (place, shown) = (self.table(PLACE).find(&keys)?, self.table(RESULT).find(&keys)?);
        let right = self.table(RESULT_RIGHT).find(&keys)?.live();
        let answered = |i: &usize| place.is_found(*i) && shown.is_found(*i);
        let rows: Vec<usize> = (0..keys.len()).filter(answered).collect();
        let at = |picked: &Picked| picked.at(rows.iter().map(|row| Some(*row)));
        let (place, shown, right) = (at(&place), at(&shown), at(&right));
        let number = |column| shown.column(column, &DataType::Int64);
        let is_found: BooleanArray = (0..rows.len()).map(|i| Some(right.is_live(i))).collect();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(BinaryArray::from_iter_values(rows.iter().map(|row| keys[*row]))),
            number(LEFT_EPOCH)?,
            number(VERSION)?,
            place.column(HASH, &DataType::FixedSizeBinary(HASH_BYTES))?,
            number(RIGHT_EPOCH)?,
            number(RIGHT_VERSION)?,
            Arc::new(is_found),
        ];
        let layout = &self.layout;
        for (place, field) in layout.right.iter().enumerate() {
            columns.push(right.column(layout.first(Side::Right) + place, field.data_type())?);
        }
        RecordBatch::try_new(response_schema(&self.layout.right), columns)
            .map_err(Error::from_arrow)
    }

    /// The clock after these responses. This side begins a new epoch where two right sides answered to
    /// one version (`is_odd`), of which only one can be alive: that one alone answers to the new epoch.
    /// It also does where a right side knows a greater epoch of this side, and passes over what this one
    /// sends.
    fn heard(&self, responses: &Responses<'_>, is_odd: bool) -> Clock {
        let mut clock = self.clock.clone();
        let known = responses.left_epoch.values().iter().copied().max().unwrap_or(0);
        for epoch in responses.right_epoch.values() {
            if clock.rights.last() != Some(epoch) && !clock.rights.contains(epoch) {
                clock.rights.push(*epoch);
            }
        }
        if known > clock.epoch || is_odd {
            clock.epoch = clock.after(known.max(clock.epoch));
        }
        clock
    }

    /// Which of the responses `last` count; and whether the result shows the answer of another right side
    /// to one of these versions.
    fn counting(&self, responses: &Responses<'_>, last: &[usize]) -> Result<(Vec<usize>, bool)> {
        let probes: Vec<&[u8]> = last.iter().map(|i| responses.keys.value(*i)).collect();
        let places = self.table(PLACE).find(&probes)?;
        let shown = self.table(RESULT).find(&probes)?;
        let number =
            |picked: &Picked, place| -> Result<ArrayRef> { picked.column(place, &DataType::Int64) };
        let stored_hash = places.column(HASH, &DataType::FixedSizeBinary(HASH_BYTES))?;
        let all = [
            number(&places, VERSION)?,
            number(&shown, VERSION)?,
            number(&shown, LEFT_EPOCH)?,
            number(&shown, RIGHT_EPOCH)?,
            number(&shown, RIGHT_VERSION)?,
        ];
        let [current, shown_version, shown_epoch, shown_side, shown_right] =
            all.each_ref().map(|array| array.as_primitive::<Int64Type>());
        let hash = hash_of(responses.batch)?;
        let (mut rows, mut is_odd) = (Vec::with_capacity(last.len()), false);
        for (place, i) in last.iter().enumerate() {
            let asked = (responses.left_epoch.value(*i), responses.version.value(*i));
            let is_current = places.is_found(place)
                && current.value(place) == asked.1
                && stored_hash.as_fixed_size_binary().value(place) == hash.value(*i);
            let is_same = shown.is_found(place)
                && (shown_epoch.value(place), shown_version.value(place)) == asked;
            let is_other = is_same && responses.right_epoch.value(*i) != shown_side.value(place);
            let is_older = is_same && responses.right_version.value(*i) < shown_right.value(place);
            is_odd |= is_current && is_other;
            if is_current && !is_other && !is_older {
                rows.push(*i);
            }
        }
        Ok((rows, is_odd))
    }

    /// The rows that responses put in the result, as blocks of all tables.
    fn shown(&self, responses: &Responses<'_>, rows: &[usize]) -> Result<Vec<Block>> {
        let layout = &self.layout;
        let probes: Vec<&[u8]> = rows.iter().map(|i| responses.keys.value(*i)).collect();
        let keys = collect(probes.iter().map(|key| [*key, &[]]))?;
        let left = self.table(ROWS).find(&probes)?.live();
        let wanted: UInt32Array = rows.iter().map(|i| u32::try_from(*i).ok()).collect();
        // Blocks of right rows have a place for sequence numbers, which a result does not have.
        let sequence = layout.sequence_place(Side::Right);
        let sequence = sequence.map(|_| new_null_array(&DataType::Int64, rows.len()));
        let mut taken: Vec<ArrayRef> = sequence.into_iter().collect();
        let columns = responses.batch.columns();
        for column in &columns[columns.len() - layout.right.len()..] {
            taken.push(arrow_select::take::take(column, &wanted, None).map_err(Error::from_arrow)?);
        }
        let is_found = |i: usize| responses.is_found.value(rows[i]);
        let is_outer = layout.spec.how == How::Left;
        let is_hidden = |i: usize| !left.is_live(i) || (!is_outer && !is_found(i));
        let hidden = BooleanArray::from((0..rows.len()).map(is_hidden).collect::<Vec<_>>());
        let absent = |i: usize| is_hidden(i) || !is_found(i);
        let absent = BooleanArray::from((0..rows.len()).map(absent).collect::<Vec<_>>());
        let of = |numbers: &Int64Array| -> ArrayRef {
            Arc::new(rows.iter().map(|i| numbers.value(*i)).collect::<Int64Array>())
        };
        let Responses { version, left_epoch, right_epoch, right_version, .. } = responses;
        let versions = [version, left_epoch, right_epoch, right_version].map(|all| of(all));
        let columns = layout.left.iter().enumerate();
        let columns = columns.map(|(place, f)| left.column(2 + place, f.data_type()));
        let tables = Self::tables_of(layout);
        let mut blocks = Vec::with_capacity(tables.len());
        for table in tables.into_iter().take(RESULT) {
            blocks.push(nothing(table.schema)?);
        }
        blocks.push(block_of(result_schema(), &keys, &hidden, versions.to_vec())?);
        let columns = columns.collect::<Result<_>>()?;
        blocks.push(block_of(layout.left_blocks(), &keys, &hidden, columns)?);
        blocks.push(block_of(layout.right_blocks(), &keys, &absent, taken)?);
        Ok(blocks)
    }

    /// The result as it is now, by primary key.
    ///
    /// # Errors
    /// None but those of memory.
    pub fn result(&self, batch_rows: usize) -> Result<Shown> {
        Shown::try_new(Arc::clone(&self.layout), &self.tables, batch_rows)
    }

    /// The changes that a call made which added `last` to `before`; `None` when there are none.
    ///
    /// # Errors
    /// What reading the tables gives, and the joiner.
    pub fn changes_again(&self, before: &[View], last: &[View]) -> Result<Option<RecordBatch>> {
        let changes = joined_changes(&self.layout, before, last)?;
        let Some((joiner, changes)) = self.joiner.as_ref().zip(changes.as_ref()) else {
            return Ok(changes);
        };
        let changes = joiner.change(changes)?;
        Ok((changes.num_rows() > 0).then_some(changes))
    }
}

/// The changes of joined rows.
fn joined_changes(layout: &Layout, before: &[View], last: &[View]) -> Result<Option<RecordBatch>> {
    let Some(run) = last.get(RESULT).and_then(|view| view.runs.first()) else { return Ok(None) };
    let blocks = (0..run.blocks()).map(|i| run.block(i)).collect::<Result<Vec<_>>>()?;
    let rows = blocks.iter().flat_map(|block| (0..block.len()).map(move |row| block.key(row)));
    let keys: Vec<&[u8]> = rows.collect();
    let pairs = |tables: &[View]| -> Result<Pairs> {
        let find = |place: usize| match tables.get(place) {
            Some(view) => view.find(&keys),
            None => View::default().find(&keys),
        };
        let shown = find(RESULT)?;
        Ok(Pairs {
            left: find(RESULT_LEFT)?.live(),
            right: find(RESULT_RIGHT)?.live(),
            is_there: (0..keys.len()).map(|i| shown.is_live(i)).collect(),
        })
    };
    emit(layout, &pairs(before)?, &pairs(last)?, |_| false)
}

/// The result, a batch at a time.
pub struct Shown {
    layout: Arc<Layout>,
    schema: SchemaRef,
    tables: Vec<View>,
    ranges: Ranges,
    batch_rows: usize,
}

impl Shown {
    fn try_new(layout: Arc<Layout>, tables: &[View], batch_rows: usize) -> Result<Self> {
        let tables: Vec<View> = tables.iter().skip(RESULT).cloned().collect();
        // Every key begins with nothing.
        let prefixes = collect([[&[][..], &[][..]]].into_iter())?;
        let ranges = Ranges::new(tables.first().cloned().unwrap_or_default(), prefixes);
        let schema = layout.table();
        Ok(Self { layout, schema, tables, ranges, batch_rows: batch_rows.max(1) })
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Some(stretch) = self.ranges.next(self.batch_rows)? else { return Ok(None) };
        let rows = stretch.picked;
        let keys: Vec<&[u8]> = (0..rows.len()).map(|i| rows.key(i).unwrap_or_default()).collect();
        let [_, left, right] = self.tables.as_slice() else { return Ok(None) };
        let pairs = Pairs {
            left: left.find(&keys)?.live(),
            right: right.find(&keys)?.live(),
            is_there: vec![true; keys.len()],
        };
        let places: Vec<usize> = (0..keys.len()).collect();
        let columns = values(&self.layout, &pairs, &places)?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        batch.map(Some).map_err(Error::from_arrow)
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("batch_rows", &self.batch_rows).finish_non_exhaustive()
    }
}

impl Iterator for Shown {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(Error::into_arrow).transpose()
    }
}

impl arrow_array::RecordBatchReader for Shown {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
