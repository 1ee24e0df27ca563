//! The left side: subscribes to right rows, once more to all of them when a side began again.
//!
//! # Invariants
//! A row in the result was resolved for some version; its key keeps both versions. What is owed to right
//! sides is not stored: a side that begins again owes everything.
//!
//! # Cost
//! Subscribing again passes over the left table, [`AGAIN_ROWS`] rows a call.
//!
//! # Not here
//! What comes back (`resolve`); the right side (`right`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};

use super::keeper::{Added, Clock, Keeper, StateTable, block_of, nothing};
use super::messages::{
    HASH_BYTES, Instruction, Subscription, Subscriptions, check_names, hashes, row_hashes,
};
use crate::join::block::{Block, schema_of};
use crate::join::deduplicate::{collect, deduplicate_side};
use crate::join::find::View;
use crate::join::layout::{Layout, Side};
use crate::join::range::Ranges;
use crate::join::spec::How;
use crate::workers::Alone;
use plait_base::{Error, Kind, Result};

/// Places in blocks of versions, and in those of the result.
pub(super) const VERSION: usize = 2;
pub(super) const HASH: usize = 3;
const FOREIGN: usize = 4;
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
}

impl StagedLeft {
    /// A side with these tables, those of [`Self::tables_of`], in order; all empty at first.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when changes have sequence numbers, [`Kind::InvalidArgument`] for a column
    /// with the name of one of messages.
    pub fn try_new(layout: Arc<Layout>, clock: Clock, tables: Vec<View>) -> Result<Self> {
        check_layout(&layout)?;
        let mut side = Self { layout, clock, tables, owed: None };
        side.owe()?;
        Ok(side)
    }

    /// The tables of a left side.
    #[must_use]
    pub fn tables_of(layout: &Layout) -> Vec<StateTable> {
        let table = |name, schema| StateTable { name, schema, keeps_deleted: true };
        let rows = |name, schema| StateTable { name, schema, keeps_deleted: false };
        vec![
            // By primary key: version, hash, foreign key; of a deleted row its last one.
            table("place", place_schema()),
            // By primary key: the left columns.
            rows("left", layout.left_blocks()),
            // By primary key: the answer that the row in the result was made of; deleted = no row.
            table("result", result_schema()),
            rows("result_left", layout.left_blocks()),
            rows("result_right", right_schema(layout)),
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
            if let Some((clock, blocks)) = added {
                self.tables = keeper.add(&self.tables, Added { clock: &clock, blocks })?;
                self.clock = clock;
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
    fn added(&self, changes: &RecordBatch, out: &mut Subscriptions) -> Result<(Clock, Vec<Block>)> {
        let mut deduplicated = deduplicate_side(&self.layout, Side::Left, changes)?;
        let places = self.table(PLACE);
        let probes: Vec<&[u8]> =
            (0..deduplicated.len()).map(|i| deduplicated.keys.value(i)).collect();
        let known = places.find(&probes)?;
        let keep: Vec<bool> =
            (0..deduplicated.len()).map(|i| !deduplicated.deleted[i] || known.is_live(i)).collect();
        let known = known.at(keep.iter().enumerate().filter(|(_, k)| **k).map(|(i, _)| Some(i)));
        deduplicated.filter(&keep)?;
        let probes: Vec<&[u8]> =
            (0..deduplicated.len()).map(|i| deduplicated.keys.value(i)).collect();
        let shown = self.table(RESULT).find(&probes)?;
        let known = known.live();
        let old = known.bytes(FOREIGN)?;
        let version = self.clock.version.saturating_add(1);
        let all = row_hashes(&self.layout.left, &deduplicated.columns)?;
        let is_outer = self.layout.spec.how == How::Left;
        let (mut row_hash, mut foreign) = (Vec::new(), Vec::new());
        for (i, key) in probes.iter().enumerate() {
            let row = deduplicated.rows[i] as usize;
            let new = deduplicated.foreign.as_ref().filter(|_| !deduplicated.deleted[i]);
            let new = new.map(|foreign| foreign.value(row));
            let hash = if deduplicated.deleted[i] { [0; 16] } else { all[row] };
            let mut push = |foreign: &[u8], instruction| {
                out.push(&Subscription { foreign, key, version, hash, instruction });
            };
            if let Some(old) = old.get(i).filter(|old| new.is_some_and(|new| new != *old)) {
                push(old, Instruction::DeleteKeyNoPropagate);
            }
            match (new, old.get(i)) {
                // What is shown must go or change, so an answer is needed in any case.
                (Some(new), _) if is_outer || shown.is_live(i) => {
                    push(new, Instruction::PropagateNullIfNoFkValAvailable);
                }
                (Some(new), _) => push(new, Instruction::PropagateOnlyIfFkValAvailable),
                (None, Some(old)) => push(old, Instruction::DeleteKeyAndPropagate),
                (None, None) => {}
            }
            row_hash.push(hash);
            foreign.push(new.or(old.get(i)));
        }
        let (keys, deleted) = (deduplicated.keys.clone(), deduplicated.deleted_array());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![version; probes.len()])),
            hashes(&row_hash)?,
            Arc::new(foreign.into_iter().collect::<BinaryArray>()),
        ];
        let taken = deduplicated.taken(&Alone)?;
        let mut blocks = vec![
            block_of(place_schema(), &keys, &deleted, columns)?,
            block_of(self.layout.left_blocks(), &keys, &deleted, taken)?,
        ];
        for table in Self::tables_of(&self.layout).into_iter().skip(RESULT) {
            blocks.push(nothing(table.schema)?);
        }
        Ok((Clock { version, ..self.clock.clone() }, blocks))
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
                let mut bytes = [0; 16];
                bytes.copy_from_slice(hash.as_fixed_size_binary().value(i));
                out.push(&Subscription { foreign, key, version, hash: bytes, instruction });
            }
        }
        Ok(())
    }
}

static NONE: View = View { runs: Vec::new() };

/// What no staged join can have.
pub(super) fn check_layout(layout: &Layout) -> Result<()> {
    if layout.left_sequence || layout.right_sequence {
        let what = "the staged form of a join takes no sequence numbers";
        return Err(Error::new(Kind::Unsupported, what)
            .with_hint("put each side's changes in order before"));
    }
    check_names(&layout.right)
}

fn number(name: &str) -> FieldRef {
    Arc::new(Field::new(name, DataType::Int64, true))
}

fn place_schema() -> SchemaRef {
    let fields: [FieldRef; 3] = [
        number("_version"),
        Arc::new(Field::new("_hash", DataType::FixedSizeBinary(HASH_BYTES), false)),
        Arc::new(Field::new("_fk", DataType::Binary, true)),
    ];
    schema_of(false, false, &fields)
}

pub(super) fn result_schema() -> SchemaRef {
    let fields = ["_version", "_left_epoch", "_right_epoch", "_right_version"].map(number);
    schema_of(false, false, &fields)
}

/// Right rows in the result have no versions of their own.
pub(super) fn right_schema(layout: &Layout) -> SchemaRef {
    schema_of(false, false, &layout.right)
}
