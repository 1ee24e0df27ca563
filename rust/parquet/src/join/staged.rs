//! The two sides of a staged join, with state in memory or in a folder.
//!
//! ```text
//! call ─▶ side (plait_core::join): rows to add, messages ─▶ new runs ─▶ manifest with the clock ─▶ messages
//! ```
//!
//! # Invariants
//! What a call adds counts before its messages leave. Whoever opens a state gets a new epoch,
//! written before anything is said in it: nobody can tell the state of a moment ago from an older
//! copy.
//!
//! # Not here
//! The protocol (`plait_core::join`, `docs/formats/join-messages.md`).

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use plait_core::join::{
    Added, Call, Clock, Joiner, Keeper, Layout, Side, StagedLeft, StagedRight, StateTable, View,
};
use plait_core::{Error, Kind, Result};
use serde::Serialize;

use super::manifest::{Counts, JoinManifest, Owner};
use super::options::JoinOptions;
use super::reader::{Reader, same_columns, without_operation};
use super::state::State;
use crate::json::to_json;
use crate::runtime::Context;

/// Bits of an epoch below the milliseconds: two sides that begin in one are distinguished by
/// chance.
const CHANCE_BITS: u32 = 20;

/// What both sides keep.
#[derive(Debug)]
struct KeptTables {
    owner: Owner,
    options: JoinOptions,
    layout: Arc<Layout>,
    tables: Vec<StateTable>,
    state: State,
    step: Option<u64>,
    counts: Counts,
}

/// What a side has done, and what its state holds.
#[derive(Clone, Debug, Serialize)]
struct SideStats {
    /// The last call that changed the state, if there is one.
    step: Option<u64>,
    /// What was done.
    #[serde(flatten)]
    counts: Counts,
    /// Rows of each run of each table, oldest first, those that delete among them.
    runs: BTreeMap<&'static str, Vec<u64>>,
    /// Bytes of state in memory.
    memory_bytes: u64,
    /// Blocks of files that were in memory when they were asked for.
    cache_hits: u64,
    /// Blocks that were not.
    cache_misses: u64,
}

/// Whoever keeps the tables of one call.
struct Keeping<'a> {
    kept: &'a mut KeptTables,
    context: &'a Context,
}

impl Keeper for Keeping<'_> {
    fn add(&mut self, _: &[View], added: Added<'_>) -> Result<Vec<View>> {
        let Self { kept, context } = self;
        context.check_cancelled()?;
        let mut counts = kept.counts.clone();
        let next = kept.state.merged(&kept.tables, &mut counts, context)?;
        counts.steps += 1;
        let given = match kept.owner {
            Owner::Right => &mut counts.right_changes,
            _ => &mut counts.left_changes,
        };
        *given += added.received.given;
        counts.folded += added.received.folded;
        counts.null_keys += added.received.null_keys;
        counts.stale += added.received.stale;
        let step = kept.step.map_or(0, |step| step.saturating_add(1));
        let draft = kept.draft(Some(step), &counts, added.clock)?;
        kept.state.add(next, &kept.tables, &added.blocks, draft, context)?;
        (kept.step, kept.counts) = (Some(step), counts);
        Ok(kept.state.all())
    }
}

impl KeptTables {
    /// The state of `owner` in the folder of the options, or none: then with these columns of
    /// changes. Gives the clock of a new epoch, too.
    fn open(
        owner: Owner,
        mut options: JoinOptions,
        given: Option<[SchemaRef; 2]>,
        context: &Context,
    ) -> Result<(Self, Clock)> {
        let given = given.map(|given| given.map(|schema| without_operation(&schema)));
        if given.is_none() {
            check_there(&options)?;
        }
        if let Some([left, right]) = &given {
            // Invalid options leave no folder behind.
            check(owner, Layout::try_new(options.spec(), left, right)?)?;
        }
        let mut state = State::open(&options, owner, context)?;
        let found = state.take_manifest();
        let schemas = match (&given, &found) {
            (None, None) => return Err(none(&options)),
            (Some(given), None) => given.clone(),
            (given, Some(manifest)) => {
                let stored = manifest.schemas()?;
                match given {
                    Some(given) => {
                        manifest.check(&options)?;
                        check_columns(given, &stored)?;
                    }
                    None => options = restored(&options, &manifest.options),
                }
                stored
            }
        };
        let layout = Arc::new(Layout::try_new(options.spec(), &schemas[0], &schemas[1])?);
        let tables = match owner {
            Owner::Right => StagedRight::tables_of(&layout),
            _ => StagedLeft::tables_of(&layout),
        };
        let (step, counts) = (None, Counts::default());
        let mut kept = Self { owner, options, layout, tables, state, step, counts };
        let mut clock = Clock::default();
        if let Some(manifest) = found {
            kept.state.resume(&manifest, &kept.tables)?;
            (kept.step, kept.counts) = (manifest.step, manifest.counts);
            let missing = || Error::new(Kind::CorruptSource, "the state of a side has no clock");
            clock = manifest.clock.ok_or_else(missing)?.into();
        }
        clock.chance = chance();
        clock.epoch = clock.after(clock.epoch).max(epoch(clock.chance));
        let draft = kept.draft(kept.step, &kept.counts, &clock)?;
        kept.state.put(&kept.tables, draft, context)?;
        Ok((kept, clock))
    }

