//! The right side: answers subscriptions, and tells subscribers of changes.
//!
//! # Invariants
//! The newest subscription of a foreign key and left key counts. Versions of right rows grow.
//!
//! # Not here
//! The left side (`left`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, UInt32Array,
};
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};

use super::messages::{
    HASH_BYTES, Instruction, binary, hash_of, instructions, numbers, response_schema,
};
use crate::join::block::{Block, schema_of};
use crate::join::compact::{compact, due};
use crate::join::find::{MemoryRun, StateRun, View};
use crate::join::fold::{collect, fold_side};
use crate::join::layout::{Layout, Side};
use crate::join::picked::Picked;
use crate::join::range::Ranges;
use crate::workers::Alone;
use crate::{Error, Result};

/// Place in blocks of the version.
const VERSION: usize = 2;
const HASH: usize = 3;
/// Place in blocks of rows of the first right column.
const COLUMNS: usize = 3;

/// The right side of a staged join.
#[derive(Clone, Debug)]
pub struct StagedRight {
    layout: Arc<Layout>,
    version: i64,
    /// By foreign key, then left key: version and hash of the left row.
    subscribers: View,
    /// By key: version and columns.
    rows: View,
}

impl StagedRight {
    /// A side without rows.
    ///
    /// # Errors
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) when changes have sequence numbers.
    pub fn try_new(layout: Arc<Layout>) -> Result<Self> {
        super::left::StagedLeft::try_new(Arc::clone(&layout))?;
        Ok(Self { layout, version: 0, subscribers: View::default(), rows: View::default() })
    }

    /// Takes subscriptions of the left side, and gives responses.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`](crate::Kind::InvalidArgument) for what is no batch of subscriptions.
    pub fn receive(&mut self, subscriptions: &RecordBatch) -> Result<RecordBatch> {
        let (foreign, key) = (binary(subscriptions, "_fk")?, binary(subscriptions, "_pk")?);
        let (version, hash) = (numbers(subscriptions, "_version")?, hash_of(subscriptions)?);
        let instruction = instructions(subscriptions)?;
        let whole = (0..key.len()).map(|i| [foreign.value(i), key.value(i)]);
        let whole = collect(whole)?;
        let mut order: Vec<usize> = (0..key.len()).collect();
        order.sort_unstable_by_key(|i| (whole.value(*i), version.value(*i), *i));
        let mut last: Vec<usize> = Vec::with_capacity(order.len());
        for i in order {
            match last.last_mut() {
                Some(before) if whole.value(*before) == whole.value(i) => *before = i,
                _ => last.push(i),
            }
        }
        let probes: Vec<&[u8]> = last.iter().map(|i| whole.value(*i)).collect();
        let known = self.subscribers.find(&probes)?;
        let stored = known.column(VERSION, &DataType::Int64)?;
        let stored = stored.as_primitive::<Int64Type>();
        let is_new = |place: &usize| {
            !known.is_found(*place) || stored.value(*place) <= version.value(last[*place])
        };
        let rows: Vec<usize> = (0..last.len()).filter(is_new).map(|place| last[place]).collect();
        let keys = collect(rows.iter().map(|i| [whole.value(*i), &[]]))?;
        let forgets = |i: &usize| {
            use Instruction::{DeleteKeyAndPropagate, DeleteKeyNoPropagate};
            matches!(instruction[*i], DeleteKeyAndPropagate | DeleteKeyNoPropagate)
        };
        let deleted = BooleanArray::from(rows.iter().map(forgets).collect::<Vec<_>>());
        let wanted: UInt32Array = rows.iter().map(|i| u32::try_from(*i).ok()).collect();
        let take = |array: &dyn Array| {
            arrow_select::take::take(array, &wanted, None).map_err(Error::from_arrow)
        };
        let block =
            blocks_of(subscriber_schema(), &keys, &deleted, vec![take(version)?, take(hash)?])?;
        add(&mut self.subscribers, block)?;

        let foreign: Vec<Option<&[u8]>> = rows.iter().map(|i| Some(foreign.value(*i))).collect();
        let right = self.rows.find_any(&foreign)?;
        let answers = |place: &usize| match instruction[rows[*place]] {
            Instruction::DeleteKeyNoPropagate => false,
            Instruction::DeleteKeyAndPropagate => true,
            Instruction::PropagateNullIfNoFkValAvailable => true,
            Instruction::PropagateOnlyIfFkValAvailable => right.is_live(*place),
        };
        let places: Vec<usize> = (0..rows.len()).filter(answers).collect();
        // Who is forgotten hears that there is nothing.
        let right = right.at(places.iter().map(|place| Some(*place)));
        let told: Vec<bool> = places.iter().map(|place| !forgets(&rows[*place])).collect();
        let wanted: UInt32Array =
            places.iter().map(|place| u32::try_from(rows[*place]).ok()).collect();
        let take = |array: &dyn Array| {
            arrow_select::take::take(array, &wanted, None).map_err(Error::from_arrow)
        };
        self.responses(take(key)?, take(version)?, take(hash)?, right, &told)
    }

    /// Takes changes of the right table, and gives responses for all who subscribed to them.
    ///
    /// # Errors
    /// As [`fold`](crate::join::fold).
    pub fn apply(&mut self, changes: &RecordBatch) -> Result<RecordBatch> {
        let folded = fold_side(&self.layout, Side::Right, changes)?;
        let version = self.version + 1;
        let deleted = folded.deleted_array();
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(vec![version; folded.len()]))];
        columns.extend(folded.taken(&Alone)?);
        let rows = blocks_of(self.row_schema(), &folded.keys, &deleted, columns)?;
        let probes: Vec<&[u8]> = (0..folded.len()).map(|i| folded.keys.value(i)).collect();
        let right = View::default().with(Arc::clone(&rows)).find(&probes)?;
        add(&mut self.rows, rows)?;
        self.version = version;

        let mut ranges = Ranges::new(self.subscribers.clone(), folded.keys.clone());
        let mut all = Vec::new();
        while let Some(stretch) = ranges.next(usize::MAX)? {
            let picked = stretch.picked;
            let mut keys: Vec<&[u8]> = Vec::with_capacity(picked.len());
            for (i, prefix) in stretch.prefixes.iter().enumerate() {
                let len = probes[*prefix as usize].len();
                keys.push(picked.key(i).and_then(|key| key.get(len..)).unwrap_or_default());
            }
            let keys: ArrayRef = Arc::new(BinaryArray::from_iter_values(keys));
            let version = picked.column(VERSION, &DataType::Int64)?;
            let hash = picked.column(HASH, &DataType::FixedSizeBinary(HASH_BYTES))?;
            let right = right.at(stretch.prefixes.iter().map(|prefix| Some(*prefix as usize)));
            let told = vec![true; picked.len()];
            all.push(self.responses(keys, version, hash, right, &told)?);
        }
        let schema = response_schema(&self.layout.right);
        arrow_select::concat::concat_batches(&schema, &all).map_err(Error::from_arrow)
    }

    /// Responses with right rows; `told` says where a row may be told at all.
    fn responses(
        &self,
        keys: ArrayRef,
        version: ArrayRef,
        hash: ArrayRef,
        right: Picked,
        told: &[bool],
    ) -> Result<RecordBatch> {
        let right_version = right.column(VERSION, &DataType::Int64)?;
        let right_version = right_version.as_primitive::<Int64Type>();
        // A row that never was is older than all that were.
        let right_version: Int64Array = right_version.iter().map(|v| v.unwrap_or(0)).collect();
        let is_found: Vec<bool> =
            told.iter().enumerate().map(|(i, told)| *told && right.is_live(i)).collect();
        let shown = right.at(is_found.iter().enumerate().map(|(i, found)| found.then_some(i)));
        let mut columns: Vec<ArrayRef> = vec![
            keys,
            version,
            hash,
            Arc::new(right_version),
            Arc::new(BooleanArray::from(is_found)),
        ];
        for (place, field) in self.layout.right.iter().enumerate() {
            columns.push(shown.column(COLUMNS + place, field.data_type())?);
        }
        RecordBatch::try_new(response_schema(&self.layout.right), columns)
            .map_err(Error::from_arrow)
    }

    fn row_schema(&self) -> SchemaRef {
        let version = Arc::new(Field::new("_version", DataType::Int64, false));
        let fields: Vec<FieldRef> =
            [version].into_iter().chain(self.layout.right.iter().cloned()).collect();
        schema_of(false, false, &fields)
    }
}

