//! One layer while it is read: the batch in flight, and what the plan needs of it.
//!
//! ```text
//! reader ─ batch ─ (schema kept?) ─▶ index values │ row numbers │ parts │ validity of structs
//!                                     └────────── rows start..start+left are still to come ──┘
//! ```
//!
//! # Invariants
//! One batch is held; it is let go when its last row is taken. Columns that nobody takes are let go
//! at once.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use super::drift;
use super::layer::{LayerPlan, in_layer};
use plait_base::{Error, Kind, Result};

/// Batches of one layer.
pub type Reader = Box<dyn RecordBatchReader + Send>;

/// Values of an index column.
#[derive(Clone)]
pub(super) struct IndexValues {
    pub(super) values: ScalarBuffer<i64>,
    pub(super) nulls: Option<NullBuffer>,
}

impl IndexValues {
    fn new(array: &ArrayRef) -> Result<Self> {
        let data = array.to_data();
        // Int64 and timestamps are 64-bit integers; the plan checked the type.
        let data = data.into_builder().data_type(arrow_schema::DataType::Int64).build();
        let data = data.map_err(|e| {
            Error::new(Kind::Internal, "an index column is not made of integers").with_cause(e)
        })?;
        let array = arrow_array::make_array(data);
        let array = array.as_primitive::<Int64Type>();
        Ok(Self { values: array.values().clone(), nulls: array.nulls().cloned() })
    }

    /// The value at `row`; none if it is null.
    pub(super) fn get(&self, row: usize) -> Option<i64> {
        let is_valid = self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        self.values.get(row).copied().filter(|_| is_valid)
    }
}

/// Some rows of a layer.
pub(super) struct Piece {
    pub(super) rows: usize,
    pub(super) parts: Vec<ArrayRef>,
    /// Where each struct of the plan and all above it are there; none where that is everywhere.
    pub(super) structs: Vec<Option<NullBuffer>>,
}

impl Piece {
    fn slice(&self, start: usize, len: usize) -> Self {
        if start == 0 && len == self.rows {
            return Self { rows: len, parts: self.parts.clone(), structs: self.structs.clone() };
        }
        let structs = self.structs.iter();
        Self {
            rows: len,
            parts: self.parts.iter().map(|part| part.slice(start, len)).collect(),
            structs: structs.map(|valid| valid.as_ref().map(|v| v.slice(start, len))).collect(),
        }
    }
}

/// The batch in flight.
pub(super) struct Current {
    pub(super) index: IndexValues,
    pub(super) row_number: Option<IndexValues>,
    pub(super) start: usize,
    piece: Piece,
}

/// A layer that is read.
pub(super) struct Feed {
    pub(super) plan: LayerPlan,
    /// None when it has ended.
    reader: Option<Reader>,
    pub(super) current: Option<Current>,
}

impl Feed {
    pub(super) fn new(plan: LayerPlan, reader: Reader) -> Self {
        Self { plan, reader: Some(reader), current: None }
    }

    /// Rows of the batch in flight that are still to come; the next batch is asked for when there
    /// are none, and 0 is the end.
    pub(super) fn left(&mut self) -> Result<usize, ArrowError> {
        loop {
            if let Some(current) = &self.current {
                return Ok(current.piece.rows - current.start);
            }
            let Some(reader) = &mut self.reader else { return Ok(0) };
            match reader.next() {
                None => self.reader = None,
                Some(Err(e)) => {
                    self.reader = None;
                    return Err(named(e, &self.plan.name));
                }
                Some(Ok(batch)) if batch.num_rows() == 0 => {
                    drift::columns(&batch, &self.plan.schema, &self.plan.name)
                        .map_err(Error::into_arrow)?;
                }
                Some(Ok(batch)) => {
                    self.current = Some(open(&self.plan, &batch).map_err(Error::into_arrow)?);
                }
            }
        }
    }

    /// Takes the next `len` rows, which the batch in flight has.
    pub(super) fn take(&mut self, len: usize) -> Option<Piece> {
        let current = self.current.as_mut()?;
        let piece = current.piece.slice(current.start, len);
        current.start += len;
        if current.start == current.piece.rows {
            self.current = None;
        }
        Some(piece)
    }
}

/// An error of a batch that says in which layer it is; files have names of their own.
fn named(error: ArrowError, layer: &str) -> ArrowError {
    match error {
        ArrowError::ExternalError(inner) => match inner.downcast::<Error>() {
            Ok(e) if e.kind() == Kind::CorruptSource && e.path().is_none() => {
                in_layer(*e, layer).into_arrow()
            }
            Ok(e) => e.into_arrow(),
            Err(inner) => ArrowError::ExternalError(inner),
        },
        error => error,
    }
}

fn open(plan: &LayerPlan, batch: &RecordBatch) -> Result<Current> {
    let columns = drift::columns(batch, &plan.schema, &plan.name)?;
    let column = |place: usize| {
        columns.get(place).ok_or_else(|| Error::new(Kind::Internal, "a column is not there"))
    };
    let index = IndexValues::new(column(plan.index)?)?;
    let row_number = plan.row_number.map(|place| IndexValues::new(column(place)?)).transpose()?;
    let mut parts = Vec::with_capacity(plan.parts.len());
    for places in &plan.parts {
        parts.push(part(&columns, places).map(|(part, _)| part)?);
    }
    let mut structs = Vec::with_capacity(plan.structs.len());
    for places in &plan.structs {
        let (array, above) = part(&columns, places)?;
        structs.push(NullBuffer::union(above.as_ref(), array.nulls()));
    }
    let piece = Piece { rows: batch.num_rows(), parts, structs };
    Ok(Current { index, row_number, start: 0, piece })
}

/// The array at `places`, and where all structs above it are there.
fn part(columns: &[ArrayRef], places: &[usize]) -> Result<(ArrayRef, Option<NullBuffer>)> {
    let lost = || Error::new(Kind::Internal, "a field of a layer is not there");
    let (root, rest) = places.split_first().ok_or_else(lost)?;
    let mut array = columns.get(*root).ok_or_else(lost)?;
    let mut above = None;
    for place in rest {
        let parent = array.as_struct_opt().ok_or_else(lost)?;
        above = NullBuffer::union(above.as_ref(), parent.nulls());
        array = parent.columns().get(*place).ok_or_else(lost)?;
    }
    Ok((array.clone(), above))
}
