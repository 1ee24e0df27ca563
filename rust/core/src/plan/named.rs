//! Options that name one column.
//!
//! # Not here
//! The text of sort orders (`crate::key`).

use crate::key::{Nulls, SortOrder};
use plait_base::{Error, Kind, Result};

/// The one column that `name` names, ascending.
pub(super) fn named(name: &str, nulls: Nulls) -> Result<SortOrder> {
    let named = SortOrder::try_parse(name)?;
    let mut columns = named.columns().to_vec();
    let ([column], true) = (columns.as_mut_slice(), !name.trim_start().starts_with('-')) else {
        return Err(
            Error::new(Kind::InvalidArgument, "this does not name a single column").with_got(name)
        );
    };
    (column.descending, column.nulls) = (false, nulls);
    SortOrder::try_new(columns)
}
