//! What a merge is asked to do: plain values, the same names through every door.
//!
//! # Invariants
//! Sizes are bytes. Unknown names are refused. Defaults are those of the Python function.
//!
//! # Not here
//! Units such as `"128MB"` (the Python layer).

use std::collections::BTreeMap;

use plait_core::plan::{DropOptions, OnDuplicate};
use plait_core::stream::{MetadataConflicts, Unite};
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::runtime::Budget;

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
    /// Columns that get bloom filters; those that are copied with their chunk stay in any case.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bloom_filters: BTreeMap<String, BloomFilter>,
    /// Columns whose values are listed in `plait.zone_map`, if they are few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub value_sets: Vec<String>,
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
    /// Column of the versions of rows: with `keep_last`, the highest stays.
    pub version_by: Option<String>,
    /// Boolean column: a row where it is true deletes its key.
    pub delete_where: Option<String>,
    /// Whether rows that delete stay, for a merge with older files later.
    pub keep_tombstones: bool,
    /// Rows of a key column to drop, such as `timestamp < 1700000000`.
    pub drop_where: Option<String>,
    /// How row groups that are copied whole are checked for order.
    pub verify_order: VerifyOrder,
    /// How pages that are copied as they are stored are checked.
    pub verify_pages: VerifyPages,
    /// What to do with sources that are not sorted.
    #[serde(skip_serializing_if = "UnsortedOption::is_default")]
    pub unsorted: UnsortedOption,
    /// Check no order at all. Outputs declare none.
    pub assume_sorted: bool,
    /// Whether keys that footers hold are believed until rows say otherwise.
    pub trust_footers: bool,
    /// What is compared after writing.
    pub verify: Option<Verify>,
    /// Whether the report has a SHA-256 of every output.
    pub sha256: bool,
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
            bloom_filters: BTreeMap::new(),
            value_sets: Vec::new(),
            statistics: BTreeMap::new(),
            widen: WidenOption::Lossless,
            missing: MissingOption::Null,
            missing_keys: MissingOption::Error,
            metadata_conflicts: MetadataConflictsOption::Drop,
            on_duplicate: OnDuplicateOption::KeepAll,
            version_by: None,
            delete_where: None,
            keep_tombstones: false,
            drop_where: None,
            verify_order: VerifyOrder::Full,
            verify_pages: VerifyPages::Checksum,
            unsorted: UnsortedOption::Error,
            assume_sorted: false,
            trust_footers: true,
            verify: None,
            sha256: false,
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

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
    };
}

choice!(
    /// What to do when a column's types differ.
    WidenOption {
        /// Widen without loss.
        Lossless,
        /// Refuse types that differ.
        Error,
    }
);
choice!(
    /// What to do when a column is not in every source.
    MissingOption {
        /// Absent columns are null.
        Null,
        /// Refuse absent columns.
        Error,
    }
);
choice!(
    /// See [`MetadataConflicts`].
    MetadataConflictsOption {
        /// The first file's value stays.
        First,
        /// Neither stays.
        Drop,
        /// Refuse.
        Error,
    }
);
choice!(
    /// Whether files have the columns that their folders tell.
    PartitionColumnsOption {
        /// The folders alone have them.
        Drop,
        /// Both have them.
        Keep,
    }
);
impl PartitionColumnsOption {
    fn is_default(&self) -> bool {
        *self == Self::Drop
    }
}
impl UnsortedOption {
    fn is_default(&self) -> bool {
        *self == Self::Error
    }
}

/// See [`OnDuplicate`](plait_core::plan::OnDuplicate).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDuplicateOption {
    /// All of them.
    KeepAll,
    /// The first: that of the first source.
    KeepFirst,
    /// The last, or the one of the highest version.
    KeepLast,
    /// There must not be several.
    Error,
}

choice!(
    /// What to do with sources that are not sorted.
    UnsortedOption {
        /// Refuse them.
        Error,
        /// Sort them, as far as they are not in order.
        Sort,
        /// Leave them out, and name them in the report.
        Skip,
    }
);
choice!(
    /// How row groups that are copied whole are checked for order.
    VerifyOrder {
        /// First and last key, and page bounds of the column index. Outputs declare no order.
        Bounds,
        /// Every key.
        Full,
    }
);
choice!(
    /// How pages that are copied as they are stored are checked.
    VerifyPages {
        /// Header, and checksum where there is one; row counts of leaves that repeat.
        Checksum,
        /// Unpacked too.
        Unpack,
    }
);
choice!(
    /// What is compared after writing.
    Verify {
        /// An order-independent hash of all rows, in and out.
        Content,
    }
);
choice!(
    /// Ways to copy rows without decoding them.
    Tier {
        /// A whole row group of one source, byte for byte.
        Chunk,
        /// A whole page of one source, byte for byte.
        Page,
        /// Ids of the sources' dictionaries, united; values are not looked at row by row.
        Dict,
    }
);
choice!(
    /// Of what smallest and greatest values are written.
    StatisticsLevel {
        /// Nothing.
        None,
        /// Column chunks.
        Chunk,
        /// Column chunks and pages.
        Page,
    }
);
choice!(
    /// What to do when the output is there already.
    IfExists {
        /// Refuse.
        Error,
        /// Add to the folder.
        Add,
    }
);

impl From<OnDuplicateOption> for OnDuplicate {
    fn from(option: OnDuplicateOption) -> Self {
        match option {
            OnDuplicateOption::KeepAll => Self::KeepAll,
            OnDuplicateOption::KeepFirst => Self::KeepFirst,
            OnDuplicateOption::KeepLast => Self::KeepLast,
            OnDuplicateOption::Error => Self::Error,
        }
    }
}

