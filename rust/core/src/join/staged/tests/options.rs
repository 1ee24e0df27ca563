//! Options of the join, in every order of messages: the table is the join that has them in the end.

use std::num::NonZeroU32;

use arrow_array::{BinaryArray, RecordBatch};

use super::form::Form;
use super::world::{Choice, World};
use super::{Dice, Event, batch, explore, full_join, history, op};
use crate::join::{How, key_bytes, side_numbers};

#[test]
fn every_order_of_messages_ends_in_the_join_with_each_option() {
    let histories = if std::env::var("CI").is_ok() { 40 } else { 3 };
    for form in Form::ALL {
        for seed in 1..=histories {
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(1_000 + seed));
            let events = history(&mut dice, if form == Form::Sequence { 3 } else { 4 });
            for how in [How::Inner, How::Left] {
                explore(form, how, &events, &format!("{form:?}, seed {seed}: {events:?}"));
            }
        }
    }
}

#[test]
fn random_orders_of_long_histories_end_in_the_join_with_each_option() {
    let histories = if std::env::var("CI").is_ok() { 300 } else { 60 };
    for form in Form::ALL {
        for seed in 1..=histories {
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
            let events = history(&mut dice, 25);
            let how = if dice.roll(2) == 0 { How::Inner } else { How::Left };
            let mut world = World::new(form, how, &events, 1 + dice.roll(2));
            loop {
                let choices = world.choices();
                let Some(choice) = choices.get(dice.roll(choices.len().max(1))) else { break };
                world.choose(choice);
            }
            let expected = full_join(form, how, &events);
            assert_eq!(world.table(), expected, "{form:?}, seed {seed}: {events:?}");
        }
    }
}

fn left(fk: &str, payload: &str) -> Event {
    Event::Left("k0".into(), Some((Some(fk.into()), payload.into())))
}

/// Lets everything happen in order; gives how many messages left sides sent.
fn subscriptions(events: &[Event]) -> usize {
    let mut world = World::new(Form::Plain, How::Inner, events, 1);
    let mut sent = 0;
    loop {
        let choices = world.choices();
        // Messages first, then changes.
        let is_message =
            |c: &&Choice| !matches!(c, Choice::Left(..) | Choice::Right(..) | Choice::PollLeft(_));
        let Some(choice) = choices.iter().find(is_message).or(choices.first()) else { break };
        sent += usize::from(matches!(choice, Choice::Subscription(_)));
        world.choose(choice);
    }
    assert_eq!(world.table(), full_join(Form::Plain, How::Inner, events));
    sent
}

#[test]
fn a_row_that_is_deleted_twice_is_deleted() {
    let events = [left("f1", "p"), Event::Left("k0".into(), None), Event::Left("k0".into(), None)];
    for form in [Form::Plain, Form::Sequence] {
        for how in [How::Inner, How::Left] {
            explore(form, how, &events, &format!("{form:?} {how:?}"));
        }
    }
}

#[test]
fn a_row_that_keeps_its_foreign_key_sends_no_message() {
    let right = Event::Right("f0".into(), Some("v".into()));
    let once = subscriptions(&[left("f0", "p"), right.clone()]);
    let again = [left("f0", "p"), left("f0", "q"), left("f0", "r"), right.clone()];
    assert_eq!(subscriptions(&again), once);
    // One that moves is forgotten by one right row and kept by another.
    let moved = [left("f0", "p"), left("f1", "p"), right];
    assert_eq!(subscriptions(&moved), once + 2);
}

#[test]
fn foreign_keys_and_right_keys_have_one_number() {
    let number = |name: &str, key: &str| -> u32 {
        let rows: RecordBatch = batch(&[op(false), (name, Some(key.to_owned()))]);
        let keys = key_bytes(&[name.to_owned()], &rows).unwrap();
        side_numbers(&keys, NonZeroU32::new(5).unwrap()).value(0)
    };
    for key in ["", "a", "b\0", "long enough for two words"] {
        assert_eq!(number("fk", key), number("key", key));
    }
    let keys = BinaryArray::from(vec![Some(&b"a"[..]), None, Some(b"b"), Some(b"")]);
    let numbers = side_numbers(&keys, NonZeroU32::new(1_000).unwrap());
    assert_eq!(numbers.iter().collect::<Vec<_>>(), [Some(23), None, Some(455), Some(839)]);
    let missing = key_bytes(&["x".to_owned()], &batch(&[op(false)])).unwrap_err();
    assert_eq!(missing.kind(), plait_base::Kind::UnknownColumn);
}
