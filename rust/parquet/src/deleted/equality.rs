//! Equality delete files of Iceberg: rows that are equal to a listed one in some columns.
//!
//! ```text
//! delete files   k    newest     set of keys: as many as fit     data files, key columns alone
//!                7    of 12      {7: 12, 9: 15} ───────────────▶ k = 7: deleted if its file is
//!                9    of 15                                      reached by deletes up to 12
//! ```
//!
//! # Invariants
//! A row is deleted if a delete file that reaches its file lists its values; null equals null. Columns
//! are found by field id; a column that a file lacks is null in all of its rows.
//!
//! # Cost
//! Keys up to a share of the memory limit; the key columns of data files are read once for every
//! share that the keys of delete files take.
//!
//! # Sources
//! Iceberg table specification, "Equality Delete Files" and "Column Projection".

use std::collections::{BTreeMap, HashMap};

use arrow_array::{ArrayRef, new_null_array};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use std::sync::Arc;

use plait_core::key::{KeyColumn, KeyShape, KeyType, Keys, Nulls, encode_arrow};
use plait_core::workers::{Workers, each};
use plait_core::{Error, Kind, Result, SourceId};
use roaring::RoaringTreemap;

use super::value::EqualityDeletes;
use crate::arrow_file::{Batches, FileSchema, Request};
use crate::runtime::{Context, MemoryStage, ReaderSizes, ScopedWorkers};
use crate::source::Source;
use crate::store::Stores;

/// Rows of a batch.
const BATCH_ROWS: usize = 16 << 10;
/// Bytes that a key takes in a set besides its own.
const ENTRY_BYTES: usize = 64;

/// Delete files of the same columns, and the data files that they reach.
pub(super) struct EqualityGroup<'a> {
    columns: &'a [i32],
    /// Sequence numbers by location.
    files: BTreeMap<&'a str, u64>,
    members: Vec<Member<'a>>,
}

impl EqualityGroup<'_> {
    /// The places of the data files that some of its delete files reach.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.members.iter().map(|member| member.place)
    }
}

/// A data file that some delete files of a group reach: those that are not older than `since`.
struct Member<'a> {
    place: usize,
    since: u64,
    stored: &'a [i32],
}

/// Delete files by the data files that they reach: `reached` are these with their places.
pub(super) fn groups<'a>(
    reached: impl Iterator<Item = (usize, &'a EqualityDeletes)>,
) -> Vec<EqualityGroup<'a>> {
    let mut all: Vec<_> = reached.filter(|(_, deletes)| !deletes.files.is_empty()).collect();
    // Those that reach fewer are then among those that reach more.
    all.sort_by_key(|(place, deletes)| (usize::MAX - deletes.files.len(), *place));
    let mut groups: Vec<EqualityGroup<'a>> = Vec::new();
    for (place, deletes) in all {
        let files: BTreeMap<&str, u64> =
            deletes.files.iter().map(|file| (file.location.as_str(), file.sequence)).collect();
        let since = files.values().copied().min().unwrap_or(0);
        let member = Member { place, since, stored: &deletes.stored };
        let has_it = |group: &&mut EqualityGroup<'a>| {
            let newer = group.files.iter().filter(|(_, sequence)| **sequence >= since);
            group.columns == deletes.columns
                && newer.map(|(file, sequence)| (*file, *sequence)).eq(files.clone())
        };
        match groups.iter_mut().find(has_it) {
            Some(group) => group.members.push(member),
            None => {
                let columns = &deletes.columns;
                groups.push(EqualityGroup { columns, files, members: vec![member] });
            }
        }
    }
    groups
}

/// Reads delete files, and data files for their sake.
pub(super) struct EqualityReader<'a> {
    pub(super) stores: &'a Stores,
    pub(super) workers: &'a ScopedWorkers,
    pub(super) context: &'a Context,
}

