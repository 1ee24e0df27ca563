//! The recorded cases of `tests/cases/overlay.json`, through the Rust door.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, StringBuilder,
    StringViewBuilder, TimestampNanosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Int32Array, ListArray, MapArray, NullArray, RecordBatch,
    RecordBatchIterator, RecordBatchOptions, RunArray, StructArray, new_empty_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use plait_core::overlay::{FieldPath, LayerSpec, Overlay, OverlayRules, Plan, common_schema};
use plait_core::{Error, Result};
use serde_json::{Map, Value, json};

fn cases() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/overlay.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    all["cases"].as_array().unwrap().clone()
}

/// Parts of `text` between commas that are in no brackets.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found
}

fn type_of(text: &str) -> DataType {
    let item = |text: &str| Arc::new(Field::new("item", type_of(text), true));
    let Some((head, rest)) = text.split_once(['<', '[']) else {
        return match text {
            "null" => DataType::Null,
            "bool" => DataType::Boolean,
            "int32" => DataType::Int32,
            "int64" => DataType::Int64,
            "float64" => DataType::Float64,
            "string" => DataType::Utf8,
            "string_view" => DataType::Utf8View,
            "binary" => DataType::Binary,
            other => panic!("type {other}"),
        };
    };
    let inner = || rest.rsplit_once('>').unwrap().0;
    match head {
        "timestamp" => {
            assert_eq!(rest, "ns]");
            DataType::Timestamp(TimeUnit::Nanosecond, None)
        }
        "list" => DataType::List(item(inner())),
        "large_list" => DataType::LargeList(item(inner())),
        "list_view" => DataType::ListView(item(inner())),
        "fixed_size_list" => {
            let size = rest.rsplit_once('[').unwrap().1.trim_end_matches(']');
            DataType::FixedSizeList(item(inner()), size.parse().unwrap())
        }
        "struct" => {
            let fields = arguments(inner()).into_iter().map(|text| {
                let (name, of) = text.split_once(':').unwrap();
                Field::new(name, type_of(of), true)
            });
            DataType::Struct(fields.collect())
        }
        "map" => {
            let of = arguments(inner());
            let fields = vec![
                Field::new("key", type_of(of[0]), false),
                Field::new("value", type_of(of[1]), true),
            ];
            let entries = Field::new("entries", DataType::Struct(fields.into()), false);
            DataType::Map(Arc::new(entries), false)
        }
        "dict" => {
            let of = arguments(inner());
            DataType::Dictionary(Box::new(type_of(of[0])), Box::new(type_of(of[1])))
        }
        "ree" => {
            let of = arguments(inner());
            DataType::RunEndEncoded(
                Arc::new(Field::new("run_ends", type_of(of[0]), false)),
                Arc::new(Field::new("values", type_of(of[1]), true)),
            )
        }
        other => panic!("type {other}"),
    }
}

/// The fields below `above` of a schema in pre-order.
fn fields(entries: &[Value], above: &[Value]) -> Fields {
    let mut found = Vec::new();
    let depth = above.len() + 1;
    for (at, entry) in entries.iter().enumerate() {
        let path = entry[0].as_array().unwrap();
        if path.len() < depth || path[..above.len()] != *above {
            if path.len() < depth {
                break;
            }
            continue;
        }
        if path.len() > depth {
            continue;
        }
        let text = entry[1].as_str().unwrap();
        let data_type = match text {
            "struct" => {
                let rest = &entries[at + 1..];
                let end = rest.iter().position(|e| e[0].as_array().unwrap().len() <= depth);
                DataType::Struct(fields(&rest[..end.unwrap_or(rest.len())], path))
            }
            text => type_of(text),
        };
        let said = &entry[2];
        let mut metadata: HashMap<String, String> = HashMap::new();
        for (key, value) in said["metadata"].as_object().into_iter().flatten() {
            metadata.insert(key.clone(), value.as_str().unwrap().to_owned());
        }
        if said["index"] == true {
            metadata.insert("plait.index".to_owned(), "true".to_owned());
        }
        let nullable = said["nullable"] != false;
        let name = path[depth - 1].as_str().unwrap();
        found.push(Field::new(name, data_type, nullable).with_metadata(metadata));
    }
    found.into()
}

