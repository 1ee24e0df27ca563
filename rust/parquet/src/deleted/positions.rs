//! Position delete files of Iceberg: rows by the name of their file and their number in it.
//!
//! ```text
//! file_path        pos        sorted by both, as the specification wants it, or not
//! a.parquet          1
//! b.parquet          2        several files may delete rows of one, and one those of many
//! ```
//!
//! # Invariants
//! A row that names a file is a row of that file; columns are those with the field ids of the
//! specification, or with its names.
//!
//! # Cost
//! One window and one batch of two columns. Row groups whose bounds have no name that is wanted are
//! not read.
//!
//! # Sources
//! Iceberg table specification, "Position Delete Files".

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::{Bound, Range};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_schema::DataType;
use parquet::basic::Type;
use parquet::file::statistics::Statistics;
use plait_core::{Error, Kind, Result, SourceId};
use roaring::RoaringTreemap;

use crate::arrow_file::{Batches, FileSchema, Request};
use crate::runtime::{Context, ReaderSizes};
use crate::source::Source;
use crate::store::Stores;

/// A column of the specification.
struct DeleteColumn {
    name: &'static str,
    field_id: i32,
}

const FILE_PATH: DeleteColumn = DeleteColumn { name: "file_path", field_id: 2_147_483_546 };
const POS: DeleteColumn = DeleteColumn { name: "pos", field_id: 2_147_483_545 };

/// Rows of a batch.
const BATCH_ROWS: usize = 64 << 10;

/// Files whose deleted rows are wanted: what delete files call them, and their number in the call.
pub(super) type Wanted<'a> = BTreeMap<&'a [u8], usize>;

/// The rows of wanted files that the delete file at `location` lists, by the number of the file.
///
/// # Errors
/// [`Kind::CorruptSource`] for a file that is no position delete file; [`Kind::SourceNotFound`]
/// without it; what reading gives. Names the delete file.
pub(super) fn listed_rows(
    location: &str,
    wanted: &Wanted<'_>,
    stores: &Stores,
    sizes: ReaderSizes,
    context: &Context,
) -> Result<BTreeMap<usize, RoaringTreemap>> {
    let read = || -> Result<BTreeMap<usize, RoaringTreemap>> {
        let source = Source::open(SourceId(0), stores.open(location)?)?;
        let path = FILE_PATH.leaf(&source)?;
        // Before bounds are compared: those of numbers would leave out every row.
        let stored = source.leaf(path).physical_type();
        if stored != Type::BYTE_ARRAY {
            return Err(of_type(&FILE_PATH, &stored));
        }
        let pos = POS.leaf(&source)?;
        let schema = FileSchema::of(&source)?;
        let schema = schema.with_codes(&[path]).unwrap_or(schema);
        let mut rows = BTreeMap::new();
        for part in parts(&source, path, wanted)? {
            let request = Request {
                leaves: vec![path.min(pos), path.max(pos)],
                rows: part,
                batch_rows: BATCH_ROWS,
                batch_bytes: sizes.batch_bytes,
                window_bytes: sizes.window(2),
            };
            let mut batches = Batches::open(&source, &schema, request, context)?;
            let (at_path, at_pos) = if path < pos { (0, 1) } else { (1, 0) };
            while let Some(batch) = batches.next()? {
                add(&mut rows, batch.column(at_path), batch.column(at_pos), wanted)?;
            }
        }
        source.store.check_read()?;
        Ok(rows)
    };
    read().map_err(|e| e.with_path(location))
}

impl DeleteColumn {
    /// The leaf of the column.
    fn leaf(&self, source: &Source) -> Result<usize> {
        let is_it = |leaf: usize, by_id: bool| {
            let column = source.leaf(leaf);
            let info = column.self_type().get_basic_info();
            let is_top = column.path().parts().len() == 1;
            is_top
                && match by_id {
                    true => info.has_id() && info.id() == self.field_id,
                    false => info.name() == self.name,
                }
        };
        let leaves = 0..source.num_leaves();
        let found = leaves.clone().find(|leaf| is_it(*leaf, true));
        found
            .or_else(|| leaves.clone().find(|leaf| is_it(*leaf, false)))
            .ok_or_else(|| damaged("lacks a column").with_got(format!("no `{}`", self.name)))
    }
}

/// The rows of row groups that may have wanted names, joined where they touch.
fn parts(source: &Source, path: usize, wanted: &Wanted<'_>) -> Result<Vec<Range<u64>>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for group in 0..source.num_row_groups() {
        if !may_have(source.chunk(group, path)?.statistics(), wanted) {
            continue;
        }
        let (start, end) = (source.row_group_start(group), source.row_group_start(group + 1));
        match found.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ if start < end => found.push(start..end),
            _ => {}
        }
    }
    Ok(found)
}

/// Whether a wanted name may lie between bounds, which may be cut short.
fn may_have(statistics: Option<&Statistics>, wanted: &Wanted<'_>) -> bool {
    let Some(bounds) = statistics.filter(|known| !known.is_min_max_deprecated()) else {
        return true;
    };
    let (Some(min), Some(max)) = (bounds.min_bytes_opt(), bounds.max_bytes_opt()) else {
        return true;
    };
    // A greatest name that is cut short without being raised has those that begin with it, too.
    let mut names = wanted.range::<[u8], _>((Bound::Included(min), Bound::Unbounded));
    names.next().is_some_and(|(name, _)| *name <= max || name.starts_with(max))
}

fn add(
    rows: &mut BTreeMap<usize, RoaringTreemap>,
    paths: &ArrayRef,
    positions: &ArrayRef,
    wanted: &Wanted<'_>,
) -> Result<()> {
    if !is_text(paths.data_type()) {
        return Err(of_type(&FILE_PATH, paths.data_type()));
    }
    let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let paths = cast(paths, &coded).map_err(|_| of_type(&FILE_PATH, paths.data_type()))?;
    let Some(paths) = paths.as_dictionary_opt::<Int32Type>() else {
        return Err(of_type(&FILE_PATH, paths.data_type()));
    };
    let Some(positions) = positions.as_primitive_opt::<Int64Type>() else {
        return Err(of_type(&POS, positions.data_type()));
    };
    if paths.logical_null_count() > 0 || positions.null_count() > 0 {
        return Err(damaged("has a row without a file or a position"));
    }
    let names = paths.values().as_string::<i32>();
    let of: Vec<Option<usize>> =
        names.iter().map(|name| wanted.get(name.unwrap_or_default().as_bytes()).copied()).collect();
    let numbers = paths.keys().values().iter().zip(positions.values());
    for (name, position) in numbers {
        let file = usize::try_from(*name).ok().and_then(|name| of.get(name)).copied().flatten();
        let Some(file) = file else { continue };
        let row = u64::try_from(*position)
            .map_err(|_| damaged("has a negative position").with_got(position.to_string()))?;
        rows.entry(file).or_default().insert(row);
    }
    Ok(())
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        text => matches!(text, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

fn of_type(column: &DeleteColumn, got: &impl Display) -> Error {
    damaged("has a column of another type").with_column(column.name).with_got(got.to_string())
}

fn damaged(what: &str) -> Error {
    Error::new(Kind::CorruptSource, format!("a position delete file {what}"))
        .with_hint("the table is damaged; restore the delete file")
}
