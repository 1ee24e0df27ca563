//! Which files of a scope are merged together, and what of their rows must stay.
//!
//! ```text
//! files ─ policy ────────────▶ groups          no other file holds an older row? ─▶ tombstones go
//! files ─ rows past retention ─▶ groups of the files that the policy left
//! ```
//!
//! # Invariants
//! No file is in two groups.
//!
//! # Not here
//! The policies (`plait_core::policy`); what is known of a file (`survey`); which of its rows are
//! past their retention (`retention`).

use std::collections::BTreeSet;

use plait_core::Result;
use plait_core::plan::VersionBy;
use plait_core::policy::{File, Group, Keep, Policy, choose, is_oldest};
use serde::{Deserialize, Serialize};

use super::options::SurveyOptions;
use crate::drops::Expiry;
use crate::options::OnDuplicateOption;
use crate::runtime::Context;
use crate::store::Stores;

/// A group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SurveyedGroup {
    /// Places in `files`.
    pub(crate) files: Vec<usize>,
    /// The most of them that share one key.
    pub(crate) depth_max: usize,
    /// Whether rows that delete must stay: there may be others to delete, in other files.
    pub(crate) keep_tombstones: bool,
    /// Why these files.
    pub(crate) why: Why,
}

/// Why files are a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    /// The policy wants them merged.
    Policy,
    /// One file with rows past their retention, and others.
    Expired,
    /// All rows of all of them are past their retention: nothing is to be made of them.
    AllExpired,
}

/// How files of a scope are chosen, and which other files of their folder there are.
pub(super) struct Chooser<'a> {
    /// The policy.
    pub(super) policy: &'a Policy,
    /// How files are chosen.
    pub(super) options: &'a SurveyOptions,
    /// Ages of the other files.
    pub(super) strangers: &'a [u64],
}

impl Chooser<'_> {
    /// Groups of `files` that the policy wants merged.
    pub(super) fn groups(&self, files: &[File]) -> Vec<SurveyedGroup> {
        // Where all rows stay, only the order of rows with equal keys is at stake.
        let keep = match self.options.on_duplicate {
            OnDuplicateOption::KeepAll | OnDuplicateOption::Error => Keep::Nothing,
            OnDuplicateOption::KeepFirst
            | OnDuplicateOption::KeepLast
            | OnDuplicateOption::Update
            | OnDuplicateOption::Aggregate => Keep::Ages(self.strangers),
        };
        let group = |group: Group| SurveyedGroup {
            keep_tombstones: self.options.deletes && !self.is_last_word(files, &group.files),
            files: group.files,
            depth_max: group.depth_max,
            why: Why::Policy,
        };
        choose(files, self.policy, keep).into_iter().map(group).collect()
    }

    /// Groups of files that no other group has and that have rows past their retention.
    pub(super) fn expired(
        &self,
        files: &[File],
        chosen: &[SurveyedGroup],
        all: &[Expiry],
    ) -> Vec<SurveyedGroup> {
        let taken: BTreeSet<usize> =
            chosen.iter().flat_map(|group| &group.files).copied().collect();
        let of = |wanted: Expiry| {
            let places = all.iter().enumerate().filter(move |(_, expiry)| **expiry == wanted);
            places.map(|(i, _)| i).filter(|i| !taken.contains(i)).collect::<Vec<usize>>()
        };
        let group = |files: Vec<usize>, keep_tombstones, why| SurveyedGroup {
            files,
            depth_max: 1,
            keep_tombstones,
            why,
        };
        let whole = of(Expiry::All);
        let whole = (!whole.is_empty()).then(|| group(whole, false, Why::AllExpired));
        let again = of(Expiry::Some).into_iter().map(|i| {
            let keeps = self.options.deletes && !self.is_last_word(files, &[i]);
            group(vec![i], keeps, Why::Expired)
        });
        whole.into_iter().chain(again).collect()
    }

    /// Whether a row that deletes has nothing left to delete outside of the group.
    fn is_last_word(&self, files: &[File], members: &[usize]) -> bool {
        // Where rows are combined, the order of rows says what a row deletes.
        let of_any_age = matches!(self.options.version_by, Some(VersionBy::Row(_)));
        // Where the first stays, a row that deletes is there for whatever comes.
        self.options.on_duplicate != OnDuplicateOption::KeepFirst
            && is_oldest(files, self.strangers, members, of_any_age)
    }
}

/// What a policy is asked about files that need not exist.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ChooseOptions {
    /// The policy; its folder is not looked at.
    pub(crate) policy: SurveyOptions,
    /// First and last key, bytes, level, task, age of each.
    pub(crate) files: Vec<(u64, u64, u64, u64, String, f64)>,
    /// Places of those that are not sorted.
    pub(crate) unsorted: BTreeSet<usize>,
}

/// Chooses among files of one scope by numbers alone: for simulations.
///
/// # Errors
/// None.
pub(crate) fn choose_in(
    options: &ChooseOptions,
    _stores: &Stores,
    _context: &Context,
) -> Result<Vec<Vec<usize>>> {
    let file =
        |(first, last, bytes, level, task, age_s): &(u64, u64, u64, u64, String, f64)| File {
            first: first.to_be_bytes().to_vec(),
            last: last.to_be_bytes().to_vec(),
            bytes: *bytes,
            level: *level,
            task: task.clone(),
            age_s: *age_s,
            ..File::default()
        };
    let mut files: Vec<File> = options.files.iter().map(file).collect();
    for (i, file) in files.iter_mut().enumerate() {
        file.is_unsorted = options.unsorted.contains(&i);
    }
    let groups = choose(&files, &options.policy.policy(), Keep::Nothing);
    Ok(groups.into_iter().map(|group| group.files).collect())
}
