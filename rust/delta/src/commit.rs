//! Commits a change of a table: one file of the log, put where there is none.
//!
//! ```text
//! newest version n ─▶ known batch? ─▶ present
//!        ▲            a removed file gone, another schema? ─▶ conflicted
//!        │            otherwise put n + 1 ─▶ committed ─▶ every tenth: checkpoint
//!        └─────────────────┘ taken
//! ```
//!
//! # Invariants
//! Of two changes that remove one file, one counts; changes that only add never conflict. The same
//! batch of an application counts once, and so does a change whose files are live already. An answer
//! that is lost is asked for again: no two writers write the same bytes, as each has a token.
//!
//! # Cost
//! A request a commit of others, one to put, one to look for each file that is added.
//!
//! # Not here
//! Where files come from; their statistics.

use std::collections::{BTreeMap, BTreeSet};

use plait_core::{Error, Kind, Result};
use plait_parquet::{from_json, to_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::action::{Action, Add, Metadata, Protocol, Remove, Txn, lines};
use crate::added::Added;
use crate::checkpoint;
use crate::load::{find_places, no_table};
use crate::log::{Log, now_ms, texts};
use crate::mapping::stored_partitions;
use crate::name;
use crate::new_vector::NewVectors;
use crate::protocol::{Intent, check, check_vectors};
use crate::schema::protocol_of;
use crate::snapshot::{PLACE, Place, Snapshot};

/// Commits between two checkpoints unless the table says otherwise.
const INTERVAL: u64 = 10;

/// A change of a table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ChangeOptions {
    /// What is done to the rows.
    intent: Intent,
    /// What the history says.
    operation: String,
    parameters: Map<String, Value>,
    metrics: Map<String, Value>,
    /// More of it.
    info: Map<String, Value>,
    /// Nobody else has it.
    token: String,
    /// Files that are live from now on.
    add: Vec<Added>,
    /// Names of files that are live no more; all of them must be live now.
    remove: Vec<String>,
    /// Whether removed files are logged as changed data, and added ones.
    removes_data: bool,
    adds_data: bool,
    /// The batch that the rows are.
    txn: Option<Batch>,
    /// The schema that the rows were written for: another one is a conflict.
    schema: Option<String>,
    /// A table to make if there is none.
    create: Option<Create>,
    /// The version that the change is made for: another one is a conflict.
    only_at: Option<u64>,
}

/// A batch of an application.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    app: String,
    number: i64,
}

/// A table to make.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Create {
    id: String,
    schema: String,
    partition_columns: Vec<String>,
    properties: BTreeMap<String, String>,
}

/// How a commit ended.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Ended {
    /// It counts now.
    Committed { version: u64 },
    /// It counted before.
    Present { version: u64 },
    /// It never will count.
    Conflicted { version: u64, why: String },
}

impl Log {
    /// Commits a change in one step, if it can count.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a table, or a store, that takes no such change,
    /// [`Kind::SourceNotFound`] without a table, [`Kind::SourceChanged`] for an added file that is
    /// not there, [`Kind::Storage`].
    pub fn commit(&mut self, options: &str) -> Result<String> {
        let change: ChangeOptions = from_json(options)?;
        let vectors = change.add.iter().map(|added| added.deleted.as_ref());
        let vectors = NewVectors::make(vectors, &change.token)?;
        let ended = self.commit_with(&change, &vectors);
        let counts = matches!(&ended, Ok(Ended::Committed { .. } | Ended::Present { .. }));
        if let Some(file) = vectors.file.filter(|_| !counts) {
            // No version names it.
            let _ = self.folder.remove(&[file.name.as_str()]);
        }
        to_json(&ended?)
    }

