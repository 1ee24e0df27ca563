//! A predicate against a schema: each condition as ranges of the keys of its column.
//!
//! ```text
//! v < 5        [first value, key(5))              v != 5   [first value, key(5)) [after key(5), …)
//! v IN (3, 5)  [key(3), after key(3)) [key(5), after key(5))
//! ```
//!
//! # Invariants
//! Ranges ascend and do not meet. Keys are those of one column that ascends with nulls first.
//!
//! # Not here
//! The text (`parse`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, StringArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Schema};

use super::Predicate;
use super::asked::{Comparison, Test};
use crate::key::{KeyType, Keys, Nulls, Place, SortColumn, SortOrder, pack, place, successor};
use crate::stream::KeyColumns;
use plait_base::{Error, Kind, Result, type_text};

/// A predicate on the columns of one schema.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    conditions: Vec<ColumnCondition>,
}

/// From a key on, up to another one that is not among them: to the last of all if there is none.
type KeyRange = (Vec<u8>, Option<Vec<u8>>);

/// Where a value lies among keys.
struct Ends {
    /// The first key that is not below the value; none if all are.
    from: Option<Vec<u8>>,
    /// The first key above the value; none if there is none.
    after: Option<Vec<u8>>,
}

impl Ends {
    /// The keys that are the value.
    fn values(self) -> Option<KeyRange> {
        let from = self.from.filter(|from| self.after.as_ref() != Some(from))?;
        Some((from, self.after))
    }
}

/// A condition on one column.
#[derive(Clone, Debug)]
pub struct ColumnCondition {
    key: KeyColumns,
    /// From the first key on, up to the second: to the last of all if there is none.
    ranges: Vec<KeyRange>,
    /// The values it asks for, where it asks for some alone.
    equals: Vec<ArrayRef>,
}

impl Predicate {
    /// The same on the columns of `schema`.
    ///
    /// # Errors
    /// [`Kind::UnknownColumn`]; [`Kind::UnsupportedKey`] for a type that has no order, such as a list;
    /// [`Kind::InvalidArgument`] for a text that is no value of its column.
    pub fn bind(&self, schema: &Schema) -> Result<Filter> {
        let bound = self.conditions.iter().map(|asked| {
            let order = SortOrder::try_new(vec![SortColumn {
                path: asked.path.clone(),
                descending: false,
                nulls: Nulls::First,
            }])?;
            let name = || order.to_string().replace(" nulls first", "");
            let key = KeyColumns::try_new(&order, schema).map_err(of_condition)?;
            condition(key, &asked.test).map_err(|e| e.with_column(name()))
        });
        Ok(Filter { conditions: bound.collect::<Result<_>>()? })
    }
}

impl Filter {
    /// Whether it leaves every row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Its conditions.
    #[must_use]
    pub fn conditions(&self) -> &[ColumnCondition] {
        &self.conditions
    }

    /// For which of `rows` rows it holds, by the columns of the schema.
    ///
    /// # Errors
    /// Columns of another schema.
    pub fn holds(&self, columns: &[ArrayRef], rows: usize) -> Result<BooleanBuffer> {
        let mut all = BooleanBuffer::new_set(rows);
        for condition in &self.conditions {
            all = &all & &condition.holds(columns, rows)?;
        }
        Ok(all)
    }
}

impl ColumnCondition {
    /// Places of its column in the schema, from the root to the leaf.
    #[must_use]
    pub fn path(&self) -> &[usize] {
        self.key.path(0)
    }

    /// The type of its column.
    #[must_use]
    pub fn data_type(&self) -> &DataType {
        self.key.types.first().unwrap_or(&DataType::Null)
    }

    /// The values of which one must be there, each an array of one row; none where it is not about
    /// equality.
    #[must_use]
    pub fn equals(&self) -> &[ArrayRef] {
        &self.equals
    }

    /// Whether it holds for null.
    #[must_use]
    pub fn holds_for_null(&self) -> bool {
        self.contains(&[NULL])
    }

