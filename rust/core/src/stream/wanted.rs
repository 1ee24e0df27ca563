//! What is read of every batch besides its columns: keys, and the marks of rows that may be dropped.
//!
//! ```text
//! batch ─▶ arrays once ─▶ encode slice by slice ─▶ keys of 4096 rows, their marks
//! ```
//!
//! # Invariants
//! Marks and keys are of the same rows.
//!
//! # Cost
//! A column of a condition or of versions is encoded as a sort column is, and held no longer than keys.
//!
//! # Not here
//! What conditions mean and who stays (`crate::plan`).

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use super::MergeStreamOptions;
use super::key::KeyColumns;
use super::rules::ColumnRule;
use super::schema::United;
use crate::key::{KeyShape, Keys, SortOrder};
use crate::plan::{Condition, Drops, MarkColumn, Marks};
use plait_base::Result;

/// The sort columns, and what says which rows are dropped.
pub(super) struct Wanted {
    pub(super) key: KeyColumns,
    pub(super) drops: Option<Drops<KeyColumns>>,
    /// How each column is combined, where rows are.
    pub(super) rules: Vec<ColumnRule>,
}

/// The arrays of these columns in a batch.
pub(super) struct Arrays {
    keys: Vec<ArrayRef>,
    deletes: Vec<ArrayRef>,
    expired: Vec<ArrayRef>,
    versions: Vec<Vec<ArrayRef>>,
}

impl MarkColumn for KeyColumns {
    fn shape(&self) -> &KeyShape {
        &self.shape
    }

    fn data_type(&self) -> Result<DataType> {
        Ok(self.types.first().cloned().unwrap_or(DataType::Null))
    }
}

impl Wanted {
    /// # Errors
    /// [`UnknownColumn`](plait_base::Kind::UnknownColumn),
    /// [`UnsupportedKey`](plait_base::Kind::UnsupportedKey), and what [`Drops::find`] refuses.
    pub(super) fn find(options: &MergeStreamOptions, united: &United) -> Result<Self> {
        options.drops.check()?;
        let order = united.renamed(&options.order)?;
        let find = |named: &SortOrder| KeyColumns::try_new(&united.renamed(named)?, &united.schema);
        let key = find(&order)?;
        let drops = Drops::find(&options.drops, &order, find)?;
        let asked = options.drops.clone().renamed(|path| united.path(path))?;
        let rules = ColumnRule::find(&asked, &order, &key, &united.schema)?;
        Ok(Self { key, drops, rules })
    }

    /// What is read of a batch with these columns.
    pub(super) fn arrays(&self, columns: &[ArrayRef]) -> Result<Arrays> {
        let of = |wanted: Option<&KeyColumns>| {
            wanted.map_or_else(|| Ok(Vec::new()), |wanted| wanted.arrays(columns))
        };
        let drops = self.drops.as_ref();
        Ok(Arrays {
            keys: self.key.arrays(columns)?,
            deletes: of(drops.and_then(|drops| Some(&drops.deletes.as_ref()?.column)))?,
            expired: of(drops.and_then(|drops| Some(&drops.expired.as_ref()?.column)))?,
            versions: drops
                .map_or(&[][..], |drops| &drops.versions)
                .iter()
                .map(|version| version.arrays(columns))
                .collect::<Result<_>>()?,
        })
    }

    /// The keys of `len` rows from row `start` on.
    pub(super) fn keys(&self, arrays: &Arrays, start: usize, len: usize) -> Result<Keys> {
        self.key.encode(&arrays.keys, start, len)
    }

    /// The marks of `len` rows from row `start` on; none when every row stays.
    pub(super) fn marks(&self, arrays: &Arrays, start: usize, len: usize) -> Result<Option<Marks>> {
        let Some(drops) = &self.drops else { return Ok(None) };
        let holds = |condition: &Option<Condition<KeyColumns>>, of: &[ArrayRef]| {
            let Some(condition) = condition else { return Ok(Vec::new()) };
            Ok(condition.holds(&condition.column.encode(of, start, len)?))
        };
        let versions = drops.versions.iter().zip(&arrays.versions);
        Ok(Some(Marks {
            deletes: holds(&drops.deletes, &arrays.deletes)?,
            expired: holds(&drops.expired, &arrays.expired)?,
            versions: versions
                .map(|(version, arrays)| version.encode(arrays, start, len))
                .collect::<Result<_>>()?,
        }))
    }
}
