//! How one column of an output is combined.
//!
//! # Not here
//! What rules there are (`plait_core::plan`).

use std::ops::Range;

use arrow_schema::DataType;
use plait_core::plan::ValueRule;

use crate::keys::KeyLeaves;

/// One column.
pub(super) struct CombinedColumn {
    pub(super) rule: ValueRule,
    pub(super) data_type: DataType,
    /// Its leaves in the output.
    pub(super) leaves: Range<usize>,
    /// Whether the whole value may be null.
    pub(super) is_nullable: bool,
    /// Whether it has a sort column.
    pub(super) is_key: bool,
    /// How values are compared, where they are.
    pub(super) key: Option<KeyLeaves>,
}

impl CombinedColumn {
    /// Whether its values are maps.
    pub(super) fn has_keys(&self) -> bool {
        matches!(self.data_type, DataType::Map(..))
    }
}
