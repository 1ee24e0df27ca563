//! Interleave and `arrow_select::interleave`, in one process: times arrow's time / ours, the least
//! of all nulls, lengths and numbers of arrays; more is better. Words filter types and shapes:
//!
//! ```text
//! cargo bench -p plait-interleave -- utf8 runs
//! ```
//!
//! Ours starts from selectors of 32 bits, checks them and copies; columns with `*` start from runs,
//! as merges do. Arrow's starts from pairs that are ready, and borrows the arrays: ours shares
//! them. Rounds alternate, and so do several orders of rows; the least time of each counts.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints a table")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Decimal256Type, Int32Type};
use arrow_array::types::{Float64Type, Int8Type, Int16Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray,
    FixedSizeListArray, Int32Array, LargeListArray, LargeStringArray, ListArray, ListViewArray,
    MapArray, PrimitiveArray, RunArray, StringArray, StringViewArray, StructArray, UInt32Array,
    UnionArray,
};
use arrow_buffer::{MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, UnionFields};
use plait_base::{Runs, SourceId};
use plait_interleave::{Interleave, gather};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        // The constants of Knuth's MMIX; high bits are the good ones.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

type Make = fn(usize, bool, &mut Random, usize) -> ArrayRef;

fn nulls(len: usize, nullable: bool, random: &mut Random) -> Option<NullBuffer> {
    nullable.then(|| (0..len).map(|_| random.below(5) != 0).collect())
}

fn primitive<T: ArrowPrimitiveType>(
    len: usize,
    nullable: bool,
    random: &mut Random,
    _: usize,
) -> ArrayRef {
    let mut bytes = MutableBuffer::new(0);
    for _ in 0..len * size_of::<T::Native>() {
        bytes.push(random.below(256) as u8);
    }
    let values = ScalarBuffer::new(bytes.into(), 0, len);
    Arc::new(PrimitiveArray::<T>::new(values, nulls(len, nullable, random)))
}

fn words(len: usize, longest: usize, nullable: bool, random: &mut Random) -> Vec<Option<String>> {
    let mut word = |_| {
        let chars = random.below(longest);
        (!nullable || random.below(5) != 0)
            .then(|| (0..chars).map(|_| char::from(b'a' + random.below(26) as u8)).collect())
    };
    (0..len).map(&mut word).collect()
}

fn offsets(len: usize, longest: usize, random: &mut Random) -> OffsetBuffer<i32> {
    OffsetBuffer::from_lengths((0..len).map(|_| random.below(longest)))
}

fn field(values: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new("item", values.data_type().clone(), true))
}

fn list(len: usize, nullable: bool, random: &mut Random, below: Make, longest: usize) -> ListArray {
    let offsets = offsets(len, longest, random);
    let values = below(offsets[len] as usize, nullable, random, 0);
    ListArray::new(field(&values), offsets, values, nulls(len, nullable, random))
}

fn dictionary(len: usize, nullable: bool, random: &mut Random, array: usize) -> ArrayRef {
    let values: Vec<String> = (0..100).map(|i| format!("service-{}", i + 50 * array)).collect();
    let keys = (0..len).map(|_| random.below(100) as i32).collect::<Vec<_>>();
    let keys = Int32Array::new(keys.into(), nulls(len, nullable, random));
    Arc::new(DictionaryArray::new(keys, Arc::new(StringArray::from(values))))
}

