//! Reads all layers side by side, compares their index values, and makes batches.
//!
//! ```text
//! layer 0  ├────────────┼──────────┤      steps end where any layer's batch ends;
//! layer 1  ├──────┼───────────┼────┤      a batch is one step, or several if they are short
//! output   ├──────┼─────┼─────┼────┤
//! ```
//!
//! # Invariants
//! Every row of every checked layer is compared before it is given out. A layer is asked for its
//! next batch only when a row of it is needed. After the end or an error all layers are let go.
//!
//! # Cost
//! A comparison of slices per step and layer; see `combine`.

use std::sync::Arc;

use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{ArrayRef, Int64Array, PrimitiveArray, RecordBatch, RecordBatchReader};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{ArrowError, DataType, FieldRef, SchemaRef, TimeUnit};

use super::combine;
use super::feed::{Feed, IndexValues, Piece, Reader};
use super::plan::Plan;
use crate::key::{KeyValue, ShownAs};
use plait_base::{Error, Kind, Result};

/// Shorter steps are joined: a batch costs some work per leaf, whatever its rows.
const STEP_ROWS_MIN: usize = 1024;

/// Longer steps are cut.
const STEP_ROWS_MAX: usize = 1 << 20;

/// The batches of an overlay.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
/// use plait_core::overlay::{LayerSpec, Overlay, OverlayRules, Plan};
/// use plait_core::{Error, Result};
///
/// let column = |values: [i64; 2]| -> ArrayRef { Arc::new(Int64Array::from(values.to_vec())) };
/// let index = column([0, 1]);
/// let base = [("_index", index.clone()), ("a", column([1, 2])), ("b", column([3, 4]))];
/// let above = [("_index", index), ("b", column([30, 40]))];
/// let batch = |columns: &[(&str, ArrayRef)]| {
///     RecordBatch::try_from_iter(columns.iter().cloned()).map_err(Error::from_arrow)
/// };
/// let (mut layers, mut readers) = (Vec::new(), Vec::new());
/// for (name, batch) in [("base", batch(&base)?), ("above", batch(&above)?)] {
///     let schema = batch.schema();
///     layers.push(LayerSpec {
///         name: name.into(),
///         schema: schema.clone(),
///         paths: None,
///         precedence: 0,
///     });
///     readers.push(Box::new(RecordBatchIterator::new([Ok(batch)], schema)) as _);
/// }
/// let plan = Plan::try_new(&layers, OverlayRules::default())?;
/// let supplies = [("a".to_owned(), "base".to_owned()), ("b".to_owned(), "above".to_owned())];
/// assert_eq!(plan.explain(), supplies);
/// for batch in Overlay::try_new(plan, readers)? {
///     assert_eq!(&batch.map_err(Error::from_arrow)?["b"], &column([30, 40]));
/// }
/// # Result::<()>::Ok(())
/// ```
pub struct Overlay {
    plan: Arc<Plan>,
    feeds: Vec<Feed>,
    /// Rows given out or compared so far.
    row: u64,
    rows_min: usize,
    rows_max: usize,
}