impl EqualityReader<'_> {
    /// Gives `add` the rows that the delete files of `group` delete of each of `files`, by place.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] for a file that is no equality delete file; [`Kind::UnsupportedKey`]
    /// for columns that cannot be compared; [`Kind::SourceNotFound`] without a delete file; what
    /// reading gives. Names the file.
    pub(super) fn delete(
        &self,
        group: &EqualityGroup<'_>,
        files: &[&Arc<Source>],
        add: &(dyn Fn(usize, RoaringTreemap) + Sync),
    ) -> Result<()> {
        let bytes_max = self.context.budget().bytes(MemoryStage::DeletedKeys);
        let sizes = self.context.budget().stream(1);
        let mut set: Option<KeySet> = None;
        for (location, sequence) in &group.files {
            let in_file = |e: Error| e.with_path(*location);
            let source = Source::open(SourceId(0), self.stores.open(location)?).map_err(in_file)?;
            let leaves = group.columns.iter().map(|id| {
                leaf_of(&source, *id)?.ok_or_else(|| {
                    damaged("lacks a column").with_got(format!("no field with id {id}"))
                })
            });
            let leaves = leaves.collect::<Result<Vec<_>>>().map_err(in_file)?;
            let leaves: Vec<_> = leaves.into_iter().map(Some).collect();
            let mut rows = KeyRows::open(&source, &leaves, sizes, self.context).map_err(in_file)?;
            while let Some(columns) = rows.next().map_err(in_file)? {
                let here = match &mut set {
                    Some(known) => known,
                    None => set.insert(KeySet::of(&columns).map_err(in_file)?),
                };
                here.insert(&columns, *sequence).map_err(in_file)?;
                if here.bytes > bytes_max {
                    self.apply(group, here, files, add)?;
                    here.clear();
                }
            }
        }
        match &set {
            Some(rest) if rest.bytes > 0 => self.apply(group, rest, files, add),
            _ => Ok(()),
        }
    }

    fn apply(
        &self,
        group: &EqualityGroup<'_>,
        set: &KeySet,
        files: &[&Arc<Source>],
        add: &(dyn Fn(usize, RoaringTreemap) + Sync),
    ) -> Result<()> {
        let _charge = self.context.charge(set.bytes);
        let sizes = self.context.budget().stream(self.workers.count().min(group.members.len()));
        each(self.workers, group.members.len(), |i| {
            self.context.check_cancelled()?;
            let member = &group.members[i];
            let file = files[member.place];
            let rows = self.equal_rows(group, member, set, file, sizes);
            add(member.place, rows.map_err(|e| e.with_path(file.path()))?);
            Ok(())
        })?;
        Ok(())
    }

    /// The rows of a data file whose values are in the set.
    fn equal_rows(
        &self,
        group: &EqualityGroup<'_>,
        member: &Member<'_>,
        set: &KeySet,
        source: &Arc<Source>,
        sizes: ReaderSizes,
    ) -> Result<RoaringTreemap> {
        let has_ids = (0..source.num_leaves()).any(|leaf| id_of(source, leaf).is_some());
        let mut leaves = Vec::new();
        for id in group.columns {
            let leaf = leaf_of(source, *id)?;
            if leaf.is_none() && (!has_ids || member.stored.contains(id)) {
                return Err(Error::new(
                    Kind::UnsupportedKey,
                    "a file lacks a column by which rows of it are deleted",
                )
                .with_got(format!("no field with id {id}"))
                .with_hint("rewrite the file with the engine that wrote it"));
            }
            leaves.push(leaf);
        }
        let mut deleted = RoaringTreemap::new();
        let mut rows = KeyRows::open(source, &leaves, sizes, self.context)?;
        let mut row = 0;
        while let Some(columns) = rows.next()? {
            let columns = set.fitting(&columns)?;
            set.each_newest(&columns, |newest| {
                if newest.is_some_and(|newest| newest >= member.since) {
                    deleted.insert(row);
                }
                row += 1;
            })?;
        }
        source.store.check_read()?;
        Ok(deleted)
    }
}

/// Columns of the rows of a file, a batch at a time; none for those that it lacks.
struct KeyRows {
    batches: Option<Batches>,
    /// Where in a batch each column is.
    places: Vec<Option<usize>>,
    rows_left: u64,
}

/// A batch of them.
struct KeyColumns {
    arrays: Vec<Option<ArrayRef>>,
    rows: usize,
}

impl KeyRows {
    fn open(
        source: &Source,
        leaves: &[Option<usize>],
        sizes: ReaderSizes,
        context: &Context,
    ) -> Result<Self> {
        let mut wanted: Vec<usize> = leaves.iter().flatten().copied().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let place = |leaf: &Option<usize>| leaf.and_then(|leaf| wanted.binary_search(&leaf).ok());
        let places = leaves.iter().map(place).collect();
        let schema = FileSchema::of(source)?;
        let request = Request {
            rows: 0..source.rows(),
            batch_rows: BATCH_ROWS,
            batch_bytes: sizes.batch_bytes,
            window_bytes: sizes.window(wanted.len()),
            leaves: wanted,
        };
        let batches = match request.leaves.is_empty() {
            true => None,
            false => Some(Batches::open(source, &schema, request, context)?),
        };
        Ok(Self { batches, places, rows_left: source.rows() })
    }

    fn next(&mut self) -> Result<Option<KeyColumns>> {
        let (batch, rows) = match &mut self.batches {
            Some(batches) => match batches.next()? {
                Some(batch) => (Some(batch.clone()), batch.num_rows()),
                None => return Ok(None),
            },
            None => (None, usize::try_from(self.rows_left).unwrap_or(BATCH_ROWS).min(BATCH_ROWS)),
        };
        self.rows_left = self.rows_left.saturating_sub(rows as u64);
        if rows == 0 {
            return Ok(None);
        }
        let arrays = self.places.iter().map(|place| {
            let column = place.zip(batch.as_ref()).map(|(at, batch)| batch.column(at));
            column.map(comparable).transpose()
        });
        Ok(Some(KeyColumns { arrays: arrays.collect::<Result<_>>()?, rows }))
    }
}