    fn draft(&self, step: Option<u64>, counts: &Counts, clock: &Clock) -> Result<JoinManifest> {
        let schemas = [self.layout.given(Side::Left), self.layout.given(Side::Right)];
        let memory_limit = JoinOptions::default().memory_limit;
        let options = JoinOptions { memory_limit, ..self.options.clone() };
        let draft = JoinManifest::new(self.owner, &options, [&schemas[0], &schemas[1]])?;
        Ok(JoinManifest { step, counts: counts.clone(), clock: Some(clock.into()), ..draft })
    }

    fn stats(&self) -> Result<String> {
        let (cache_hits, cache_misses) = self.state.asked();
        let rows = |view: &View| view.runs.iter().map(|run| run.rows()).collect();
        let views = self.tables.iter().zip(self.state.all());
        to_json(&SideStats {
            step: self.step,
            counts: self.counts.clone(),
            runs: views.map(|(table, view)| (table.name, rows(&view))).collect(),
            memory_bytes: self.state.memory_size() as u64,
            cache_hits,
            cache_misses,
        })
    }

    fn snapshot(&self, location: &str, clock: &Clock, context: &Context) -> Result<()> {
        let draft = self.draft(self.step, &self.counts, clock)?;
        self.state.snapshot(location, &self.tables, draft, context)
    }
}

/// A number that is greater than those of sides that began before, if clocks go on; and if they do
/// not, another one.
fn epoch(chance: i64) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(0));
    millis.saturating_mul(1 << CHANCE_BITS).saturating_add(chance)
}

/// A number that no other life is likely to have.
fn chance() -> i64 {
    let bits = RandomState::new().build_hasher().finish() & ((1 << CHANCE_BITS) - 1);
    i64::try_from(bits).unwrap_or(0)
}

/// What no staged join can have is found before a folder is made.
fn check(owner: Owner, layout: Layout) -> Result<()> {
    let layout = Arc::new(layout);
    match owner {
        Owner::Right => StagedRight::try_new(layout, Clock::default(), Vec::new()).map(drop),
        _ => StagedLeft::try_new(layout, Clock::default(), Vec::new()).map(drop),
    }
}

fn none(options: &JoinOptions) -> Error {
    Error::new(Kind::SourceNotFound, "the folder holds no state of a side of a join")
        .with_path(options.state.as_deref().unwrap_or_default())
        .with_hint("give the folder of a side or of its snapshot")
}

/// Opening would make the folder.
fn check_there(options: &JoinOptions) -> Result<()> {
    let location = options.state.as_deref().unwrap_or_default();
    match location.contains("://") || Path::new(location).exists() {
        true => Ok(()),
        false => Err(none(options)),
    }
}

fn restored(options: &JoinOptions, stored: &JoinOptions) -> JoinOptions {
    JoinOptions {
        state: options.state.clone(),
        memory_limit: options.memory_limit,
        threads: options.threads,
        batch_rows: options.batch_rows,
        has_joiner: options.has_joiner,
        ..stored.clone()
    }
}

fn check_columns(given: &[SchemaRef; 2], stored: &[SchemaRef; 2]) -> Result<()> {
    for ((given, stored), name) in given.iter().zip(stored).zip(["left", "right"]) {
        if !same_columns(given, stored) {
            let what = format!("the state has other columns of {name} changes");
            return Err(Error::new(Kind::SchemaDrift, what).with_hint(
                "a join keeps the columns of its first changes; begin with an empty folder",
            ));
        }
    }
    Ok(())
}

/// Where a side stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideState {
    /// The last call that added something, if there is one.
    pub step: Option<u64>,
    /// Whether the other sides have to hear of something though nothing changed.
    pub is_owing: bool,
    /// See [`StagedLeft::has_due`].
    pub has_due: bool,
}

/// The left side.
#[derive(Debug)]
pub struct Left {
    side: StagedLeft,
    kept: KeptTables,
    joiner: Option<Joiner>,
}

