use std::collections::BTreeMap;
use std::sync::Arc;

use parquet::basic::{Repetition, Type as Physical};
use parquet::file::metadata::{FileMetaData, KeyValue};
use parquet::schema::parser::parse_message_type;
use parquet::schema::printer::print_schema;
use parquet::schema::types::{SchemaDescriptor, Type};
use plait_core::key::KeyType;
use plait_core::stream::{MetadataConflicts, Unite};
use plait_core::{Error, Kind};

use super::*;

mod hints;
mod oracle;

const NAMES: [&str; 4] = ["a.parquet", "b.parquet", "c.parquet", "d.parquet"];

fn footer(fields: &str, metadata: &[(&str, &str)]) -> FileMetaData {
    let root = parse_message_type(&format!("message schema {{ {fields} }}")).unwrap();
    footer_of(root, metadata)
}

fn footer_of(root: Type, metadata: &[(&str, &str)]) -> FileMetaData {
    let pairs = metadata.iter().map(|(k, v)| KeyValue::new((*k).to_owned(), (*v).to_owned()));
    let descr = Arc::new(SchemaDescriptor::new(Arc::new(root)));
    FileMetaData::new(1, 1, None, Some(pairs.collect()), descr, None)
}

fn merge_with(footers: &[FileMetaData], how: &Unite) -> Result<Reconciled, Error> {
    let named: Vec<_> = NAMES.iter().copied().zip(footers).collect();
    reconcile(&named, how)
}

fn merge(sources: &[&str]) -> Result<Reconciled, Error> {
    let footers: Vec<_> = sources.iter().map(|fields| footer(fields, &[])).collect();
    merge_with(&footers, &Unite::default())
}

/// The schema's text with single spaces.
fn text(schema: &Type) -> String {
    let mut out = Vec::new();
    print_schema(&mut out, schema);
    let text = String::from_utf8(out).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    words[3..words.len() - 1].join(" ")
}

#[track_caller]
fn assert_merges(sources: &[&str], output: &str) -> Reconciled {
    let merged = merge(sources).unwrap();
    let expected = footer(output, &[]);
    assert_eq!(text(&merged.schema), text(expected.schema_descr().root_schema()));
    assert_eq!(merged.leaves.len(), sources.len());
    merged
}

fn same(leaf: usize) -> LeafAdapter {
    LeafAdapter::Same { leaf, levels: LevelMap::Identity }
}

fn cast(leaf: usize, cast: Cast) -> LeafAdapter {
    LeafAdapter::Cast { leaf, levels: LevelMap::Identity, cast }
}

#[test]
fn equal_sources_reconcile_to_themselves_node_for_node() {
    let fields = "required int64 ts (TIMESTAMP(MICROS,true)) = 7;
        optional group l (LIST) { repeated group bag { optional binary array_element (STRING); } }
        optional int96 old; optional fixed_len_byte_array(12) i (INTERVAL);
        optional group m (MAP) { repeated group map (MAP_KEY_VALUE) {
            required binary key (UTF8); optional binary value (JSON); } }
        repeated int32 twice; optional fixed_len_byte_array(16) u (UUID);";
    let merged = merge(&[fields, fields, fields]).unwrap();
    let source = footer(fields, &[]);
    assert_eq!(*merged.schema, *source.schema_descr().root_schema());
    for adapters in merged.leaves.iter() {
        let expected: Vec<_> = (0..merged.descr.num_columns()).map(same).collect();
        assert_eq!(**adapters, expected);
        assert!(adapters.iter().all(LeafAdapter::is_verbatim));
    }
}

#[test]
fn columns_are_the_union_in_the_order_first_seen() {
    let merged = assert_merges(
        &["required int32 a; required int32 b;", "required int32 c; required int32 b;"],
        "optional int32 a; required int32 b; optional int32 c;",
    );
    let to_optional = |leaf| LeafAdapter::Same { leaf, levels: LevelMap::Def(vec![1]) };
    let missing =
        LeafAdapter::Missing { sibling: None, rep_keep: 0, def_cap: 0, levels: LevelMap::Identity };
    assert_eq!(*merged.leaves[0], [to_optional(0), same(1), missing.clone()]);
    assert_eq!(*merged.leaves[1], [missing, same(1), to_optional(0)]);
}

