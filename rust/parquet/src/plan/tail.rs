//! The largest distinct cut keys of all sources, so that no asked-for output goes empty.
//!
//! ```text
//! source   … c c d │ e e e │ f        read backwards, in doubling steps,
//!                  ◀── 2m ─◀ m        until m distinct prefixes are known
//! ```
//!
//! # Cost
//! Usually one page of each key column of each source. With fewer distinct keys than outputs, the
//! key columns are read whole, once.

use std::collections::BTreeSet;
use std::sync::Arc;

use plait_core::Result;
use plait_core::key::prefix_len;

use super::source_keys::Reading;
use crate::keys::KeyReader;
use crate::source::Source;

/// Rows of the first look; each further look back takes twice as many.
const LOOK_ROWS: u64 = 1024;

/// Keys read at once.
const BATCH_ROWS: u64 = 4096;

/// At most `count` largest distinct prefixes of `cut_columns` columns, as keys are read, largest first.
pub(super) fn largest_cut_keys(
    sources: &[&Arc<Source>],
    count: usize,
    cut_columns: usize,
    Reading { keys, cache, context }: Reading<'_>,
) -> Result<Vec<Vec<u8>>> {
    let mut largest: BTreeSet<Vec<u8>> = BTreeSet::new();
    let shape = keys.read_shape();
    for source in sources {
        let (mut end, mut look) = (source.rows(), LOOK_ROWS);
        while end > 0 {
            context.check_cancelled()?;
            let start = end.saturating_sub(look);
            let mut reader = KeyReader::open(source, keys, start, cache, context)?;
            let mut smallest: Option<Vec<u8>> = None;
            let mut last: Option<Vec<u8>> = None;
            while reader.row() < end {
                let rows = (end - reader.row()).min(BATCH_ROWS);
                let Some((batch, _)) = reader.next(usize::try_from(rows).unwrap_or(1))? else {
                    break;
                };
                for i in 0..batch.len() {
                    let mut key = batch.to_bytes(shape, i);
                    key.truncate(prefix_len(shape, &key, cut_columns)?);
                    if last.as_ref() == Some(&key) {
                        continue;
                    }
                    smallest.get_or_insert_with(|| key.clone());
                    if !largest.contains(&key) {
                        largest.insert(key.clone());
                        if largest.len() > count {
                            largest.pop_first();
                        }
                    }
                    last = Some(key);
                }
            }
            // What lies before is smaller still: of no use once `count` larger ones are known.
            let is_enough = largest.len() >= count && largest.first() > smallest.as_ref();
            if is_enough {
                break;
            }
            (end, look) = (start, look * 2);
        }
    }
    Ok(largest.into_iter().rev().collect())
}