fn subscriber_schema() -> SchemaRef {
    let fields: [FieldRef; 2] = [
        Arc::new(Field::new("_version", DataType::Int64, false)),
        Arc::new(Field::new("_hash", DataType::FixedSizeBinary(HASH_BYTES), false)),
    ];
    schema_of(false, false, &fields)
}

/// A run of sorted rows.
pub(super) fn blocks_of(
    schema: SchemaRef,
    keys: &BinaryArray,
    deleted: &BooleanArray,
    columns: Vec<ArrayRef>,
) -> Result<Arc<dyn StateRun>> {
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(keys.clone()), Arc::new(deleted.clone())];
    arrays.extend(columns);
    let batch = RecordBatch::try_new(schema, arrays).map_err(Error::from_arrow)?;
    Ok(MemoryRun::new(vec![Block::try_new(batch)?]).into_run())
}

/// Adds a run, and merges where that is due; deleted keys keep their versions.
pub(super) fn add(view: &mut View, run: Arc<dyn StateRun>) -> Result<()> {
    *view = view.with(run);
    let rows: Vec<u64> = view.runs.iter().map(|run| run.rows()).collect();
    if let Some(range) = due(&rows) {
        let part = View { runs: view.runs.get(range.clone()).unwrap_or_default().to_vec() };
        let Some(first) = part.runs.first() else { return Ok(()) };
        let schema = first.block(0)?.batch().schema();
        let merged = compact(&part, &schema, true, &Alone)?.into_run();
        view.runs.splice(range, [merged]);
    }
    Ok(())
}

#[cfg(test)]
impl StagedRight {
    pub(super) fn dump(&self) -> String {
        format!("{} {}", self.version, dump(&[&self.subscribers, &self.rows]))
    }
}

/// The newest rows of some views, as text.
#[cfg(test)]
pub(super) fn dump(views: &[&View]) -> String {
    let mut text = String::new();
    for view in views {
        let Some(run) = view.runs.first() else { continue };
        let schema = run.block(0).unwrap().batch().schema();
        let whole = compact(view, &schema, true, &Alone).unwrap();
        for i in 0..whole.blocks() {
            let block = whole.block(i).unwrap();
            text += &format!("{:?}", block.batch().columns());
        }
    }
    text
}
