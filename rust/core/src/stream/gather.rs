//! Rows of several batches, in any order, as one array a column.
//!
//! ```text
//! picks    0:40+2   1:7+1   0:42+3        batch, first row, rows
//! few long picks    copied run by run     many short ones    by index
//! one pick          a slice, not copied
//! ```
//!
//! # Invariants
//! All arrays of a column have one type. [`gather`] is the only place that copies rows.
//!
//! # Cost
//! One copy of a value; nothing where a part lies in one batch.
//!
//! # Not here
//! Which rows (`merge`).

use std::sync::{Arc, OnceLock};

use arrow_array::{Array, ArrayRef, make_array};
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType};

use super::lane::Held;

/// Picks of this many rows on average are copied run by run.
const PICK_ROWS_MIN: usize = 16;

/// Consecutive rows of one batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick {
    /// Which of the batches.
    pub(super) batch: usize,
    pub(super) start: usize,
    pub(super) len: usize,
}

/// Some rows of the result, before they are copied.
#[derive(Default)]
pub(super) struct Part {
    pub(super) batches: Vec<Arc<Held>>,
    picks: Vec<Pick>,
    rows: usize,
    pairs: OnceLock<Vec<(usize, usize)>>,
}

impl Part {
    pub(super) fn push(&mut self, pick: Pick) {
        self.rows += pick.len;
        match self.picks.last_mut() {
            Some(last) if last.batch == pick.batch && last.start + last.len == pick.start => {
                last.len += pick.len;
            }
            _ => self.picks.push(pick),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The two halves; the rows are at least two.
    pub(super) fn halves(&self) -> [Self; 2] {
        let half = || Self { batches: self.batches.clone(), ..Self::default() };
        let mut halves = [half(), half()];
        let mut left = self.rows / 2;
        for pick in &self.picks {
            let first = left.min(pick.len);
            left -= first;
            if first > 0 {
                halves[0].push(Pick { len: first, ..*pick });
            }
            if first < pick.len {
                let (start, len) = (pick.start + first, pick.len - first);
                halves[1].push(Pick { start, len, ..*pick });
            }
        }
        halves
    }

    /// Column `column` of the rows.
    ///
    /// # Errors
    /// [`ArrowError::DictionaryKeyOverflowError`] when the keys of a dictionary are too narrow for
    /// the values of all rows, and what else Arrow refuses.
    pub(super) fn column(&self, column: usize) -> Result<ArrayRef, ArrowError> {
        let arrays: Vec<&ArrayRef> = self.batches.iter().map(|b| &b.columns[column]).collect();
        gather(&arrays, &self.picks, || {
            self.pairs.get_or_init(|| {
                let mut pairs = Vec::with_capacity(self.rows);
                for pick in &self.picks {
                    pairs.extend((pick.start..pick.start + pick.len).map(|row| (pick.batch, row)));
                }
                pairs
            })
        })
    }
}

/// The rows of `picks`, also told row by row by `pairs`, as one array.
fn gather<'a>(
    arrays: &[&ArrayRef],
    picks: &[Pick],
    pairs: impl FnOnce() -> &'a Vec<(usize, usize)>,
) -> Result<ArrayRef, ArrowError> {
    if let [only] = picks {
        return Ok(arrays[only.batch].slice(only.start, only.len));
    }
    let rows: usize = picks.iter().map(|pick| pick.len).sum();
    let is_plain = arrays.first().is_some_and(|array| copies_by_run(array.data_type()));
    if is_plain && rows >= picks.len() * PICK_ROWS_MIN {
        let data: Vec<_> = arrays.iter().map(|array| array.to_data()).collect();
        let mut to = MutableArrayData::try_new(data.iter().collect(), false, rows)?;
        for pick in picks {
            to.try_extend(pick.batch, pick.start, pick.start + pick.len)?;
        }
        return Ok(make_array(to.freeze()));
    }
    let arrays: Vec<&dyn Array> = arrays.iter().map(|array| array.as_ref()).collect();
    arrow_select::interleave::interleave(&arrays, pairs())
}

/// Whether copying runs keeps no more than their values: neither dictionaries nor buffers of views.
fn copies_by_run(ty: &DataType) -> bool {
    match ty {
        DataType::Dictionary(..)
        | DataType::Utf8View
        | DataType::BinaryView
        | DataType::RunEndEncoded(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Union(..) => false,
        DataType::Struct(fields) => fields.iter().all(|field| copies_by_run(field.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => copies_by_run(item.data_type()),
        _ => true,
    }
}
