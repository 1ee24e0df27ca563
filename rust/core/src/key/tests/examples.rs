//! The examples of `docs/formats/key.md`, read from its lines with an arrow and run.

use arrow_buffer::i256;

use super::laws::{column, encode_dense, shape};
use super::*;
use plait_base::Kind;

const FORMAT: &str = include_str!("../../../../../docs/formats/key.md");

/// Lines of the format's examples: columns, values, `→`, bytes.
fn examples() -> Vec<&'static str> {
    let in_fence = FORMAT.split("```").skip(1).step_by(2).flat_map(str::lines);
    in_fence.filter(|line| line.contains('→')).collect()
}

fn example_column(text: &str) -> KeyColumn {
    let mut words = text.split_whitespace();
    let ty = match words.next().unwrap() {
        "null" => KeyType::Null,
        "boolean" => KeyType::Boolean,
        "int32" => KeyType::Int32,
        "int64" => KeyType::Int64,
        "uint64" => KeyType::UInt64,
        "float16" => KeyType::Float16,
        "float32" => KeyType::Float32,
        "float64" => KeyType::Float64,
        "decimal(5,2)" => KeyType::Decimal128 { scale: 2 },
        "int96" => KeyType::Int96,
        "text" => KeyType::Bytes { text: true },
        other => panic!("no type {other}"),
    };
    let rest: Vec<&str> = words.collect();
    let nulls = if rest.contains(&"first") { Nulls::First } else { Nulls::Last };
    column(ty, rest.contains(&"desc"), nulls)
}

fn example_value(ty: KeyType, text: &str) -> KeyValue {
    match ty {
        _ if text == "null" => KeyValue::Null,
        KeyType::Boolean => KeyValue::Boolean(text.parse().unwrap()),
        KeyType::Int32 | KeyType::Int64 => KeyValue::Int(text.parse().unwrap()),
        KeyType::UInt64 => KeyValue::UInt(text.parse().unwrap()),
        KeyType::Float16 | KeyType::Float32 => KeyValue::Float32(text.parse().unwrap()),
        KeyType::Float64 => KeyValue::Float(text.parse().unwrap()),
        KeyType::Decimal128 { scale } => {
            let unscaled = i256::from_string(&text.replace('.', "")).unwrap();
            KeyValue::Decimal { unscaled, scale }
        }
        KeyType::Int96 => {
            let (day, nanos) = text.split_once('+').unwrap();
            KeyValue::Int96 { day: day.parse().unwrap(), nanos: nanos.parse().unwrap() }
        }
        _ => KeyValue::Text(text.trim_matches('"').replace("\\0", "\0")),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let words = text.split(|c: char| c.is_whitespace() || c == '│').filter(|word| !word.is_empty());
    words.map(|word| u8::from_str_radix(word, 16).unwrap()).collect()
}

#[test]
fn examples_of_the_format_are_what_encode_writes() {
    let mut shapes = 0;
    for line in examples() {
        let (left, bytes) = line.split_once('→').unwrap();
        if left.contains("successor") {
            let prefix = left.replace("successor", "");
            assert_eq!(successor(&hex(&prefix)).unwrap(), hex(bytes), "{line}");
            continue;
        }
        let (columns, values) = left.split_once(':').unwrap();
        let named = CurveKind::ALL.into_iter().find(|kind| columns.starts_with(kind.name()));
        let columns = columns.trim_start_matches(named.map_or("", CurveKind::name));
        let columns: Vec<&str> = columns.split(';').collect();
        let values: Vec<&str> = values.split(';').map(str::trim).collect();
        assert_eq!(columns.len(), values.len(), "{line}");
        let curve = named.map(|kind| Curve { kind, start: 0, descending: false });
        let shape = shape(columns.into_iter().map(example_column).collect());
        let shape = shape.with_curve(curve).unwrap();
        let types = shape.columns().iter().map(|column| column.ty);
        let row: Vec<_> = types.zip(values).map(|(ty, text)| example_value(ty, text)).collect();
        let key = encode_dense(&shape, &[row]).to_bytes(&shape, 0);
        assert_eq!(key, hex(bytes), "{line}: {key:02X?}");
        shapes += 1;
    }
    assert_eq!(shapes, 34, "examples of keys in the format");
}

#[test]
fn the_packed_example_of_the_format_is_its_key_in_a_number() {
    let shape = shape(vec![
        column(KeyType::Int32, false, Nulls::Last),
        column(KeyType::Boolean, false, Nulls::First),
    ]);
    let keys = encode_dense(&shape, &[vec![KeyValue::Int(-5), KeyValue::Null]]);
    let number = 0x017F_FFFF_FB00_0000_0000_0000_0000_0000_u128;
    assert_eq!(keys, Keys::Packed(vec![number]));
    assert!(FORMAT.contains("0x017FFFFFFB0000000000000000000000"));
    assert_eq!(format!("{number:#034X}"), "0x017FFFFFFB0000000000000000000000");
}

#[test]
fn the_prefix_of_the_format_is_its_first_column() {
    let line = examples().into_iter().find(|line| line.contains("\"op\"; 7")).unwrap();
    let key = hex(line.split_once('→').unwrap().1);
    let shape = shape(vec![example_column("text"), example_column("int64 desc")]);
    let prefix = &key[..prefix_len(&shape, &key, 1).unwrap()];
    assert_eq!(prefix, hex("01 6F 70 00 00"));
    assert_eq!(prefix_len(&shape, &key, 3).unwrap_err().kind(), Kind::Internal);
}
