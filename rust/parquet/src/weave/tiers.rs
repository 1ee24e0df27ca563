//! Which parts of sources may be copied without being decoded or encoded.
//!
//! # Not here
//! Whole chunks (`chunk`).

use crate::options::Tier;

/// Copy tiers of weaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiers {
    /// Pages as they are stored.
    pub page: bool,
    /// Ids of united dictionaries.
    pub dict: bool,
}

impl Tiers {
    /// Those of the tiers that a caller allows.
    #[must_use]
    pub(crate) fn of(allowed: &[Tier]) -> Self {
        Self { page: allowed.contains(&Tier::Page), dict: allowed.contains(&Tier::Dict) }
    }
}