/// The newest sequence number of the deletes of each key.
struct KeySet {
    shape: KeyShape,
    types: Vec<DataType>,
    packed: HashMap<u128, u64>,
    long: HashMap<Box<[u8]>, u64>,
    bytes: usize,
}

impl KeySet {
    /// An empty set of keys of these columns.
    fn of(columns: &KeyColumns) -> Result<Self> {
        let types: Vec<DataType> = columns
            .arrays
            .iter()
            .map(|array| array.as_ref().map_or(DataType::Null, |array| array.data_type().clone()))
            .collect();
        let column = |(place, data_type): (usize, &DataType)| {
            Ok(KeyColumn {
                name: place.to_string(),
                ty: KeyType::from_arrow(data_type)?,
                descending: false,
                nulls: Nulls::First,
            })
        };
        let shape = types.iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
        let shape = KeyShape::try_new(shape)?;
        Ok(Self { shape, types, packed: HashMap::new(), long: HashMap::new(), bytes: 0 })
    }

    fn clear(&mut self) {
        (self.packed, self.long, self.bytes) = (HashMap::new(), HashMap::new(), 0);
    }

    /// The columns as they can be looked up here.
    fn fitting(&self, columns: &KeyColumns) -> Result<Vec<ArrayRef>> {
        let fit = |(array, data_type): (&Option<ArrayRef>, &DataType)| match array {
            None => Ok(new_null_array(data_type, columns.rows)),
            Some(array) if is_alike(array.data_type(), data_type) => Ok(ArrayRef::clone(array)),
            Some(array) => {
                Err(Error::new(Kind::UnsupportedKey, "rows are deleted by values of another type")
                    .with_got(format!("{} for {data_type}", array.data_type())))
            }
        };
        columns.arrays.iter().zip(&self.types).map(fit).collect()
    }

    fn insert(&mut self, columns: &KeyColumns, sequence: u64) -> Result<()> {
        let arrays = self.fitting(columns)?;
        match encode_arrow(&self.shape, &arrays)? {
            Keys::Packed(keys) => {
                for key in keys {
                    let newest = self.packed.entry(key).or_insert_with(|| {
                        self.bytes += size_of::<u128>() + ENTRY_BYTES;
                        sequence
                    });
                    *newest = sequence.max(*newest);
                }
            }
            Keys::Bytes(keys) => {
                for key in keys.iter() {
                    if let Some(newest) = self.long.get_mut(key) {
                        *newest = sequence.max(*newest);
                    } else {
                        self.bytes += key.len() + ENTRY_BYTES;
                        self.long.insert(key.into(), sequence);
                    }
                }
            }
        }
        Ok(())
    }

    /// Calls `found` for every row, with the newest delete of its key.
    fn each_newest(&self, columns: &[ArrayRef], mut found: impl FnMut(Option<u64>)) -> Result<()> {
        match encode_arrow(&self.shape, columns)? {
            Keys::Packed(keys) => keys.iter().for_each(|k| found(self.packed.get(k).copied())),
            Keys::Bytes(keys) => keys.iter().for_each(|k| found(self.long.get(k).copied())),
        }
        Ok(())
    }
}

/// The leaf with a field id, which is a column of its own.
fn leaf_of(source: &Source, id: i32) -> Result<Option<usize>> {
    let Some(leaf) = (0..source.num_leaves()).find(|leaf| id_of(source, *leaf) == Some(id)) else {
        return Ok(None);
    };
    match source.leaf(leaf).path().parts().len() {
        1 => Ok(Some(leaf)),
        _ => Err(Error::new(Kind::UnsupportedKey, "rows are deleted by a part of a column")
            .with_column(source.leaf(leaf).path().string())),
    }
}

fn id_of(source: &Source, leaf: usize) -> Option<i32> {
    let column = source.leaf(leaf);
    let info = column.self_type().get_basic_info();
    info.has_id().then(|| info.id())
}

/// An array in the widest type that a column may be given by and by.
fn comparable(array: &ArrayRef) -> Result<ArrayRef> {
    let target = match array.data_type() {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Int64,
        DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            // Writers differ in whether zero is minus zero.
            return Err(Error::new(Kind::UnsupportedKey, "rows are deleted by floating numbers")
                .with_got(array.data_type().to_string()));
        }
        _ => return Ok(ArrayRef::clone(array)),
    };
    cast(array, &target).map_err(Error::from_arrow)
}

/// Whether equal keys are equal values.
fn is_alike(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::Timestamp(a, _), DataType::Timestamp(b, _))
        | (DataType::Time64(a), DataType::Time64(b)) => a == b,
        _ => match (KeyType::from_arrow(a), KeyType::from_arrow(b)) {
            (Ok(KeyType::Bytes { .. }), Ok(KeyType::Bytes { .. })) => true,
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        },
    }
}

fn damaged(what: &str) -> Error {
    Error::new(Kind::CorruptSource, format!("an equality delete file {what}"))
        .with_hint("the table is damaged; restore the delete file")
}
