//! The left side: subscribes to right rows, once more to all of them when a side began again.
//!
//! ```text
//! change of PK     place before     subscriptions              version
//! insert, FK b     none             keep b                     new
//! update, FK b     FK b             none: that of b stands     as it was; the row is due
//! update, FK b     FK a             forget a, keep b           new
//! delete           FK a             forget a, and answer       new
//! delete           deleted          none                       as it was
//! ```
//!
//! # Invariants
//! A row in the result was resolved for some version; its key keeps both versions. What is owed to right
//! sides and what is due are not stored: a side that begins again owes everything.
//!
//! # Cost
//! Subscribing again passes over the left table, [`AGAIN_ROWS`] rows a call.
//!
//! # Not here
//! What comes back (`resolve`); the right side (`right`).

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};

use super::keeper::{Added, Clock, Keeper, Received, StateTable, block_of, nothing};
use super::messages::{
    HASH_BYTES, Instruction, Subscription, Subscriptions, check_names, hashes, row_hashes,
};
use crate::join::block::{self, Block, schema_of};
use crate::join::deduplicate::{Deduplicated, collect, deduplicate_side};
use crate::join::find::View;
use crate::join::joiner::Joiner;
use crate::join::layout::{Layout, Side};
use crate::join::picked::Picked;
use crate::join::range::Ranges;
use crate::join::spec::How;
use crate::join::step::{current, sequence_column};
use crate::workers::Alone;
use plait_base::Result;

/// Places in blocks of versions, and in those of the result.
pub(super) const VERSION: usize = 2;
pub(super) const HASH: usize = 3;
const FOREIGN: usize = 4;
const SEQUENCE: usize = 5;
pub(super) const LEFT_EPOCH: usize = 3;
pub(super) const RIGHT_EPOCH: usize = 4;
pub(super) const RIGHT_VERSION: usize = 5;

/// Rows that one call subscribes to again.
const AGAIN_ROWS: usize = 1 << 18;

/// Places of tables.
pub(super) const PLACE: usize = 0;
pub(super) const ROWS: usize = 1;
pub(super) const RESULT: usize = 2;
pub(super) const RESULT_LEFT: usize = 3;
pub(super) const RESULT_RIGHT: usize = 4;

/// The left side of a staged join.
#[derive(Clone, Debug)]
pub struct StagedLeft {
    pub(super) layout: Arc<Layout>,
    pub(super) clock: Clock,
    pub(super) tables: Vec<View>,
    /// The keys that right sides have to hear of again.
    owed: Option<Ranges>,
    /// Keys whose rows changed and whose answers stand: the result has their old rows still.
    pub(super) due: BTreeSet<Box<[u8]>>,
    pub(super) joiner: Option<Joiner>,
}

/// What changes add.
struct LeftChanges {
    clock: Clock,
    blocks: Vec<Block>,
    received: Received,
    due: Vec<Box<[u8]>>,
}

/// What is known of changed keys.
struct KnownKeys {
    /// Version, hash and foreign key, of deleted keys too.
    place: Picked,
    /// The answers that the result was made of.
    shown: Picked,
}

impl StagedLeft {
    /// A side with these tables, those of [`Self::tables_of`], in order; all empty at first.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`](plait_base::Kind::InvalidArgument) for a column with the name of one of
    /// messages.
    pub fn try_new(layout: Arc<Layout>, clock: Clock, tables: Vec<View>) -> Result<Self> {
        check_names(&layout.right)?;
        let mut side =
            Self { layout, clock, tables, owed: None, due: BTreeSet::new(), joiner: None };
        side.owe()?;
        Ok(side)
    }

    /// The same with rows of the result as `joiner` makes them.
    #[must_use]
    pub fn with_joiner(self, joiner: Option<Joiner>) -> Self {
        Self { joiner, ..self }
    }

