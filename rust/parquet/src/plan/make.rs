//! Makes a plan of a draft: cuts its rows into outputs, or into what is tried out first.
//!
//! ```text
//! Draft ─ trials ─▶ tasks of some rows ─ (merge::trial) ─▶ bytes of each ─ learn ─▶ Learned ─┐
//!   └──────────────────────────── cuts ─▶ tasks ─ estimate ─▶ Plan ◀─────────────────────────┘
//! ```
//!
//! # Invariants
//! Nothing is written. The plan depends on the sources, their order and the options alone: what was
//! tried out does, too.
//!
//! # Not here
//! Where the cuts are (`cuts`); what lies between them (`tasks`); rows of an output (`pace`).

use std::ops::Range;
use std::sync::Arc;

use plait_core::Result;

use super::bounds::cut_values;
use super::cuts::{Cuts, TrialCuts, cuts, cuts_of_partitions, trial_cuts};
use super::density::Density;
use super::draft::Draft;
use super::entries::merge_level;
use super::estimate::{Able, Expected, expect};
use super::footers::FooterNumbers;
use super::key_samples::KeySamples;
use super::learned::{Learned, TrialPlace, Tried};
use super::memory::memory_need;
use super::name::name;
use super::pace::Pace;
use super::partitions::partitions;
use super::rule::Rule;
use super::sample::{Sample, around, in_two};
use super::schema::CarriedSchema;
use super::source_keys::{Reading, SourceKeys};
use super::spread::{count, spread};
use super::tasks::{name_partitions, stored, stored_bytes, tasks};
use super::value::{Plan, PlanTask, VERSION};
use super::warnings::{conflict_reports, warnings};
use crate::files::readers;
use crate::options::MergeOptions;
use crate::partition::{self, Folders};
use crate::runtime::Level;
use crate::source::Source;

/// Fewer rows tell nothing.
const TRIED_ROWS_MIN: u64 = 4;

/// Trials that would be so many times shorter than they may be, by what was learned from the first
/// ones, are done again.
const SHORT_BY: u64 = 4;

/// Rows are written with at most so many times the bytes that they have in sources, if they are
/// written in the same way.
const GROWTH_MAX: u64 = 4;

/// The same for another codec, and without dictionaries.
const OTHER_GROWTH_MAX: u64 = 256;

/// More of the rows than this share are copied as they are: nothing is to be learned.
const COPIED_SHARE: f64 = 0.9;

/// A plan and the sources it was made of, still open.
pub(crate) struct PlannedMerge {
    /// The plan.
    pub plan: Plan,
    /// Its sources.
    pub sources: Arc<Vec<Arc<Source>>>,
    /// Bytes that executing it reads, as `Progress` counts them.
    pub total_bytes: u64,
}

/// Rows that are tried out.
pub(crate) struct Trials {
    /// A task for each stretch of rows.
    pub(crate) plan: Plan,
    /// The place of each task.
    places: Vec<TrialPlace>,
    /// What sources store for rows; none if all are alike.
    density: Option<Density>,
    /// Rows of each place, if these are the first trials.
    first_rows: Option<u64>,
}

