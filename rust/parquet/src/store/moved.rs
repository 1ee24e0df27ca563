//! Where a file is that a compaction made and that moved to where every program sees it.
//!
//! ```text
//! sales/_plait/files/day=1/part-0-x.parquet  ─▶  sales/day=1/hour-3.part-0-x.parquet
//!                          own name                                 the same at its end
//! ```
//!
//! # Invariants
//! Own names are unique, so that a file found by its own name has the same bytes.
//!
//! # Cost
//! A list of one folder, where a file is not found.
//!
//! # Not here
//! Which files move (`compact`), and which of both names counts (`table`).

/// Where compactions write, below the root.
pub(crate) const MADE: &str = "_plait/files";

/// The folder of a file, by its name.
#[must_use]
pub(super) fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Whether the file `moved` is the file `name` after it moved: both may have folders in front.
#[must_use]
pub(super) fn ends_in(moved: &str, name: &str) -> bool {
    let own = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let (moved, own) = (own(moved), own(name));
    moved.strip_suffix(&own).is_some_and(|front| front.is_empty() || front.ends_with('.'))
}

/// Whether programs that know no manifests see the file `name`.
#[must_use]
pub(crate) fn is_visible(name: &str) -> bool {
    !name.split('/').any(|part| part.starts_with(['.', '_']))
}

/// The folder in which the file `path` is, if it moved out of [`MADE`] of some root.
#[must_use]
pub(super) fn folder_after(path: &str) -> Option<String> {
    let at = match path.find(&format!("/{MADE}/")) {
        Some(at) => at + 1,
        None => path.starts_with(&format!("{MADE}/")).then_some(0)?,
    };
    let folder = folder_of(path.get(at + MADE.len() + 1..)?);
    Some(format!("{}{folder}", path.get(..at)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_moved_is_known_by_its_own_name() {
        assert_eq!(folder_after("/t/_plait/files/d=1/x.parquet").unwrap(), "/t/d=1");
        assert_eq!(folder_after("_plait/files/x.parquet").unwrap(), "");
        assert_eq!(folder_after("/_plait/files/x.parquet").unwrap(), "/");
        assert_eq!(folder_after("/t/d=1/x.parquet"), None);
        assert!(ends_in("d/hour.x.parquet", "_plait/files/d/x.parquet"));
        assert!(ends_in("x.parquet", "x.parquet") && !ends_in("yx.parquet", "x.parquet"));
        assert!(is_visible("d=1/a") && !is_visible("_d/a") && !is_visible("d/.a"));
    }
}
