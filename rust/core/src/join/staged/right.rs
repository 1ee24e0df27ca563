//! The right side: answers subscriptions, and tells subscribers of changes.
//!
//! # Invariants
//! The newest subscription of a foreign key and left key counts, by epoch and version. Versions of right
//! rows grow. The first message of an epoch greets all left sides.
//!
//! # Not here
//! The left side (`left`, `resolve`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, UInt32Array,
};
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};

use super::keeper::{Added, Clock, Keeper, Received, StateTable, block_of, nothing, view_of};
use super::messages::{
    HASH_BYTES, Instruction, binary, check_names, empty_responses, hash_of, instructions, numbers,
    response_schema,
};
use crate::join::block::{SEQUENCE, schema_of};
use crate::join::deduplicate::{collect, deduplicate_side};
use crate::join::find::View;
use crate::join::layout::{Layout, Side};
use crate::join::picked::Picked;
use crate::join::range::Ranges;
use crate::join::step::{current, sequence_column};
use crate::workers::Alone;
use plait_base::{Error, Result};

/// Places in blocks of subscribers.
const LEFT_EPOCH: usize = 2;
const LEFT_VERSION: usize = 3;
const HASH: usize = 4;
/// Places in blocks of rows: the version, the first right column.
const VERSION: usize = 2;
const COLUMNS: usize = 3;

/// Places of tables.
const SUBSCRIBERS: usize = 0;
const ROWS: usize = 1;

/// The right side of a staged join.
#[derive(Clone, Debug)]
pub struct StagedRight {
    layout: Arc<Layout>,
    pub(super) clock: Clock,
    pub(super) tables: Vec<View>,
    /// Whether left sides do not know of this epoch yet.
    owes_greeting: bool,
}

/// Subscriptions, column by column.
struct Heard<'a> {
    /// Foreign key and left key as one.
    whole: BinaryArray,
    foreign: &'a BinaryArray,
    key: &'a BinaryArray,
    epoch: &'a Int64Array,
    version: &'a Int64Array,
    instruction: Vec<Instruction>,
}

/// The newest subscription of a key among those that came.
struct Newest {
    row: usize,
    /// Whether subscriptions of two epochs of the left side met.
    is_mixed: bool,
}

impl Heard<'_> {
    fn of(batch: &RecordBatch) -> Result<Heard<'_>> {
        let (foreign, key) = (binary(batch, "_fk")?, binary(batch, "_pk")?);
        Ok(Heard {
            whole: collect((0..key.len()).map(|i| [foreign.value(i), key.value(i)]))?,
            foreign,
            key,
            epoch: numbers(batch, "_left_epoch")?,
            version: numbers(batch, "_version")?,
            instruction: instructions(batch)?,
        })
    }

    fn at(&self, i: usize) -> (i64, i64) {
        (self.epoch.value(i), self.version.value(i))
    }

    fn newest(&self) -> Vec<Newest> {
        let mut order: Vec<usize> = (0..self.key.len()).collect();
        order.sort_unstable_by_key(|i| (self.whole.value(*i), self.at(*i), *i));
        let mut newest: Vec<Newest> = Vec::with_capacity(order.len());
        for row in order {
            match newest.last_mut() {
                Some(last) if self.whole.value(last.row) == self.whole.value(row) => {
                    last.is_mixed |= self.epoch.value(last.row) != self.epoch.value(row);
                    last.row = row;
                }
                _ => newest.push(Newest { row, is_mixed: false }),
            }
        }
        newest
    }

    fn forgets(&self, i: usize) -> bool {
        use Instruction::{DeleteKeyAndPropagate, DeleteKeyNoPropagate};
        matches!(self.instruction[i], DeleteKeyAndPropagate | DeleteKeyNoPropagate)
    }
}

impl StagedRight {
    /// A side with these tables, those of [`Self::tables_of`], in order; all empty at first.
    ///
    /// # Errors
    /// As [`StagedLeft::try_new`](super::StagedLeft::try_new).
    pub fn try_new(layout: Arc<Layout>, clock: Clock, tables: Vec<View>) -> Result<Self> {
        check_names(&layout.right)?;
        Ok(Self { layout, clock, tables, owes_greeting: true })
    }

