//! Cuts of rows without an order: all of them are equal, so any may start an output.
//!
//! ```text
//! a  ├──────┼──────────┤
//! b                    ├───┼──────────┤      so many rows of each source, one after the other
//! ```
//!
//! # Invariants
//! Rows of a source that was cut before count once. Cuts are exact.
//!
//! # Not here
//! Rows with keys (`cuts`).

use super::rule::{OutputCut, Rule};
use super::source_keys::SourceKeys;

/// Cuts by `rule`, of `rows` rows.
pub(super) fn cuts_anywhere(sources_keys: &[SourceKeys], rule: &Rule, rows: u64) -> Vec<OutputCut> {
    let (mut done, mut left) = (0, if let Rule::Outputs(outputs) = rule { *outputs } else { 0 });
    let ranks = std::iter::from_fn(|| {
        let target = match rule {
            Rule::Outputs(_) => Rule::Outputs(left).target(done, rows),
            rule => rule.target(done, rows),
        };
        (done, left) = (target.saturating_add(done), left.saturating_sub(1));
        (done < rows).then_some(done)
    });
    cuts_at(sources_keys, ranks)
}

/// Cuts behind so many rows of all sources, one after the other; `ranks` ascend.
pub(super) fn cuts_at(
    sources_keys: &[SourceKeys],
    ranks: impl Iterator<Item = u64>,
) -> Vec<OutputCut> {
    // The source that the cut lies in, and the rows before it.
    let (mut place, mut before) = (0, 0);
    let cut = |rank| {
        let mut cut = OutputCut { key: None, rows: Vec::new(), before };
        while let Some(source_keys) = sources_keys.get(place) {
            let taken = source_keys.rows().min(rank - before);
            cut.rows.push((place, (taken, taken)));
            if taken < source_keys.rows() {
                break;
            }
            (place, before) = (place + 1, before + taken);
        }
        cut
    };
    ranks.map(cut).collect()
}