impl Left {
    /// A side with the state in the folder of the options, or without rows. Without columns of both
    /// changes the state must be there. `call` makes the rows of the result, if the options say so.
    ///
    /// # Errors
    /// As [`Layout::try_new`], [`StagedLeft::try_new`] and [`Joiner::try_new`]; what is wrong with the
    /// state, and [`Kind::InvalidArgument`] when it is that of another join or side.
    pub fn try_new(
        options: JoinOptions,
        given: Option<[SchemaRef; 2]>,
        call: Option<Call>,
        context: &Context,
    ) -> Result<Self> {
        let (kept, clock) = KeptTables::open(Owner::Left, options, given, context)?;
        let layout = Arc::clone(&kept.layout);
        let joiner = call.map(|call| Joiner::try_new(layout, kept.options.before, call));
        let joiner = joiner.transpose()?;
        let side = StagedLeft::try_new(Arc::clone(&kept.layout), clock, kept.state.all())?;
        let side = side.with_joiner(joiner.clone());
        Ok(Self { side, kept, joiner })
    }

    /// Where the side stands.
    #[must_use]
    pub fn state(&self) -> SideState {
        let (is_owing, has_due) = (self.side.is_owing(), self.side.has_due());
        SideState { step: self.kept.step, is_owing, has_due }
    }

    /// See [`StagedLeft::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(
        &mut self,
        changes: Option<&RecordBatch>,
        context: &Context,
    ) -> Result<RecordBatch> {
        self.side.send(&mut Keeping { kept: &mut self.kept, context }, changes)
    }

    /// See [`StagedLeft::resolve`].
    ///
    /// # Errors
    /// As there.
    pub fn resolve(
        &mut self,
        responses: Option<&RecordBatch>,
        context: &Context,
    ) -> Result<RecordBatch> {
        let made = self.side.resolve(&mut Keeping { kept: &mut self.kept, context }, responses)?;
        Ok(self.or_empty(made))
    }

    /// The changes of the last call that added something once more; without rows if it sent.
    ///
    /// # Errors
    /// What reading the state gives, and the joiner.
    pub fn again(&self) -> Result<RecordBatch> {
        let state = &self.kept.state;
        Ok(self.or_empty(self.side.changes_again(state.base(), state.last())?))
    }

    fn or_empty(&self, changes: Option<RecordBatch>) -> RecordBatch {
        let schema = self.joiner.as_ref().map_or(self.kept.layout.out(), Joiner::schema);
        changes.unwrap_or_else(|| RecordBatch::new_empty(Arc::clone(schema)))
    }

    /// What was done and what the state holds, as JSON.
    ///
    /// # Errors
    /// What JSON cannot express.
    pub fn stats(&self) -> Result<String> {
        self.kept.stats()
    }

    /// The result as it is now, by primary key.
    ///
    /// # Errors
    /// None but those of memory.
    pub fn table(&self) -> Result<Reader> {
        let result = Box::new(self.side.result(self.kept.options.batch_rows)?);
        Ok(match &self.joiner {
            Some(joiner) => Box::new(joiner.table(result)),
            None => result,
        })
    }

    /// Writes the state to a folder without one.
    ///
    /// # Errors
    /// [`Kind::OutputExists`] when there is one; what writing gives.
    pub fn snapshot(&self, location: &str, context: &Context) -> Result<()> {
        self.kept.snapshot(location, self.side.clock(), context)
    }
}

/// The right side.
#[derive(Debug)]
pub struct Right {
    side: StagedRight,
    kept: KeptTables,
}

impl Right {
    /// As [`Left::try_new`].
    ///
    /// # Errors
    /// As there.
    pub fn try_new(
        options: JoinOptions,
        given: Option<[SchemaRef; 2]>,
        context: &Context,
    ) -> Result<Self> {
        let (kept, clock) = KeptTables::open(Owner::Right, options, given, context)?;
        let side = StagedRight::try_new(Arc::clone(&kept.layout), clock, kept.state.all())?;
        Ok(Self { side, kept })
    }

    /// Where the side stands.
    #[must_use]
    pub fn state(&self) -> SideState {
        SideState { step: self.kept.step, is_owing: self.side.is_owing(), has_due: false }
    }

    /// As [`Left::stats`].
    ///
    /// # Errors
    /// As there.
    pub fn stats(&self) -> Result<String> {
        self.kept.stats()
    }

    /// See [`StagedRight::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(
        &mut self,
        subscriptions: &RecordBatch,
        context: &Context,
    ) -> Result<RecordBatch> {
        self.side.receive(&mut Keeping { kept: &mut self.kept, context }, subscriptions)
    }

    /// See [`StagedRight::apply`].
    ///
    /// # Errors
    /// As there.
    pub fn apply(
        &mut self,
        changes: Option<&RecordBatch>,
        context: &Context,
    ) -> Result<RecordBatch> {
        self.side.apply(&mut Keeping { kept: &mut self.kept, context }, changes)
    }

    /// Writes the state to a folder without one.
    ///
    /// # Errors
    /// [`Kind::OutputExists`] when there is one; what writing gives.
    pub fn snapshot(&self, location: &str, context: &Context) -> Result<()> {
        self.kept.snapshot(location, self.side.clock(), context)
    }
}
