//! Two sides of some shards each, the messages between them, and what may happen next: messages that
//! overtake each other and come again, sides that end and begin again with all, some or none of their
//! state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};

use super::form::{Form, cell};
use super::{Event, Joined, batch, op};
use crate::join::compact::{compact, due};
use crate::join::find::{MemoryRun, SortedRun, View};
use crate::join::staged::{Added, Clock, Keeper, StagedLeft, StagedRight, StateTable};
use crate::join::{How, Layout};
use crate::workers::Alone;
use plait_base::Result;

/// Keeps tables in memory.
struct Memory(Vec<StateTable>);

impl Keeper for Memory {
    fn add(&mut self, tables: &[View], added: Added<'_>) -> Result<Vec<View>> {
        let mut made = Vec::new();
        for (i, (kind, block)) in self.0.iter().zip(added.blocks).enumerate() {
            let view = tables.get(i).cloned().unwrap_or_default();
            let mut view = view.with(MemoryRun::new(vec![block]).into_run());
            let rows: Vec<u64> = view.runs.iter().map(|run| run.rows()).collect();
            if let Some(range) = due(&rows) {
                let part = View { runs: view.runs[range.clone()].to_vec() };
                let keeps = range.start > 0 || kind.keeps_deleted;
                let merged = compact(&part, &kind.schema, keeps, &Alone)?;
                let merged = (merged.rows() > 0).then(|| merged.into_run());
                view.runs.splice(range, merged);
            }
            made.push(view);
        }
        Ok(made)
    }
}

/// A side, its events and how many of them it took.
#[derive(Clone)]
struct Left {
    side: StagedLeft,
    done: BTreeSet<usize>,
    /// What its changes made so far.
    table: BTreeMap<String, Joined>,
}

#[derive(Clone)]
struct Right {
    side: StagedRight,
    done: BTreeSet<usize>,
}

/// Something that may happen.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    /// A side takes a change, or says what it owes.
    Left(usize, usize),
    Right(usize, usize),
    /// A left side puts rows in its result that are due.
    Due(usize),
    PollLeft(usize),
    PollRight(usize),
    /// A message comes, for good or to come once more.
    Subscription(usize),
    Response(usize),
}

/// What a side has when it begins again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Restart {
    All,
    /// All, but what it said last is lost.
    AllButTheLastMessage,
    /// What it had so many calls ago.
    Before(usize),
    Nothing,
}

/// Everything at one moment.
#[derive(Clone)]
pub(super) struct World {
    form: Form,
    layout: Arc<Layout>,
    left_events: Vec<Vec<Event>>,
    right_events: Vec<Vec<Event>>,
    lefts: Vec<Left>,
    rights: Vec<Right>,
    /// Every state that a shard had.
    left_saved: Vec<Vec<Left>>,
    right_saved: Vec<Vec<Right>>,
    /// Messages on their way, one row each: to which shard.
    subscriptions: Vec<(usize, RecordBatch)>,
    responses: Vec<(usize, RecordBatch)>,
    /// How many messages the last call sent, and whether it was that of a left side.
    said: (bool, usize, usize),
}

fn one_by_one(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    (0..batch.num_rows()).map(|row| batch.slice(row, 1))
}

/// The shard of a key: its digit.
fn shard(key: &[u8], shards: usize) -> usize {
    let digit = key.iter().find(|byte| byte.is_ascii_digit());
    digit.map_or(0, |digit| usize::from(digit - b'0')) % shards
}

impl World {
    pub(super) fn new(form: Form, how: How, events: &[Event], shards: usize) -> Self {
        let layout = form.layout(how);
        let of = |is_left: bool, number: usize| -> Vec<Event> {
            let mine = events.iter().filter(|event| match event {
                Event::Left(key, _) => is_left && shard(key.as_bytes(), shards) == number,
                Event::Right(key, _) => !is_left && shard(key.as_bytes(), shards) == number,
            });
            mine.cloned().collect()
        };
        let clock = |number| Clock { epoch: 10 + number as i64, chance: 1, ..Clock::default() };
        let left = |number| Left {
            side: StagedLeft::try_new(Arc::clone(&layout), clock(number), Vec::new())
                .unwrap()
                .with_joiner(form.joiner(&layout)),
            done: BTreeSet::new(),
            table: BTreeMap::new(),
        };
        let right = |number| Right {
            side: StagedRight::try_new(Arc::clone(&layout), clock(number), Vec::new()).unwrap(),
            done: BTreeSet::new(),
        };
        let (lefts, rights): (Vec<_>, Vec<_>) =
            ((0..shards).map(left).collect(), (0..shards).map(right).collect());
        Self {
            left_events: (0..shards).map(|i| of(true, i)).collect(),
            right_events: (0..shards).map(|i| of(false, i)).collect(),
            left_saved: lefts.iter().map(|left| vec![left.clone()]).collect(),
            right_saved: rights.iter().map(|right| vec![right.clone()]).collect(),
            lefts,
            rights,
            subscriptions: Vec::new(),
            responses: Vec::new(),
            said: (true, 0, 0),
            form,
            layout,
        }
    }

