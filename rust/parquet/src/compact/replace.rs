//! The manifest after files are replaced by others that have their rows.
//!
//! ```text
//! files     a  b  [x of c, d]  e       replace x, b by y ─▶  a  [y of b, c, d]  e
//! replaced  c  d                                             c  d  b  x
//! ```
//!
//! # Invariants
//! What is made stands where the last of the files stood that it replaces, also among files of one
//! place. Files that hold rows of one another, and those that they replace, have one group.
//!
//! # Not here
//! Whether files may be replaced, and putting the manifest (`commit`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::store::table::{Made, Manifest, Replaced, is_visible, place_order};

/// Files that count from now on, and those that they replace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Replacement {
    /// Where the new files are.
    pub(crate) add: Vec<String>,
    /// Files that count no more, by their path below the root.
    pub(crate) replace: Vec<Gone>,
}

/// A file that is to count no more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gone {
    /// Its path below the root.
    pub(crate) name: String,
    /// SHA-256 of its footer; empty if it is known by its name alone.
    #[serde(default)]
    pub(crate) footer: String,
    /// Its length, and what the storage says of its version: a file for which they differ was
    /// written under that name meanwhile.
    #[serde(default)]
    pub(crate) bytes: Option<u64>,
    #[serde(default)]
    pub(crate) version: Option<String>,
}

/// Makes changes, one after the other, of which each has a group of its own; their groups.
pub(super) fn replace(manifest: &mut Manifest, changes: &[Replacement], since: f64) -> Range<u64> {
    let made = manifest.files.iter().map(|made| made.group);
    let groups = made.chain(manifest.replaced.iter().map(|replaced| replaced.group));
    let last = groups.fold(manifest.number, u64::max);
    let first = last.saturating_add(1);
    for (change, group) in changes.iter().zip(first..) {
        replace_one(manifest, change, group, since);
    }
    first..first.saturating_add(changes.len() as u64)
}

/// Gives files of these groups the groups that they had `before`.
pub(super) fn regroup(manifest: &mut Manifest, before: &Manifest, groups: &Range<u64>) {
    let of_made = before.files.iter().map(|made| (made.path.as_str(), made.group));
    let of_replaced = before.replaced.iter().map(|of| (of.path.as_str(), of.group));
    let had: BTreeMap<&str, u64> = of_made.chain(of_replaced).collect();
    let made = manifest.files.iter_mut().map(|made| (made.path.as_str(), &mut made.group));
    let replaced = manifest.replaced.iter_mut().map(|of| (of.path.as_str(), &mut of.group));
    for (path, group) in made.chain(replaced).filter(|(_, group)| groups.contains(group)) {
        *group = had.get(path).copied().unwrap_or(*group);
    }
}

fn replace_one(manifest: &mut Manifest, change: &Replacement, group: u64, since: f64) {
    let Replacement { add, replace } = change;
    let places = replace.iter().map(|gone| manifest.place_of(&gone.name));
    let last = places.max_by(|a, b| place_order(a, b)).map(str::to_owned);
    let footers: BTreeMap<&String, &String> =
        replace.iter().map(|gone| (&gone.name, &gone.footer)).collect();
    // What holds rows of what is replaced holds them together with what is added.
    let joins = |made: &Made| footers.contains_key(&made.path) && !is_visible(&made.path);
    let joined: BTreeSet<u64> =
        manifest.files.iter().filter(|made| joins(made)).map(|made| made.group).collect();
    let made = manifest.files.iter_mut().map(|made| &mut made.group);
    let replaced = manifest.replaced.iter_mut().map(|replaced| &mut replaced.group);
    made.chain(replaced).filter(|old| joined.contains(old)).for_each(|old| *old = group);
    let gone = |path: &str, footer: &str| {
        let (path, footer) = (path.to_owned(), footer.to_owned());
        Replaced { path, since, footer, group }
    };
    // A file that is being moved may get its second name at any time.
    let moving = manifest.files.iter().filter_map(|made| {
        let footer = footers.get(&made.path)?;
        made.to.as_ref().map(|to| gone(to, footer))
    });
    let moving: Vec<Replaced> = moving.collect();
    // Files of one place stand in the order of the list: what is made, where the last of its sources
    // stood. Rows of older sources must not become newer than those of the files behind.
    let is_last =
        |made: &Made| footers.contains_key(&made.path) && Some(made.position()) == last.as_deref();
    let stood = manifest.files.iter().rposition(is_last);
    let at = stood.map_or(manifest.files.len(), |stood| {
        let before = manifest.files.iter().take(stood);
        before.filter(|made| !footers.contains_key(&made.path)).count()
    });
    manifest.files.retain(|made| !footers.contains_key(&made.path));
    let made = |name: &String| Made {
        path: name.clone(),
        place: last.clone().unwrap_or_else(|| name.clone()),
        to: None,
        group,
    };
    // A file counts once, however often it is added.
    let fresh: Vec<Made> = add.iter().filter(|name| !manifest.holds(name)).map(made).collect();
    let at = at.min(manifest.files.len());
    manifest.files.splice(at..at, fresh);
    manifest.replaced.extend(replace.iter().map(|of| gone(&of.name, &of.footer)));
    manifest.replaced.extend(moving);
}

