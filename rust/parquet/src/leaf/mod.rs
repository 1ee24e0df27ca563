//! One leaf column of one source as rows of (repetition levels, definition levels, values).
//!
//! ```text
//! row 0   rep 0 1 1   def 3 3 2   values v v        a row starts where rep is 0;
//! row 1   rep 0       def 0       values            a value stands where def is greatest
//! ```
//!
//! A leaf is read in the shape of the output: levels mapped, values cast, absent leaves made from
//! the levels of a sibling. One code path serves every nesting of every type.
//!
//! # Invariants
//! A span holds whole rows. `rep` is empty if the output leaf cannot repeat, `def` is empty if it
//! is required; else both have one entry per level. `values.len()` is the number of entries whose
//! `def` is the greatest possible.
//!
//! # Cost
//! One page of one leaf and one span are held while a leaf is read.
//!
//! # Not here
//! Pages (`page`); the order of rows (`weave`).

mod adapt;
mod ahead;
mod cast;
mod paged;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use parquet::data_type::DataType;
use plait_core::Result;

use crate::page::Locations;
use crate::runtime::{Charge, Context};
use crate::source::Source;
use crate::store::RangeReader;

pub(crate) use adapt::{OutputLeaf, open, output_leaves};
pub(crate) use ahead::{
    ReadOn, RowsAhead, SourceRows, shared_rows, will_read_chunk, will_read_groups, will_read_rows,
};

/// Calls `$body` with `$t` as the parquet data type of a physical type.
macro_rules! with_physical {
    ($physical:expr, $t:ident => $body:expr) => {{
        use parquet::basic::Type as PhysicalType;
        use parquet::data_type as dt;
        match $physical {
            PhysicalType::BOOLEAN => {
                type $t = dt::BoolType;
                $body
            }
            PhysicalType::INT32 => {
                type $t = dt::Int32Type;
                $body
            }
            PhysicalType::INT64 => {
                type $t = dt::Int64Type;
                $body
            }
            PhysicalType::INT96 => {
                type $t = dt::Int96Type;
                $body
            }
            PhysicalType::FLOAT => {
                type $t = dt::FloatType;
                $body
            }
            PhysicalType::DOUBLE => {
                type $t = dt::DoubleType;
                $body
            }
            PhysicalType::BYTE_ARRAY => {
                type $t = dt::ByteArrayType;
                $body
            }
            PhysicalType::FIXED_LEN_BYTE_ARRAY => {
                type $t = dt::FixedLenByteArrayType;
                $body
            }
        }
    }};
}
pub(crate) use with_physical;

/// Rows of one leaf.
#[derive(Debug)]
pub(crate) struct Span<V> {
    /// Repetition levels.
    pub rep: Vec<i16>,
    /// Definition levels.
    pub def: Vec<i16>,
    /// The values that are there.
    pub values: Vec<V>,
}

impl<V> Default for Span<V> {
    fn default() -> Self {
        Self { rep: Vec::new(), def: Vec::new(), values: Vec::new() }
    }
}

impl<V> Span<V> {
    /// Forgets all rows and keeps the allocations.
    pub(crate) fn clear(&mut self) {
        self.rep.clear();
        self.def.clear();
        self.values.clear();
    }
}

/// A leaf that is read forward, in the shape of the output.
pub(crate) trait Leaf<T: DataType>: Send {
    /// Appends up to `rows` rows to `span` and returns how many; 0 only at the end.
    ///
    /// # Errors
    /// Whatever is wrong with the source, with file and column.
    fn read(&mut self, rows: usize, span: &mut Span<T::T>) -> Result<usize>;
}

/// Page locations of the chunks read lately: a chunk is opened once per output row group, and by
/// several outputs.
pub(crate) struct LocationCache {
    found: Mutex<CachedLocations>,
    bytes_max: usize,
}

struct CachedLocations {
    /// By file, row group, leaf. A file is identified by the address of its reader.
    chunks: BTreeMap<(usize, usize, usize), Kept>,
    charge: Charge,
}

/// Locations, and their reader, so that no other one gets its address.
type Kept = (Arc<dyn RangeReader>, Arc<Locations>);

impl LocationCache {
    /// A cache of at most `bytes_max` bytes.
    #[must_use]
    pub(crate) fn new(context: &Context, bytes_max: usize) -> Self {
        let charge = context.charge(0);
        Self { found: Mutex::new(CachedLocations { chunks: BTreeMap::new(), charge }), bytes_max }
    }

    /// Locations of the pages of one column chunk.
    ///
    /// # Errors
    /// Whatever is wrong with the chunk's index and page headers.
    pub(crate) fn find(
        &self,
        source: &Source,
        row_group: usize,
        leaf: usize,
        context: &Context,
    ) -> Result<Arc<Locations>> {
        let key = (Arc::as_ptr(&source.store).cast::<()>().addr(), row_group, leaf);
        if let Some((_, known)) = self.lock().chunks.get(&key) {
            return Ok(Arc::clone(known));
        }
        let locations = Arc::new(Locations::find(source, row_group, leaf, context)?);
        let bytes =
            size_of::<Locations>() + locations.pages.len() * size_of::<crate::page::PageLoc>();
        let mut found = self.lock();
        let held = found.charge.bytes() + bytes;
        if held > self.bytes_max {
            found.chunks.clear();
            found.charge.set(bytes);
        } else {
            found.charge.set(held);
        }
        found.chunks.insert(key, (Arc::clone(&source.store), Arc::clone(&locations)));
        Ok(locations)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CachedLocations> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
