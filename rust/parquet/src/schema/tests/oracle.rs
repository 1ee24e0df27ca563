//! Test: shredding a record under its own schema and adapting it is the same as making the record
//! fit the output schema and shredding that.
//!
//! ```text
//! record ── shred under the source's schema ── adapt ──┐
//!    └───── conform to the output's schema ── shred ───┴─ equal, leaf by leaf
//! ```

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::file::metadata::FileMetaData;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use proptest::prelude::*;

use plait_core::stream::Unite;

use crate::schema::summary::{fields, repetition};
use crate::schema::{LeafAdapter, reconcile};

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Null,
    Leaf(i64),
    /// One value for every field of the group.
    Group(Vec<Value>),
    /// The occurrences of a repeated node.
    Many(Vec<Value>),
}

/// Repetition level, definition level, value.
type Entry = (i16, i16, Option<i64>);

/// What a node may be in all sources.
#[derive(Clone, Debug)]
enum Plan {
    Leaf,
    Group(Vec<(&'static str, Plan)>),
    /// A repeated node without annotation.
    Repeated(Box<Plan>),
    List(Box<Plan>),
    Map(Box<Plan>),
}

fn plans() -> impl Strategy<Value = Plan> {
    let leaf = Just(Plan::Leaf);
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            3 => group(inner.clone()),
            1 => group(inner.clone()).prop_map(|plan| Plan::Repeated(Box::new(plan))),
            1 => Just(Plan::Repeated(Box::new(Plan::Leaf))),
            1 => inner.clone().prop_filter("no bare repeated item", |plan| !matches!(plan, Plan::Repeated(_)))
                .prop_map(|plan| Plan::List(Box::new(plan))),
            1 => inner.prop_filter("no bare repeated value", |plan| !matches!(plan, Plan::Repeated(_)))
                .prop_map(|plan| Plan::Map(Box::new(plan))),
        ]
    })
}

fn group(inner: impl Strategy<Value = Plan>) -> impl Strategy<Value = Plan> {
    prop::collection::vec(inner, 1..4)
        .prop_map(|children| Plan::Group(["a", "b", "c"].into_iter().zip(children).collect()))
}

/// Small random decisions, taken from the front; endless.
struct Dice(Vec<u8>, usize);

impl Dice {
    fn roll(&mut self, sides: u8) -> u8 {
        self.1 += 1;
        self.0[(self.1 - 1) % self.0.len()] % sides
    }
}

/// One source's form of a plan: fields left out, repetition, names and widths of its own.
fn build(name: &str, plan: &Plan, required: bool, dice: &mut Dice) -> TypePtr {
    let own = match (required || dice.roll(2) == 0, plan) {
        (_, Plan::Repeated(_)) => Repetition::REPEATED,
        (true, _) => Repetition::REQUIRED,
        (false, _) => Repetition::OPTIONAL,
    };
    let group = |repetition, logical, name: &str, fields| {
        Arc::new(
            Type::group_type_builder(name)
                .with_repetition(repetition)
                .with_logical_type(logical)
                .with_fields(fields)
                .build()
                .unwrap(),
        )
    };
    match plan {
        Plan::Leaf => Arc::new(leaf(name, own, dice)),
        Plan::Repeated(inner) => match inner.as_ref() {
            Plan::Group(children) => group(own, None, name, choose(children, dice)),
            _ => Arc::new(leaf(name, own, &mut Dice(vec![0], 0))),
        },
        Plan::Group(children) => group(own, None, name, choose(children, dice)),
        Plan::List(item) => {
            let (outer, inner) = [("list", "element"), ("bag", "item")][usize::from(dice.roll(2))];
            let item = build(inner, item, false, dice);
            let entries = group(Repetition::REPEATED, None, outer, vec![item]);
            group(own, Some(LogicalType::List), name, vec![entries])
        }
        Plan::Map(value) => {
            let (outer, key) = [("key_value", "key"), ("map", "k")][usize::from(dice.roll(2))];
            let pair = vec![
                build(key, &Plan::Leaf, true, &mut Dice(vec![0], 0)),
                build("value", value, false, dice),
            ];
            let entries = group(Repetition::REPEATED, None, outer, pair);
            group(own, Some(LogicalType::Map), name, vec![entries])
        }
    }
}