fn types() -> Vec<(&'static str, Make)> {
    vec![
        ("bool", |n, null, r, _| {
            Arc::new(BooleanArray::new(
                (0..n).map(|_| r.below(2) == 0).collect(),
                nulls(n, null, r),
            ))
        }),
        ("int8", primitive::<Int8Type>),
        ("int16", primitive::<Int16Type>),
        ("int32", primitive::<Int32Type>),
        ("int64", primitive::<Int64Type>),
        ("float64", primitive::<Float64Type>),
        ("decimal128", primitive::<Decimal128Type>),
        ("decimal256", primitive::<Decimal256Type>),
        ("fixed-binary-16", |n, null, r, _| {
            let bytes: Vec<u8> = (0..16 * n).map(|_| r.below(256) as u8).collect();
            Arc::new(FixedSizeBinaryArray::new(16, bytes.into(), nulls(n, null, r)))
        }),
        ("fixed-binary-5", |n, null, r, _| {
            let bytes: Vec<u8> = (0..5 * n).map(|_| r.below(256) as u8).collect();
            Arc::new(FixedSizeBinaryArray::new(5, bytes.into(), nulls(n, null, r)))
        }),
        ("utf8-short", |n, null, r, _| Arc::new(StringArray::from(words(n, 16, null, r)))),
        ("utf8-long", |n, null, r, _| Arc::new(StringArray::from(words(n, 200, null, r)))),
        ("large-utf8", |n, null, r, _| Arc::new(LargeStringArray::from(words(n, 24, null, r)))),
        ("utf8-view-short", |n, null, r, _| Arc::new(StringViewArray::from(words(n, 12, null, r)))),
        ("utf8-view-long", |n, null, r, _| Arc::new(StringViewArray::from(words(n, 40, null, r)))),
        ("binary-view", |n, null, r, _| {
            let all = words(n, 24, null, r);
            Arc::new(
                all.iter().map(|w| w.as_deref().map(str::as_bytes)).collect::<BinaryViewArray>(),
            )
        }),
        ("list-int32", |n, null, r, _| Arc::new(list(n, null, r, primitive::<Int32Type>, 8))),
        ("list-int64-long", |n, null, r, _| Arc::new(list(n, null, r, primitive::<Int64Type>, 60))),
        ("list-utf8", |n, null, r, _| {
            let below: Make = |n, null, r, _| Arc::new(StringArray::from(words(n, 16, null, r)));
            Arc::new(list(n, null, r, below, 6))
        }),
        ("large-list-int32", |n, null, r, _| {
            let (_, offsets, values, nulls) =
                list(n, null, r, primitive::<Int32Type>, 8).into_parts();
            let offsets = OffsetBuffer::new(offsets.iter().map(|o| i64::from(*o)).collect());
            Arc::new(LargeListArray::new(field(&values), offsets, values, nulls))
        }),
        ("list-view-int32", |n, null, r, _| {
            Arc::new(ListViewArray::from(list(n, null, r, primitive::<Int32Type>, 8)))
        }),
        ("fixed-list-int32", |n, null, r, _| {
            let values = primitive::<Int32Type>(4 * n, null, r, 0);
            Arc::new(FixedSizeListArray::new(field(&values), 4, values, nulls(n, null, r)))
        }),
        ("struct", |n, null, r, _| {
            let columns: Vec<ArrayRef> = vec![
                primitive::<Int64Type>(n, null, r, 0),
                Arc::new(StringArray::from(words(n, 16, null, r))),
            ];
            let names = ["a", "b"].iter().zip(&columns);
            let fields: Vec<Field> =
                names.map(|(name, c)| Field::new(*name, c.data_type().clone(), true)).collect();
            Arc::new(StructArray::new(fields.into(), columns, nulls(n, null, r)))
        }),
        ("map", |n, null, r, _| {
            let offsets = offsets(n, 5, r);
            let rows = offsets[n] as usize;
            let columns: Vec<ArrayRef> = vec![
                Arc::new(StringArray::from(words(rows, 12, false, r))),
                primitive::<Int32Type>(rows, null, r, 0),
            ];
            let fields = vec![
                Field::new("key", DataType::Utf8, false),
                Field::new("value", DataType::Int32, true),
            ];
            let entries = StructArray::new(fields.into(), columns, None);
            let field = Field::new("entries", entries.data_type().clone(), false);
            Arc::new(MapArray::new(Arc::new(field), offsets, entries, nulls(n, null, r), false))
        }),
        ("dictionary-equal", |n, null, r, _| dictionary(n, null, r, 0)),
        ("dictionary-distinct", dictionary),
        ("run-ends", |n, null, r, _| {
            let mut ends = Vec::new();
            let mut end = 0;
            while end < n {
                end = (end + 1 + r.below(8)).min(n);
                ends.push(end as i32);
            }
            let values = primitive::<Int64Type>(ends.len(), null, r, 0);
            Arc::new(RunArray::<Int32Type>::try_new(&Int32Array::from(ends), &values).unwrap())
        }),
        ("union-sparse", |n, null, r, _| union(n, null, r, false)),
        ("union-dense", |n, null, r, _| union(n, null, r, true)),
    ]
}

