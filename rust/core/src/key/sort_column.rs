//! One column of a sort order.
//!
//! # Not here
//! Reading text (`order`, `quickwit`).

use std::fmt;

/// Where nulls go, in both directions alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nulls {
    /// Before every value.
    First,
    /// After every value.
    #[default]
    Last,
}

/// One column of a sort order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SortColumn {
    /// Names from the root to the leaf.
    pub path: Vec<String>,
    /// Whether greater values come first.
    pub descending: bool,
    /// Where nulls go.
    pub nulls: Nulls,
}

impl SortColumn {
    /// The path with dots, odd names in double quotes.
    ///
    /// ```
    /// use plait_core::key::{Nulls, SortColumn};
    /// let path = vec!["tags".to_owned(), "k8s.pod".to_owned()];
    /// let column = SortColumn { path, descending: true, nulls: Nulls::Last };
    /// assert_eq!(column.dotted(), "tags.\"k8s.pod\"");
    /// ```
    #[must_use]
    pub fn dotted(&self) -> String {
        let names: Vec<String> = self.path.iter().map(|name| quoted_if_odd(name)).collect();
        names.join(".")
    }
}

impl fmt::Display for SortColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.descending {
            f.write_str("-")?;
        }
        f.write_str(&self.dotted())?;
        match self.nulls {
            Nulls::First => f.write_str(" nulls first"),
            Nulls::Last => Ok(()),
        }
    }
}

/// Bare names stay readable in every context; all others are quoted.
fn quoted_if_odd(name: &str) -> String {
    let mut chars = name.chars();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let bare = chars.next().is_some_and(word) && chars.all(|c| word(c) || matches!(c, '-' | '$'));
    if bare { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