/// An array of cells.
fn array(field: &FieldRef, cells: &[Value]) -> ArrayRef {
    macro_rules! built {
        ($builder:expr, $read:expr) => {{
            let mut builder = $builder;
            for cell in cells {
                builder.append_option($read(cell));
            }
            Arc::new(builder.finish())
        }};
    }
    let items = || cells.iter().flat_map(|c| c.as_array().cloned().unwrap_or_default());
    let nulls = || NullBuffer::from(cells.iter().map(|c| !c.is_null()).collect::<Vec<_>>());
    let lengths = || cells.iter().map(|c| c.as_array().map_or(0, Vec::len));
    match field.data_type() {
        DataType::Null => Arc::new(NullArray::new(cells.len())),
        DataType::Boolean => built!(BooleanBuilder::new(), Value::as_bool),
        DataType::Int32 => {
            built!(Int32Builder::new(), |c: &Value| c.as_i64().map(|v| i32::try_from(v).unwrap()))
        }
        DataType::Int64 => built!(Int64Builder::new(), Value::as_i64),
        DataType::Timestamp(..) => built!(TimestampNanosecondBuilder::new(), Value::as_i64),
        DataType::Float64 => built!(Float64Builder::new(), Value::as_f64),
        DataType::Utf8 => built!(StringBuilder::new(), Value::as_str),
        DataType::Utf8View => built!(StringViewBuilder::new(), Value::as_str),
        DataType::Binary => built!(BinaryBuilder::new(), |c: &Value| {
            c["$hex"].as_str().map(|hex| {
                let digits = (0..hex.len()).step_by(2).map(|i| &hex[i..i + 2]);
                digits.map(|d| u8::from_str_radix(d, 16).unwrap()).collect::<Vec<_>>()
            })
        }),
        DataType::Struct(fields) => structs(fields, cells),
        DataType::List(item) => {
            let values = array(item, &items().collect::<Vec<_>>());
            let offsets = OffsetBuffer::from_lengths(lengths());
            Arc::new(ListArray::new(Arc::clone(item), offsets, values, Some(nulls())))
        }
        DataType::LargeList(item) => {
            let values = array(item, &items().collect::<Vec<_>>());
            let offsets = OffsetBuffer::from_lengths(lengths());
            let made =
                arrow_array::LargeListArray::new(Arc::clone(item), offsets, values, Some(nulls()));
            Arc::new(made)
        }
        DataType::ListView(item) => {
            let values = array(item, &items().collect::<Vec<_>>());
            let sizes: Vec<i32> = lengths().map(|n| i32::try_from(n).unwrap()).collect();
            let offsets = sizes.iter().scan(0, |at, n| {
                *at += n;
                Some(*at - n)
            });
            let offsets: ScalarBuffer<i32> = offsets.collect();
            let made = arrow_array::ListViewArray::new(
                Arc::clone(item),
                offsets,
                sizes.into(),
                values,
                Some(nulls()),
            );
            Arc::new(made)
        }
        DataType::FixedSizeList(item, size) => {
            let filler = vec![Value::Null; usize::try_from(*size).unwrap()];
            let items = cells.iter().flat_map(|c| c.as_array().cloned().unwrap_or(filler.clone()));
            let values = array(item, &items.collect::<Vec<_>>());
            Arc::new(FixedSizeListArray::new(Arc::clone(item), *size, values, Some(nulls())))
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(of) = entries.data_type() else { panic!("{entries}") };
            let side = |place: usize| items().map(|pair| pair[place].clone()).collect::<Vec<_>>();
            let columns = vec![array(&of[0], &side(0)), array(&of[1], &side(1))];
            let pairs = StructArray::new(of.clone(), columns, None);
            let offsets = OffsetBuffer::from_lengths(lengths());
            Arc::new(MapArray::new(Arc::clone(entries), offsets, pairs, Some(nulls()), false))
        }
        DataType::Dictionary(..) => {
            let texts: arrow_array::DictionaryArray<Int32Type> =
                cells.iter().map(|c| c.as_str()).collect();
            Arc::new(texts)
        }
        DataType::RunEndEncoded(..) => {
            let ends: Int32Array = (1..=i32::try_from(cells.len()).unwrap()).collect();
            let values = array(&Arc::new(Field::new("values", DataType::Int64, true)), cells);
            match cells.is_empty() {
                true => new_empty_array(field.data_type()),
                false => Arc::new(RunArray::<Int32Type>::try_new(&ends, &values).unwrap()),
            }
        }
        other => panic!("type {other}"),
    }
}

