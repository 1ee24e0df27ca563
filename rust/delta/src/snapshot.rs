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
//! which a tag keeps for those who read a checkpoint. Of several such files each has a rank of its own,
//! so that one of them can be merged with older files and stays older than the others. Places that
//! nobody knows come first.
//!
//! # Cost
//! A lookup among the live files an action.
//!
//! # Not here
//! Which files of the log to read (`load`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::action::{Action, Add, Metadata, Protocol, Remove, Txn, Vector};
use crate::name::decoded;
use crate::packed::{PackedAdd, Shared};

/// Between the name of a file and its vector: no name has such a character.
const VECTOR: char = '\0';

/// The tag that has the place of a file.
pub(crate) const PLACE: &str = "plait.place";

/// How new the rows of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) version: u64,
    /// Among the files of the version.
    pub(crate) position: u64,
    /// Among the files that have replaced that file; of the file itself the greatest.
    pub(crate) rank: u64,
}

impl Place {
    /// The place of a file that replaces none.
    pub(crate) fn new(version: u64, position: u64) -> Self {
        Self { version, position, rank: u64::MAX }
    }

    /// As a tag has it.
    pub(crate) fn text(self) -> String {
        let Self { version, position, rank } = self;
        match rank {
            u64::MAX => format!("{version}:{position}"),
            _ => format!("{version}:{position}:{rank}"),
        }
    }

    fn of(text: &str) -> Option<Self> {
        let mut numbers = text.split(':').map(|number| number.parse().ok());
        let (version, position) = (numbers.next()??, numbers.next()??);
        let rank = numbers.next().unwrap_or(Some(u64::MAX))?;
        numbers.next().is_none().then_some(Self { version, position, rank })
    }

    /// The place of file `at` of `count` that replace the one that stands here; `before` is the rank of
    /// the next older one of this position. Where there is no room left they share the place.
    pub(crate) fn part(self, at: u64, count: u64, before: u64) -> Self {
        let step = (self.rank - before.min(self.rank)) / count.max(1);
        Self { rank: self.rank - step * (count - 1 - at.min(count - 1)), ..self }
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
    pub(crate) add: PackedAdd,
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
    pub(crate) files: BTreeMap<Arc<str>, Box<Live>>,
    pub(crate) removed: BTreeMap<String, Remove>,
    pub(crate) txns: BTreeMap<String, Txn>,
    shared: Shared,
}

impl Snapshot {
    /// What a checkpoint of `version` says, of which nothing was read yet.
    pub(crate) fn of_checkpoint(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    /// Takes actions of the checkpoint.
    pub(crate) fn absorb(&mut self, actions: impl IntoIterator<Item = Action>) {
        for action in actions {
            if let Some(mut add) = action.add {
                let place = Place::take(&mut add);
                self.insert(add, place);
            }
            self.apply_common(action.protocol, action.meta_data, action.txn);
            if let Some(remove) = action.remove {
                self.removed.insert(removed_key(&remove), remove);
            }
        }
    }

    fn insert(&mut self, add: Add, place: Option<Place>) {
        let key: Arc<str> = key(&add).into();
        let add = PackedAdd::new(add, &key, &mut self.shared);
        // The nodes of the map are half full: what is in them is small.
        self.files.insert(key, Box::new(Live { add, place }));
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
                let place = self.files.remove(&*key).and_then(|live| live.place);
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
                None => Some(Place::new(version, position)),
            };
            let place = Place::take(&mut add).or(otherwise);
            self.removed.remove(&key(&add));
            self.insert(add, place);
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

    /// The live files of one name: one, unless a writer breaks the protocol.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &Live> {
        let with_vector = format!("{name}{VECTOR}");
        let alone = self.files.get(name);
        let from = (Bound::Included(with_vector.as_str()), Bound::Unbounded);
        let with = self.files.range::<str, _>(from);
        let with = with.take_while(move |(key, _)| key.starts_with(&with_vector));
        alone.into_iter().chain(with.map(|(_, live)| live)).map(AsRef::as_ref)
    }

    /// The live files, from the oldest rows to the newest.
    pub(crate) fn by_place(&self) -> Vec<&Live> {
        let mut files: Vec<&Live> = self.files.values().map(AsRef::as_ref).collect();
        files.sort_by_key(|live| (live.place, live.add.modification_time));
        files
    }
}

/// What tells live files apart.
pub(crate) fn id(name: &str, vector: Option<&Vector>) -> String {
    match vector {
        None => name.to_owned(),
        Some(vector) => format!("{name}{VECTOR}{}", vector.id()),
    }
}

fn key(add: &Add) -> String {
    id(&decoded(&add.path), add.deletion_vector.as_ref())
}

fn removed_key(remove: &Remove) -> String {
    id(&decoded(&remove.path), remove.deletion_vector.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        table.by_place().iter().map(|live| &*live.add.path).collect()
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
        let mut again = Snapshot::of_checkpoint(6);
        again.absorb([add("x"), tagged]);
        assert_eq!(order(&again), ["x", "first"], "what is not known comes first");
    }

    #[test]
    fn files_that_replace_one_have_places_of_their_own() {
        let all = Place::new(3, 7);
        let parts = [0, 1, 2].map(|at| all.part(at, 3, 0));
        assert!(parts[0] < parts[1] && parts[1] < parts[2] && parts[2] == all);
        assert!(Place::new(3, 6) < parts[0]);
        // What is made of the second one and of older files stands before the third one.
        let again = [0, 1].map(|at| parts[1].part(at, 2, parts[0].rank));
        assert!(parts[0] < again[0] && again[0] < again[1] && again[1] == parts[1]);
        for place in [all, parts[0], again[0]] {
            assert_eq!(Place::of(&place.text()), Some(place));
        }
        assert_eq!(all.text(), "3:7", "older versions read it");
        // There is room for two, and there is none.
        let close = Place { rank: 5, ..all };
        assert_eq!([0, 1, 2].map(|at| close.part(at, 3, 2).rank), [3, 4, 5]);
        assert_eq!([0, 1].map(|at| close.part(at, 2, 4).rank), [5, 5]);
        assert_eq!(Place::of("3:7:x"), None);
    }

    #[test]
    fn a_live_file_takes_few_bytes() {
        // With its name, its statistics and the map: half of a kilobyte.
        assert!(size_of::<Live>() <= 120, "{}", size_of::<Live>());
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
        assert_eq!(table.named("a b").count(), 1);
        assert_eq!(table.named("a").count(), 0);
        assert_eq!(table.files.len(), 1);
        let place = table.files.values().next().unwrap().place;
        assert_eq!(place, Some(Place::new(0, 0)), "its rows are no newer");
    }
}
