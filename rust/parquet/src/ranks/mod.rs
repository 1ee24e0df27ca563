//! Which numbers stand for the key values of a merge, where that makes keys short.
//!
//! ```text
//! service   dictionaries of all chunks ─▶ all values, sorted ─▶ a rank each; ids become ranks
//! ts        footers: no nulls, from 1720000000 to 1722591999 ─▶ distance from the smallest
//! ```
//!
//! Keys of at most 12 bytes are merged fastest, keys above 16 bytes slowest. Strings that are in
//! dictionaries always become ranks; other columns lose their marker and their range only where
//! that makes keys shorter than one of these. Columns of a curve (`zorder(a, b)`) stay as they are, and
//! lose what marks their nulls where footers know of none, and what all indexes begin with.
//!
//! # Invariants
//! Footers only propose: every value is looked up or compared with its range. One without a rank
//! breaks the book ([`RankBook::is_broken`]), and the merge starts again without ranks. So do
//! nulls where footers know of none.
//!
//! # Cost
//! One read and one unpacked page a dictionary, each value hashed once; a share of the memory limit
//! for all values, and four bytes a dictionary entry.
//!
//! # Not here
//! The order of ranked keys, and the way back (`plait_core::key::Ranks`).

mod kept;
mod search;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plait_core::SourceId;
use plait_core::key::{KeyShape, RankOf, Ranks};
use plait_core::{Error, Kind, Result};

use self::search::{Search, Tables};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::runtime::{Charge, Context};
use crate::source::Source;

pub(crate) use kept::kept_as_keys_take_it;

/// What the keys of a merge are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// Ranks replace values where that makes keys shorter.
    Ranked,
    /// Values alone.
    Stored,
}

/// The ranks of the key columns of one merge.
pub(crate) struct RankBook {
    ranks: Ranks,
    /// By key column: the rank of each id.
    tables: Vec<Tables>,
    is_broken: AtomicBool,
    _charge: Charge,
}

impl RankBook {
    /// Finds ranks for keys of `shape` of some rows of each source; `None` where they would not
    /// make keys shorter.
    ///
    /// # Errors
    /// [`Kind::Storage`] and [`Kind::Cancelled`]. What is wrong with a file is found when it is
    /// read.
    pub(crate) fn find_for(
        shape: &KeyShape,
        leaves: &[OutputLeaf],
        sources: &[Arc<Source>],
        rows: &[Range<u64>],
        cache: &LocationCache,
        context: &Context,
    ) -> Result<Option<Self>> {
        let mut search = Search::new(sources, rows, cache, context);
        match search.find(shape, leaves) {
            Ok(None) => Ok(None),
            Ok(Some((ranks, tables))) => {
                let (is_broken, _charge) = (AtomicBool::new(false), search.into_charge());
                Ok(Some(Self { ranks, tables, is_broken, _charge }))
            }
            Err(e) if e.kind() == Kind::CorruptSource => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// What stands behind the ranks.
    #[must_use]
    pub(crate) fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The rank of each id of a chunk, if it had a dictionary.
    #[must_use]
    pub(crate) fn table(
        &self,
        column: usize,
        source: SourceId,
        row_group: usize,
    ) -> Option<Arc<[u32]>> {
        self.tables.get(column)?.get(&(source, row_group)).cloned()
    }

    /// The rank of a byte string.
    ///
    /// # Errors
    /// That it has none: [`is_broken`](Self::is_broken) from now on.
    pub(crate) fn find(&self, column: usize, value: &[u8]) -> Result<u64> {
        self.ranks.find(column, value).ok_or_else(|| self.give_up())
    }

    /// Makes ranks of the numbers of `rows` rows, one a row; `present` are those with a value, if
    /// not all. Columns without ranks stay as they are.
    ///
    /// # Errors
    /// That one has no rank: [`is_broken`](Self::is_broken) from now on.
    pub(crate) fn replace_numbers(
        &self,
        column: usize,
        rows: usize,
        numbers: &mut Vec<u64>,
        present: &mut Vec<bool>,
    ) -> Result<()> {
        match self.ranks.of(column) {
            RankOf::Numbers { base, span } if self.ranks.lacks_null(column) => {
                let is_outside = |number: &u64| number.wrapping_sub(*base) > *span;
                return match !present.is_empty() || numbers.iter().any(is_outside) {
                    true => Err(self.give_up()),
                    false => Ok(()),
                };
            }
            RankOf::Stored if !present.is_empty() && self.ranks.lacks_null(column) => {
                return Err(self.give_up());
            }
            RankOf::Stored => return Ok(()),
            RankOf::Values(_) => {}
            RankOf::Numbers { base, span } => {
                let first = self.ranks.first(column);
                let mut is_outside = false;
                for number in numbers.iter_mut() {
                    let place = number.wrapping_sub(*base);
                    is_outside |= place > *span;
                    *number = place.wrapping_add(first);
                }
                if is_outside {
                    return Err(self.give_up());
                }
            }
        }
        if present.is_empty() {
            return Ok(());
        }
        let null = self.ranks.null(column).ok_or_else(|| self.give_up())?;
        let mut value = numbers.len();
        numbers.resize(rows, null);
        for row in (0..rows).rev() {
            numbers[row] = if present[row] {
                value -= 1;
                numbers[value]
            } else {
                null
            };
        }
        present.clear();
        Ok(())
    }

    /// Whether a value was met that has no rank: the merge must start again without ranks.
    #[must_use]
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    fn give_up(&self) -> Error {
        self.is_broken.store(true, Ordering::Relaxed);
        Error::new(Kind::Internal, "a key column has values that its file does not tell of")
    }
}