#[test]
fn a_leaf_missing_in_a_group_takes_its_levels_from_a_sibling() {
    let with = "optional group s { repeated int32 many; required int32 p; optional binary q; }";
    let without = "required group s { repeated int32 many; required int32 p; }";
    let merged = assert_merges(
        &[without, with],
        "optional group s { repeated int32 many; required int32 p; optional binary q; }",
    );
    let adapters = &merged.leaves[0];
    assert_eq!(adapters[0], LeafAdapter::Same { leaf: 0, levels: LevelMap::Def(vec![1, 2]) });
    assert_eq!(adapters[1], LeafAdapter::Same { leaf: 1, levels: LevelMap::Def(vec![1]) });
    let levels = LevelMap::Def(vec![1]);
    let sibling = Some(1);
    assert_eq!(adapters[2], LeafAdapter::Missing { sibling, rep_keep: 0, def_cap: 0, levels });
}

#[test]
fn lists_and_maps_match_by_place_and_the_first_names_win() {
    assert_merges(
        &[
            "optional group l (LIST) { repeated group list { required int32 element; } }
             required group m (MAP) { repeated group key_value { required binary key; required int32 value; } }",
            "required group l (LIST) { repeated group bag { optional int32 array_element; } }
             required group m (MAP_KEY_VALUE) { repeated group map { required binary k; optional int32 v; } }",
        ],
        "optional group l (LIST) { repeated group list { optional int32 element; } }
         required group m (MAP) { repeated group key_value { required binary key; optional int32 value; } }",
    );
    // Two levels: structs grow by name below the repeated node.
    assert_merges(
        &[
            "optional group l (LIST) { repeated group array { required int32 x; } }",
            "optional group l (LIST) { repeated group l_tuple { required int32 x; required int32 y; } }",
        ],
        "optional group l (LIST) { repeated group array { required int32 x; optional int32 y; } }",
    );
}

#[test]
fn types_widen_without_loss_and_say_how() {
    use Cast::{F32ToF64, I32ToF64, I32ToI64, I32ToI64Mul, I64Mul, U32ToI64};
    for (a, b, output, casts) in [
        ("int32 x", "int64 x", "int64 x", [Some(I32ToI64), None]),
        ("int32 x", "int32 x (INTEGER(8,true))", "int32 x", [None, None]),
        ("int32 x", "int32 x (INTEGER(32,false))", "int64 x", [Some(I32ToI64), Some(U32ToI64)]),
        (
            "int32 x (INTEGER(8,false))",
            "int32 x (INTEGER(8,true))",
            "int32 x (INTEGER(16,true))",
            [None, None],
        ),
        (
            "int32 x (INTEGER(32,false))",
            "int64 x (INTEGER(64,false))",
            "int64 x (INTEGER(64,false))",
            [Some(U32ToI64), None],
        ),
        ("float x", "int32 x", "double x", [Some(F32ToF64), Some(I32ToF64)]),
        ("fixed_len_byte_array(2) x (FLOAT16)", "float x", "float x", [Some(Cast::F16ToF32), None]),
        (
            "fixed_len_byte_array(2) x (FLOAT16)",
            "int32 x",
            "double x",
            [Some(Cast::F16ToF64), Some(I32ToF64)],
        ),
        (
            "int64 x (TIMESTAMP(MILLIS,true))",
            "int64 x (TIMESTAMP(NANOS,true))",
            "int64 x (TIMESTAMP(NANOS,true))",
            [Some(I64Mul { by: 1_000_000 }), None],
        ),
        (
            "int32 x (TIME(MILLIS,true))",
            "int64 x (TIME(MICROS,true))",
            "int64 x (TIME(MICROS,true))",
            [Some(I32ToI64Mul { by: 1000 }), None],
        ),
        // The same meaning in the old words: the new ones are carried.
        ("binary x (UTF8)", "binary x (STRING)", "binary x (STRING)", [None, None]),
    ] {
        let (a, b) = (format!("required {a};"), format!("required {b};"));
        let merged = assert_merges(&[&a, &b], &format!("required {output};"));
        for (adapters, expected) in merged.leaves.iter().zip(casts) {
            assert_eq!(adapters[0], expected.map_or(same(0), |c| cast(0, c)), "{a} {b}");
        }
    }
}

