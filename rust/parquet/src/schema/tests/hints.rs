//! What becomes of the Arrow schemas that writers left in footers.

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema, parquet_to_arrow_schema};

use super::*;

fn hinted(fields: &str, arrow: Vec<Field>) -> FileMetaData {
    footer(fields, &[(ARROW_SCHEMA_META_KEY, &encode_arrow_schema(&Schema::new(arrow)))])
}

fn arrow(merged: &Reconciled) -> Schema {
    parquet_to_arrow_schema(&merged.descr, Some(&merged.metadata)).unwrap()
}

#[test]
fn equal_hints_are_carried_byte_for_byte_and_broken_ones_are_ignored() {
    let x = "required binary x (STRING);";
    let source = || hinted(x, vec![Field::new("x", DataType::LargeUtf8, false)]);
    let merged = merge_with(&[source(), source()], &Unite::default()).unwrap();
    assert_eq!(&merged.metadata, source().key_value_metadata().unwrap());

    let broken = footer(x, &[(ARROW_SCHEMA_META_KEY, "not base64!")]);
    let merged = merge_with(&[broken, source()], &Unite::default()).unwrap();
    assert_eq!(*arrow(&merged).field(0).data_type(), DataType::LargeUtf8);

    let merged = merge(&[x, x]).unwrap();
    assert!(merged.metadata.is_empty(), "no hint is made up");
}

#[test]
fn different_hints_meet_without_changing_what_is_stored() {
    let dictionary = |key| DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8));
    let zoned = |zone: &str| DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
    let fields = "optional binary d (STRING); optional binary e (STRING);
        optional int64 t (TIMESTAMP(MICROS,true)); optional int64 u; optional int32 w;";
    let mut extension = Field::new("w", DataType::Int32, true);
    extension.metadata_mut().insert("ARROW:extension:name", "example.w");
    extension.metadata_mut().insert("note", "kept");
    let a = hinted(
        fields,
        vec![
            Field::new("d", dictionary(DataType::Int8), true),
            Field::new("e", dictionary(DataType::Int32), true),
            Field::new("t", zoned("Europe/Berlin"), true),
            Field::new("u", DataType::Duration(TimeUnit::Second), true),
            extension,
        ],
    );
    let b = hinted(
        &format!("optional int32 new; {}", fields.replace("int32 w", "int64 w")),
        vec![
            Field::new("new", DataType::Int32, true),
            Field::new("d", dictionary(DataType::Int8), true),
            Field::new("e", DataType::LargeUtf8, true),
            Field::new("t", zoned("Asia/Tokyo"), true),
            Field::new("u", DataType::Duration(TimeUnit::Second), true),
            Field::new("w", DataType::Int64, true),
        ],
    );
    let merged = merge_with(&[a, b], &Unite::default()).unwrap();
    let schema = arrow(&merged);
    let types: Vec<_> =
        schema.fields().iter().map(|f| (f.name().as_str(), f.data_type().clone())).collect();
    let expected = [
        ("d", dictionary(DataType::Int32)),
        ("e", DataType::LargeUtf8),
        ("t", zoned("UTC")),
        ("u", DataType::Duration(TimeUnit::Second)),
        ("w", DataType::Int64),
        ("new", DataType::Int32),
    ];
    assert_eq!(types, expected);
    let w = schema.field_with_name("w").unwrap();
    assert_eq!(w.metadata().get("note").map(String::as_str), Some("kept"));
    assert_eq!(w.extension_type_name(), None, "the extension stores an int32");
}

#[test]
fn hints_of_nested_fields_meet_by_name() {
    let item = |ty| Arc::new(Field::new("element", ty, true));
    let list =
        "optional group l (LIST) { repeated group list { optional binary element (STRING); } }";
    let a = hinted(
        &format!("optional group s {{ optional binary p (STRING); }} {list}"),
        vec![
            Field::new_struct("s", vec![Field::new("p", DataType::LargeUtf8, true)], true),
            Field::new("l", DataType::FixedSizeList(item(DataType::Utf8), 3), true),
        ],
    );
    let b = hinted(
        &format!("optional group s {{ required binary q; optional binary p (STRING); }} {list}"),
        vec![
            Field::new_struct(
                "s",
                vec![
                    Field::new("q", DataType::Binary, false),
                    Field::new("p", DataType::Utf8, true),
                ],
                true,
            ),
            Field::new("l", DataType::LargeList(item(DataType::LargeUtf8)), true),
        ],
    );
    let merged = merge_with(&[a, b], &Unite::default()).unwrap();
    let expected = Schema::new(vec![
        Field::new_struct(
            "s",
            vec![
                Field::new("p", DataType::LargeUtf8, true),
                Field::new("q", DataType::Binary, true),
            ],
            true,
        ),
        Field::new("l", DataType::LargeList(item(DataType::LargeUtf8)), true),
    ]);
    assert_eq!(arrow(&merged).fields(), expected.fields());
}

#[test]
fn integers_that_hints_take_for_something_else_are_what_the_hints_say() {
    let with = |ty| hinted("optional int64 u;", vec![Field::new("u", ty, true)]);
    let duration = |unit| with(DataType::Duration(unit));
    let sources = [duration(TimeUnit::Second), duration(TimeUnit::Millisecond)];
    let merged = merge_with(&sources, &Unite::default()).unwrap();
    assert_eq!(*arrow(&merged).field(0).data_type(), DataType::Duration(TimeUnit::Millisecond));
    assert_eq!(merged.leaves[0][0], cast(0, Cast::I64Mul { by: 1000 }));
    assert_eq!(merged.leaves[1][0], same(0));

    // Seconds without an annotation, as some writers leave them, and annotated milliseconds.
    let seconds = with(DataType::Timestamp(TimeUnit::Second, None));
    let millis = footer("optional int64 u (TIMESTAMP(MILLIS,false));", &[]);
    let merged = merge_with(&[seconds, millis], &Unite::default()).unwrap();
    assert_eq!(text(&merged.schema), "OPTIONAL INT64 u (TIMESTAMP(MILLIS,false));");
    assert_eq!(merged.leaves[0][0], cast(0, Cast::I64Mul { by: 1000 }));

    let sources = [duration(TimeUnit::Second), footer("optional int64 u;", &[])];
    let error = merge_with(&sources, &Unite::default()).unwrap_err();
    assert_eq!((error.kind(), error.column()), (Kind::SchemaConflict, Some("u")));
    let says = "int64, duration[s] in ARROW:schema in `a.parquet`, int64 in `b.parquet`";
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn malformed_annotations_are_carried_and_do_not_panic() {
    let arrow = Field::new("m", DataType::Int32, true);
    let fields = "optional group m (MAP) { repeated int32 key_value; }
        optional group l (LIST) { optional int32 element; }";
    let merged =
        merge_with(&[hinted(fields, vec![arrow]), footer(fields, &[])], &Unite::default()).unwrap();
    assert_eq!(text(&merged.schema), text(footer(fields, &[]).schema_descr().root_schema()));
    assert!(merged.metadata.is_empty());
}
