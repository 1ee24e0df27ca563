//! What a table is at one version: the actions up to it, replayed.
//!
//! ```text
//! version 3   add a              place of a   3:0
//! version 4   add b, add c                b   4:0    c  4:1
//! version 5   remove a, c; add d          d   4:1    a rewrite: as new as what it replaces
//! ```
//!
//! # Invariants
//! The place of a file says how new its rows are: the version that added them, then the position in
//! the commit. A file that replaces others without a change of rows has the last of their places,
//! which a tag keeps for those who read a checkpoint. Places that nobody knows come first.
//!
//! # Cost
//! A lookup among the live files an action.
//!
//! # Not here
//! Which files of the log to read (`load`).

use std::collections::BTreeMap;

use crate::action::{Action, Add, Metadata, Protocol, Remove, Txn};
use crate::name::decoded;

/// The tag that has the place of a file.
pub(crate) const PLACE: &str = "plait.place";

/// How new the rows of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) version: u64,
    /// Among the files of the version.
    pub(crate) position: u64,
}

impl Place {
    /// As a tag has it.
    pub(crate) fn text(self) -> String {
        format!("{}:{}", self.version, self.position)
    }

    fn of(text: &str) -> Option<Self> {
        let (version, position) = text.split_once(':')?;
        Some(Self { version: version.parse().ok()?, position: position.parse().ok()? })
    }

    /// The one that a tag of a file has. The tag is taken away: a map takes more than a place.
    fn take(add: &mut Add) -> Option<Self> {
        let tags = add.tags.as_mut()?;
        let tag = tags.remove(PLACE).flatten();
        if tags.is_empty() {
            add.tags = None;
        }
        Self::of(&tag?)
    }
}

/// A live file.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) add: Add,
    /// None where a checkpoint does not tell.
    pub(crate) place: Option<Place>,
}

/// A table at one version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) protocol: Protocol,
    pub(crate) metadata: Metadata,
    /// By name; with a deletion vector by name and vector.
    pub(crate) files: BTreeMap<String, Live>,
    pub(crate) removed: BTreeMap<String, Remove>,
    pub(crate) txns: BTreeMap<String, Txn>,
}

impl Snapshot {
    /// What a checkpoint of `version` says.
    pub(crate) fn of_checkpoint(version: u64, actions: impl IntoIterator<Item = Action>) -> Self {
        let mut made = Self { version, ..Self::default() };
        for action in actions {
            if let Some(mut add) = action.add {
                let place = Place::take(&mut add);
                made.files.insert(key(&add), Live { add, place });
            }
            made.apply_common(action.protocol, action.meta_data, action.txn);
            if let Some(remove) = action.remove {
                made.removed.insert(removed_key(&remove), remove);
            }
        }
        made
    }

    /// Goes on to the next version.
    pub(crate) fn apply(&mut self, version: u64, actions: Vec<Action>) {
        self.version = version;
        let mut adds = Vec::new();
        let (mut removes, mut replaced) = (0, None);
        let mut places: BTreeMap<String, Option<Place>> = BTreeMap::new();
        for action in actions {
            self.apply_common(action.protocol, action.meta_data, action.txn);
            if let Some(remove) = action.remove {
                let key = removed_key(&remove);
                let place = self.files.remove(&key).and_then(|live| live.place);
                replaced = Option::max(replaced, place);
                places.insert(decoded(&remove.path), place);
                removes += 1;
                self.removed.insert(key, remove);
            }
            adds.extend(action.add);
        }
        for (position, mut add) in (0..).zip(adds) {
            let is_rewrite = removes > 0 && !add.data_change;
            let otherwise = match places.get(&decoded(&add.path)) {
                // The same rows, of which some are deleted now: they are as new as before.
                Some(place) => *place,
                None if is_rewrite => replaced,
                None => Some(Place { version, position }),
            };
            let place = Place::take(&mut add).or(otherwise);
            let key = key(&add);
            self.removed.remove(&key);
            self.files.insert(key, Live { add, place });
        }
    }

    fn apply_common(
        &mut self,
        protocol: Option<Protocol>,
        metadata: Option<Metadata>,
        txn: Option<Txn>,
    ) {
        if let Some(protocol) = protocol {
            self.protocol = protocol;
        }
        if let Some(metadata) = metadata {
            self.metadata = metadata;
        }
        if let Some(txn) = txn {
            self.txns.insert(txn.app_id.clone(), txn);
        }
    }

    /// A property of the table.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.metadata.configuration.get(name)?.as_deref()
    }

    /// Whether a file of this id is live: with the same rows as when the id was listed.
    pub(crate) fn is_live(&self, id: &str) -> bool {
        self.files.contains_key(id)
    }

    /// The live files, from the oldest rows to the newest.
    pub(crate) fn by_place(&self) -> Vec<&Live> {
        let mut files: Vec<&Live> = self.files.values().collect();
        files.sort_by_key(|live| (live.place, live.add.modification_time));
        files
    }
}

/// What tells live files apart.
pub(crate) fn key(add: &Add) -> String {
    let name = decoded(&add.path);
    match &add.deletion_vector {
        None => name,
        // No name of a file has such a character.
        Some(vector) => format!("{name}\0{}", vector.id()),
    }
}

fn removed_key(remove: &Remove) -> String {
    let name = decoded(&remove.path);
    match &remove.deletion_vector {
        None => name,
        Some(vector) => format!("{name}\0{}", vector.id()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Vector;

    fn add(path: &str) -> Action {
        let add = Add { path: path.to_owned(), data_change: true, ..Add::default() };
        Action { add: Some(add), ..Action::default() }
    }

    fn remove(path: &str) -> Action {
        let remove = Remove { path: path.to_owned(), ..Remove::default() };
        Action { remove: Some(remove), ..Action::default() }
    }

    fn rewritten(path: &str) -> Action {
        let add = Add { path: path.to_owned(), ..Add::default() };
        Action { add: Some(add), ..Action::default() }
    }

    fn order(table: &Snapshot) -> Vec<&str> {
        table.by_place().iter().map(|live| live.add.path.as_str()).collect()
    }

    #[test]
    fn a_rewrite_is_as_new_as_what_it_replaces_and_the_tag_wins() {
        let mut table = Snapshot::default();
        table.apply(3, vec![add("z")]);
        table.apply(4, vec![add("b"), add("a")]);
        assert_eq!(order(&table), ["z", "b", "a"]);
        table.apply(5, vec![remove("z"), remove("b"), rewritten("m")]);
        assert_eq!(order(&table), ["m", "a"]);
        let mut tagged = rewritten("first");
        let tags = [(PLACE.to_owned(), Some("1:7".to_owned()))];
        tagged.add.as_mut().unwrap().tags = Some(tags.into_iter().collect());
        table.apply(6, vec![tagged.clone()]);
        assert_eq!(order(&table), ["first", "m", "a"]);
        let again = Snapshot::of_checkpoint(6, [add("x"), tagged]);
        assert_eq!(order(&again), ["x", "first"], "what is not known comes first");
    }

    #[test]
    fn a_file_with_a_vector_is_another_than_the_file_without() {
        let mut table = Snapshot::default();
        table.apply(0, vec![add("a%20b")]);
        assert!(table.is_live("a b"));
        let mut with = add("a%20b");
        with.add.as_mut().unwrap().deletion_vector = Some(Vector::default());
        table.apply(1, vec![remove("a%20b"), with]);
        assert!(!table.is_live("a b"));
        assert_eq!(table.files.len(), 1);
        let place = table.files.values().next().unwrap().place;
        assert_eq!(place, Some(Place { version: 0, position: 0 }), "its rows are no newer");
    }
}