fn structs(fields: &Fields, cells: &[Value]) -> ArrayRef {
    let body = |cell: &Value| match cell.get("$null_over") {
        Some(hidden) => hidden.clone(),
        None => cell.clone(),
    };
    let column = |(place, field): (usize, &FieldRef)| {
        let below = cells.iter().map(body).map(|body| match body.get("$fields") {
            Some(all) => all[place].clone(),
            None => body.get(field.name()).cloned().unwrap_or(Value::Null),
        });
        array(field, &below.collect::<Vec<_>>())
    };
    let columns: Vec<ArrayRef> = fields.iter().enumerate().map(column).collect();
    let is_there = |cell: &Value| !cell.is_null() && cell.get("$null_over").is_none();
    let nulls = NullBuffer::from(cells.iter().map(is_there).collect::<Vec<_>>());
    // As foreign libraries do: nulls below a null struct, whatever the field says.
    let relaxed: Fields = fields.iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    let made =
        StructArray::try_new_with_length(relaxed, columns, Some(nulls), cells.len()).unwrap();
    let (_, columns, nulls) = made.into_parts();
    Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, cells.len()).unwrap())
}

fn batch(case: &Value) -> RecordBatch {
    let fields = fields(case["schema"].as_array().unwrap(), &[]);
    let rows = case["rows"].as_array().unwrap();
    let pad = |place: usize| {
        usize::try_from(case["physical"]["pad"][place].as_u64().unwrap_or(0)).unwrap()
    };
    let filler = rows.first().cloned().unwrap_or_else(|| json!(vec![Value::Null; fields.len()]));
    let mut all = vec![filler.clone(); pad(0)];
    all.extend(rows.iter().cloned());
    all.extend(vec![filler; pad(1)]);
    let column = |(place, field): (usize, &FieldRef)| {
        array(field, &all.iter().map(|row| row[place].clone()).collect::<Vec<_>>())
    };
    let columns = fields.iter().enumerate().map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(all.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields.clone())), columns, &options)
        .unwrap()
        .slice(pad(0), rows.len())
}

/// What layers own, and their rows.
type Layers = (Vec<LayerSpec>, Vec<plait_core::overlay::Reader>);

fn layers(case: &Value) -> Result<Layers> {
    let (mut specs, mut readers) = Layers::default();
    for (place, layer) in case["layers"].as_array().unwrap().iter().enumerate() {
        let batches: Vec<RecordBatch> =
            layer["batches"].as_array().unwrap().iter().map(batch).collect();
        let schemas: Vec<SchemaRef> = batches.iter().map(RecordBatch::schema).collect();
        let schema = common_schema(&schemas).unwrap();
        let path = |names: &Value| {
            let names = names.as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_owned());
            FieldPath::try_new(names.collect())
        };
        let paths = layer["paths"].as_array().unwrap().iter().map(path).collect::<Result<_>>()?;
        specs.push(LayerSpec {
            name: place.to_string(),
            schema: Arc::clone(&schema),
            paths: Some(paths),
            precedence: 0,
        });
        readers.push(Box::new(RecordBatchIterator::new(batches.into_iter().map(Ok), schema)));
    }
    Ok((specs, readers))
}