#[test]
fn decimals_get_digits_enough_on_both_sides() {
    use DecimalForm::{Bytes, Fixed, Int32, Int64};
    let decimal = |from, to, mul10| Some(Cast::Decimal { from, to, mul10 });
    for (a, b, output, casts) in [
        (
            "int32 x (DECIMAL(5,2))",
            "int32 x (DECIMAL(9,2))",
            "int32 x (DECIMAL(9,2))",
            [None, None],
        ),
        (
            "int32 x (DECIMAL(9,0))",
            "int32 x (DECIMAL(9,2))",
            "int64 x (DECIMAL(11,2))",
            [decimal(Int32, Int64, 2), decimal(Int32, Int64, 0)],
        ),
        (
            "int64 x (DECIMAL(18,0))",
            "int64 x (DECIMAL(18,1))",
            "fixed_len_byte_array(9) x (DECIMAL(19,1))",
            [decimal(Int64, Fixed { bytes: 9 }, 1), decimal(Int64, Fixed { bytes: 9 }, 0)],
        ),
        (
            "fixed_len_byte_array(16) x (DECIMAL(5,2))",
            "int32 x (DECIMAL(5,2))",
            "fixed_len_byte_array(16) x (DECIMAL(5,2))",
            [None, decimal(Int32, Fixed { bytes: 16 }, 0)],
        ),
        (
            "binary x (DECIMAL(38,10))",
            "binary x (DECIMAL(38,0))",
            "fixed_len_byte_array(21) x (DECIMAL(48,10))",
            [decimal(Bytes, Fixed { bytes: 21 }, 0), decimal(Bytes, Fixed { bytes: 21 }, 10)],
        ),
    ] {
        let (a, b) = (format!("required {a};"), format!("required {b};"));
        let merged = assert_merges(&[&a, &b], &format!("required {output};"));
        for (adapters, expected) in merged.leaves.iter().zip(casts) {
            assert_eq!(adapters[0], expected.map_or(same(0), |c| cast(0, c)), "{a} {b}");
        }
    }
}

#[test]
fn a_column_of_only_nulls_takes_any_type() {
    let merged = assert_merges(
        &[
            "required group s { optional int32 n (UNKNOWN); } optional int32 x (UNKNOWN);",
            "required group s { required group n { required binary deep (STRING); } } required double x;",
        ],
        "required group s { optional group n { required binary deep (STRING); } } optional double x;",
    );
    let levels = LevelMap::Identity;
    let missing =
        |sibling| LeafAdapter::Missing { sibling, rep_keep: 0, def_cap: 0, levels: levels.clone() };
    assert_eq!(*merged.leaves[0], [missing(Some(0)), missing(None)]);
    assert_merges(
        &["optional int32 x (UNKNOWN);", "optional binary x (UNKNOWN);"],
        "optional int32 x (UNKNOWN);",
    );
}

