//! What a side asks of whoever keeps its tables.
//!
//! # Invariants
//! What a call adds counts as a whole, with the clock that comes with it, before its messages leave.
//!
//! # Not here
//! Which rows are added (`left`, `resolve`, `right`); files (`plait_parquet::join`).

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;

use crate::join::block::Block;
use crate::join::deduplicate::Deduplicated;
use crate::join::find::View;
use plait_base::{Error, Result};

/// What a side remembers besides its tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The epoch of the side: no two lives of a side have the same one.
    pub epoch: i64,
    /// The last change.
    pub version: i64,
    /// Epochs of right sides that a left side heard of.
    pub rights: Vec<i64>,
    /// A number that differs from life to life: two of them that begin behind one other have two epochs.
    pub chance: i64,
}

impl Clock {
    /// An epoch behind `epoch`.
    #[must_use]
    pub fn after(&self, epoch: i64) -> i64 {
        epoch.saturating_add(1).saturating_add(self.chance)
    }
}

/// A table of a side.
#[derive(Clone, Debug)]
pub struct StateTable {
    /// What it is called.
    pub name: &'static str,
    /// The columns of its blocks.
    pub schema: SchemaRef,
    /// Whether deleted keys keep their versions.
    pub keeps_deleted: bool,
}

/// What became of the changes that a call was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Changes that came.
    pub given: u64,
    /// Changes that a later one of the same call replaced.
    pub folded: u64,
    /// Changes without a key that were left out.
    pub null_keys: u64,
    /// Changes that were older than the state.
    pub stale: u64,
}

impl Received {
    pub(super) fn of(deduplicated: &Deduplicated) -> Self {
        let Deduplicated { given, null_keys, .. } = *deduplicated;
        let folded = given - null_keys - deduplicated.len() as u64;
        Self { given, folded, null_keys, stale: 0 }
    }
}

/// What a call adds to a side.
#[derive(Debug)]
pub struct Added<'a> {
    /// The clock from now on.
    pub clock: &'a Clock,
    /// A block for each table of the side, some without rows.
    pub blocks: Vec<Block>,
    /// The changes that the call was given.
    pub received: Received,
}

/// Keeps the tables of a side.
pub trait Keeper {
    /// Adds to `tables`, and gives them with what was added.
    ///
    /// # Errors
    /// What writing gives: then nothing was added.
    fn add(&mut self, tables: &[View], added: Added<'_>) -> Result<Vec<View>>;
}

/// Sorted rows.
pub(super) fn block_of(
    schema: SchemaRef,
    keys: &BinaryArray,
    deleted: &BooleanArray,
    columns: Vec<ArrayRef>,
) -> Result<Block> {
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(keys.clone()), Arc::new(deleted.clone())];
    arrays.extend(columns);
    Block::try_new(RecordBatch::try_new(schema, arrays).map_err(Error::from_arrow)?)
}

/// A table with nothing but these rows.
pub(super) fn view_of(block: &Block) -> View {
    View::default().with(crate::join::find::MemoryRun::new(vec![block.clone()]).into_run())
}

/// No rows.
pub(super) fn nothing(schema: SchemaRef) -> Result<Block> {
    Block::try_new(RecordBatch::new_empty(schema))
}