impl Draft<'_> {
    /// Rows to try out, so that files become as large as was asked for; none if nothing is to be
    /// learned. `before` is what was learned so far.
    ///
    /// # Errors
    /// As those of a plan.
    pub(crate) fn trials(&mut self, before: Option<&Learned>) -> Result<Option<Trials>> {
        let may_be_cut = self.keys.leaves.is_empty() || self.cut_columns() > 0;
        let Some(file_bytes) = self.options.target_file_size else { return Ok(None) };
        let is_one_file = stored(&self.files).0.saturating_mul(self.growth_max()) < file_bytes;
        if !may_be_cut || is_one_file || self.is_copied() {
            return Ok(None);
        }
        let bytes = |of: &SourceKeys| {
            let trial_bytes = self.footers.of_source(&of.source).map_or(0, |of| of.trial_bytes);
            (of.source.stored_bytes, trial_bytes)
        };
        let sample = Sample::choose(self.sources_keys.iter().map(bytes), self.drops_rows);
        let mut taken: Vec<SourceKeys> =
            self.sources_keys.iter().step_by(sample.every).cloned().collect();
        let (all_rows, rows) = (self.rows(), taken.iter().map(SourceKeys::rows).sum::<u64>());
        let reading = Reading { keys: &self.keys, cache: &self.cache, context: self.context };
        let density = match before {
            Some(before) => before.density.clone(),
            None if self.keys.leaves.is_empty() => None,
            None => Density::of(&mut taken, &self.leaves, all_rows, reading)?,
        };
        let pace = before.map_or_else(
            || self.pace_of_sources(),
            |learned| learned.pace(file_bytes, self.group_rows()),
        );
        let of_file = pace.rows_at_first() / sample.every as u64;
        let wanted = of_file.min(sample.rows_max(rows));
        let is_first = before.is_none_or(|before| wanted >= before.trial_rows * SHORT_BY);
        // The rows in the middle of places, and the rows of each place.
        let (middles, trial_rows) = match before {
            Some(before) if !is_first => {
                let gaps = before.between(all_rows, sample.places);
                let least = gaps.iter().map(|(_, gap)| gap / 2).min().unwrap_or(0);
                let of_taken = (least as f64 * (rows as f64 / all_rows as f64)) as u64;
                (gaps.into_iter().map(|(row, _)| row).collect(), before.trial_rows.min(of_taken))
            }
            _ => (sample.middles(all_rows), wanted),
        };
        if middles.is_empty() || trial_rows < TRIED_ROWS_MIN {
            return Ok(None);
        }
        let taken_share = rows as f64 / all_rows as f64;
        let place = |middle: u64, rows: &Range<u64>| {
            let [start, end] = [rows.start, rows.end].map(|row| (row as f64 / taken_share) as u64);
            TrialPlace::of(middle, &(start..end), density.as_ref())
        };
        let mut pieces: Vec<(Range<u64>, TrialPlace)> = Vec::new();
        for middle in middles {
            let around = around((middle as f64 * taken_share) as u64, trial_rows);
            if is_first && pieces.is_empty() {
                let [short, long] = in_two(&around);
                let is_short = TrialPlace { is_short: true, ..place(middle, &short) };
                let of_long = place(middle, &long);
                pieces.extend([(short, is_short), (long, of_long)]);
            } else {
                let place = place(middle, &around);
                pieces.push((around, place));
            }
        }
        let stretches: Vec<Range<u64>> = pieces.iter().map(|(rows, _)| rows.clone()).collect();
        // Rows of one cut key may be many, and need not stay together.
        let TrialCuts { cuts, tried } =
            trial_cuts(&mut taken, &stretches, self.keys.shape.parts(), reading)?;
        let all = tasks(&taken, &cuts);
        let (mut chosen, mut places) = (Vec::new(), Vec::new());
        for (task, piece) in tried {
            // Rows of one key do: there may be more than are to be tried.
            let task = all.get(task).filter(|task| task.rows <= 2 * trial_rows);
            if let (Some(task), Some((_, place))) = (task, pieces.get(piece)) {
                chosen.push(task.clone());
                places.push(*place);
            }
        }
        let plan = self.plan_of(chosen)?;
        self.forget_keys();
        let first_rows = is_first.then_some(trial_rows);
        Ok(Some(Trials { plan, places, density, first_rows }))
    }

    /// What trials found, with what was learned before or instead of it; none if nothing.
    pub(crate) fn learn(
        &self,
        before: Option<Learned>,
        trials: &Trials,
        tried: &[Tried],
    ) -> Option<Learned> {
        self.context.events().record(Level::Debug, "plan", || {
            let sum = |of: fn(&Tried) -> u64| tried.iter().map(of).sum::<u64>();
            let (rows, bytes) = (sum(|one| one.rows), sum(|one| one.bytes));
            format!("{} trials: {rows} rows became {bytes} bytes", tried.len())
        });
        let tried = trials.places.iter().copied().zip(tried.iter().copied()).collect();
        match (trials.first_rows, before) {
            (None, Some(mut learned)) => {
                learned.add(tried);
                Some(learned)
            }
            (rows, before) => {
                let density = trials.density.clone();
                Learned::first(rows.unwrap_or(0), density, tried).or(before)
            }
        }
    }

    /// Cuts the rows into outputs. `learned` is what trials found.
    ///
    /// # Errors
    /// As those of a plan.
    pub(crate) fn plan(mut self, learned: Option<&Learned>) -> Result<PlannedMerge> {
        let rule = self.rule(learned);
        // Nothing is learned of keys where nothing is cut.
        let is_cut = rule != Rule::One || !self.options.partition_by.is_empty();
        let samples = if is_cut { self.samples() } else { Vec::new() };
        let Cuts { cuts, looks, folders } = self.cut(&rule)?;
        self.sources_keys.iter_mut().zip(samples).for_each(|(of, samples)| of.samples = samples);
        self.keys.forget_look_ups();
        let mut tasks = tasks(&self.sources_keys, &cuts);
        name_partitions(&mut tasks, &folders);
        self.context.events().record(Level::Debug, "plan", || {
            format!("{} outputs, found by {looks} looks at sources", tasks.len())
        });
        let cut_columns = self.cut_columns();
        let bounds: Vec<Option<Vec<u8>>> = cuts.into_iter().map(|cut| cut.key).collect();
        let expected = self.expected(&bounds, &tasks);
        for (task, expected) in tasks.iter_mut().zip(expected) {
            (task.tiers, task.depth_max) = (expected.tiers, expected.depth_max);
            task.key_low = cut_values(&self.keys, cut_columns, task.low.as_ref());
            task.key_high = cut_values(&self.keys, cut_columns, task.high.as_ref());
        }
        let plan = self.plan_of(tasks)?;
        let total_bytes = self.total_bytes();
        Ok(PlannedMerge { plan, sources: self.sources, total_bytes })
    }

    /// The draft after `trials`, whose plan has its sources.
    pub(crate) fn end(&mut self, trials: Trials) {
        self.planned = trials.plan.sources;
    }

    /// The plan of `tasks`, which takes over the sources: there may be a million.
    fn plan_of(&mut self, mut tasks: Vec<PlanTask>) -> Result<Plan> {
        for task in &mut tasks {
            task.bytes = stored_bytes(task, &self.sources);
        }
        let (options, depth_max) = (self.options, self.overlap.depth_max);
        let mut plan = Plan {
            format: Plan::format(),
            version: VERSION,
            task: String::new(),
            lease: options.naming.lease.clone(),
            outputs: tasks.len() as u64,
            rows: self.sources.iter().map(|source| source.live_rows()).sum(),
            sort_by: self.order.to_string(),
            options: MergeOptions {
                sources: Vec::new(),
                out: String::new(),
                sort_by: None,
                storage_options: Default::default(),
                ..options.clone()
            },
            schema: CarriedSchema::write(&self.reconciled)?,
            renamed: self.reconciled.renamed.clone(),
            encodings: self.encodings.clone(),
            merge_level: 1 + self.files.iter().map(|file| merge_level(file)).max().unwrap_or(0),
            trusts_footers: self.trusts_footers,
            sources: std::mem::take(&mut self.planned),
            tasks,
            overlap: self.overlap,
            metadata_conflicts: conflict_reports(&self.reconciled.metadata_conflicts),
            memory: memory_need(
                self.footers.bytes_each,
                !self.keys.leaves.is_empty(),
                depth_max,
                &self.sources,
                options.budget(),
            ),
            warnings: warnings(&self.files, &self.reconciled.metadata_conflicts),
        };
        plan.task = options.naming.task.clone().unwrap_or_else(|| name(&plan, &self.files));
        Ok(plan)
    }

    /// Where outputs end.
    fn cut(&mut self, rule: &Rule) -> Result<Cuts> {
        let (options, cut_columns) = (self.options, self.cut_columns());
        let reading = Reading { keys: &self.keys, cache: &self.cache, context: self.context };
        let workers = readers(&self.sources, options.threads, self.context);
        let sources_keys = &mut self.sources_keys;
        if options.partition_by.is_empty() {
            // So many rows are promised, a size is not.
            let may_be_about = *rule != Rule::One && options.target_rows.is_none();
            let is_about =
                may_be_about && spread(sources_keys, self.overlap.depth_max, &workers, reading)?;
            let mut found = cuts(sources_keys, rule, cut_columns, reading)?;
            if is_about {
                count(sources_keys, &mut found.cuts, &workers, reading)?;
            }
            return Ok(found);
        }
        let columns = partition::leading(&self.keys, options)?;
        let reading_columns = Reading { keys: &columns, ..reading };
        let partitions = partitions(sources_keys, &workers, reading_columns)
            .map_err(|e| partition::explained(e, options, &self.order))?;
        let names = partition::names(options, &self.reconciled)?;
        let of = Folders::new(&names, &self.keys, &self.reconciled)?;
        let mut folders = Vec::with_capacity(partitions.len());
        for partition in &partitions {
            folders.push((partition.prefix.clone(), of.of(&partition.prefix)?));
        }
        let found = cuts_of_partitions(sources_keys, &partitions, rule, cut_columns, reading)?;
        Ok(Cuts { folders, ..found })
    }

    /// What each of `tasks`, between `bounds`, will probably do.
    fn expected(&self, bounds: &[Option<Vec<u8>>], tasks: &[PlanTask]) -> Vec<Expected> {
        let rows: Vec<u64> = tasks.iter().map(|task| task.rows).collect();
        expect(&self.sources_keys, bounds, &rows, &|of| self.able(of), self.options)
    }

    /// Whether nearly all rows are in row groups that are copied.
    fn is_copied(&self) -> bool {
        if self.drops_rows {
            return false;
        }
        let rows = self.rows();
        let able = |of: &SourceKeys| self.able(of);
        let expected = expect(&self.sources_keys, &[], &[rows], &able, self.options);
        let copied = expected.first().and_then(|all| all.tiers.get("chunk"));
        copied.is_some_and(|copied| *copied as f64 >= rows as f64 * COPIED_SHARE)
    }

    /// What a source can do.
    fn able(&self, of: &SourceKeys) -> Option<Able> {
        self.footers.of_source(&of.source).map(|of| of.able)
    }

    /// Bytes that will be read: all columns, and the key columns a second time.
    fn total_bytes(&self) -> u64 {
        let of = |(source, footer): (&Arc<Source>, &FooterNumbers)| {
            // Several sources may be rows of one file.
            let share = source.count(&(0..source.rows())) as f64 / source.rows().max(1) as f64;
            ((source.stored_bytes + footer.key_bytes) as f64 * share) as u64
        };
        self.sources.iter().zip(&self.footers.sources).map(of).sum()
    }

    fn rule(&self, learned: Option<&Learned>) -> Rule {
        let options = self.options;
        match (options.outputs, options.target_rows, options.target_file_size) {
            (Some(outputs), ..) => Rule::Outputs(outputs),
            (_, Some(rows), _) => Rule::Rows(rows),
            (.., Some(bytes)) => Rule::Bytes(learned.map_or_else(
                || self.pace_of_sources(),
                |learned| learned.pace(bytes, self.group_rows()),
            )),
            _ => Rule::One,
        }
    }

    /// How many times the bytes of the sources rows hardly take.
    fn growth_max(&self) -> u64 {
        match (&self.options.compression, self.options.dictionary) {
            (None, None) => GROWTH_MAX,
            _ => OTHER_GROWTH_MAX,
        }
    }

    fn pace_of_sources(&self) -> Pace {
        let (bytes, rows) = stored(&self.files);
        Pace::of_sources(self.options.target_file_size.unwrap_or(u64::MAX), bytes, rows)
    }

    /// Rows of a row group of an output, about.
    fn group_rows(&self) -> u64 {
        let encoded: u64 = self.files.iter().map(|file| file.encoded_bytes).sum();
        let rows: u64 = self.files.iter().map(|file| file.rows()).sum();
        let row_bytes = encoded as f64 / rows.max(1) as f64;
        let by_bytes = self.options.row_group_size as f64 / row_bytes.max(0.01);
        self.options.row_group_rows.min(by_bytes as u64).max(1)
    }

    fn samples(&self) -> Vec<KeySamples> {
        self.sources_keys.iter().map(|of| of.samples.clone()).collect()
    }
}
