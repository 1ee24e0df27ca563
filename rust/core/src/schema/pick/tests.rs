//! Projections of renamed and nested columns.

use super::super::{Frozen, Request, Summary, freeze};
use super::*;

fn ask(schema: &Schema, columns: &[&str]) -> Result<Frozen> {
    let columns = Some(columns.iter().map(|c| (*c).to_owned()).collect());
    let request = Request { columns, unknown_null: true, ..Request::default() };
    freeze(&Summary::of(schema, "a.parquet", true), &request)
}

fn of(fields: Vec<Field>) -> DataType {
    DataType::Struct(fields.into())
}

fn int(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}

fn numbered(name: &str, ty: DataType, id: &str) -> Field {
    let mut field = Field::new(name, ty, true);
    field.metadata_mut().insert(FIELD_ID, id);
    field
}

fn schema() -> Schema {
    let item = Field::new("item", of(vec![int("b"), int("c")]), true);
    Schema::new(vec![
        int("k"),
        Field::new("m", of(vec![int("x"), int("y")]), true),
        Field::new("l", DataType::List(Arc::new(item)), true),
    ])
}

#[test]
fn only_leaves_that_are_asked_for_are_read_and_the_whole_contains_its_members() {
    let leaves = |texts: &[&str]| ask(&schema(), texts).unwrap().leaves(&schema());
    assert_eq!(leaves(&["m.x"]), [1]);
    assert_eq!(leaves(&["m.y", "m"]), [1, 2]);
    assert_eq!(leaves(&["l.c", "k"]), [0, 4]);
    assert_eq!(leaves(&["l[1]"]), [3, 4]);
    assert_eq!(leaves(&["m.z"]), [1], "a member that is not there: the first tells the nulls");
    assert_eq!(leaves(&["*", "m.y"]), [0, 2, 3, 4]);
    assert_eq!(leaves(&[]), [] as [usize; 0]);
}

#[test]
fn forms_are_held_against_types() {
    for text in ["k.a", "k[0]", "m.x.z", "m[0]"] {
        let e = ask(&schema(), &[text]).unwrap_err();
        assert_eq!(e.kind(), Kind::ProjectionError, "{text}");
        assert!(e.to_string().contains("type"), "{e}");
    }
}

/// `a.parquet` before columns were renamed, `b.parquet` after.
fn renamed() -> [Schema; 2] {
    let made = |id, m, x, y| {
        let members =
            of(vec![numbered(x, DataType::Int64, "4"), numbered(y, DataType::Int64, "5")]);
        Schema::new(vec![numbered(id, DataType::Int64, "1"), numbered(m, members, "2")])
    };
    [made("k", "m", "x", "y"), made("id", "n", "y", "x")]
}

fn both(columns: &[&str], given: Option<Schema>) -> Result<Frozen> {
    let [a, b] = renamed();
    let summary = Summary::of(&a, "a.parquet", true).merge(Summary::of(&b, "b.parquet", true));
    let columns = Some(columns.iter().map(|c| (*c).to_owned()).collect());
    freeze(&summary, &Request { columns, schema: given.map(Arc::new), ..Request::default() })
}

#[test]
fn a_name_is_one_field_in_all_sources_whatever_they_call_it() {
    let [a, b] = renamed();
    let frozen = both(&["id", "n.x"], None).unwrap();
    assert_eq!(frozen.schema().fields()[0].name(), "id");
    // `x` is what the first source calls the field 4.
    assert_eq!((frozen.leaves(&a), frozen.leaves(&b)), (vec![0, 1], vec![0, 1]));
    let told = |schema| frozen.adapter(schema).unwrap().describe();
    assert_eq!(told(&a)[0], ("id".to_owned(), "take #0".to_owned()));
    assert!(told(&b).iter().all(|(_, what)| what != "null"), "{:?}", told(&b));
    // A given schema says which names are meant.
    let frozen = both(&["n.x"], Some(b.clone())).unwrap();
    assert_eq!((frozen.leaves(&a), frozen.leaves(&b)), (vec![2], vec![2]));
}

#[test]
fn names_that_are_several_fields_or_one_field_twice_are_refused() {
    let e = both(&["k", "id"], None).unwrap_err();
    assert_eq!(e.kind(), Kind::InvalidArgument);
    assert!(e.to_string().contains("`k` and `id`, field id 1"), "{e}");
    let one = |name, id| Schema::new(vec![numbered(name, DataType::Int64, id)]);
    let summary = Summary::of(&one("x", "1"), "a.parquet", true).merge(Summary::of(
        &one("x", "2"),
        "b.parquet",
        true,
    ));
    let request = Request { columns: Some(vec!["x".into()]), ..Request::default() };
    let e = freeze(&summary, &request).unwrap_err();
    assert_eq!(e.kind(), Kind::SchemaConflict);
    assert!(e.to_string().contains("field id 1 in `a.parquet`"), "{e}");
    let given = Request { schema: Some(Arc::new(one("x", "2"))), ..request };
    let frozen = freeze(&summary, &given).unwrap();
    assert!(frozen.leaves(&one("x", "1")).is_empty());
    assert_eq!(frozen.leaves(&one("x", "2")), [0]);
}
