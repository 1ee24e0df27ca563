//! New lists and maps, of the elements of several rows.
//!
//! ```text
//! group     row 7 of slot 0: [a, b]   row 2 of slot 1: [b, c]
//! elements  runs over the elements of the slots ─▶ one array ─▶ lists by their lengths
//! ```
//!
//! # Cost
//! One copy of each element. Where elements are there once, their identities too.
//!
//! # Not here
//! Which rows (`combined`); which elements (`crate::plan::distinct_elements`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, GenericListArray, MapArray, OffsetSizeTrait};
use arrow_buffer::OffsetBuffer;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, FieldRef};

use crate::plan::{NewValue, distinct_elements};
use plait_base::{Error, Kind, Result, Runs, SourceId};

/// New values of one column.
pub(super) struct NewLists {
    how: NewValue,
    data_type: DataType,
    /// The elements of all arrays, and where the arrays of slots are.
    elements: Vec<ArrayRef>,
    places: BTreeMap<SourceId, SourceId>,
    converter: Option<RowConverter>,
    runs: Runs,
    lengths: Vec<usize>,
}

impl NewLists {
    pub(super) fn new(how: NewValue, data_type: &DataType) -> Self {
        Self {
            how,
            data_type: data_type.clone(),
            elements: Vec::new(),
            places: BTreeMap::new(),
            converter: None,
            runs: Runs::default(),
            lengths: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Adds the value that `rows` become: a slot, its column, and a row of it. Nulls are passed over.
    pub(super) fn push<'a>(
        &mut self,
        rows: impl Iterator<Item = Result<(SourceId, &'a ArrayRef, usize)>>,
    ) -> Result<()> {
        let (mut values, mut identities) = (Vec::new(), Vec::new());
        for row in rows {
            let (slot, array, row) = row?;
            if array.is_null(row) {
                continue;
            }
            let place = self.place(slot, array)?;
            let elements = elements_at(array, row)?;
            if self.how == NewValue::DistinctElements {
                let rows = self.identities(array, &elements)?;
                identities.push(rows.iter().map(|row| row.owned()).collect());
            }
            values.push((place, elements));
        }
        let before = self.runs.rows();
        if self.how == NewValue::DistinctElements {
            for (value, element) in distinct_elements(&identities) {
                if let Some((place, elements)) = values.get(value) {
                    self.runs.push(*place, (elements.start + element) as u64, 1);
                }
            }
        } else {
            for (place, elements) in values {
                self.runs.push(place, elements.start as u64, elements.len() as u64);
            }
        }
        self.lengths.push(usize::try_from(self.runs.rows() - before).unwrap_or(usize::MAX));
        Ok(())
    }

    fn place(&mut self, slot: SourceId, array: &ArrayRef) -> Result<SourceId> {
        if let Some(place) = self.places.get(&slot) {
            return Ok(*place);
        }
        let place = SourceId(u32::try_from(self.elements.len()).unwrap_or(u32::MAX));
        self.elements.push(all_elements(array)?);
        self.places.insert(slot, place);
        Ok(place)
    }

    fn identities(&mut self, array: &ArrayRef, elements: &Range<usize>) -> Result<arrow_row::Rows> {
        let named = match array.data_type() {
            DataType::Map(..) => Arc::clone(array.as_map().keys()),
            _ => all_elements(array)?,
        };
        let converter = match &mut self.converter {
            Some(converter) => converter,
            none => {
                let field = SortField::new(named.data_type().clone());
                none.insert(RowConverter::new(vec![field]).map_err(Error::from_arrow)?)
            }
        };
        let named = named.slice(elements.start, elements.len());
        converter.convert_columns(&[named]).map_err(Error::from_arrow)
    }

    /// The values.
    pub(super) fn finish(self) -> Result<Option<ArrayRef>> {
        if self.lengths.is_empty() {
            return Ok(None);
        }
        let elements = match self.runs.rows() {
            0 => self.elements.first().ok_or_else(no_list)?.slice(0, 0),
            _ => plait_interleave::gather(&self.elements, self.runs.as_slice())?,
        };
        let lengths = &self.lengths;
        let array: ArrayRef = match &self.data_type {
            DataType::List(field) => list::<i32>(field, lengths, elements)?,
            DataType::LargeList(field) => list::<i64>(field, lengths, elements)?,
            DataType::Map(field, ordered) => Arc::new(
                MapArray::try_new(
                    Arc::clone(field),
                    offsets(&self.lengths)?,
                    elements.as_struct_opt().ok_or_else(no_list)?.clone(),
                    None,
                    *ordered,
                )
                .map_err(Error::from_arrow)?,
            ),
            _ => return Err(no_list()),
        };
        Ok(Some(array))
    }
}

fn list<O: OffsetSizeTrait>(
    field: &FieldRef,
    lengths: &[usize],
    elements: ArrayRef,
) -> Result<ArrayRef> {
    let (field, offsets) = (Arc::clone(field), offsets(lengths)?);
    let list = GenericListArray::<O>::try_new(field, offsets, elements, None);
    Ok(Arc::new(list.map_err(Error::from_arrow)?))
}

fn no_list() -> Error {
    Error::new(Kind::Internal, "a column without lists or maps was collected")
}

fn offsets<O: OffsetSizeTrait>(lengths: &[usize]) -> Result<OffsetBuffer<O>> {
    let all = lengths.iter().try_fold(0_usize, |all, len| all.checked_add(*len));
    match all.and_then(O::from_usize) {
        Some(_) => Ok(OffsetBuffer::from_lengths(lengths.iter().copied())),
        None => Err(Error::new(Kind::Unsupported, "the lists of a batch have too many elements")
            .with_hint("make `batch_rows` smaller")),
    }
}

/// The elements of all rows of an array.
fn all_elements(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::List(_) => Arc::clone(array.as_list::<i32>().values()),
        DataType::LargeList(_) => Arc::clone(array.as_list::<i64>().values()),
        DataType::Map(..) => Arc::new(array.as_map().entries().clone()),
        _ => return Err(no_list()),
    })
}

/// Which of them are those of one row.
fn elements_at(array: &ArrayRef, row: usize) -> Result<Range<usize>> {
    fn between<O: OffsetSizeTrait>(offsets: &[O], row: usize) -> Range<usize> {
        offsets[row].as_usize()..offsets[row + 1].as_usize()
    }
    Ok(match array.data_type() {
        DataType::List(_) => between(array.as_list::<i32>().value_offsets(), row),
        DataType::LargeList(_) => between(array.as_list::<i64>().value_offsets(), row),
        DataType::Map(..) => between(array.as_map().value_offsets(), row),
        _ => return Err(no_list()),
    })
}