fn leaf(name: &str, repetition: Repetition, dice: &mut Dice) -> Type {
    let builder = match dice.roll(4) {
        0 | 1 => Type::primitive_type_builder(name, Physical::INT32),
        2 => Type::primitive_type_builder(name, Physical::INT64),
        _ if repetition == Repetition::OPTIONAL => {
            Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::Unknown))
        }
        _ => Type::primitive_type_builder(name, Physical::INT32)
            .with_logical_type(Some(LogicalType::integer(8, true))),
    };
    builder.with_repetition(repetition).build().unwrap()
}

/// Some of the fields, at least one, maybe in another order.
fn choose(children: &[(&'static str, Plan)], dice: &mut Dice) -> Vec<TypePtr> {
    let mut chosen: Vec<_> = children.iter().filter(|_| dice.roll(4) > 0).collect();
    if chosen.is_empty() {
        chosen.extend(children.first());
    }
    if dice.roll(3) == 0 {
        chosen.reverse();
    }
    chosen.into_iter().map(|(name, plan)| build(name, plan, false, dice)).collect()
}

fn record(node: &Type, dice: &mut Dice) -> Value {
    match repetition(node) {
        Repetition::OPTIONAL if dice.roll(3) == 0 => Value::Null,
        Repetition::REPEATED => {
            Value::Many((0..dice.roll(3)).map(|_| inside(node, dice)).collect())
        }
        _ => inside(node, dice),
    }
}

fn inside(node: &Type, dice: &mut Dice) -> Value {
    let nulls = node.get_basic_info().logical_type_ref() == Some(&LogicalType::Unknown);
    match node {
        Type::PrimitiveType { .. } if nulls => Value::Null,
        Type::PrimitiveType { .. } => Value::Leaf(i64::from(dice.roll(100))),
        Type::GroupType { .. } => {
            Value::Group(fields(node).iter().map(|f| record(f, dice)).collect())
        }
    }
}

/// Appends what the record leaves in every leaf below `node`.
fn shred(node: &Type, value: &Value, rep: i16, def: i16, depth: i16, out: &mut [Vec<Entry>]) {
    match (repetition(node), value) {
        (_, Value::Null) => absent(rep, def, out),
        (Repetition::REPEATED, Value::Many(values)) if values.is_empty() => absent(rep, def, out),
        (Repetition::REPEATED, Value::Many(values)) => {
            for (i, value) in values.iter().enumerate() {
                let rep = if i == 0 { rep } else { depth + 1 };
                shred_inside(node, value, rep, def + 1, depth + 1, out);
            }
        }
        (Repetition::OPTIONAL, value) => shred_inside(node, value, rep, def + 1, depth, out),
        (_, value) => shred_inside(node, value, rep, def, depth, out),
    }
}

fn absent(rep: i16, def: i16, out: &mut [Vec<Entry>]) {
    for leaf in out {
        leaf.push((rep, def, None));
    }
}

fn shred_inside(
    node: &Type,
    value: &Value,
    rep: i16,
    def: i16,
    depth: i16,
    out: &mut [Vec<Entry>],
) {
    match value {
        Value::Group(values) => {
            let mut out = out;
            for (field, value) in fields(node).iter().zip(values) {
                let (these, rest) = out.split_at_mut(leaves(field));
                shred(field, value, rep, def, depth, these);
                out = rest;
            }
        }
        Value::Leaf(value) => out[0].push((rep, def, Some(*value))),
        Value::Null | Value::Many(_) => unreachable!("{value:?} inside {}", node.name()),
    }
}

fn leaves(node: &Type) -> usize {
    if node.is_primitive() { 1 } else { fields(node).iter().map(|f| leaves(f)).sum() }
}

/// The same record under the output's schema; fields of lists and maps match by place.
fn conform(from: &Type, value: &Value, to: &Type, by_place: u8) -> Value {
    match value {
        Value::Null | Value::Leaf(_) => value.clone(),
        Value::Many(values) => {
            Value::Many(values.iter().map(|v| conform(from, v, to, by_place)).collect())
        }
        Value::Group(values) => {
            let annotated = to.get_basic_info().logical_type_ref().is_some();
            let below = if annotated { 1 } else { 0 };
            let children = fields(to).iter().enumerate().map(|(place, field)| {
                let found = if annotated || by_place > 0 {
                    Some(place)
                } else {
                    fields(from).iter().position(|f| f.name() == field.name())
                };
                match found {
                    Some(i) => conform(&fields(from)[i], &values[i], field, below),
                    None if repetition(field) == Repetition::REPEATED => Value::Many(Vec::new()),
                    None => Value::Null,
                }
            });
            Value::Group(children.collect())
        }
    }
}

fn adapt(adapter: &LeafAdapter, source: &[Vec<Entry>], rows: usize) -> Vec<Entry> {
    match adapter {
        LeafAdapter::Same { leaf, levels } | LeafAdapter::Cast { leaf, levels, .. } => source
            [*leaf]
            .iter()
            .map(|(rep, def, value)| (*rep, levels.apply(*def), *value))
            .collect(),
        LeafAdapter::Missing { sibling: None, .. } => vec![(0, 0, None); rows],
        LeafAdapter::Missing { sibling: Some(leaf), rep_keep, def_cap, levels } => source[*leaf]
            .iter()
            .filter(|(rep, ..)| rep <= rep_keep)
            .map(|(rep, def, _)| (*rep, levels.apply(*def.min(def_cap)), None))
            .collect(),
    }
}

fn shred_rows(root: &Type, rows: &[Value]) -> Vec<Vec<Entry>> {
    let mut out = vec![Vec::new(); leaves(root)];
    for row in rows {
        shred_inside(root, row, 0, 0, 0, &mut out);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn adapted_levels_are_those_of_the_adapted_record(
        plan in group(plans()),
        mut dice in prop::collection::vec(any::<u8>(), 24..60).prop_map(|d| Dice(d, 0)),
        sources in 1_usize..4,
    ) {
        let Plan::Group(columns) = &plan else { unreachable!() };
        let footers: Vec<FileMetaData> = (0..sources)
            .map(|_| {
                let root = Type::group_type_builder("schema")
                    .with_fields(choose(columns, &mut dice))
                    .build()
                    .unwrap();
                let descr = Arc::new(SchemaDescriptor::new(Arc::new(root)));
                FileMetaData::new(1, 6, None, None, descr, None)
            })
            .collect();
        let named: Vec<(&str, &FileMetaData)> = footers.iter().map(|f| ("f", f)).collect();
        let merged = reconcile(&named, &Unite::default()).unwrap();
        for (footer, adapters) in footers.iter().zip(merged.leaves.iter()) {
            let from = footer.schema_descr().root_schema();
            let rows: Vec<Value> = (0..6).map(|_| inside(from, &mut dice)).collect();
            let conformed: Vec<Value> =
                rows.iter().map(|row| conform(from, row, &merged.schema, 0)).collect();
            let want = shred_rows(&merged.schema, &conformed);
            let own = shred_rows(from, &rows);
            prop_assert_eq!(adapters.len(), want.len());
            for ((leaf, adapter), want) in adapters.iter().enumerate().zip(&want) {
                let got = adapt(adapter, &own, rows.len());
                let path = merged.descr.column(leaf).path().string();
                prop_assert_eq!(&got, want, "{} by {:?}", path, adapter);
            }
        }
    }
}

impl std::fmt::Debug for Dice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