/// Brings files to the order that they had `before`; others stay behind their neighbours.
pub(super) fn stand_as(before: &Manifest, files: &mut Vec<Made>) {
    let stood = before.files.iter().enumerate().map(|(rank, made)| (made.path.as_str(), rank));
    let stood: BTreeMap<&str, usize> = stood.collect();
    let mut last = 0;
    let mut ranked: Vec<(usize, Made)> = Vec::with_capacity(files.len());
    for made in files.drain(..) {
        last = stood.get(made.path.as_str()).copied().unwrap_or(last);
        ranked.push((last, made));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    files.extend(ranked.into_iter().map(|(_, made)| made));
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    fn change(add: &[&str], gone: &[&str]) -> Replacement {
        Replacement {
            add: add.iter().map(|name| (*name).to_owned()).collect(),
            replace: gone
                .iter()
                .map(|name| Gone {
                    name: (*name).to_owned(),
                    footer: String::new(),
                    bytes: None,
                    version: None,
                })
                .collect(),
        }
    }

    fn paths(manifest: &Manifest) -> Vec<&str> {
        manifest.files.iter().map(|made| made.path.trim_start_matches("_plait/files/")).collect()
    }

    #[test]
    fn what_is_made_stands_where_the_last_of_its_sources_stood() {
        let mut manifest = Manifest::none();
        replace(&mut manifest, &[change(&["_plait/files/x"], &["b", "a"])], 1.0);
        assert_eq!(manifest.place_of("_plait/files/x"), "b");
        replace(&mut manifest, &[change(&["_plait/files/y"], &["_plait/files/x", "a-"])], 2.0);
        assert_eq!(manifest.place_of("_plait/files/y"), "b");
        assert_eq!((manifest.files.len(), manifest.replaced.len()), (1, 4));
        assert!(manifest.replaced.iter().all(|replaced| replaced.group == manifest.files[0].group));
        manifest.files[0].to = Some("b.y".into());
        replace(&mut manifest, &[change(&["_plait/files/z"], &["_plait/files/y"])], 3.0);
        assert!(manifest.replaced.iter().any(|r| r.path == "b.y"), "it may still get that name");
        assert_eq!(place_order("a/z", "a-b/c"), Ordering::Less, "folders come whole");
    }

    #[test]
    fn what_is_made_of_one_of_several_files_of_a_place_stands_before_those_behind() {
        let mut manifest = Manifest::none();
        let made = ["_plait/files/p", "_plait/files/q", "_plait/files/r"];
        replace(&mut manifest, &[change(&made, &["c"])], 1.0);
        let before = manifest.clone();
        // The rows of `a` are older than those of `r`, also where they have the same keys.
        replace(&mut manifest, &[change(&["_plait/files/z"], &["a", "_plait/files/q"])], 2.0);
        assert_eq!(paths(&manifest), ["p", "z", "r"]);
        assert_eq!(manifest.place_of("_plait/files/z"), "c");
        manifest.files = [&before.files[2], &before.files[0]].into_iter().cloned().collect();
        stand_as(&before, &mut manifest.files);
        assert_eq!(paths(&manifest), ["p", "r"]);
    }

    #[test]
    fn files_get_back_the_groups_that_they_had() {
        let mut manifest = Manifest::none();
        replace(&mut manifest, &[change(&["_plait/files/x"], &["a"])], 1.0);
        replace(&mut manifest, &[change(&["_plait/files/y"], &["b"])], 1.0);
        let before = manifest.clone();
        let both = [
            change(&["_plait/files/v"], &["_plait/files/x"]),
            change(&["_plait/files/w"], &["_plait/files/y"]),
        ];
        let groups = replace(&mut manifest, &both, 2.0);
        assert!(manifest.replaced.iter().all(|of| groups.contains(&of.group)));
        regroup(&mut manifest, &before, &groups);
        let groups: Vec<u64> = manifest.replaced.iter().take(2).map(|of| of.group).collect();
        assert_eq!(groups, [before.replaced[0].group, before.replaced[1].group]);
    }

    #[test]
    fn changes_of_one_commit_have_places_and_groups_of_their_own() {
        let mut manifest = Manifest::none();
        let changes =
            [change(&["_plait/files/y"], &["c", "d"]), change(&["_plait/files/x"], &["a", "b"])];
        replace(&mut manifest, &changes, 1.0);
        let place = |name| manifest.place_of(name);
        assert_eq!((place("_plait/files/x"), place("_plait/files/y")), ("b", "d"));
        let groups = |manifest: &Manifest| {
            let made = manifest.files.iter().map(|made| (made.path.clone(), made.group));
            let gone = manifest.replaced.iter().map(|of| (of.path.clone(), of.group));
            made.chain(gone).collect::<BTreeMap<String, u64>>()
        };
        let of = groups(&manifest);
        assert_ne!(of["_plait/files/x"], of["_plait/files/y"]);
        assert_eq!([of["a"], of["b"]], [of["_plait/files/x"]; 2]);
        assert_eq!([of["c"], of["d"]], [of["_plait/files/y"]; 2]);
        // The next manifest has a number that the second change took for its group.
        manifest.number += 1;
        replace(&mut manifest, &[change(&["_plait/files/z"], &["e", "f"])], 2.0);
        let now = groups(&manifest);
        assert_eq!(of, now.clone().into_iter().filter(|(name, _)| of.contains_key(name)).collect());
        assert!(!of.values().any(|group| *group == now["e"]));
    }
}