    /// The tables of a right side.
    #[must_use]
    pub fn tables_of(layout: &Layout) -> Vec<StateTable> {
        let table = |name, schema| StateTable { name, schema, keeps_deleted: true };
        vec![
            // By foreign key, then left key: epoch, version and hash of the left row.
            table("subscriber", subscriber_schema()),
            // By key: version and columns.
            table("right", row_schema(layout)),
        ]
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether left sides have to hear of something though nothing changed.
    #[must_use]
    pub fn is_owing(&self) -> bool {
        self.owes_greeting
    }

    fn table(&self, place: usize) -> View {
        self.tables.get(place).cloned().unwrap_or_default()
    }

    /// Takes subscriptions of left sides, and gives responses.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`](plait_base::Kind::InvalidArgument) for what is no batch of subscriptions, and
    /// what reading and writing give: then nothing changed.
    pub fn receive(
        &mut self,
        keeper: &mut dyn Keeper,
        subscriptions: &RecordBatch,
    ) -> Result<RecordBatch> {
        let heard = Heard::of(subscriptions)?;
        let hash = hash_of(subscriptions)?;
        let newest = heard.newest();
        let probes: Vec<&[u8]> = newest.iter().map(|one| heard.whole.value(one.row)).collect();
        let found = self.table(SUBSCRIBERS).find(&probes)?;
        let number = |place| found.column(place, &DataType::Int64);
        let (stored_epoch, stored) = (number(LEFT_EPOCH)?, number(LEFT_VERSION)?);
        let (stored_epoch, stored) =
            (stored_epoch.as_primitive::<Int64Type>(), stored.as_primitive::<Int64Type>());
        let (mut rows, mut mixed, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        for (place, one) in newest.iter().enumerate() {
            let before = (stored_epoch.value(place), stored.value(place));
            let is_known = found.is_found(place);
            let is_mixed = one.is_mixed || (is_known && before.0 != heard.epoch.value(one.row));
            if !is_known || before <= heard.at(one.row) {
                rows.push(one.row);
                mixed.push(is_mixed);
            } else if is_mixed {
                notices.push((one.row, before.0));
            }
        }
        let wanted: UInt32Array = rows.iter().map(|i| u32::try_from(*i).ok()).collect();
        let take = |array: &dyn Array| {
            arrow_select::take::take(array, &wanted, None).map_err(Error::from_arrow)
        };
        let columns = vec![take(heard.epoch)?, take(heard.version)?, take(hash)?];
        let keys = collect(rows.iter().map(|i| [heard.whole.value(*i), &[]]))?;
        let forgets = rows.iter().map(|i| heard.forgets(*i)).collect::<Vec<_>>();
        let block = block_of(subscriber_schema(), &keys, &BooleanArray::from(forgets), columns)?;

        let foreign: Vec<Option<&[u8]>> =
            rows.iter().map(|i| Some(heard.foreign.value(*i))).collect();
        let right = self.table(ROWS).find_any(&foreign)?;
        let answers = |place: &usize| match heard.instruction[rows[*place]] {
            Instruction::DeleteKeyNoPropagate => false,
            Instruction::DeleteKeyAndPropagate => true,
            Instruction::PropagateNullIfNoFkValAvailable => true,
            Instruction::PropagateOnlyIfFkValAvailable => right.is_live(*place),
        };
        let places: Vec<usize> = (0..rows.len()).filter(answers).collect();
        // An answer tells which epoch counts; where there is none, a left side whose clock went back would
        // not learn that its subscription was passed over.
        let silent = (0..rows.len()).filter(|place| mixed[*place] && !answers(place));
        notices.extend(silent.map(|place| (rows[place], heard.epoch.value(rows[place]))));
        // Who is forgotten hears that there is nothing.
        let right = right.at(places.iter().map(|place| Some(*place)));
        let may_send: Vec<bool> = places.iter().map(|place| !heard.forgets(rows[*place])).collect();
        let wanted: UInt32Array =
            places.iter().map(|place| u32::try_from(rows[*place]).ok()).collect();
        let take = |array: &dyn Array| {
            arrow_select::take::take(array, &wanted, None).map_err(Error::from_arrow)
        };
        let subscribers = [take(heard.key)?, take(heard.epoch)?, take(heard.version)?, take(hash)?];
        let answered = self.responses(subscribers, right, &may_send)?;
        let keys: Vec<Option<&[u8]>> =
            notices.iter().map(|(row, _)| Some(heard.key.value(*row))).collect();
        let epochs: Vec<i64> = notices.iter().map(|(_, epoch)| *epoch).collect();
        let noticed = empty_responses(&self.layout.right, &keys, &epochs, self.clock.epoch)?;
        let all = self.greeted(vec![answered, noticed])?;
        if !rows.is_empty() {
            let blocks = vec![block, nothing(row_schema(&self.layout))?];
            let added = Added { clock: &self.clock, blocks, received: Received::default() };
            self.tables = keeper.add(&self.tables, added)?;
        }
        self.owes_greeting = false;
        Ok(all)
    }

    /// Takes changes of the right table, and gives responses for all who subscribed to them; without
    /// changes, what left sides have to hear in any case.
    ///
    /// # Errors
    /// As [`deduplicate`](crate::join::deduplicate), and what reading and writing give: then nothing changed.
    pub fn apply(
        &mut self,
        keeper: &mut dyn Keeper,
        changes: Option<&RecordBatch>,
    ) -> Result<RecordBatch> {
        let Some(changes) = changes else {
            let all = self.greeted(Vec::new())?;
            self.owes_greeting = false;
            return Ok(all);
        };
        let deduplicated = deduplicate_side(&self.layout, Side::Right, changes)?;
        let mut received = Received::of(&deduplicated);
        let sequence = COLUMNS + self.layout.right.len();
        let sequence = self.layout.has_sequence(Side::Right).then_some(sequence);
        let (known, stale) = (self.table(ROWS), &mut received.stale);
        let (deduplicated, _) = current(&known, sequence, deduplicated, stale, &Alone)?;
        let version = self.clock.version.saturating_add(1);
        let clock = Clock { version, ..self.clock.clone() };
        let deleted = deduplicated.deleted_array();
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(vec![version; deduplicated.len()]))];
        columns.extend(deduplicated.taken(&Alone)?);
        columns.extend(sequence_column(&deduplicated));
        let rows = block_of(row_schema(&self.layout), &deduplicated.keys, &deleted, columns)?;
        let probes: Vec<&[u8]> =
            (0..deduplicated.len()).map(|i| deduplicated.keys.value(i)).collect();
        let right = view_of(&rows).find(&probes)?;

        let mut ranges = Ranges::new(self.table(SUBSCRIBERS), deduplicated.keys.clone());
        let mut all = Vec::new();
        while let Some(stretch) = ranges.next(usize::MAX)? {
            let picked = stretch.picked;
            let mut keys: Vec<&[u8]> = Vec::with_capacity(picked.len());
            for (i, prefix) in stretch.prefixes.iter().enumerate() {
                let len = probes[*prefix as usize].len();
                keys.push(picked.key(i).and_then(|key| key.get(len..)).unwrap_or_default());
            }
            let keys: ArrayRef = Arc::new(BinaryArray::from_iter_values(keys));
            let subscribers = [
                keys,
                picked.column(LEFT_EPOCH, &DataType::Int64)?,
                picked.column(LEFT_VERSION, &DataType::Int64)?,
                picked.column(HASH, &DataType::FixedSizeBinary(HASH_BYTES))?,
            ];
            let right = right.at(stretch.prefixes.iter().map(|prefix| Some(*prefix as usize)));
            let may_send = vec![true; picked.len()];
            all.push(self.responses(subscribers, right, &may_send)?);
        }
        let all = self.greeted(all)?;
        let blocks = vec![nothing(subscriber_schema())?, rows];
        self.tables = keeper.add(&self.tables, Added { clock: &clock, blocks, received })?;
        self.clock = clock;
        self.owes_greeting = false;
        Ok(all)
    }