    /// For which pairs of a least and a greatest value it may hold for a value between them; a null
    /// is a bound that is not known.
    ///
    /// # Errors
    /// Arrays of other types.
    pub fn can_hold(&self, least: &ArrayRef, greatest: &ArrayRef) -> Result<Vec<bool>> {
        let rows = least.len();
        let of = |array: &ArrayRef| self.key.encode(std::slice::from_ref(array), 0, rows);
        let (low, high) = (of(least)?, of(greatest)?);
        let shape = &self.key.shape;
        let can = |row: usize| {
            let low = (!is_null(least, row)).then(|| low.to_bytes(shape, row));
            let high = (!is_null(greatest, row)).then(|| high.to_bytes(shape, row));
            self.meets(low.as_deref().unwrap_or(&[VALUE]), high.as_deref())
        };
        Ok((0..rows).map(can).collect())
    }

    /// Whether a key that it holds for lies from `low` to `high`, both included.
    fn meets(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        let ends_before = |end: &Option<Vec<u8>>| end.as_deref().is_some_and(|end| end <= low);
        let at = self.ranges.partition_point(|(_, end)| ends_before(end));
        self.ranges
            .get(at)
            .is_some_and(|(start, _)| high.is_none_or(|high| start.as_slice() <= high))
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.meets(key, Some(key))
    }

    fn holds(&self, columns: &[ArrayRef], rows: usize) -> Result<BooleanBuffer> {
        let arrays = self.key.arrays(columns)?;
        match arrays.first().and_then(|array| array.as_dictionary_opt::<Int32Type>()) {
            Some(coded) if coded.values().len() < rows => self.holds_coded(coded),
            _ => self.holds_for(&arrays, rows),
        }
    }

    /// The same for a dictionary: each of its values is looked at once.
    fn holds_coded(&self, coded: &DictionaryArray<Int32Type>) -> Result<BooleanBuffer> {
        let values = coded.values();
        let holds = self.holds_for(std::slice::from_ref(values), values.len())?;
        let for_null = self.holds_for_null();
        let (keys, nulls) = (coded.keys().values(), coded.keys().nulls());
        Ok(BooleanBuffer::collect_bool(coded.len(), |row| {
            match nulls.is_some_and(|nulls| nulls.is_null(row)) {
                true => for_null,
                false => holds.value(keys[row] as usize),
            }
        }))
    }

    fn holds_for(&self, arrays: &[ArrayRef], rows: usize) -> Result<BooleanBuffer> {
        let keys = self.key.encode(arrays, 0, rows)?;
        Ok(match keys {
            Keys::Packed(keys) => {
                let bounds: Vec<(u128, Option<u128>)> = self
                    .ranges
                    .iter()
                    .map(|(start, end)| (pack(start), end.as_deref().map(pack)))
                    .collect();
                match bounds.as_slice() {
                    [(start, end)] => BooleanBuffer::collect_bool(rows, |row| {
                        *start <= keys[row] && end.is_none_or(|end| keys[row] < end)
                    }),
                    bounds => BooleanBuffer::collect_bool(rows, |row| {
                        let key = keys[row];
                        let at =
                            bounds.partition_point(|(_, end)| end.is_some_and(|end| end <= key));
                        bounds.get(at).is_some_and(|(start, _)| *start <= key)
                    }),
                }
            }
            Keys::Bytes(keys) => {
                BooleanBuffer::collect_bool(rows, |row| self.contains(keys.get(row)))
            }
        })
    }
}

/// The error about a column of a condition, which need not be a sort column.
fn of_condition(e: Error) -> Error {
    if e.kind() != Kind::UnsupportedKey {
        return e;
    }
    let mut said = Error::new(e.kind(), "a condition needs a column of single values")
        .with_hint("name a field of the struct; elements of lists and maps cannot be tested");
    if let Some(column) = e.column() {
        said = said.with_column(column.trim_end_matches(" nulls first"));
    }
    match e.got() {
        Some(got) => said.with_got(got),
        None => said,
    }
}

/// The key of null in a column that has nulls first, and the byte that begins all others.
const NULL: u8 = 0;
const VALUE: u8 = 1;

/// Bytes at the end of the key of a text.
const TERMINATOR_BYTES: usize = 2;

