//! Groups that leave the order of age as it is: of rows with one key, the youngest stays the youngest.
//!
//! ```text
//! age    a ├────┤            what is made of a and c stands where c stood: of keys that a shares
//!        b   ├────┤          with b, the rows of a would become younger than those of b
//!        c ├──────┤
//! split  [a] [c]   close  [a b c]
//! ```
//!
//! # Invariants
//! Files come by age, the oldest first. Between two members of a group there is no other file that
//! shares keys with an older member. Of strangers no keys are known: none is between two members.
//!
//! # Cost
//! O(n) a group.
//!
//! # Not here
//! Which rows stay (`plan::duplicates`); what is a stranger (`plait_parquet::compact`).

use super::file::{File, is_compacted};

/// What a merge must leave as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep<'a> {
    /// Rows with equal keys all stay, whatever their order.
    Nothing,
    /// The order of age; these are the ages of files that may hold the same keys and are not among
    /// those to choose from, ascending.
    Ages(&'a [u64]),
}

/// The keys from the least first to the greatest last of some files.
#[derive(Default)]
struct Hull<'a>(Option<(&'a [u8], &'a [u8])>);

impl<'a> Hull<'a> {
    fn of(files: &'a [File], members: &[usize]) -> Self {
        let mut hull = Self::default();
        members.iter().filter_map(|i| files.get(*i)).for_each(|file| hull.add(file));
        hull
    }

    fn add(&mut self, file: &'a File) {
        if !file.is_empty {
            let (first, last) = self.0.unwrap_or((&file.first, &file.last));
            self.0 = Some((first.min(&file.first), last.max(&file.last)));
        }
    }

    fn shares(&self, file: &File) -> bool {
        let Some((first, last)) = self.0 else { return false };
        !file.is_empty && file.first.as_slice() <= last && file.last.as_slice() >= first
    }
}

fn is_stranger_between(strangers: &[u64], a: &File, b: &File) -> bool {
    let at = strangers.partition_point(|age| *age <= a.age);
    strangers.get(at).is_some_and(|age| *age < b.age)
}

/// Cuts `members` wherever going on would move an older file past another.
pub(super) fn split(files: &[File], strangers: &[u64], members: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut hull = Hull::default();
    for member in members {
        let Some(file) = files.get(*member) else { continue };
        let last = groups.last_mut().and_then(|group| Some((*group.last()?, group)));
        match last {
            Some((before, group))
                if !is_stranger_between(strangers, &files[before], file)
                    && !files[before + 1..*member].iter().any(|other| hull.shares(other)) =>
            {
                group.push(*member);
            }
            _ => {
                groups.push(vec![*member]);
                hull = Hull::default();
            }
        }
        hull.add(file);
    }
    groups
}

/// Adds to `members` what is between them and shares keys with older ones; cuts at strangers.
pub(super) fn close(files: &[File], strangers: &[u64], members: &[usize]) -> Vec<Vec<usize>> {
    let (Some(first), Some(last)) = (members.first(), members.last()) else { return Vec::new() };
    let mut all = Vec::new();
    let mut hull = Hull::default();
    for (i, file) in files.iter().enumerate().take(last + 1).skip(*first) {
        if members.binary_search(&i).is_ok() || hull.shares(file) {
            all.push(i);
            hull.add(file);
        }
    }
    let cut = split(files, strangers, &all);
    cut.into_iter().filter(|group| !is_compacted(files, group)).collect()
}

/// Whether no other file may hold a row of these keys that is older than `members`, or, if
/// `of_any_age`, any row of them.
///
/// ```
/// use plait_core::policy::{File, is_oldest};
/// let file = |age, a, b| File { age, first: vec![a], last: vec![b], ..File::default() };
/// let files = [file(0, 0, 4), file(1, 2, 6), file(2, 5, 9)];
/// assert!(is_oldest(&files, &[], &[0, 1], false));
/// assert!(!is_oldest(&files, &[], &[0, 1], true));
/// assert!(!is_oldest(&files, &[], &[1, 2], false));
/// assert!(!is_oldest(&files[1..], &[0], &[0, 1], false));
/// ```
#[must_use]
pub fn is_oldest(files: &[File], strangers: &[u64], members: &[usize], of_any_age: bool) -> bool {
    let hull = Hull::of(files, members);
    let youngest = members.iter().filter_map(|i| files.get(*i)).map(|file| file.age).max();
    let may_be_older = |age: u64| of_any_age || youngest.is_none_or(|youngest| age < youngest);
    let is_other = |i: &usize| members.binary_search(i).is_err();
    let mut others = files.iter().enumerate().filter(|(i, _)| is_other(i));
    !strangers.first().is_some_and(|age| may_be_older(*age))
        && !others.any(|(_, file)| may_be_older(file.age) && hull.shares(file))
}

#[cfg(test)]
mod tests {
    use super::super::{Policy, SizeTiered, choose};
    use super::*;
    use proptest::prelude::*;

    fn file((age, (first, len), level): (u64, (u8, u8), u64)) -> File {
        let last = vec![first + len];
        File { age, first: vec![first], last, level, is_empty: len == 9, ..File::default() }
    }

    /// Whether some file outside would come to lie on the other side of an older member.
    fn moves_past(files: &[File], strangers: &[u64], group: &[usize]) -> bool {
        let youngest = files[*group.last().unwrap()].age;
        group.iter().any(|i| {
            let old = &files[*i];
            let is_between = |age: u64| old.age < age && age < youngest;
            strangers.iter().any(|age| is_between(*age))
                || files.iter().enumerate().any(|(j, f)| {
                    let shares = f.first <= old.last && old.first <= f.last;
                    !group.contains(&j)
                        && is_between(f.age)
                        && shares
                        && !f.is_empty
                        && !old.is_empty
                })
        })
    }

    proptest! {
        #[test]
        fn no_group_moves_a_row_past_another_of_its_key(
            made in prop::collection::vec((0u8..60, 0u8..10, 0u64..3, any::<bool>()), 0..24),
            which in 0..4usize, max_depth in 1usize..3,
        ) {
            let numbered = made.iter().enumerate();
            let strangers: Vec<u64> = numbered.clone()
                .filter(|(_, m)| m.3 && m.0 % 7 == 0).map(|(i, _)| i as u64).collect();
            let files: Vec<File> = numbered
                .filter(|(i, _)| !strangers.contains(&(*i as u64)))
                .map(|(i, m)| file((i as u64, (m.0, m.1), m.2))).collect();
            let tiered = SizeTiered {
                merge_factor: 2, merge_factor_max: 3, mature_bytes: u64::MAX, mature_level: 2,
                mature_age_s: f64::INFINITY, finalize: which == 3,
            };
            let policy = match which {
                0 => Policy::Full,
                1 => Policy::Overlap { max_depth },
                _ => Policy::SizeTiered(tiered),
            };
            let groups = choose(&files, &policy, Keep::Ages(&strangers));
            let mut seen: Vec<usize> = groups.iter().flat_map(|g| g.files.clone()).collect();
            seen.sort_unstable();
            prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", seen);
            for group in groups {
                prop_assert!(group.files.len() > 1 && group.files.is_sorted());
                prop_assert!(!moves_past(&files, &strangers, &group.files), "{:?}", group);
            }
        }
    }
}
