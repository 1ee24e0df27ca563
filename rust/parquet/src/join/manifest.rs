//! What a folder of state holds: JSON that is put where there is none, one number after the other.
//! A join has one, a side of a staged join another.
//!
//! # Invariants
//! The manifest with the greatest number counts. `docs/formats/join.md` lists its members.
//!
//! # Not here
//! The files (`folder`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Schema, SchemaRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plait_core::join::Clock;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::options::JoinOptions;

/// Version of the layout.
const VERSION: u32 = 1;

/// Whose state it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A join of both tables.
    Join,
    /// The left side of a staged join.
    Left,
    /// The right side.
    Right,
}

impl Owner {
    /// What the member `format` says.
    fn format(self) -> &'static str {
        match self {
            Self::Join => "plait.join",
            Self::Left => "plait.join.left",
            Self::Right => "plait.join.right",
        }
    }

    /// What its tables are called.
    pub(super) fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Join => &["left", "place", "right"],
            Self::Left => &["left", "place", "result", "result_left", "result_right"],
            Self::Right => &["right", "subscriber"],
        }
    }
}

/// What a join did since it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Counts {
    /// Steps that were applied.
    pub steps: u64,
    /// Left changes that came.
    pub left_changes: u64,
    /// Right changes that came.
    pub right_changes: u64,
    /// Changes that a later one of the same step replaced.
    pub folded: u64,
    /// Changes without a key.
    pub null_keys: u64,
    /// Changes that were older than the state.
    pub stale: u64,
    /// Times that runs were merged.
    pub merges: u64,
    /// Rows of those runs.
    pub rows_merged: u64,
}

/// A manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JoinManifest {
    pub(super) format: String,
    pub(super) version: u32,
    /// Its number.
    pub(super) number: u64,
    /// The last step.
    pub(super) step: Option<u64>,
    /// Options of the join.
    pub(super) options: JoinOptions,
    /// Columns of the changes: an Arrow IPC stream without batches, base64.
    pub(super) left_schema: String,
    /// The same of the right side.
    pub(super) right_schema: String,
    /// Runs before the last step, oldest first.
    pub(super) base: Files,
    /// Runs of the last step.
    pub(super) last: Files,
    pub(super) counts: Counts,
    /// What a side of a staged join remembers besides its tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) clock: Option<StoredClock>,
}

/// Files of each table, oldest first.
pub(super) type Files = BTreeMap<String, Vec<String>>;

/// See [`Clock`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredClock {
    epoch: i64,
    version: i64,
    rights: Vec<i64>,
}

impl From<&Clock> for StoredClock {
    fn from(clock: &Clock) -> Self {
        Self { epoch: clock.epoch, version: clock.version, rights: clock.rights.clone() }
    }
}

impl From<StoredClock> for Clock {
    fn from(stored: StoredClock) -> Self {
        let StoredClock { epoch, version, rights } = stored;
        Self { epoch, version, rights, chance: 0 }
    }
}

impl JoinManifest {
    /// One without a number and without files.
    pub(super) fn new(
        owner: Owner,
        options: &JoinOptions,
        [left, right]: [&Schema; 2],
    ) -> Result<Self> {
        Ok(Self {
            format: owner.format().to_owned(),
            version: VERSION,
            number: 0,
            step: None,
            // Where a state lies, by how many threads it is used and what is made of joined rows
            // are not part of it.
            options: JoinOptions {
                state: None,
                threads: None,
                has_joiner: false,
                ..options.clone()
            },
            left_schema: encode(left)?,
            right_schema: encode(right)?,
            base: Files::default(),
            last: Files::default(),
            counts: Counts::default(),
            clock: None,
        })
    }

    /// The names of all runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = &String> {
        self.base.values().chain(self.last.values()).flatten()
    }

    /// The name of manifest `number`.
    pub(super) fn name(number: u64) -> String {
        format!("manifest-{number:010}.json")
    }

    /// The number of the manifest with this name.
    pub(super) fn number_of(name: &str) -> Option<u64> {
        name.strip_prefix("manifest-")?.strip_suffix(".json")?.parse().ok()
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
            .map_err(|e| Error::new(Kind::Internal, "cannot write a manifest").with_cause(e))
    }

    pub(super) fn parse(text: &[u8], owner: Owner) -> Result<Self> {
        #[derive(Deserialize)]
        struct JoinHead {
            format: String,
            version: u32,
        }
        let damaged = |e: serde_json::Error| {
            Error::new(Kind::CorruptSource, "cannot read the manifest of a join").with_cause(e)
        };
        let head: JoinHead = serde_json::from_slice(text).map_err(damaged)?;
        if [Owner::Join, Owner::Left, Owner::Right]
            .iter()
            .any(|other| *other != owner && other.format() == head.format)
        {
            let what = "the state is not that of this kind of join, or of its other side";
            return Err(Error::new(Kind::InvalidArgument, what)
                .with_got(format!("`{}` instead of `{}`", head.format, owner.format()))
                .with_hint("open it with what wrote it"));
        }
        if head.format != owner.format() || head.version != VERSION {
            let what = "the state of the join is of another version";
            return Err(Error::new(Kind::Unsupported, what)
                .with_got(format!("`{}` version {}", head.format, head.version))
                .with_hint("use the version of Plait that wrote it, or a later one"));
        }
        serde_json::from_slice(text).map_err(damaged)
    }

    /// The columns of left and right changes.
    pub(super) fn schemas(&self) -> Result<[SchemaRef; 2]> {
        Ok([decode(&self.left_schema)?, decode(&self.right_schema)?])
    }

    /// Compares with what the caller wants to join.
    pub(super) fn check(&self, options: &JoinOptions) -> Result<()> {
        let of = |o: &JoinOptions| {
            [
                ("left_key", o.left_key.join(", ")),
                ("foreign_key", o.foreign_key.join(", ")),
                ("right_key", o.right_key.join(", ")),
                ("how", format!("{:?}", o.how).to_lowercase()),
            ]
        };
        for ((name, stored), (_, wanted)) in of(&self.options).into_iter().zip(of(options)) {
            if stored != wanted {
                let what = format!("the state is that of a join with another `{name}`");
                return Err(Error::new(Kind::InvalidArgument, what)
                    .with_got(format!("`{wanted}`, the state has `{stored}`"))
                    .with_hint(
                        "use the folder with the options it was made with, or an empty one",
                    ));
            }
        }
        Ok(())
    }
}

fn encode(schema: &Schema) -> Result<String> {
    let failed =
        |e| Error::new(Kind::Unsupported, "cannot store the columns of a join").with_cause(e);
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, schema).map_err(failed)?;
    writer.finish().map_err(failed)?;
    drop(writer);
    Ok(STANDARD.encode(bytes))
}

fn decode(text: &str) -> Result<SchemaRef> {
    let what = "the manifest of a join has columns that cannot be read";
    let bytes = STANDARD.decode(text);
    let bytes = bytes.map_err(|e| Error::new(Kind::CorruptSource, what).with_cause(e))?;
    let reader = StreamReader::try_new(bytes.as_slice(), None);
    let reader = reader.map_err(|e| Error::new(Kind::CorruptSource, what).with_cause(e))?;
    Ok(Arc::clone(&reader.schema()))
}
