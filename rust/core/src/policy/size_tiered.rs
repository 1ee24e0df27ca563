//! Levels: every row is written once per level, and no more.
//!
//! ```text
//! level 0   ▪▪▪▪▪▪▪▪▪▪ ▪▪▪        ten of a level make one of the next;
//! level 1   ■■■                   the rest waits until there are ten
//! level 2   █            mature: large, of the last level, or old: never merged again
//! ```
//!
//! # Invariants
//! Only files of one level are merged, except when a scope is finalised. So a row is written at most
//! once a level, and once more then: `1 + mature_level` times at most.
//!
//! # Not here
//! Sizes of outputs (the merge).

use super::file::{File, is_compacted};
use super::neighbours::{Keep, split};

/// When files of a level are merged, and when no more.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeTiered {
    /// So many files of a level are merged into one of the next.
    pub merge_factor: usize,
    /// Up to so many, if they are there.
    pub merge_factor_max: usize,
    /// Files of this size are left alone.
    pub mature_bytes: u64,
    /// Files of this level are left alone.
    pub mature_level: u64,
    /// Files of this age are left alone.
    pub mature_age_s: f64,
    /// Merge what is not mature, however few there are and of whatever level: nothing more comes.
    pub finalize: bool,
}

impl SizeTiered {
    /// Whether `file` is left alone for good.
    #[must_use]
    pub(crate) fn is_mature(&self, file: &File) -> bool {
        file.bytes >= self.mature_bytes
            || file.level >= self.mature_level
            || file.age_s >= self.mature_age_s
    }
}

/// Groups of one level each, in the order given.
pub(super) fn tiers(files: &[File], how: &SizeTiered, keep: Keep<'_>) -> Vec<Vec<usize>> {
    let factor = how.merge_factor.max(2);
    let open = |i: &usize| files.get(*i).is_some_and(|file| !how.is_mature(file));
    let young: Vec<usize> = (0..files.len()).filter(open).collect();
    let runs = |members: Vec<usize>| match keep {
        Keep::Nothing => vec![members],
        Keep::Ages(strangers) => split(files, strangers, &members),
    };
    if how.finalize {
        return runs(young).into_iter().filter(|run| !is_compacted(files, run)).collect();
    }
    let mut levels: Vec<u64> = young.iter().map(|i| files[*i].level).collect();
    levels.sort_unstable();
    levels.dedup();
    let mut groups = Vec::new();
    for level in levels {
        let of = young.iter().copied().filter(|i| files[*i].level == level).collect();
        for run in runs(of) {
            let mut of: &[usize] = &run;
            while of.len() >= factor {
                let most = how.merge_factor_max.max(factor).min(of.len());
                let (group, rest) = of.split_at(most);
                groups.push(group.to_vec());
                of = rest;
            }
        }
    }
    groups
}