fn condition(key: KeyColumns, test: &Test) -> Result<ColumnCondition> {
    let is_nulls = matches!(key.shape.columns().first().map(|c| c.ty), Some(KeyType::Null) | None);
    let data_type = key.types.first().cloned().unwrap_or(DataType::Null);
    let mut equals = Vec::new();
    let first = || vec![VALUE];
    let mut ends = |text: &String| -> Result<Ends> {
        let bytes = |value: ArrayRef| -> Result<Vec<u8>> {
            Ok(key.encode(&[value], 0, 1)?.to_bytes(&key.shape, 0))
        };
        let between = |at: Option<Vec<u8>>| Ends { from: at.clone(), after: at };
        Ok(match place(text, &data_type)? {
            Place::At(value) => {
                equals.push(Arc::clone(&value));
                let from = bytes(value)?;
                Ends { after: successor(&from), from: Some(from) }
            }
            Place::After(value) => between(successor(&bytes(value)?)),
            Place::BelowAll => between(Some(first())),
            Place::AboveAll => between(None),
        })
    };
    let mut is_equality = false;
    let ranges = match test {
        Test::IsNull => vec![(vec![NULL], Some(first()))],
        Test::IsNotNull => vec![(first(), None)],
        // A column without values: no comparison holds.
        _ if is_nulls => Vec::new(),
        Test::Compare(comparison, text) => {
            let at = ends(text)?;
            is_equality = *comparison == Comparison::Equal;
            match comparison {
                Comparison::Less => vec![(first(), at.from)],
                Comparison::LessOrEqual => vec![(first(), at.after)],
                Comparison::Equal => at.values().into_iter().collect(),
                Comparison::NotEqual => outside(at.values().into_iter().collect()),
                Comparison::GreaterOrEqual => {
                    at.from.map(|from| (from, None)).into_iter().collect()
                }
                Comparison::Greater => at.after.map(|after| (after, None)).into_iter().collect(),
            }
        }
        Test::In(texts) | Test::NotIn(texts) => {
            let all = texts.iter().map(&mut ends).collect::<Result<Vec<_>>>()?;
            let mut ranges: Vec<KeyRange> = all.into_iter().filter_map(Ends::values).collect();
            ranges.sort_unstable();
            ranges.dedup();
            is_equality = matches!(test, Test::In(_));
            if is_equality { ranges } else { outside(ranges) }
        }
        Test::Between(low, high) => {
            let (low, high) = (ends(low)?, ends(high)?);
            low.from.map(|from| (from, high.after)).into_iter().collect()
        }
        Test::StartsWith(prefix) => {
            if !is_text(&data_type) {
                return Err(Error::new(Kind::InvalidArgument, "`LIKE` is for text")
                    .with_got(format!("a column of type {}", type_text(&data_type)))
                    .with_hint("compare with < <= = >= >"));
            }
            let text: ArrayRef = Arc::new(StringArray::from(vec![prefix.as_str()]));
            let mut start = key.encode(&[text], 0, 1)?.to_bytes(&key.shape, 0);
            start.truncate(start.len() - TERMINATOR_BYTES);
            let end = successor(&start);
            vec![(start, end)]
        }
    };
    let ranges = ranges.into_iter().filter(|(start, end)| end.as_ref().is_none_or(|e| start < e));
    let ranges = ranges.collect();
    if !is_equality {
        equals.clear();
    }
    Ok(ColumnCondition { key, ranges, equals })
}

/// The values that are in none of `ranges`.
fn outside(ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    let mut found = Vec::with_capacity(ranges.len() + 1);
    let mut from = Some(vec![VALUE]);
    for (start, end) in ranges {
        if let Some(from) = from {
            found.push((from, Some(start)));
        }
        from = end;
    }
    found.extend(from.map(|from| (from, None)));
    found
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        DataType::RunEndEncoded(_, values) => is_text(values.data_type()),
        _ => false,
    }
}

fn is_null(array: &ArrayRef, row: usize) -> bool {
    array.logical_nulls().is_some_and(|nulls| nulls.is_null(row))
}