    /// The tables of a left side.
    #[must_use]
    pub fn tables_of(layout: &Layout) -> Vec<StateTable> {
        let table = |name, schema| StateTable { name, schema, keeps_deleted: true };
        let rows = |name, schema| StateTable { name, schema, keeps_deleted: false };
        vec![
            // By primary key: version, hash, foreign key; of a deleted row its last one.
            table("place", place_schema(layout)),
            // By primary key: the left columns.
            rows("left", layout.left_blocks()),
            // By primary key: the answer that the row in the result was made of; deleted = no row.
            table("result", result_schema()),
            rows("result_left", layout.left_blocks()),
            rows("result_right", layout.right_blocks()),
        ]
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether right sides have to hear of something though nothing changed.
    #[must_use]
    pub fn is_owing(&self) -> bool {
        self.owed.is_some()
    }

    /// Whether rows changed that need no answer: [`Self::resolve`] puts them in the result.
    #[must_use]
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Owes right sides all keys.
    pub(super) fn owe(&mut self) -> Result<()> {
        let places = self.table(PLACE);
        let prefixes = collect([[&[][..], &[][..]]].into_iter())?;
        let all = || Ranges::new(places.clone(), prefixes).with_deleted(true);
        self.owed = (places.rows() > 0).then(all);
        Ok(())
    }

    pub(super) fn table(&self, place: usize) -> View {
        self.tables.get(place).cloned().unwrap_or_default()
    }

    /// Takes changes of the left table, and gives subscriptions for the right side: for these, and
    /// for some of those that are owed.
    ///
    /// # Errors
    /// As [`deduplicate`](crate::join::deduplicate), and what reading and writing give: then nothing changed.
    pub fn send(
        &mut self,
        keeper: &mut dyn Keeper,
        changes: Option<&RecordBatch>,
    ) -> Result<RecordBatch> {
        let mut out = Subscriptions::default();
        let was_owing = self.is_owing();
        let done = (|| -> Result<()> {
            let added = changes.map(|changes| self.added(changes, &mut out)).transpose()?;
            self.repay(&mut out)?;
            if let Some(LeftChanges { clock, blocks, received, due }) = added {
                let added = Added { clock: &clock, blocks, received };
                self.tables = keeper.add(&self.tables, added)?;
                self.clock = clock;
                self.due.extend(due);
            }
            Ok(())
        })();
        if let Err(error) = done {
            if was_owing {
                // What was taken from the list did not leave.
                self.owe()?;
            }
            return Err(error);
        }
        out.finish(self.clock.epoch)
    }

    /// What changes add to the tables; their subscriptions go to `out`.
    fn added(&self, changes: &RecordBatch, out: &mut Subscriptions) -> Result<LeftChanges> {
        let deduplicated = deduplicate_side(&self.layout, Side::Left, changes)?;
        let mut received = Received::of(&deduplicated);
        let sequence = self.layout.has_sequence(Side::Left).then_some(SEQUENCE);
        let (places, stale) = (self.table(PLACE), &mut received.stale);
        let (deduplicated, place) = current(&places, sequence, deduplicated, stale, &Alone)?;
        let probes: Vec<&[u8]> =
            (0..deduplicated.len()).map(|i| deduplicated.keys.value(i)).collect();
        let shown = self.table(RESULT).find(&probes)?;
        let (place, due) = self.places(&deduplicated, &KnownKeys { place, shown }, out)?;
        let (keys, deleted) = (deduplicated.keys.clone(), deduplicated.deleted_array());
        let taken = deduplicated.taken(&Alone)?;
        let mut blocks = vec![place, block_of(self.layout.left_blocks(), &keys, &deleted, taken)?];
        for table in Self::tables_of(&self.layout).into_iter().skip(RESULT) {
            blocks.push(nothing(table.schema)?);
        }
        let version = self.clock.version.saturating_add(1);
        Ok(LeftChanges { clock: Clock { version, ..self.clock.clone() }, blocks, received, due })
    }

    /// The places that changed keys get, and the keys whose answers stand; subscriptions go to `out`.
    fn places(
        &self,
        changes: &Deduplicated,
        known: &KnownKeys,
        out: &mut Subscriptions,
    ) -> Result<(Block, Vec<Box<[u8]>>)> {
        let stored_foreign = known.place.bytes(FOREIGN)?;
        let old = |i: usize| stored_foreign.get(i).filter(|_| known.place.is_live(i));
        let numbers = |picked: &Picked, place| picked.column(place, &DataType::Int64);
        let stored = numbers(&known.place, VERSION)?;
        let (shown, epoch) = (numbers(&known.shown, VERSION)?, numbers(&known.shown, LEFT_EPOCH)?);
        let [stored, shown, epoch] =
            [&stored, &shown, &epoch].map(|array| array.as_primitive::<Int64Type>());
        let stored_hash = known.place.column(HASH, &DataType::FixedSizeBinary(HASH_BYTES))?;
        let all = row_hashes(&self.layout.left, &changes.columns)?;
        let is_outer = self.layout.spec.how == How::Left;
        let next = self.clock.version.saturating_add(1);
        let (mut versions, mut row_hash, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
        let mut due = Vec::new();
        for i in 0..changes.len() {
            let (key, row) = (changes.keys.value(i), changes.rows[i] as usize);
            let new = changes.foreign.as_ref().filter(|_| !changes.deleted[i]);
            let new = new.map(|foreign| foreign.value(row));
            foreign.push(new.or(stored_foreign.get(i)));
            let is_gone = new.is_none() && old(i).is_none() && known.place.is_found(i);
            let is_same = new.is_some() && new == old(i);
            if is_gone || is_same {
                // The subscription or its end stands, and so does its answer, which goes with any row of
                // the key. A key that is deleted once more must not outrun the answer to the first time.
                let is_shown =
                    (shown.value(i), epoch.value(i)) == (stored.value(i), self.clock.epoch);
                if is_same && is_shown {
                    due.push(key.into());
                }
                versions.push(stored.value(i));
                row_hash.push(hash_at(&stored_hash, i));
                continue;
            }
            let hash = if changes.deleted[i] { [0; 16] } else { all[row] };
            let mut push = |foreign: &[u8], instruction| {
                out.push(&Subscription { foreign, key, version: next, hash, instruction });
            };
            if let Some(old) = old(i).filter(|_| new.is_some()) {
                push(old, Instruction::DeleteKeyNoPropagate);
            }
            match (new, old(i)) {
                // What is shown must go or change, so an answer is needed in any case.
                (Some(new), _) if is_outer || known.shown.is_live(i) => {
                    push(new, Instruction::PropagateNullIfNoFkValAvailable);
                }
                (Some(new), _) => push(new, Instruction::PropagateOnlyIfFkValAvailable),
                (None, Some(old)) => push(old, Instruction::DeleteKeyAndPropagate),
                (None, None) => {}
            }
            versions.push(next);
            row_hash.push(hash);
        }
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(versions)),
            hashes(&row_hash)?,
            Arc::new(foreign.into_iter().collect::<BinaryArray>()),
        ];
        columns.extend(sequence_column(changes));
        let deleted = changes.deleted_array();
        Ok((block_of(place_schema(&self.layout), &changes.keys, &deleted, columns)?, due))
    }