/// How schemas are brought together, in the core's words.
pub(crate) fn unite(
    widen: WidenOption,
    missing: MissingOption,
    missing_keys: MissingOption,
    metadata: MetadataConflictsOption,
) -> Unite {
    Unite {
        widen: matches!(widen, WidenOption::Lossless),
        missing: matches!(missing, MissingOption::Null),
        missing_keys: matches!(missing_keys, MissingOption::Null),
        metadata: match metadata {
            MetadataConflictsOption::First => MetadataConflicts::First,
            MetadataConflictsOption::Drop => MetadataConflicts::Drop,
            MetadataConflictsOption::Error => MetadataConflicts::Error,
        },
    }
}

impl MergeOptions {
    /// How schemas are brought together.
    #[must_use]
    pub(crate) fn unite(&self) -> Unite {
        unite(self.widen, self.missing, self.missing_keys, self.metadata_conflicts)
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

    /// Whether the level of ZSTD is chosen by trial: nobody named one.
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

    /// Checks what can be checked without files.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] naming the option.
    pub(crate) fn check(&self) -> Result<()> {
        if self.sources.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "there is nothing to merge")
                .with_hint("name at least one file, folder, glob or URL"));
        }
        self.check_values()
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] naming the option.
    pub(crate) fn check_values(&self) -> Result<()> {
        let bad = |what: String| Err(Error::new(Kind::InvalidArgument, what));
        let sizes = [
            ("outputs", self.outputs),
            ("target_file_size", self.target_file_size),
            ("target_rows", self.target_rows),
        ];
        let asked: Vec<&str> =
            sizes.iter().filter(|(_, size)| size.is_some()).map(|(name, _)| *name).collect();
        if asked.len() > 1 {
            return bad(format!("`{}` and `{}` exclude each other", asked[0], asked[1]));
        }
        let positive = [
            ("row_group_size", Some(self.row_group_size)),
            ("row_group_rows", Some(self.row_group_rows)),
            ("page_size", Some(self.page_size)),
            ("page_rows", Some(self.page_rows)),
            ("threads", self.threads.map(|n| n as u64)),
        ];
        for (name, size) in sizes.iter().chain(&positive) {
            if *size == Some(0) {
                return bad(format!("`{name}` must be at least 1"));
            }
        }
        if self.threads.is_some_and(|n| n > 1024) {
            return bad("`threads` must be at most 1024".into());
        }
        check_memory_limit(self.memory_limit)?;
        self.check_drops()?;
        for (column, BloomFilter { fpp, ndv }) in &self.bloom_filters {
            if !(1e-6..=0.5).contains(fpp) || *ndv == Some(0) {
                return Err(Error::new(Kind::InvalidArgument, "`bloom_filters` is invalid")
                    .with_column(column)
                    .with_got(format!("fpp {fpp}, ndv {ndv:?}"))
                    .with_hint("give an fpp from 0.000001 to 0.5, and an ndv of at least 1"));
            }
        }
        if self.assume_sorted && self.unsorted != UnsortedOption::Error {
            return bad("`unsorted` and `assume_sorted` exclude each other".into());
        }
        if self.data_page_version.is_some_and(|v| v != 1 && v != 2) {
            return bad("`data_page_version` must be 1 or 2".into());
        }
        self.check_partitions()
    }

    /// Rows of different partitions must not get into one file.
    fn check_partitions(&self) -> Result<()> {
        if self.partition_by.is_empty() {
            return Ok(());
        }
        let excluded = [
            ("outputs", self.outputs.is_some(), "give target_rows or target_file_size"),
            ("assume_sorted", self.assume_sorted, "the order of all rows has to be checked"),
            (
                "verify_order=\"bounds\"",
                self.verify_order == VerifyOrder::Bounds,
                "the order of all rows has to be checked",
            ),
        ];
        match excluded.into_iter().find(|(_, is_asked, _)| *is_asked) {
            None => Ok(()),
            Some((name, _, hint)) => {
                let what = format!("`partition_by` and `{name}` exclude each other");
                Err(Error::new(Kind::InvalidArgument, what).with_hint(hint))
            }
        }
    }
}

impl MergeOptions {
    /// Whether all rows leave.
    #[must_use]
    pub(crate) fn keeps_all(&self) -> bool {
        self.drop_options().keeps_all()
    }

    /// Which rows leave, in the core's words.
    #[must_use]
    pub(crate) fn drop_options(&self) -> DropOptions {
        DropOptions {
            on_duplicate: self.on_duplicate.into(),
            version_by: self.version_by.clone(),
            delete_where: self.delete_where.clone(),
            keep_tombstones: self.keep_tombstones,
            drop_where: self.drop_where.clone(),
        }
    }

    fn check_drops(&self) -> Result<()> {
        self.drop_options().check()?;
        if self.verify.is_some() && !self.keeps_all() {
            return Err(Error::new(
                Kind::InvalidArgument,
                "`verify` compares all rows, but other options drop some",
            )
            .with_hint("leave it out: rows that were dropped are counted by reason"));
        }
        Ok(())
    }
}

/// Below this the engine cannot hold a page of each of a few sources.
pub(crate) const MEMORY_LIMIT_MIN: u64 = 16_000_000;

/// Refuses a limit within which no call works.
pub(crate) fn check_memory_limit(bytes: u64) -> Result<()> {
    if bytes >= MEMORY_LIMIT_MIN {
        return Ok(());
    }
    Err(Error::new(Kind::InvalidArgument, "`memory_limit` is too small")
        .with_got(format!("{bytes} bytes"))
        .with_hint(format!("give at least {} MB", MEMORY_LIMIT_MIN / 1_000_000)))
}