impl Overlay {
    /// An overlay by `plan` of `readers`, one for each layer in the order in which the plan was given
    /// them.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] when there are not as many readers as layers.
    pub fn try_new(plan: Plan, readers: Vec<Reader>) -> Result<Self> {
        let mut readers: Vec<Option<Reader>> = readers.into_iter().map(Some).collect();
        let mut feeds = Vec::with_capacity(plan.layers.len());
        for layer in &plan.layers {
            let reader = readers
                .get_mut(layer.place)
                .and_then(Option::take)
                .ok_or_else(|| Error::new(Kind::InvalidArgument, "a layer has no reader"))?;
            feeds.push(Feed::new(layer.clone(), reader));
        }
        let (rows_min, rows_max) = match plan.options.batch_rows {
            Some(rows) => (rows, rows),
            None => (STEP_ROWS_MIN, STEP_ROWS_MAX),
        };
        Ok(Self { plan: Arc::new(plan), feeds, row: 0, rows_min, rows_max })
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn step(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let mut pieces: Vec<Vec<Piece>> = self.feeds.iter().map(|_| Vec::new()).collect();
        let mut index: Vec<ScalarBuffer<i64>> = Vec::new();
        let mut rows = 0;
        while rows < self.rows_min {
            let mut left = Vec::with_capacity(self.feeds.len());
            for feed in &mut self.feeds {
                left.push(feed.left()?);
            }
            if left.iter().all(|left| *left == 0) {
                break;
            }
            if let Some(ended) = left.iter().position(|left| *left == 0) {
                return Err(self.ended(ended, &left).into_arrow());
            }
            let len = left.into_iter().min().unwrap_or(0).min(self.rows_max - rows);
            self.compare(len).map_err(Error::into_arrow)?;
            if let Some(current) = self.feeds.first().and_then(|feed| feed.current.as_ref()) {
                index.push(current.index.values.slice(current.start, len));
            }
            for (feed, pieces) in self.feeds.iter_mut().zip(&mut pieces) {
                pieces.extend(feed.take(len));
            }
            rows += len;
            self.row += len as u64;
        }
        if rows == 0 {
            return Ok(None);
        }
        let index = self.index_array(index);
        combine::batch(&self.plan, index, pieces, rows).map(Some).map_err(Error::into_arrow)
    }

    fn index_array(&self, mut pieces: Vec<ScalarBuffer<i64>>) -> ArrayRef {
        let values = match pieces.len() {
            1 => pieces.pop().unwrap_or_default(),
            _ => pieces.iter().flat_map(|piece| piece.iter().copied()).collect(),
        };
        let data_type = self.plan.schema.field(0).data_type();
        match data_type {
            DataType::Timestamp(TimeUnit::Second, tz) => Arc::new(
                PrimitiveArray::<TimestampSecondType>::new(values, None)
                    .with_timezone_opt(tz.clone()),
            ),
            DataType::Timestamp(TimeUnit::Millisecond, tz) => Arc::new(
                PrimitiveArray::<TimestampMillisecondType>::new(values, None)
                    .with_timezone_opt(tz.clone()),
            ),
            DataType::Timestamp(TimeUnit::Microsecond, tz) => Arc::new(
                PrimitiveArray::<TimestampMicrosecondType>::new(values, None)
                    .with_timezone_opt(tz.clone()),
            ),
            DataType::Timestamp(TimeUnit::Nanosecond, tz) => Arc::new(
                PrimitiveArray::<TimestampNanosecondType>::new(values, None)
                    .with_timezone_opt(tz.clone()),
            ),
            _ => Arc::new(Int64Array::new(values, None)),
        }
    }

    /// Compares the next `len` rows of all layers with those of the first.
    fn compare(&self, len: usize) -> Result<()> {
        let mut first: Option<Difference> = None;
        let Some((base, others)) = self.feeds.split_first() else { return Ok(()) };
        for of in [ComparedColumn::Index, ComparedColumn::RowNumber] {
            let Some((values, start)) = of.values(base) else { continue };
            for (place, other) in std::iter::once(base).chain(others).enumerate() {
                let Some((theirs, their_start)) = of.values(other) else { continue };
                let upto = first.as_ref().map_or(len, |first| first.row);
                if let Some(row) = difference((values, start), (theirs, their_start), upto) {
                    let values = (values.get(start + row), theirs.get(their_start + row));
                    first = Some(Difference { row, place, of, values });
                }
            }
        }
        let Some(Difference { row, place, of, values }) = first else { return Ok(()) };
        let text = |value| of.text(base, value);
        let what = match of {
            ComparedColumn::Index => "layers do not hold the same rows in the same order",
            ComparedColumn::RowNumber => {
                "layers do not hold the same rows: their row numbers differ"
            }
        };
        let got = match place {
            0 => format!("null in layer `{}`", base.plan.name),
            _ => format!(
                "{} in layer `{}`, {} in layer `{}`",
                text(values.0),
                base.plan.name,
                text(values.1),
                self.feeds[place].plan.name
            ),
        };
        Err(Error::new(Kind::RowMismatch, what)
            .with_column(of.name(base))
            .with_row(self.row + row as u64)
            .with_got(got)
            .with_hint("every layer must hold the same rows; index values must not be null"))
    }

    /// The error for a layer that ended before others.
    fn ended(&self, ended: usize, left: &[usize]) -> Error {
        let other = left.iter().position(|left| *left > 0).unwrap_or(0);
        let (ended, other) = (&self.feeds[ended], &self.feeds[other]);
        let value =
            ComparedColumn::Index.values(other).and_then(|(values, start)| values.get(start));
        Error::new(Kind::RowMismatch, "layers do not hold the same number of rows")
            .with_column(ComparedColumn::Index.name(other))
            .with_row(self.row)
            .with_got(format!(
                "no further row in layer `{}`, {} in layer `{}`",
                ended.plan.name,
                ComparedColumn::Index.text(other, value),
                other.plan.name
            ))
    }
}

#[derive(Clone, Copy)]
enum ComparedColumn {
    Index,
    RowNumber,
}

impl ComparedColumn {
    fn values(self, feed: &Feed) -> Option<(&IndexValues, usize)> {
        let current = feed.current.as_ref()?;
        let values = match self {
            Self::Index => Some(&current.index),
            Self::RowNumber => current.row_number.as_ref(),
        };
        Some((values?, current.start))
    }

    fn field(self, feed: &Feed) -> Option<&FieldRef> {
        let place = match self {
            Self::Index => Some(feed.plan.index),
            Self::RowNumber => feed.plan.row_number,
        };
        place.and_then(|place| feed.plan.schema.fields().get(place))
    }

    fn name(self, feed: &Feed) -> String {
        self.field(feed).map(|field| field.name().clone()).unwrap_or_default()
    }

    /// A value as people read it.
    fn text(self, feed: &Feed, value: Option<i64>) -> String {
        let shown = self.field(feed).map(|field| ShownAs::of(field)).unwrap_or_default();
        let text = |value| format!("`{}`", shown.text(&KeyValue::Int(value)));
        value.map_or("null".to_owned(), text)
    }
}

/// Where two layers differ first.
struct Difference {
    row: usize,
    place: usize,
    of: ComparedColumn,
    values: (Option<i64>, Option<i64>),
}

/// The first of `len` rows whose values differ or are null.
fn difference(
    ours: (&IndexValues, usize),
    theirs: (&IndexValues, usize),
    len: usize,
) -> Option<usize> {
    let has_nulls = |(values, start): (&IndexValues, usize)| {
        values.nulls.as_ref().is_some_and(|nulls| nulls.slice(start, len).null_count() > 0)
    };
    let slice = |(values, start): (&IndexValues, usize)| values.values.slice(start, len);
    if !has_nulls(ours) && !has_nulls(theirs) && slice(ours) == slice(theirs) {
        return None;
    }
    (0..len).find(|row| {
        let (a, b) = (ours.0.get(ours.1 + row), theirs.0.get(theirs.1 + row));
        a.is_none() || a != b
    })
}

impl Iterator for Overlay {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.feeds.is_empty() {
            return None;
        }
        let next = self.step().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.feeds.clear();
        }
        next
    }
}

impl RecordBatchReader for Overlay {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.plan.schema)
    }
}
