//! Options of a merge: plain values, the same names through every door.
//!
//! # Invariants
//! Sizes are bytes. Unknown names are refused. Defaults are those of the Python function.
//!
//! # Not here
//! The values of options with few (`choices`); which options exclude each other (`check`); units such
//! as `"128MB"` (the Python layer).

use std::collections::BTreeMap;

use plait_core::plan::{Aggregate, DropOptions, VersionBy};
use plait_core::stream::Unite;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Deserializer, Serialize};

use super::choices::{
    EncodingOption, IfExists, MetadataConflictsOption, MissingOption, OnDuplicateOption,
    PartitionColumnsOption, StatisticsLevel, Tier, UnsortedOption, Verify, VerifyOrder,
    VerifyPages, WidenOption, unite,
};
use crate::deleted::DeletionVector;
use crate::runtime::{Budget, threads_or_cores};

/// Options of a merge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MergeOptions {
    /// Files, folders, globs, URLs.
    pub sources: Vec<String>,
    /// Folder, or one `.parquet` file.
    pub out: String,
    /// Sort order as text; absent = from the files.
    pub sort_by: Option<String>,
    /// At most this many outputs.
    pub outputs: Option<u64>,
    /// Bytes after which an output ends at the next cut key.
    pub target_file_size: Option<u64>,
    /// Rows after which an output ends at the next cut key.
    pub target_rows: Option<u64>,
    /// How many leading key columns stay together in one output; absent = all.
    pub cut_on: Option<usize>,
    /// Columns of the folders that outputs lie in, outermost first; none = all in one folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partition_by: Vec<String>,
    /// Whether outputs have these columns, too.
    #[serde(skip_serializing_if = "PartitionColumnsOption::is_default")]
    pub partition_columns: PartitionColumnsOption,
    /// Encoded bytes of an output row group.
    pub row_group_size: u64,
    /// Most rows of an output row group.
    pub row_group_rows: u64,
    /// Encoded bytes of a page.
    pub page_size: u64,
    /// Most rows of a page.
    pub page_rows: u64,
    /// A row group starts whenever one of this many leading key columns changes.
    pub align_row_groups: usize,
    /// Codec, such as `zstd(3)`; absent = as in the sources.
    pub compression: Option<String>,
    /// Whether to try dictionaries; absent = as in the sources.
    pub dictionary: Option<bool>,
    /// 1 or 2; absent = as in the sources.
    pub data_page_version: Option<u8>,
    /// `sources`, `compatible` or `smallest`: the encodings of values that are tried.
    #[serde(skip_serializing_if = "EncodingOption::is_default")]
    pub encoding: EncodingOption,
    /// Columns that get bloom filters; those that are copied with their chunk stay in any case.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bloom_filters: BTreeMap<String, BloomFilter>,
    /// Columns whose values are listed in `plait.zone_map`, and how many values are few enough for
    /// that; absent = 64. Plans of older versions have a list of the columns.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "value_sets")]
    pub value_sets: BTreeMap<String, Option<u64>>,
    /// Smallest and greatest values by column, `*` being all others; absent = of every page.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub statistics: BTreeMap<String, StatisticsLevel>,
    /// `lossless` or `error`.
    pub widen: WidenOption,
    /// `null` or `error`.
    pub missing: MissingOption,
    /// `error` or `null`: sources without a sort column.
    pub missing_keys: MissingOption,
    /// `first`, `drop` or `error`.
    pub metadata_conflicts: MetadataConflictsOption,
    /// Which of several rows with one key stay.
    pub on_duplicate: OnDuplicateOption,
    /// Column of the versions of rows: with `keep_last`, the highest stays. With `update`, columns of
    /// versions, and those that go by each.
    pub version_by: Option<VersionBy>,
    /// With `update`, columns that take the last value even if it is null.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replace_columns: Vec<String>,
    /// With `aggregate`, the functions of columns.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub aggregate: BTreeMap<String, Aggregate>,
    /// Boolean column: a row where it is true deletes its key.
    pub delete_where: Option<String>,
    /// Whether rows that delete stay, for a merge with older files later.
    pub keep_tombstones: bool,
    /// Rows of a key column to drop, such as `timestamp < 1700000000`.
    pub drop_where: Option<String>,
    /// Columns that rules name, other files have, and no source has: they are null in all rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent_columns: Vec<String>,
    /// How row groups that are copied whole are checked for order.
    pub verify_order: VerifyOrder,
    /// How pages that are copied as they are stored are checked.
    pub verify_pages: VerifyPages,
    /// Whether object stores may copy row groups themselves, whose pages are not checked then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub server_side_copy: bool,
    /// What to do with sources that are not sorted.
    #[serde(skip_serializing_if = "UnsortedOption::is_default")]
    pub unsorted: UnsortedOption,
    /// Deleted rows by location of the file; of a file that is not named no row is deleted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub deletion_vectors: BTreeMap<String, DeletionVector>,
    /// Check no order at all. Outputs declare none.
    pub assume_sorted: bool,
    /// Whether keys that footers hold are believed until rows say otherwise.
    pub trust_footers: bool,
    /// What is compared after writing.
    pub verify: Option<Verify>,
    /// Whether the report has a SHA-256 of every output.
    pub sha256: bool,
    /// Whether a file next to each output says which row of which source each of its rows is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub row_map: bool,
    /// Copy tiers that may be used besides `value`.
    pub copy_tiers: Vec<Tier>,
    /// Threads that weave; absent = one per core.
    pub threads: Option<usize>,
    /// Bytes of memory to stay within.
    pub memory_limit: u64,
    /// What to do when the output is there already.
    pub if_exists: IfExists,
    /// Whether sources without rows give one output without rows.
    pub empty_output: bool,
    /// Settings of object stores, by the names that `object_store` knows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub storage_options: BTreeMap<String, String>,
    /// What a compaction wants in the names of outputs; no option of a call.
    #[doc(hidden)]
    #[serde(skip)]
    pub naming: Naming,
}

