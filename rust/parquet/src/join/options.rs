//! What a join is asked to do: plain values, the same names through every door.
//!
//! # Not here
//! Checking it against schemas (`plait_core::join`).

use plait_core::join::{How, NullKeys, Spec};
use serde::{Deserialize, Serialize};

use crate::options::choice;

/// Options of a join.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JoinOptions {
    /// Columns of the left table that identify its rows.
    pub left_key: Vec<String>,
    /// Columns of the left table that name a right row.
    pub foreign_key: Vec<String>,
    /// Whether the foreign key is computed, so that its columns are in no result.
    pub is_computed: bool,
    /// Columns of the right table that identify its rows.
    pub right_key: Vec<String>,
    /// `inner` or `left`.
    pub how: HowOption,
    /// `error` or `drop`.
    pub on_null_key: NullKeyOption,
    /// Names of the result's columns, and of what they are; absent = all.
    pub columns: Option<Vec<(String, String)>>,
    /// Whether changes have the old values.
    pub before: bool,
    /// Whether a callable makes the rows of the result, of all columns.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_joiner: bool,
    /// Rows of a batch of changes, at most.
    pub batch_rows: usize,
    /// Folder of the state; absent = in memory.
    pub state: Option<String>,
    /// Bytes of memory to stay within.
    pub memory_limit: u64,
    /// Threads that share the rows of a batch; absent = as many as there are cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self {
            left_key: Vec::new(),
            foreign_key: Vec::new(),
            is_computed: false,
            right_key: Vec::new(),
            how: HowOption::Inner,
            on_null_key: NullKeyOption::Error,
            columns: None,
            before: false,
            has_joiner: false,
            batch_rows: 32_768,
            state: None,
            memory_limit: 512_000_000,
            threads: None,
        }
    }
}

impl JoinOptions {
    /// The same for the core.
    #[must_use]
    pub(crate) fn spec(&self) -> Spec {
        Spec {
            left_key: self.left_key.clone(),
            foreign_key: self.foreign_key.clone(),
            is_computed: self.is_computed,
            right_key: self.right_key.clone(),
            how: match self.how {
                HowOption::Inner => How::Inner,
                HowOption::Left => How::Left,
            },
            on_null_key: match self.on_null_key {
                NullKeyOption::Error => NullKeys::Error,
                NullKeyOption::Drop => NullKeys::Drop,
            },
            columns: self.columns.clone().filter(|_| !self.has_joiner),
            // What the callable made of the old values tells whether it makes anything else now.
            before: self.before || self.has_joiner,
        }
    }
}

choice!(
    /// See [`How`].
    HowOption {
        /// Rows with a right row.
        Inner,
        /// All left rows.
        Left,
    }
);
choice!(
    /// See [`NullKeys`].
    NullKeyOption {
        /// Changes without a key are an error.
        Error,
        /// They are left out and counted.
        Drop,
    }
);