    /// Subscribes again for the next keys that are owed. All are answered in any case, for nobody knows
    /// what the right side showed before.
    fn repay(&mut self, out: &mut Subscriptions) -> Result<()> {
        let Some(owed) = &mut self.owed else { return Ok(()) };
        let mut rows = 0;
        while rows < AGAIN_ROWS {
            let Some(stretch) = owed.next(AGAIN_ROWS - rows)? else {
                self.owed = None;
                return Ok(());
            };
            rows += stretch.picked.len();
            let was = stretch.picked;
            let keys: Vec<&[u8]> = (0..was.len()).map(|i| was.key(i).unwrap_or_default()).collect();
            let current = self.tables.get(PLACE).unwrap_or(&NONE).find(&keys)?;
            let shown = self.tables.get(RESULT).unwrap_or(&NONE).find(&keys)?;
            let was = was.column(VERSION, &DataType::Int64)?;
            let version = current.column(VERSION, &DataType::Int64)?;
            let number =
                |array: &ArrayRef, i| -> i64 { array.as_primitive::<Int64Type>().value(i) };
            let hash = current.column(HASH, &DataType::FixedSizeBinary(HASH_BYTES))?;
            let foreign = current.bytes(FOREIGN)?;
            for (i, key) in keys.iter().enumerate() {
                // A later version was sent since.
                let is_due = current.is_found(i) && number(&was, i) == number(&version, i);
                let instruction = match (current.is_live(i), shown.is_live(i)) {
                    (true, _) => Instruction::PropagateNullIfNoFkValAvailable,
                    (false, true) => Instruction::DeleteKeyAndPropagate,
                    (false, false) => continue,
                };
                let (true, Some(foreign)) = (is_due, foreign.get(i)) else { continue };
                let version = number(&version, i);
                let hash = hash_at(&hash, i);
                out.push(&Subscription { foreign, key, version, hash, instruction });
            }
        }
        Ok(())
    }
}

static NONE: View = View { runs: Vec::new() };

/// The hash in a row.
fn hash_at(hashes: &ArrayRef, row: usize) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(hashes.as_fixed_size_binary().value(row));
    bytes
}

fn number(name: &str) -> FieldRef {
    Arc::new(Field::new(name, DataType::Int64, true))
}

fn place_schema(layout: &Layout) -> SchemaRef {
    let mut fields: Vec<FieldRef> = vec![
        number("_version"),
        Arc::new(Field::new("_hash", DataType::FixedSizeBinary(HASH_BYTES), false)),
        Arc::new(Field::new("_fk", DataType::Binary, true)),
    ];
    fields.extend(layout.has_sequence(Side::Left).then(|| number(block::SEQUENCE)));
    schema_of(false, false, &fields)
}

pub(super) fn result_schema() -> SchemaRef {
    let fields = ["_version", "_left_epoch", "_right_epoch", "_right_version"].map(number);
    schema_of(false, false, &fields)
}