    fn commit_with(&mut self, change: &ChangeOptions, vectors: &NewVectors) -> Result<Ended> {
        let mut are_files_there = false;
        loop {
            self.context.check_cancelled()?;
            let root = self.root.clone();
            let now_ms = now_ms();
            // One snapshot: what was checked is what the next version is made of.
            let (version, actions) = match self.newest()? {
                None if change.create.is_none() => return Err(no_table(&root)),
                None => (0, actions(change, vectors, &Snapshot::default(), 0, now_ms)),
                Some((folder, snapshot)) => {
                    check(&snapshot.protocol, &snapshot.metadata, change.intent, &root)?;
                    if vectors.vectors.iter().any(Option::is_some) {
                        check_vectors(&snapshot.protocol, &root)?;
                    }
                    if let Some(ended) = ended(change, snapshot) {
                        return Ok(ended);
                    }
                    let mut replaced = change.add.iter().flat_map(|added| &added.instead_of);
                    if replaced.any(|name| {
                        snapshot.files.get(name.as_str()).is_some_and(|f| f.place.is_none())
                    }) {
                        find_places(folder, snapshot)?;
                    }
                    let version = snapshot.version + 1;
                    (version, actions(change, vectors, snapshot, version, now_ms))
                }
            };
            // Not before: files of a batch that was committed may be gone since.
            if !are_files_there {
                self.check_added(change)?;
                if let Some(file) = &vectors.file {
                    self.folder.put_new(&file.name, &file.bytes)?;
                }
                are_files_there = true;
            }
            if !self.folder.put_new(&name::commit(version), &lines(&actions)?)? {
                continue;
            }
            if let Some((folder, snapshot)) = self.newest()? {
                let every = snapshot.setting("delta.checkpointInterval");
                let every = every.and_then(|text| text.parse().ok()).unwrap_or(INTERVAL).max(1);
                let features = snapshot.protocol.writer_features.iter().flatten();
                let is_classic = !features.into_iter().any(|f| f == "v2Checkpoint");
                let is_due = version > 0 && version % every == 0;
                if is_due && is_classic && snapshot.version == version {
                    // The commit counts without it, and the next one is not far away.
                    let _ = checkpoint::write(snapshot, now_ms, folder);
                }
            }
            return Ok(Ended::Committed { version });
        }
    }
}

impl Log {
    /// Checks that added files are there.
    fn check_added(&self, change: &ChangeOptions) -> Result<()> {
        let names: Vec<&str> = change.add.iter().map(|added| added.name.as_str()).collect();
        for (added, found) in change.add.iter().zip(self.folder.look(&names)?) {
            if found.is_none() {
                let what = "a file was removed before it was committed, nothing was committed";
                return Err(Error::new(Kind::SourceChanged, what)
                    .with_path(self.folder.location(&added.name)?)
                    .with_hint("something else removes files of the table; do it again"));
            }
        }
        Ok(())
    }
}

/// How a change ends without a commit.
fn ended(change: &ChangeOptions, now: &Snapshot) -> Option<Ended> {
    let version = now.version;
    if let Some(batch) = &change.txn {
        let last = now.txns.get(&batch.app).map(|txn| txn.version);
        if last.is_some_and(|last| last >= batch.number) {
            return Some(Ended::Present { version });
        }
    }
    let is_done = |name: &String| !now.is_live(name);
    let is_there = |added: &Added| now.named(&added.name).next().is_some();
    let are_added = !change.add.is_empty() && change.add.iter().all(is_there);
    if are_added && change.remove.iter().all(is_done) {
        return Some(Ended::Present { version });
    }
    let conflicted = |why: String| Some(Ended::Conflicted { version, why });
    if change.only_at.is_some_and(|at| at != version) {
        return conflicted(format!("version {version} was committed"));
    }
    if let Some(gone) = change.remove.iter().find(|name| is_done(name)) {
        return conflicted(format!("`{gone}` is not live any more"));
    }
    if change.schema.as_ref().is_some_and(|schema| *schema != now.metadata.schema_string) {
        return conflicted("another schema was committed".to_owned());
    }
    if !change.add.iter().all(|added| is_partitioned_as(added, &now.metadata)) {
        return conflicted("other partition columns were committed".to_owned());
    }
    None
}

/// Whether a file has a value for each partition column of the table, and no more.
fn is_partitioned_as(added: &Added, table: &Metadata) -> bool {
    let columns = stored_partitions(table);
    added.partition.len() == columns.len()
        && columns.iter().all(|column| added.partition.contains_key(column))
}

