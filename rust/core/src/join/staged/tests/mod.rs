//! Every order in which messages can come, for all burst cases and for small histories: the table is
//! the full join in the end, and no change contradicts the table it is applied to.

mod form;
mod options;
mod restarts;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;

use self::form::Form;
use self::world::World;
use crate::join::How;

const CASES: &str = include_str!("../../../../../../tests/cases/join.json");

/// Foreign key and payload, or a delete.
type LeftRow = Option<(Option<String>, String)>;
/// The columns of a row of the result, behind its key.
type Joined = Vec<Option<String>>;

#[derive(Clone, Debug)]
enum Event {
    Left(String, LeftRow),
    Right(String, Option<String>),
}

fn batch(columns: &[(&str, Option<String>)]) -> RecordBatch {
    let field = |(name, _): &(&str, Option<String>)| Field::new(*name, DataType::Utf8, true);
    let array = |(_, value): &(&str, Option<String>)| -> ArrayRef {
        Arc::new(StringArray::from(vec![value.clone()]))
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns.iter().map(array).collect()).unwrap()
}

fn op(is_delete: bool) -> (&'static str, Option<String>) {
    ("_op", Some(if is_delete { "delete" } else { "upsert" }.to_owned()))
}

/// The full join of what the events leave.
fn full_join(form: Form, how: How, events: &[Event]) -> BTreeMap<String, Joined> {
    let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        match event {
            Event::Left(key, _) | Event::Right(key, _) if form.leaves_out(key) => {}
            Event::Left(key, Some(row)) => drop(left.insert(key.clone(), row.clone())),
            Event::Left(key, None) => drop(left.remove(key)),
            Event::Right(key, Some(value)) => drop(right.insert(key.clone(), value.clone())),
            Event::Right(key, None) => drop(right.remove(key)),
        }
    }
    let joined = left.into_iter().filter_map(|(key, (fk, payload))| {
        let value = fk.as_ref().and_then(|fk| right.get(fk).cloned());
        let is_there = how == How::Left || value.is_some();
        is_there.then(|| (key, form.shown(fk, payload, value)))
    });
    joined.collect()
}

/// Goes through every order; gives how many different moments there were.
fn explore(form: Form, how: How, events: &[Event], name: &str) -> usize {
    let expected = full_join(form, how, events);
    let (mut seen, mut open) = (BTreeSet::new(), vec![World::new(form, how, events, 1)]);
    while let Some(world) = open.pop() {
        if !seen.insert(world.fingerprint()) {
            continue;
        }
        let choices = world.choices();
        if choices.is_empty() {
            assert_eq!(world.table(), expected, "{name}");
        }
        for choice in choices {
            let mut next = world.clone();
            next.choose(&choice);
            open.push(next);
        }
    }
    seen.len()
}

fn cases() -> Vec<(String, How, bool, Vec<Event>)> {
    let whole: Value = serde_json::from_str(CASES).unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let event = |event: &Value| {
        let (key, value) = (text(&event["key"]).unwrap(), &event["value"]);
        if event["side"] == "right" {
            return Event::Right(key, text(value));
        }
        let row = |value: &Value| (text(&value["fk"]), text(&value["payload"]).unwrap());
        Event::Left(key, (!value.is_null()).then(|| row(value)))
    };
    let case = |case: &Value| {
        let how = if case["join"] == "left" { How::Left } else { How::Inner };
        let events = case["events"].as_array().unwrap().iter().map(event).collect();
        (text(&case["name"]).unwrap(), how, case["mode"] == "burst", events)
    };
    whole["cases"].as_array().unwrap().iter().map(case).collect()
}

/// behaviour: join-16
#[test]
fn every_order_of_the_messages_of_a_burst_ends_in_the_join() {
    let mut moments = 0;
    for (name, how, is_burst, events) in cases() {
        if is_burst {
            moments += explore(Form::Plain, how, &events, &name);
        }
    }
    assert!(moments > 1_000, "only {moments} moments");
}

/// behaviour: join-17
#[test]
fn every_order_of_the_messages_of_short_cases_ends_in_the_join() {
    for (name, how, is_burst, events) in cases() {
        if !is_burst && events.len() <= 4 {
            explore(Form::Plain, how, &events, &name);
        }
    }
}

/// Numbers that look random, the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

fn history(dice: &mut Dice, len: usize) -> Vec<Event> {
    let event = |dice: &mut Dice| {
        if dice.roll(3) == 0 {
            let value = (dice.roll(3) > 0).then(|| format!("v{}", dice.roll(2)));
            return Event::Right(format!("f{}", dice.roll(2)), value);
        }
        let fk = (dice.roll(5) > 0).then(|| format!("f{}", dice.roll(2)));
        let row = (dice.roll(4) > 0).then(|| (fk, format!("p{}", dice.roll(2))));
        Event::Left(format!("k{}", dice.roll(2)), row)
    };
    (0..len).map(|_| event(dice)).collect()
}

#[test]
fn every_order_of_small_random_histories_ends_in_the_join() {
    let histories = if std::env::var("CI").is_ok() { 120 } else { 12 };
    for seed in 1..=histories {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let events = history(&mut dice, 4);
        for how in [How::Inner, How::Left] {
            explore(Form::Plain, how, &events, &format!("seed {seed}: {events:?}"));
        }
    }
}

#[test]
fn random_orders_of_long_histories_end_in_the_join() {
    let histories = if std::env::var("CI").is_ok() { 3_000 } else { 150 };
    for seed in 1..=histories {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let events = history(&mut dice, 25);
        let how = if dice.roll(2) == 0 { How::Inner } else { How::Left };
        let mut world = World::new(Form::Plain, how, &events, 1);
        loop {
            let choices = world.choices();
            let Some(choice) = choices.get(dice.roll(choices.len().max(1))) else { break };
            world.choose(choice);
        }
        assert_eq!(world.table(), full_join(Form::Plain, how, &events), "seed {seed}: {events:?}");
    }
}

/// behaviour: join-19
#[test]
fn a_row_has_the_same_hash_everywhere() {
    let hash = super::messages::row_hashes(
        &[Arc::new(Field::new("a", DataType::Utf8, true))],
        &[Arc::new(StringArray::from(vec![Some("a"), None]))],
    )
    .unwrap();
    let hex = |hash: &[u8; 16]| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        hash.iter().map(hex).collect::<Vec<_>>(),
        ["cb5891121d6748ec3472679a5fdae954", "e3ab152fcb1762bfc9f42e6c9e93dfff"]
    );
}
