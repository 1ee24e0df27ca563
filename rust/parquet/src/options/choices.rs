//! Options of which there are few values, by the names that all doors have for them.
//!
//! # Not here
//! Which options there are (`options`).

use plait_core::plan::OnDuplicate;
use plait_core::stream::{MetadataConflicts, Unite};
use serde::{Deserialize, Serialize};

/// An option with few values, under their names in lower case.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
    };
}
pub(crate) use choice;

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
    /// Which encodings of values are tried on pages that are not copied as they are.
    EncodingOption {
        /// None: they are those of the sources.
        Sources,
        /// Those that common readers have had for long.
        Compatible,
        /// All that fit the type.
        Smallest,
    }
);
impl EncodingOption {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::Sources
    }
}
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
    pub(super) fn is_default(&self) -> bool {
        *self == Self::Drop
    }
}
impl UnsortedOption {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::Error
    }
}

choice!(
    /// See [`OnDuplicate`](plait_core::plan::OnDuplicate).
    OnDuplicateOption {
        /// All of them.
        KeepAll,
        /// The first: that of the first source.
        KeepFirst,
        /// The last, or the one of the highest version.
        KeepLast,
        /// There must not be several.
        Error,
        /// One row with the last value of each column that is not null.
        Update,
        /// One row, each column by an aggregate function.
        Aggregate,
    }
);
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
            OnDuplicateOption::Update => Self::Update,
            OnDuplicateOption::Aggregate => Self::Aggregate,
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