#[test]
fn conflicts_are_told_all_at_once_with_both_files_and_types() {
    let error = merge(&[
        "required int64 a; required binary b (STRING); required int32 c; required int96 t;",
        "required int64 a; required binary b (STRING); required int32 c; required int96 t;",
        "required double a; required binary b; repeated int32 c; required int64 t (TIMESTAMP(NANOS,false));",
    ])
    .unwrap_err();
    assert_eq!((error.kind(), error.column()), (Kind::SchemaConflict, Some("a")));
    let message = error.to_string();
    for part in [
        "4 schema conflicts",
        "`a` has incompatible types: int64 in `a.parquet`, double in `c.parquet`",
        "`b` has incompatible types: string in `a.parquet`, binary in `c.parquet`",
        "`c` has incompatible shapes: int32 in `a.parquet`, repeated int32 in `c.parquet`",
        "`t` has incompatible types: timestamp[ns] (INT96) in `a.parquet`, timestamp[ns] in `c.parquet`",
    ] {
        assert!(message.contains(part), "{part}\nnot in\n{message}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let list = "optional group l (LIST) { repeated group list { optional int32 element; } }";
    for (a, b) in [
        ("required int64 x;", "required int64 x (INTEGER(64,false));"),
        ("required binary x (STRING);", "required binary x (ENUM);"),
        ("required binary x (STRING);", "required binary x (JSON);"),
        ("required fixed_len_byte_array(16) x;", "required fixed_len_byte_array(16) x (UUID);"),
        ("required fixed_len_byte_array(4) x;", "required fixed_len_byte_array(5) x;"),
        (
            "required int64 x (TIMESTAMP(MILLIS,true));",
            "required int64 x (TIMESTAMP(MILLIS,false));",
        ),
        ("required int32 x (TIME(MILLIS,true));", "required int64 x (TIME(MICROS,false));"),
        ("required int32 x (DATE);", "required int32 x;"),
        ("required int32 x;", "required group x { required int32 y; }"),
        ("required int32 x (DECIMAL(5,2));", "required int32 x;"),
        (list, "optional group l (LIST) { repeated int32 element; }"),
        (list, "optional group l { repeated group list { optional int32 element; } }"),
        (list, "repeated int32 l;"),
        ("repeated int32 x (UNKNOWN);", "repeated int64 x;"),
        ("required int32 x = 1;", "required int32 x = 2;"),
    ] {
        for sources in [[a, b], [b, a]] {
            let error = merge(&sources).map(|m| text(&m.schema)).unwrap_err();
            assert_eq!(error.kind(), Kind::SchemaConflict, "{sources:?}");
        }
    }
}

#[test]
fn field_ids_are_carried_and_may_be_absent_in_some() {
    let merged = assert_merges(
        &["required int32 x; required int32 y = 4;", "required int32 x = 3; required int32 y = 4;"],
        "required int32 x = 3; required int32 y = 4;",
    );
    assert_eq!(*merged.leaves[0], [same(0), same(1)]);
    // A writer that numbers nothing: all ids are equal, and mean nothing.
    assert_merges(
        &[
            "required int32 x = 0; required int32 y = 0;",
            "required int32 y = 0; required int32 x = 0;",
        ],
        "required int32 x = 0; required int32 y = 0;",
    );
}

#[test]
fn policies_turn_drift_into_conflicts() {
    let footers = [
        footer("required int32 x; required int32 y;", &[("k", "1")]),
        footer("required int64 x;", &[("k", "2")]),
    ];
    let strict = Unite {
        widen: false,
        missing: false,
        metadata: MetadataConflicts::Error,
        ..Unite::default()
    };
    let message = merge_with(&footers, &strict).unwrap_err().to_string();
    for part in [
        "`x` would have to be widened: int32 in `a.parquet`, int64 in `b.parquet`",
        "`y` is missing: int32 in `a.parquet`, absent in `b.parquet`",
    ] {
        assert!(message.contains(part), "{part}\nnot in\n{message}");
    }
    let only_metadata = Unite { metadata: MetadataConflicts::Error, ..Unite::default() };
    let message = merge_with(&footers, &only_metadata).unwrap_err().to_string();
    assert!(message.contains("`k` is a metadata key that differs: `1` in `a.parquet`, `2` in"));
    assert_eq!(
        merge_with(&[], &strict).unwrap_err().kind(),
        Kind::InvalidArgument,
        "no sources, no schema"
    );
}

#[test]
fn metadata_is_kept_where_it_still_holds() {
    let x = "required int32 x;";
    let one = [
        ("same", "1"),
        ("differs", "a"),
        ("only here", "1"),
        ("plait.merge_level", "3"),
        ("geo", "bounds 1"),
        ("pandas", "{x}"),
        ("qh.num_merge_ops", "1"),
        ("hoodie_min_record_key", "a"),
        ("org.apache.spark.version", "4.0.0"),
    ];
    let two = [
        ("differs", "b"),
        ("same", "1"),
        ("geo", "bounds 2"),
        ("pandas", "{x}"),
        ("qh.num_merge_ops", "1"),
        ("hoodie_min_record_key", "b"),
        ("org.apache.spark.version", "4.1.0"),
        ("late", ""),
    ];
    let values = |merged: &Reconciled| -> BTreeMap<String, String> {
        let pairs = merged.metadata.iter();
        pairs.map(|p| (p.key.clone(), p.value.clone().unwrap())).collect()
    };
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let footers = [footer(x, &one), footer(x, &two)];
    let merged = merge_with(&footers, &Unite::default()).unwrap();
    let known = [("same", "1"), ("pandas", "{x}"), ("org.apache.spark.version", "4.0.0")];
    assert_eq!(values(&merged), map(&known));
    let listed: Vec<_> =
        merged.metadata_conflicts.iter().map(|c| (c.key.as_str(), c.kept)).collect();
    let expected = [
        ("differs", false),
        ("only here", false),
        ("geo", false),
        ("qh.num_merge_ops", false),
        ("hoodie_min_record_key", false),
        ("org.apache.spark.version", true),
        ("late", false),
    ];
    assert_eq!(listed, expected);

    let first = Unite { metadata: MetadataConflicts::First, ..Unite::default() };
    let merged = merge_with(&footers, &first).unwrap();
    let others = [("differs", "a"), ("only here", "1"), ("late", "")];
    assert_eq!(values(&merged), map(&[&known[..], &others[..]].concat()));

    let alone = merge_with(&footers[..1], &Unite::default()).unwrap();
    let kept = values(&alone);
    assert_eq!(kept.get("hoodie_min_record_key").map(String::as_str), Some("a"));
    assert!(!kept.contains_key("qh.num_merge_ops"), "it is merged once more");

    let wider = [footer(x, &one), footer("required int64 x;", &[("pandas", "{x}")])];
    let merged = merge_with(&wider, &Unite::default()).unwrap();
    assert!(!values(&merged).contains_key("pandas"), "it would describe an int32");
    assert!(merged.metadata_conflicts.iter().any(|c| c.key == "pandas" && !c.kept));
}

#[test]
fn columns_are_matched_by_id_where_every_field_has_its_own() {
    let merged = assert_merges(
        &[
            "required int32 a = 1; required group s = 2 { required int32 x = 3; }",
            "required group s = 2 { required int32 y = 3; } required int64 b = 1;",
        ],
        "required int64 a = 1; required group s = 2 { required int32 x = 3; }",
    );
    assert_eq!(*merged.leaves[0], [cast(0, Cast::I32ToI64), same(1)]);
    assert_eq!(*merged.leaves[1], [same(1), same(0)]);
    // One field without an id: names alone speak, and ids that differ are not carried.
    assert_merges(
        &["required int32 x = 1; required int32 y;", "required int32 y; required int32 x = 2;"],
        "required int32 x; required int32 y;",
    );
    let error = merge(&["required int32 x = 1;", "required int32 x = 2;"]).unwrap_err();
    let says = "`x` has different field ids: field id 1 in `a.parquet`, field id 2 in `b.parquet`";
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn the_order_of_sources_changes_no_type_and_rowless_ones_make_nothing_nullable() {
    let mut footers =
        vec![footer("required int32 b;", &[]), footer("required int64 b; required int32 a;", &[])];
    let named = |footers: &[FileMetaData]| {
        let named = [("z.parquet", &footers[0]), ("y.parquet", &footers[1])];
        let reversed = [named[1], named[0]];
        let both = [&named[..], &reversed[..]].map(|n| reconcile(n, &Unite::default()).unwrap());
        let [one, other] = both;
        assert_eq!(text(&one.schema), text(&other.schema));
        assert_eq!((&one.leaves[0], &one.leaves[1]), (&other.leaves[1], &other.leaves[0]));
        text(&one.schema)
    };
    assert_eq!(named(&footers), "REQUIRED INT64 b; OPTIONAL INT32 a;");
    let empty = Arc::new(footers[0].schema_descr().clone());
    footers[0] = FileMetaData::new(1, 0, None, None, empty, None);
    assert_eq!(named(&footers), "REQUIRED INT64 b; REQUIRED INT32 a;");
}

#[test]
fn equal_sources_are_decided_once_however_many() {
    let started = std::time::Instant::now();
    let variant = |width: &str| {
        let columns: String = (0..50).map(|i| format!("optional {width} c{i};")).collect();
        footer(&columns, &[("k", "v")])
    };
    let variants = ["int32", "int64", "binary"].map(variant);
    let (numbers, all) = (&variants[..2], &variants[..]);
    let paths: Vec<String> = (0..10_000).map(|i| format!("{i:05}.parquet")).collect();
    let sources = |of: &'_ [FileMetaData]| -> Vec<(&str, FileMetaData)> {
        // A schema of its own for every source, as footers have.
        let own = |i: usize| {
            let root = of[i % of.len()].schema_descr().root_schema().clone();
            footer_of(root, &[("k", "v")])
        };
        paths.iter().enumerate().map(|(i, path)| (path.as_str(), own(i))).collect()
    };
    let made = sources(numbers);
    let named: Vec<_> = made.iter().map(|(path, footer)| (*path, footer)).collect();
    let merged = reconcile(&named, &Unite::default()).unwrap();
    assert_eq!((merged.leaves.len(), merged.descr.num_columns()), (10_000, 50));
    assert!(
        merged.leaves.iter().skip(2).all(|l| merged.leaves[..2].iter().any(|m| Arc::ptr_eq(l, m)))
    );
    let made = sources(all);
    let named: Vec<_> = made.iter().map(|(path, footer)| (*path, footer)).collect();
    let error = reconcile(&named, &Unite::default()).unwrap_err();
    assert!(error.to_string().contains("sources have 50 schema conflicts"), "{error}");
    // Half a second for both; a comparison of each with each would take minutes.
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn duplicate_names_match_in_order_and_groups_without_leaves_say_nothing() {
    let group = |name: &str, fields: Vec<Type>| {
        Type::group_type_builder(name)
            .with_repetition(Repetition::OPTIONAL)
            .with_fields(fields.into_iter().map(Arc::new).collect())
            .build()
            .unwrap()
    };
    let leaf = |name, physical| Type::primitive_type_builder(name, physical).build().unwrap();
    let root = |fields: Vec<Type>| {
        let fields = fields.into_iter().map(Arc::new).collect();
        Type::group_type_builder("schema").with_fields(fields).build().unwrap()
    };
    let twice = || vec![leaf("x", Physical::INT32), leaf("x", Physical::DOUBLE)];
    let mut fuller = twice();
    fuller.push(group("empty", vec![leaf("y", Physical::INT32)]));
    let mut with_empty = twice();
    with_empty.push(group("empty", Vec::new()));
    let sources = [footer_of(root(with_empty), &[]), footer_of(root(fuller), &[])];
    let merged = merge_with(&sources, &Unite::default()).unwrap();
    assert_eq!(merged.leaves[0][..2], [same(0), same(1)]);
    assert!(matches!(merged.leaves[0][2], LeafAdapter::Missing { sibling: None, .. }));
    assert_eq!(merged.leaves[1].len(), 3);
}

#[test]
fn sort_columns_are_found_by_path_or_refused_with_near_names() {
    let source = footer(
        "required int64 timestamp; optional group s { required binary name (STRING); }
         repeated int32 many; optional fixed_len_byte_array(12) i (INTERVAL);
         required int96 old; required int32 u (INTEGER(8,false)); optional int32 n (UNKNOWN);
         required fixed_len_byte_array(5) d (DECIMAL(10,3)); required int64 t (TIME(NANOS,true));",
        &[],
    );
    let descr = source.schema_descr();
    let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    let leaf = |text: &str| key_leaf(descr, &path(text));
    assert_eq!((leaf("timestamp").unwrap(), leaf("s.name").unwrap()), (0, 1));
    let error = leaf("Timestmap").unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownColumn);
    assert_eq!(error.hint(), Some("did you mean `timestamp`?"));
    assert!(leaf("zzz").unwrap_err().hint().unwrap().contains("the columns are `"));
    for (name, says) in [("many", "repeated"), ("s", "`s.name`")] {
        let error = leaf(name).unwrap_err();
        assert_eq!(error.kind(), Kind::UnsupportedKey);
        assert!(error.to_string().contains(says), "{error}");
    }
    let ty = |text: &str| key_type(&descr.column(leaf(text).unwrap()));
    for (name, expected) in [
        ("timestamp", KeyType::Int64),
        ("s.name", KeyType::Bytes { text: true }),
        ("old", KeyType::Int96),
        ("u", KeyType::UInt32),
        ("n", KeyType::Null),
        ("d", KeyType::Decimal128 { scale: 3 }),
        ("t", KeyType::Int64),
    ] {
        assert_eq!(ty(name).unwrap(), expected, "{name}");
    }
    let error = ty("i").unwrap_err();
    assert_eq!((error.kind(), error.column()), (Kind::UnsupportedKey, Some("i")));
    assert!(error.to_string().contains("INTERVAL"), "{error}");
}