fn union(n: usize, nullable: bool, random: &mut Random, dense: bool) -> ArrayRef {
    let fields = UnionFields::from_iter([
        (0, Arc::new(Field::new("a", DataType::Int32, true))),
        (1, Arc::new(Field::new("b", DataType::Int64, true))),
    ]);
    let ids: Vec<i8> = (0..n).map(|_| random.below(2) as i8).collect();
    let mut counts = [0, 0];
    let places: Vec<i32> = ids
        .iter()
        .map(|id| {
            counts[*id as usize] += 1;
            counts[*id as usize] - 1
        })
        .collect();
    let [a, b] = if dense { counts.map(|count| count as usize) } else { [n, n] };
    let columns = vec![
        primitive::<Int32Type>(a, nullable, random, 0),
        primitive::<Int64Type>(b, nullable, random, 0),
    ];
    Arc::new(
        UnionArray::try_new(fields, ids.into(), dense.then(|| places.into()), columns).unwrap(),
    )
}

/// Rows of all orders of one case. Orders take turns: of the same 8,192 rows again and again a
/// processor knows every branch by heart, which tells nothing of rows that come once.
const ROWS_MIN: usize = 131_072;

/// Name, and the fewest and the most rows of a run; 0 is round robin. Lengths that differ are not
/// foreseen by a processor, as those of most merges.
const SHAPES: [(&str, usize, usize); 8] = [
    ("random", 1, 1),
    ("round robin", 0, 0),
    ("runs of 4", 4, 4),
    ("runs of 1-15", 1, 15),
    ("runs of 8", 8, 8),
    ("runs of 8-24", 8, 24),
    ("runs of 64", 64, 64),
    ("runs of 1024", 1024, 1024),
];

fn runs(
    (least, most): (usize, usize),
    arrays: usize,
    rows_each: usize,
    rows: usize,
    random: &mut Random,
) -> Runs {
    let mut runs = Runs::default();
    // Round robin begins somewhere.
    let first = random.below(rows_each - rows / arrays);
    while (runs.rows() as usize) < rows {
        let at = runs.rows() as usize;
        let (array, start, len) = match least {
            0 => (at % arrays, first + at / arrays, 1),
            _ => {
                let len = (least + random.below(most - least + 1)).min(rows - at);
                (random.below(arrays), random.below(rows_each - len), len)
            }
        };
        runs.push(SourceId(array as u32), start as u64, len as u64);
    }
    runs
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|w| !w.starts_with('-')).collect();
    let wanted = |name: &str| {
        let about: Vec<_> =
            words.iter().filter(|w| types().iter().any(|(n, _)| n.contains(*w))).collect();
        about.is_empty() || about.iter().any(|w| name.contains(w.as_str()))
    };
    let wanted_shape = |name: &str| {
        let about: Vec<_> =
            words.iter().filter(|w| SHAPES.iter().any(|(n, ..)| n.contains(w.as_str()))).collect();
        about.is_empty() || about.iter().any(|w| name.contains(w.as_str()))
    };
    let shapes: Vec<_> = SHAPES.into_iter().filter(|(name, ..)| wanted_shape(name)).collect();
    let mut columns = Vec::new();
    for (name, _, most) in &shapes {
        columns.push((*name).to_owned());
        if *most > 1 {
            columns.push(format!("{name} *"));
        }
    }
    println!("| type | {} |", columns.join(" | "));
    println!("|---{}|", "|---".repeat(columns.len()));
    let mut slow: Vec<(f64, String)> = Vec::new();
    let mut cases = 0;
    for (name, make) in types().into_iter().filter(|(name, _)| wanted(name)) {
        let mut least: BTreeMap<String, f64> = BTreeMap::new();
        for rows in [8_192_usize, 65_536] {
            for arrays in [2_usize, 64] {
                for nullable in [false, true] {
                    let mut random = Random((rows + arrays) as u64);
                    let each = (2 * rows / arrays).max(2048);
                    let values: Vec<ArrayRef> =
                        (0..arrays).map(|i| make(each, nullable, &mut random, i)).collect();
                    for (shape, shortest, longest) in &shapes {
                        let lens = (*shortest, *longest);
                        let mut order = || Rows::new(runs(lens, arrays, each, rows, &mut random));
                        let orders: Vec<Rows> = (0..ROWS_MIN / rows).map(|_| order()).collect();
                        let [selectors, by_runs, theirs] = measure(&values, &orders);
                        let mut ratio = |column: String, ours: Duration, wanted: f64| {
                            let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
                            let so_far = least.entry(column.clone()).or_insert(f64::INFINITY);
                            *so_far = so_far.min(ratio);
                            cases += 1;
                            if ratio < wanted {
                                let each = |t: Duration| t.as_secs_f64() * 1e9 / rows as f64;
                                slow.push((ratio, format!(
                                    "{name}, {column}, {rows} rows, {arrays} arrays, nulls: {nullable}: {:.2} ns a row, arrow {:.2}",
                                    each(ours), each(theirs)
                                )));
                            }
                        };
                        let wanted = if *shortest >= 8 { 2.0 } else { 1.0 / 1.05 };
                        ratio((*shape).to_owned(), selectors, wanted);
                        if *longest > 1 {
                            ratio(format!("{shape} *"), by_runs, wanted);
                        }
                    }
                }
            }
        }
        let cells = columns.iter().map(|c| format!("{:.2}", least[c])).collect::<Vec<_>>();
        println!("| {name} | {} |", cells.join(" | "));
    }
    slow.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("\n{} of {cases} cases below 1 / 1.05, or below 2 on runs of 8 and more:", slow.len());
    for (ratio, case) in slow {
        println!("{ratio:.2}  {case}");
    }
}