/// What the names of outputs have instead of what the plan would give them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Naming {
    /// The task, 16 hexadecimal digits; absent = from sources, options and cuts.
    pub task: Option<String>,
    /// The lease under which they come to count.
    pub lease: Option<String>,
}

impl Naming {
    /// Checks that both are ids.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`].
    pub(crate) fn check(&self) -> Result<()> {
        let is_id = |id: &&String| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
        match self.task.iter().chain(&self.lease).find(|id| !is_id(id)) {
            None => Ok(()),
            Some(id) => {
                let what = "a name of outputs is not 16 hexadecimal digits";
                Err(Error::new(Kind::InvalidArgument, what).with_got(format!("`{id}`")))
            }
        }
    }
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            out: String::new(),
            sort_by: None,
            outputs: None,
            target_file_size: None,
            target_rows: None,
            cut_on: None,
            partition_by: Vec::new(),
            partition_columns: PartitionColumnsOption::Drop,
            row_group_size: 128_000_000,
            row_group_rows: 1_048_576,
            page_size: 1_000_000,
            page_rows: 20_000,
            align_row_groups: 0,
            compression: None,
            dictionary: None,
            data_page_version: None,
            encoding: EncodingOption::Sources,
            bloom_filters: BTreeMap::new(),
            value_sets: BTreeMap::new(),
            statistics: BTreeMap::new(),
            widen: WidenOption::Lossless,
            missing: MissingOption::Null,
            missing_keys: MissingOption::Error,
            metadata_conflicts: MetadataConflictsOption::Drop,
            on_duplicate: OnDuplicateOption::KeepAll,
            version_by: None,
            replace_columns: Vec::new(),
            aggregate: BTreeMap::new(),
            delete_where: None,
            keep_tombstones: false,
            drop_where: None,
            absent_columns: Vec::new(),
            verify_order: VerifyOrder::Full,
            verify_pages: VerifyPages::Checksum,
            server_side_copy: false,
            unsorted: UnsortedOption::Error,
            deletion_vectors: BTreeMap::new(),
            assume_sorted: false,
            trust_footers: true,
            verify: None,
            sha256: false,
            row_map: false,
            copy_tiers: vec![Tier::Chunk, Tier::Page, Tier::Dict],
            threads: None,
            memory_limit: 512_000_000,
            if_exists: IfExists::Error,
            empty_output: true,
            storage_options: BTreeMap::new(),
            naming: Naming::default(),
        }
    }
}

