//! Sides that end and begin again at any moment: the table is the join in the end.

use std::collections::BTreeSet;

use super::form::Form;
use super::world::{Choice, Restart, World};
use super::{Dice, Event, full_join, history};
use crate::join::How;

/// Epochs of sides that begin again: clocks that go on, and some that go back.
struct Epochs(i64);

impl Epochs {
    fn next(&mut self, dice: &mut Dice) -> i64 {
        self.0 += 1;
        let number = i64::try_from(dice.roll(1_000_000)).unwrap();
        match dice.roll(5) {
            0 => 10_000 + number,
            _ => self.0 * 1_000_000 + number,
        }
    }
}

fn restart(dice: &mut Dice) -> Restart {
    match dice.roll(4) {
        0 => Restart::All,
        1 => Restart::AllButTheLastMessage,
        2 => Restart::Before(1 + dice.roll(12)),
        _ => Restart::Nothing,
    }
}

/// Lets things happen in random order, sides begin again among them, until nothing is left.
fn run(seed: u64, shards: usize, restarts: usize) {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
    let events = history(&mut dice, 20);
    let how = if dice.roll(2) == 0 { How::Inner } else { How::Left };
    let mut world = World::new(Form::Plain, how, &events, shards);
    let (mut epochs, mut restarts, mut repeats, mut steps) = (Epochs(1), restarts, 30, 0);
    loop {
        let choices = world.choices();
        let Some(choice) = choices.get(dice.roll(choices.len().max(1))) else { break };
        if repeats > 0 && dice.roll(8) == 0 {
            repeats -= 1;
            world.repeat(choice);
        }
        world.choose(choice);
        if restarts > 0 && dice.roll(6) == 0 {
            restarts -= 1;
            let (shard, epoch) = (dice.roll(shards), epochs.next(&mut dice));
            match dice.roll(2) {
                0 => world.restart_left(shard, restart(&mut dice), epoch),
                _ => world.restart_right(shard, restart(&mut dice), epoch),
            }
        }
        steps += 1;
        assert!(steps < 20_000, "seed {seed}: messages do not end");
    }
    let expected = full_join(Form::Plain, how, &events);
    assert_eq!(world.table(), expected, "seed {seed}, {shards} shards: {events:?}");
}

fn histories(few: u64, many: u64) -> u64 {
    if std::env::var("PLAIT_LONG").is_ok() { many } else { few }
}

#[test]
fn sides_that_begin_again_at_any_moment_end_in_the_join() {
    for seed in 1..=histories(300, 20_000) {
        run(seed, 1, 6);
    }
}

#[test]
fn shards_that_begin_again_at_any_moment_end_in_the_join() {
    for seed in 1..=histories(150, 5_000) {
        run(seed, 2, 6);
    }
}

/// Goes through every order, with one restart of each kind at every moment.
fn explore(how: How, events: &[Event]) -> usize {
    let expected = full_join(Form::Plain, how, events);
    let mut seen = BTreeSet::new();
    let mut open = vec![(World::new(Form::Plain, how, events, 1), 1)];
    while let Some((world, restarts)) = open.pop() {
        if !seen.insert(format!("{restarts} {}", world.fingerprint())) {
            continue;
        }
        let choices = world.choices();
        if choices.is_empty() {
            assert_eq!(world.table(), expected, "{how:?} {events:?}");
        }
        for choice in &choices {
            let mut next = world.clone();
            next.choose(choice);
            open.push((next, restarts));
        }
        if restarts == 0 {
            continue;
        }
        for how in
            [Restart::All, Restart::AllButTheLastMessage, Restart::Nothing, Restart::Before(1)]
        {
            for epoch in [100, 5] {
                let mut next = world.clone();
                next.restart_left(0, how, epoch);
                open.push((next, restarts - 1));
                let mut next = world.clone();
                next.restart_right(0, how, epoch);
                open.push((next, restarts - 1));
            }
        }
    }
    seen.len()
}

#[test]
fn one_restart_at_any_moment_of_short_histories_ends_in_the_join() {
    let text = |text: &str| Some(text.to_owned());
    let left = |fk: Option<&str>, payload: &str| {
        Event::Left("k0".into(), Some((fk.map(str::to_owned), payload.to_owned())))
    };
    let right = |value| Event::Right("f0".into(), value);
    let mut all = vec![vec![left(Some("f0"), "p"), right(text("v"))]];
    if std::env::var("PLAIT_LONG").is_ok() {
        all.extend([
            vec![left(Some("f0"), "p"), right(text("v")), right(None)],
            vec![left(Some("f0"), "p"), left(Some("f1"), "p"), right(text("v"))],
            vec![left(Some("f0"), "p"), Event::Left("k0".into(), None), right(text("v"))],
            vec![left(Some("f0"), "p"), left(None, "q"), right(text("v")), right(text("w"))],
        ]);
    }
    let mut moments = 0;
    for events in &all {
        for how in &[How::Inner, How::Left] {
            moments += explore(*how, events);
        }
    }
    assert!(moments > 100, "only {moments} moments");
}

#[test]
fn a_side_that_owes_nothing_says_nothing() {
    let mut world = World::new(Form::Plain, How::Inner, &[], 1);
    assert!(matches!(world.choices().as_slice(), [Choice::PollRight(0)]));
    world.choose(&Choice::PollRight(0));
    world.choose(&Choice::Response(0));
    assert!(world.choices().is_empty());
}
