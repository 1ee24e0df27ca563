//! What a merge is asked to do.
//!
//! # Invariants
//! Sizes are bytes. Unknown names are refused. Defaults are those of the Python function.
//!
//! # Not here
//! Units such as `"128MB"` (the Python layer).

mod check;
mod choices;
mod merge;

pub(crate) use check::{check_memory_limit, check_threads};
pub(crate) use choices::{
    EncodingOption, IfExists, MetadataConflictsOption, MissingOption, OnDuplicateOption,
    PartitionColumnsOption, StatisticsLevel, UnsortedOption, VerifyOrder, VerifyPages, WidenOption,
    choice, unite,
};
pub use choices::{Tier, Verify};
pub use merge::MergeOptions;
pub(crate) use merge::{BloomFilter, Naming, covers};