/// The actions of a change as the next version of `now`.
fn actions(
    change: &ChangeOptions,
    vectors: &NewVectors,
    now: &Snapshot,
    version: u64,
    now_ms: i64,
) -> Vec<Action> {
    let mut made = vec![Action { commit_info: Some(info(change, now_ms)), ..Action::default() }];
    let is_new = now.metadata.id.is_empty();
    if let Some(create) = change.create.as_ref().filter(|_| is_new) {
        let protocol: Protocol = protocol_of(&create.schema);
        made.push(Action { protocol: Some(protocol), ..Action::default() });
        let metadata = Metadata {
            id: create.id.clone(),
            schema_string: create.schema.clone(),
            partition_columns: create.partition_columns.clone(),
            configuration: texts(&create.properties),
            created_time: Some(now_ms),
            ..Metadata::default()
        };
        made.push(Action { meta_data: Some(metadata), ..Action::default() });
    }
    if let Some(batch) = &change.txn {
        let txn =
            Txn { app_id: batch.app.clone(), version: batch.number, last_updated: Some(now_ms) };
        made.push(Action { txn: Some(txn), ..Action::default() });
    }
    for name in &change.remove {
        let live = now.files.get(name.as_str());
        let remove = Remove {
            path: live.map_or_else(|| name::encoded(name), |live| live.add.path.to_string()),
            deletion_timestamp: Some(now_ms),
            data_change: change.removes_data,
            extended_file_metadata: Some(true),
            partition_values: live.map(|live| (*live.add.partition_values).clone()),
            size: live.map(|live| live.add.size),
            deletion_vector: live.and_then(|live| live.add.vector().cloned()),
        };
        made.push(Action { remove: Some(remove), ..Action::default() });
    }
    let places = places(change, now);
    for (position, added) in (0..).zip(&change.add) {
        let known = usize::try_from(position).ok().and_then(|at| places.get(at).copied().flatten());
        let place = match known {
            Some(place) => Some(place),
            None if added.instead_of.is_empty() => Some(Place::new(version, position)),
            // As old as what it replaces, of which nobody knows how old it is.
            None => Some(Place::new(0, 0)),
        };
        let vector = usize::try_from(position).ok().and_then(|at| vectors.vectors.get(at));
        let deletion_vector = vector.cloned().flatten();
        let tags = place.map(|place| [(PLACE.to_owned(), Some(place.text()))].into());
        let add = Add {
            path: name::encoded(&added.name),
            partition_values: added.partition.clone(),
            size: added.bytes,
            modification_time: added.modified_ms,
            data_change: change.adds_data,
            stats: match &deletion_vector {
                Some(_) => added.stats.as_deref().map(wide),
                None => added.stats.clone(),
            },
            deletion_vector,
            tags,
            ..Add::default()
        };
        made.push(Action { add: Some(add), ..Action::default() });
    }
    made
}

/// The places of files that replace others: they stand where the last of these stood.
fn places(change: &ChangeOptions, now: &Snapshot) -> Vec<Option<Place>> {
    let of = |name: &String| now.files.get(name.as_str())?.place;
    let last = |added: &Added| added.instead_of.iter().filter_map(of).max();
    let lasts: Vec<Option<Place>> = change.add.iter().map(last).collect();
    let mut counts: BTreeMap<Place, (u64, u64)> = BTreeMap::new();
    lasts.iter().flatten().for_each(|place| counts.entry(*place).or_default().1 += 1);
    if counts.values().all(|(_, count)| *count <= 1) {
        return lasts;
    }
    let gone: BTreeSet<&str> = change.remove.iter().map(String::as_str).collect();
    let position = |place: &Place| (place.version, place.position);
    let positions: BTreeSet<(u64, u64)> = counts.keys().map(position).collect();
    let stays = now.files.iter().filter(|(name, _)| !gone.contains(&***name));
    let stays = stays.filter_map(|(_, live)| live.place);
    let stays: BTreeSet<Place> = stays.filter(|of| positions.contains(&position(of))).collect();
    let part = |place: Option<Place>| {
        let place = place?;
        let (done, count) = counts.get_mut(&place)?;
        let before = stays.range(..place).next_back();
        let before = before.filter(|other| position(other) == position(&place));
        let part = place.part(*done, *count, before.map_or(0, |other| other.rank));
        *done += 1;
        Some(part)
    };
    lasts.into_iter().map(part).collect()
}

/// Statistics of a file of which rows are deleted: the least and the greatest value may be of these.
fn wide(stats: &str) -> String {
    match serde_json::from_str::<Value>(stats) {
        Ok(mut said) if said.is_object() => {
            said["tightBounds"] = false.into();
            said.to_string()
        }
        _ => stats.to_owned(),
    }
}