fn overlay(case: &Value, batch_rows: Option<usize>) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let (specs, readers) = layers(case)?;
    let mut options = OverlayRules::default();
    options.batch_rows = batch_rows;
    let plan = Plan::try_new(&specs, options)?;
    let schema = Arc::clone(&plan.schema);
    let batches = Overlay::try_new(plan, readers)?
        .map(|batch| batch.map_err(Error::from_arrow))
        .collect::<Result<_>>()?;
    Ok((schema, batches))
}

/// Cells of an array, as in the cases.
fn cells(array: &dyn Array) -> Vec<Value> {
    let slice = |values: ArrayRef| Value::Array(cells(&values));
    (0..array.len())
        .map(|row| {
            let nulls = array.logical_nulls();
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                return Value::Null;
            }
            match array.data_type() {
                DataType::Null => Value::Null,
                DataType::Int64 => json!(array.as_primitive::<Int64Type>().value(row)),
                DataType::Int32 => json!(array.as_primitive::<Int32Type>().value(row)),
                DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
                DataType::Utf8View => json!(array.as_string_view().value(row)),
                DataType::Struct(fields) => {
                    let mut object = Map::new();
                    for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                        object.insert(field.name().clone(), cells(&column.slice(row, 1)).remove(0));
                    }
                    Value::Object(object)
                }
                DataType::List(_) => slice(array.as_list::<i32>().value(row)),
                DataType::LargeList(_) => slice(array.as_list::<i64>().value(row)),
                DataType::ListView(_) => slice(array.as_list_view::<i32>().value(row)),
                DataType::FixedSizeList(..) => slice(array.as_fixed_size_list().value(row)),
                DataType::Dictionary(..) => {
                    let array = array.as_dictionary::<Int32Type>();
                    let value = usize::try_from(array.keys().value(row)).unwrap();
                    cells(&array.values().slice(value, 1)).remove(0)
                }
                DataType::RunEndEncoded(..) => {
                    let array = array.as_any().downcast_ref::<RunArray<Int32Type>>().unwrap();
                    let place = array.get_physical_index(row);
                    cells(&array.values().slice(place, 1)).remove(0)
                }
                other => panic!("type {other}"),
            }
        })
        .collect()
}

fn holds(case: &Value, batch_rows: Option<usize>) {
    let id = case["id"].as_str().unwrap();
    let expect = &case["expect"];
    let made = overlay(case, batch_rows);
    if let Some(kind) = expect["error"].as_str() {
        assert_eq!(made.unwrap_err().kind().name(), kind, "{id}");
        return;
    }
    let (schema, batches) = made.unwrap();
    if expect["empty"] == true {
        assert!(batches.is_empty(), "{id}");
        return;
    }
    assert_eq!(*schema.fields(), fields(expect["schema"].as_array().unwrap(), &[]), "{id}");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<Vec<Value>> = batch.columns().iter().map(|c| cells(c)).collect();
        for row in 0..batch.num_rows() {
            rows.push(Value::Array(columns.iter().map(|column| column[row].clone()).collect()));
        }
    }
    assert_eq!(Value::Array(rows), expect["rows"], "{id}");
}

/// The case was recorded where streams and their paths are two lists; it has the streams, and one
/// list of paths fewer than it speaks of. Here these are the specs and readers of two calls.
fn more_paths_than_streams(case: &Value) {
    let (mut specs, readers) = layers(case).unwrap();
    specs.push(LayerSpec { name: "spare".to_owned(), ..specs[0].clone() });
    let plan = Plan::try_new(&specs, OverlayRules::default()).unwrap();
    let error = Overlay::try_new(plan, readers).err().unwrap();
    assert_eq!(error.kind().name(), "InvalidArgument", "{}", case["id"]);
}

#[test]
fn recorded_cases_hold() {
    let mut count = 0;
    for case in cases() {
        count += 1;
        if case["expect"]["error"] == "ArgumentError" {
            more_paths_than_streams(&case);
            continue;
        }
        for batch_rows in [None, Some(1), Some(3), Some(64)] {
            holds(&case, batch_rows);
        }
    }
    assert!(count >= 40, "{count}");
}