fn value_sets<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<BTreeMap<String, Option<u64>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ListOrLimits {
        List(Vec<String>),
        Limits(BTreeMap<String, Option<u64>>),
    }
    Ok(match ListOrLimits::deserialize(from)? {
        ListOrLimits::List(names) => names.into_iter().map(|name| (name, None)).collect(),
        ListOrLimits::Limits(limits) => limits,
    })
}

/// How a bloom filter is made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BloomFilter {
    /// The share of values not in a chunk that the filter lets pass, about.
    pub fpp: f64,
    /// Distinct values of a chunk that the filter has room for; absent = as many as there are.
    pub ndv: Option<u64>,
}

impl Default for BloomFilter {
    fn default() -> Self {
        Self { fpp: 0.01, ndv: None }
    }
}

/// Whether an option for column `name` is one for the leaf `path`: the leaf itself, or what it is
/// in.
#[must_use]
pub(crate) fn covers(name: &str, path: &str) -> bool {
    path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl MergeOptions {
    /// How schemas are brought together.
    #[must_use]
    pub(crate) fn unite(&self) -> Unite {
        unite(self.widen, self.missing, self.missing_keys, self.metadata_conflicts)
    }

    /// The threads that are asked for, or one per core.
    #[must_use]
    pub(crate) fn threads_or_cores(&self) -> usize {
        threads_or_cores(self.threads)
    }

    /// The shares of `memory_limit`.
    #[must_use]
    pub(crate) fn budget(&self) -> Budget {
        Budget::of(self.memory_limit)
    }

    /// Whether every key of the outputs is compared with the one before it. Page bounds prove no
    /// order of the rows inside of pages.
    #[must_use]
    pub(crate) fn checks_every_key(&self) -> bool {
        let copies = self.copy_tiers.contains(&Tier::Chunk);
        !self.assume_sorted && (self.verify_order == VerifyOrder::Full || !copies)
    }

    /// Whether it is tried how ZSTD packs: nobody named a level.
    #[must_use]
    pub(crate) fn leaves_level_open(&self) -> bool {
        self.compression.as_deref().is_none_or(|text| text.trim().eq_ignore_ascii_case("zstd"))
    }

    /// What statistics the leaf `path` gets: the longest name that covers it decides, then `*`.
    #[must_use]
    pub(crate) fn statistics_of(&self, path: &str) -> StatisticsLevel {
        let named = self.statistics.iter().filter(|(name, _)| covers(name, path));
        let longest = named.max_by_key(|(name, _)| name.len()).map(|(_, level)| *level);
        longest.or(self.statistics.get("*").copied()).unwrap_or(StatisticsLevel::Page)
    }

    /// Whether all rows leave.
    #[must_use]
    pub(crate) fn keeps_all(&self) -> bool {
        self.drop_options().keeps_all()
    }

    /// Which rows leave, in the core's words.
    #[must_use]
    pub(crate) fn drop_options(&self) -> DropOptions {
        let is_there = |path: &str| !self.absent_columns.iter().any(|absent| absent == path);
        self.asked_drops().narrowed(is_there)
    }

    /// The same, as if all columns were there.
    #[must_use]
    pub(crate) fn asked_drops(&self) -> DropOptions {
        DropOptions {
            on_duplicate: self.on_duplicate.into(),
            delete_where: self.delete_where.clone(),
            keep_tombstones: self.keep_tombstones,
            drop_where: self.drop_where.clone(),
            ..DropOptions::default()
        }
        .combining(self.version_by.as_ref(), &self.replace_columns, &self.aggregate)
    }
}