/// One order of rows, in the three forms.
struct Rows {
    runs: Runs,
    arrays: ArrayRef,
    rows: ArrayRef,
    pairs: Vec<(usize, usize)>,
}

impl Rows {
    fn new(runs: Runs) -> Self {
        let (mut arrays, mut rows, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
        for run in runs.as_slice() {
            for row in run.start..run.end() {
                arrays.push(run.source.0);
                rows.push(row as u32);
                pairs.push((run.source.index(), row as usize));
            }
        }
        let [arrays, rows] = [arrays, rows].map(|n| Arc::new(UInt32Array::from(n)) as ArrayRef);
        Self { runs, arrays, rows, pairs }
    }
}

/// Time of selectors, of runs, of arrow for one of these orders, in the mean: of each the least
/// time.
fn measure(values: &[ArrayRef], orders: &[Rows]) -> [Duration; 3] {
    let refs: Vec<&dyn Array> = values.iter().map(|array| &**array).collect();
    let shared: Arc<[ArrayRef]> = values.into();
    let mut least = vec![[Duration::MAX; 3]; orders.len()];
    for _ in 0..9 {
        // One form after the other: else the first one alone would find the rows of an order out of
        // cache.
        for (least, of) in least.iter_mut().zip(orders) {
            time(&mut least[0], || {
                Interleave::try_new(
                    Arc::clone(&shared),
                    Arc::clone(&of.arrays),
                    Arc::clone(&of.rows),
                )
                .and_then(|lazy| lazy.to_arrow())
                .unwrap()
            });
        }
        for (least, of) in least.iter_mut().zip(orders) {
            time(&mut least[2], || arrow_select::interleave::interleave(&refs, &of.pairs).unwrap());
        }
        for (least, of) in least.iter_mut().zip(orders) {
            time(&mut least[1], || gather(values, of.runs.as_slice()).unwrap());
        }
    }
    [0, 1, 2].map(|i| least.iter().map(|of| of[i]).sum::<Duration>() / orders.len() as u32)
}

fn time(least: &mut Duration, call: impl FnOnce() -> ArrayRef) {
    let start = Instant::now();
    let array = black_box(call());
    *least = start.elapsed().min(*least);
    drop(array);
}