    /// These responses as one, behind a greeting if left sides do not know of the epoch.
    fn greeted(&self, responses: Vec<RecordBatch>) -> Result<RecordBatch> {
        let (fields, epoch) = (&self.layout.right, self.clock.epoch);
        let greeting = self.owes_greeting.then(|| empty_responses(fields, &[None], &[0], epoch));
        let all: Vec<RecordBatch> = greeting.transpose()?.into_iter().chain(responses).collect();
        arrow_select::concat::concat_batches(&response_schema(fields), &all)
            .map_err(Error::from_arrow)
    }

    /// Responses with right rows, to subscribers: key, epoch, version, hash; `may_send` says
    /// whether a row may be sent.
    fn responses(
        &self,
        [key, left_epoch, version, hash]: [ArrayRef; 4],
        right: Picked,
        may_send: &[bool],
    ) -> Result<RecordBatch> {
        let right_version = right.column(VERSION, &DataType::Int64)?;
        let right_version = right_version.as_primitive::<Int64Type>();
        // A row that never was is older than all that were.
        let right_version: Int64Array = right_version.iter().map(|v| v.unwrap_or(0)).collect();
        let is_found: Vec<bool> = may_send
            .iter()
            .enumerate()
            .map(|(i, may_send)| *may_send && right.is_live(i))
            .collect();
        let shown = right.at(is_found.iter().enumerate().map(|(i, found)| found.then_some(i)));
        let mut columns: Vec<ArrayRef> = vec![
            key,
            left_epoch,
            version,
            hash,
            Arc::new(Int64Array::from(vec![self.clock.epoch; may_send.len()])),
            Arc::new(right_version),
            Arc::new(BooleanArray::from(is_found)),
        ];
        for (place, field) in self.layout.right.iter().enumerate() {
            columns.push(shown.column(COLUMNS + place, field.data_type())?);
        }
        RecordBatch::try_new(response_schema(&self.layout.right), columns)
            .map_err(Error::from_arrow)
    }
}

fn row_schema(layout: &Layout) -> SchemaRef {
    let number = |name: &str| -> FieldRef { Arc::new(Field::new(name, DataType::Int64, true)) };
    let mut fields = vec![number("_version")];
    fields.extend(layout.right.iter().cloned());
    fields.extend(layout.has_sequence(Side::Right).then(|| number(SEQUENCE)));
    schema_of(false, false, &fields)
}

fn subscriber_schema() -> SchemaRef {
    let fields: [FieldRef; 3] = [
        Arc::new(Field::new("_left_epoch", DataType::Int64, true)),
        Arc::new(Field::new("_version", DataType::Int64, true)),
        Arc::new(Field::new("_hash", DataType::FixedSizeBinary(HASH_BYTES), true)),
    ];
    schema_of(false, false, &fields)
}