    pub(super) fn shards(&self) -> usize {
        self.lefts.len()
    }

    /// The joined table of all shards.
    pub(super) fn table(&self) -> BTreeMap<String, Joined> {
        self.lefts.iter().flat_map(|left| left.table.clone()).collect()
    }

    /// What could come next.
    pub(super) fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        for i in 0..self.shards() {
            // The next change, or any where numbers tell their order.
            let may_be = if self.form == Form::Sequence { usize::MAX } else { 1 };
            let left = |n: &usize| !self.lefts[i].done.contains(n);
            let left = (0..self.left_events[i].len()).filter(left).take(may_be);
            choices.extend(left.map(|n| Choice::Left(i, n)));
            let right = |n: &usize| !self.rights[i].done.contains(n);
            let right = (0..self.right_events[i].len()).filter(right).take(may_be);
            choices.extend(right.map(|n| Choice::Right(i, n)));
            if self.lefts[i].side.has_due() {
                choices.push(Choice::Due(i));
            }
            if self.lefts[i].side.is_owing() {
                choices.push(Choice::PollLeft(i));
            }
            if self.rights[i].side.is_owing() {
                choices.push(Choice::PollRight(i));
            }
        }
        choices.extend((0..self.subscriptions.len()).map(Choice::Subscription));
        choices.extend((0..self.responses.len()).map(Choice::Response));
        choices
    }

    /// Lets it happen.
    pub(super) fn choose(&mut self, choice: &Choice) {
        match *choice {
            Choice::Left(i, n) => {
                let Event::Left(key, row) = self.left_events[i][n].clone() else { unreachable!() };
                let (fk, payload) = row.clone().map_or((None, None), |(fk, p)| (fk, Some(p)));
                let id = ("id", self.form.key(&key));
                let columns = [op(row.is_none()), id, ("fk", fk), ("payload", payload)];
                self.lefts[i].done.insert(n);
                self.send(i, Some(&self.form.numbered(&batch(&columns), n)));
            }
            Choice::Due(i) => self.resolve(i, None),
            Choice::PollLeft(i) => self.send(i, None),
            Choice::Right(i, n) => {
                let Event::Right(key, value) = self.right_events[i][n].clone() else {
                    unreachable!()
                };
                let columns = [op(value.is_none()), ("key", self.form.key(&key)), ("value", value)];
                self.rights[i].done.insert(n);
                self.apply(i, Some(&self.form.numbered(&batch(&columns), n)));
            }
            Choice::PollRight(i) => self.apply(i, None),
            Choice::Subscription(number) => {
                let (i, message) = self.subscriptions.remove(number);
                let mut keeper = Memory(StagedRight::tables_of(&self.layout));
                let told = self.rights[i].side.receive(&mut keeper, &message).unwrap();
                self.told(i, &told);
            }
            Choice::Response(number) => {
                let (i, message) = self.responses.remove(number);
                self.resolve(i, Some(&message));
            }
        }
    }

    fn resolve(&mut self, i: usize, message: Option<&RecordBatch>) {
        let mut keeper = Memory(StagedLeft::tables_of(&self.layout));
        let left = &mut self.lefts[i];
        let changes = left.side.resolve(&mut keeper, message).unwrap();
        changes.iter().for_each(|changes| take(self.form, &mut left.table, changes));
        self.left_saved[i].push(left.clone());
        self.said = (true, i, 0);
    }

    fn send(&mut self, i: usize, changes: Option<&RecordBatch>) {
        let mut keeper = Memory(StagedLeft::tables_of(&self.layout));
        let sent = self.lefts[i].side.send(&mut keeper, changes).unwrap();
        self.left_saved[i].push(self.lefts[i].clone());
        self.said = (true, i, sent.num_rows());
        for message in one_by_one(&sent) {
            let foreign = message.column_by_name("_fk").unwrap().as_binary::<i32>().value(0);
            self.subscriptions.push((shard(foreign, self.shards()), message.clone()));
        }
    }

    fn apply(&mut self, i: usize, changes: Option<&RecordBatch>) {
        let mut keeper = Memory(StagedRight::tables_of(&self.layout));
        let told = self.rights[i].side.apply(&mut keeper, changes).unwrap();
        self.told(i, &told);
    }

    fn told(&mut self, i: usize, told: &RecordBatch) {
        self.right_saved[i].push(self.rights[i].clone());
        let before = self.responses.len();
        for message in one_by_one(told) {
            let key = message.column_by_name("_pk").unwrap().as_binary::<i32>().clone();
            match key.is_valid(0) {
                true => self.responses.push((shard(key.value(0), self.shards()), message)),
                // A greeting is for all.
                false => self.responses.extend((0..self.shards()).map(|i| (i, message.clone()))),
            }
        }
        self.said = (false, i, self.responses.len() - before);
    }

    /// Lets a message come once more.
    pub(super) fn repeat(&mut self, choice: &Choice) {
        match *choice {
            Choice::Subscription(i) => self.subscriptions.push(self.subscriptions[i].clone()),
            Choice::Response(i) => self.responses.push(self.responses[i].clone()),
            _ => {}
        }
    }

    /// Ends a side, and lets it begin again in an epoch not before `epoch` and that of its state.
    pub(super) fn restart_left(&mut self, i: usize, how: Restart, epoch: i64) {
        let saved = &self.left_saved[i];
        self.lefts[i] = match how {
            Restart::All => self.lefts[i].clone(),
            Restart::AllButTheLastMessage => {
                if self.said.0 && self.said.1 == i {
                    self.subscriptions.truncate(self.subscriptions.len() - self.said.2);
                }
                self.lefts[i].clone()
            }
            Restart::Before(calls) => saved[(saved.len() - 1).saturating_sub(calls)].clone(),
            Restart::Nothing => saved[0].clone(),
        };
        let left = &mut self.lefts[i];
        let clock = left.side.clock.clone();
        let is_fresh = matches!(how, Restart::Nothing);
        let clock = Clock { chance: 1_000 + epoch % 1_000_000, ..clock };
        let epoch = if is_fresh { epoch } else { epoch.max(clock.after(clock.epoch)) };
        let tables = left.side.tables.clone();
        let clock = Clock { epoch, ..clock };
        let side = StagedLeft::try_new(Arc::clone(&self.layout), clock, tables).unwrap();
        left.side = side.with_joiner(self.form.joiner(&self.layout));
        self.said = (true, i, 0);
    }

    /// The same for a right side.
    pub(super) fn restart_right(&mut self, i: usize, how: Restart, epoch: i64) {
        let saved = &self.right_saved[i];
        self.rights[i] = match how {
            Restart::All => self.rights[i].clone(),
            Restart::AllButTheLastMessage => {
                if !self.said.0 && self.said.1 == i {
                    self.responses.truncate(self.responses.len() - self.said.2);
                }
                self.rights[i].clone()
            }
            Restart::Before(calls) => saved[(saved.len() - 1).saturating_sub(calls)].clone(),
            Restart::Nothing => saved[0].clone(),
        };
        let right = &mut self.rights[i];
        let clock = right.side.clock.clone();
        let is_fresh = matches!(how, Restart::Nothing);
        let clock = Clock { chance: 1_000 + epoch % 1_000_000, ..clock };
        let epoch = if is_fresh { epoch } else { epoch.max(clock.after(clock.epoch)) };
        let tables = right.side.tables.clone();
        let clock = Clock { epoch, ..clock };
        right.side = StagedRight::try_new(Arc::clone(&self.layout), clock, tables).unwrap();
        self.said = (false, i, 0);
    }

    /// The same for moments from which the same may follow.
    pub(super) fn fingerprint(&self) -> String {
        let messages = self.subscriptions.iter().chain(&self.responses);
        let mut messages: Vec<String> =
            messages.map(|(shard, message)| format!("{shard} {:?}", message.columns())).collect();
        messages.sort();
        let left = |left: &Left| {
            let side = &left.side;
            let tables = dump(&side.tables);
            let (done, due) = (&left.done, &side.due);
            let is_owing = side.is_owing();
            format!("{done:?} {:?} {is_owing} {due:?} {tables} {:?}", side.clock, left.table)
        };
        let right = |right: &Right| {
            let side = &right.side;
            let tables = dump(&side.tables);
            format!("{:?} {:?} {} {tables}", right.done, side.clock, side.is_owing())
        };
        let lefts: Vec<String> = self.lefts.iter().map(left).collect();
        let rights: Vec<String> = self.rights.iter().map(right).collect();
        format!("{lefts:?} {rights:?} {messages:?}")
    }
}