fn info(change: &ChangeOptions, now_ms: i64) -> Map<String, Value> {
    let mut info = Map::new();
    info.insert("timestamp".to_owned(), now_ms.into());
    info.insert("operation".to_owned(), change.operation.clone().into());
    info.insert("operationParameters".to_owned(), change.parameters.clone().into());
    info.insert("operationMetrics".to_owned(), change.metrics.clone().into());
    let is_blind = change.remove.is_empty() && change.intent == Intent::Append;
    info.insert("isBlindAppend".to_owned(), is_blind.into());
    let engine = concat!("Plait/", env!("CARGO_PKG_VERSION"));
    info.insert("engineInfo".to_owned(), engine.into());
    info.insert("txnId".to_owned(), change.token.clone().into());
    info.extend(change.info.clone());
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(names: &[&str]) -> Snapshot {
        let mut table = Snapshot::default();
        let add = |name: &&str| {
            let add = Add { path: name::encoded(name), data_change: true, ..Add::default() };
            Action { add: Some(add), ..Action::default() }
        };
        table.apply(5, names.iter().map(add).collect());
        table
    }

    fn change(add: &[&str], remove: &[&str]) -> ChangeOptions {
        let added = |name: &&str| Added {
            name: (*name).to_owned(),
            instead_of: remove.iter().map(|n| (*n).to_owned()).collect(),
            ..Added::default()
        };
        ChangeOptions {
            add: add.iter().map(added).collect(),
            remove: remove.iter().map(|n| (*n).to_owned()).collect(),
            ..ChangeOptions::default()
        }
    }

    fn outcome(ended: Option<Ended>) -> &'static str {
        match ended {
            None => "commit",
            Some(Ended::Committed { .. }) => "committed",
            Some(Ended::Present { .. }) => "present",
            Some(Ended::Conflicted { .. }) => "conflicted",
        }
    }

    #[test]
    fn changes_conflict_only_where_they_remove_what_is_gone() {
        let now = live(&["a", "b c"]);
        assert_eq!(outcome(ended(&change(&["x"], &[]), &now)), "commit");
        assert_eq!(outcome(ended(&change(&["x"], &["a", "b c"]), &now)), "commit");
        assert_eq!(outcome(ended(&change(&["x"], &["a", "z"]), &now)), "conflicted");
        assert_eq!(outcome(ended(&change(&["a"], &["z"]), &now)), "present", "done before");
        let mut schema = change(&["x"], &[]);
        schema.schema = Some("{}".to_owned());
        assert_eq!(outcome(ended(&schema, &now)), "conflicted");
        let mut only = change(&["x"], &[]);
        only.only_at = Some(5);
        assert_eq!(outcome(ended(&only, &now)), "commit");
        only.only_at = Some(4);
        assert_eq!(outcome(ended(&only, &now)), "conflicted");
    }

    #[test]
    fn files_of_other_partition_columns_conflict() {
        let mut now = live(&["a"]);
        now.metadata.partition_columns = vec!["day".to_owned()];
        let mut added = change(&["x"], &[]);
        assert_eq!(outcome(ended(&added, &now)), "conflicted");
        added.add[0].partition.insert("day".to_owned(), None);
        assert_eq!(outcome(ended(&added, &now)), "commit");
        added.add[0].partition.insert("hour".to_owned(), Some("1".to_owned()));
        assert_eq!(outcome(ended(&added, &now)), "conflicted");
    }

    #[test]
    fn a_batch_counts_once() {
        let mut now = live(&[]);
        let txn = Txn { app_id: "app".to_owned(), version: 4, last_updated: None };
        now.txns.insert("app".to_owned(), txn);
        for (app, number, expected) in
            [("app", 4, "present"), ("app", 3, "present"), ("app", 5, "commit"), ("b", 1, "commit")]
        {
            let mut change = change(&["x"], &[]);
            change.txn = Some(Batch { app: app.to_owned(), number });
            assert_eq!(outcome(ended(&change, &now)), expected);
        }
    }

    #[test]
    fn what_replaces_files_is_as_new_as_the_newest_of_them() {
        let mut now = live(&["a", "b", "c"]);
        let none = NewVectors::default();
        let made = actions(&change(&["x"], &["a", "b"]), &none, &now, 6, 1);
        now.apply(6, made);
        let made = actions(&change(&["y"], &[]), &none, &now, 7, 1);
        now.apply(7, made);
        let order: Vec<_> = now.by_place().iter().map(|f| f.add.path.to_string()).collect();
        assert_eq!(order, ["x", "c", "y"]);
        assert_eq!(now.files["x"].place, Some(Place::new(5, 1)));
    }
}