/// Applies changes to the table; each must fit it, and change it; old values are those it has.
fn take(form: Form, table: &mut BTreeMap<String, Joined>, changes: &RecordBatch) {
    let column = |name: &str| changes.column_by_name(name).unwrap().as_string::<i32>().clone();
    let (ops, keys) = (column("_op"), column("id"));
    let row_of = |prefix: &str, row: usize| -> Joined {
        let name = |name: &&str| cell(&column(&format!("{prefix}{name}")), row);
        form.names().iter().map(name).collect()
    };
    for row in 0..changes.num_rows() {
        let key = keys.value(row).to_owned();
        if form == Form::Before {
            let none = vec![None; form.names().len()];
            assert_eq!(&row_of("before.", row), table.get(&key).unwrap_or(&none));
        }
        let new = row_of("", row);
        match ops.value(row) {
            "insert" => assert!(table.insert(key, new).is_none()),
            "update" => assert_ne!(table.insert(key, new.clone()), Some(new)),
            "delete" => assert!(table.remove(&key).is_some()),
            other => panic!("{other}"),
        }
    }
}

/// The newest rows of some tables, as text.
fn dump(tables: &[View]) -> String {
    let mut text = String::new();
    for view in tables {
        let Some(run) = view.runs.first() else { continue };
        let schema = run.block(0).unwrap().batch().schema();
        let whole = compact(view, &schema, true, &Alone).unwrap();
        let batches = (0..whole.blocks()).map(|i| whole.block(i).unwrap().batch().clone());
        batches.for_each(|batch| text += &format!("{:?}", batch.columns()));
    }
    text
}
