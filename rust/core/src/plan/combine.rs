//! How the columns of rows that share a key become those of one row.
//!
//! ```text
//! key  a     b     seq  c          rows in merged order
//! 7    1     x     1    p
//! 7    null  y     3    q
//! 7    2     null  2    r
//! 7    2     y     3    q          update; c goes by the version seq
//! ```
//!
//! # Invariants
//! A rule takes and gives values of the column's own type, and the result of merging neighbours
//! first is that of merging all at once. Sums of floats are the exception: they are rounded.
//!
//! # Not here
//! Which rows share a key (`duplicates`); reading values (the shells).

use std::collections::{BTreeMap, BTreeSet};

use arrow_schema::Fields;
use serde::{Deserialize, Serialize};

use super::aggregate::{Aggregate, NewValue};
use super::duplicates::OnDuplicate;
use super::groups::{KeyGroup, SourceRow};
use super::named::named;
use crate::key::Nulls;
use plait_base::{Error, Kind, Result, columns_hint};

/// What says which row is the newest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum VersionBy {
    /// One column, for whole rows.
    Row(String),
    /// Columns, each for some of the columns.
    Columns(BTreeMap<String, Vec<String>>),
}

impl VersionBy {
    /// The version columns.
    pub fn columns(&self) -> impl Iterator<Item = &String> {
        let (row, columns) = match self {
            Self::Row(name) => (Some(name), None),
            Self::Columns(columns) => (None, Some(columns.keys())),
        };
        row.into_iter().chain(columns.into_iter().flatten())
    }
}

/// How the columns of rows with one key are combined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CombineOptions {
    /// Update: the columns that take the value of the last row even if that is null.
    pub replaced: Vec<String>,
    /// Update: version columns, and the columns that take the value of the row with the highest
    /// version, null or not. A version that is null is the lowest.
    pub versions: BTreeMap<String, Vec<String>>,
    /// Aggregate: the functions of columns; the others take the value of the last row.
    pub aggregates: BTreeMap<String, Aggregate>,
    /// Whether functions of columns that are not there were left out, perhaps all.
    pub(super) is_narrowed: bool,
}

impl CombineOptions {
    /// Checks what can be checked without sources.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] naming the option.
    pub(super) fn check(&self, on_duplicate: OnDuplicate) -> Result<()> {
        let bad = |what: &str, hint: &str| {
            Err(Error::new(Kind::InvalidArgument, what.to_owned()).with_hint(hint))
        };
        let is_update = on_duplicate == OnDuplicate::Update;
        let hint = "pass on_duplicate=\"update\"";
        if !self.replaced.is_empty() && !is_update {
            return bad("`replace_columns` needs on_duplicate=\"update\"", hint);
        }
        if !self.versions.is_empty() && !is_update {
            return bad("`version_by` with columns needs on_duplicate=\"update\"", hint);
        }
        let is_aggregate = on_duplicate == OnDuplicate::Aggregate;
        if !self.aggregates.is_empty() && !is_aggregate {
            return bad(
                "`aggregate` needs on_duplicate=\"aggregate\"",
                "pass on_duplicate=\"aggregate\"",
            );
        }
        if self.aggregates.is_empty() && is_aggregate && !self.is_narrowed {
            return bad(
                "on_duplicate=\"aggregate\" needs `aggregate`",
                "give the function of at least one column, such as sum",
            );
        }
        let mut seen = BTreeSet::new();
        for name in self.columns() {
            let named = named(name, Nulls::First)?;
            let path = named.columns().first().map(|column| column.path.clone());
            let [root] = path.as_deref().unwrap_or_default() else {
                return Err(Error::new(Kind::InvalidArgument, "this names a part of a column")
                    .with_got(name.as_str())
                    .with_hint("rows are combined column by column: name the whole column"));
            };
            if !seen.insert(root.clone()) {
                return Err(Error::new(Kind::InvalidArgument, "a column has two rules")
                    .with_column(name.as_str())
                    .with_hint("name each column once, and no version column among its columns"));
            }
        }
        Ok(())
    }

    /// The rules of those columns that `has` names. A version column that is not there is null, so
    /// the last row is the newest.
    pub(super) fn narrowed(mut self, has: impl Fn(&str) -> bool) -> Self {
        let is_there = |name: &String| is_named(name, &has);
        let functions = self.aggregates.len();
        self.aggregates.retain(|name, _| is_there(name));
        self.is_narrowed |= self.aggregates.len() < functions;
        for (version, of) in std::mem::take(&mut self.versions) {
            match is_there(&version) {
                true => drop(self.versions.insert(version, of)),
                false => self.replaced.extend(of),
            }
        }
        self.versions.values_mut().for_each(|of| of.retain(is_there));
        self.replaced.retain(is_there);
        self
    }

    pub(super) fn columns(&self) -> impl Iterator<Item = &String> {
        let by_version = self.versions.iter().flat_map(|(name, of)| of.iter().chain([name]));
        self.replaced.iter().chain(by_version).chain(self.aggregates.keys())
    }

    /// The same by other names of the columns.
    ///
    /// # Errors
    /// Those of `rename`.
    pub(super) fn renamed(self, rename: impl Fn(&str) -> Result<String>) -> Result<Self> {
        let all = |names: Vec<String>| -> Result<Vec<String>> {
            names.iter().map(|name| rename(name)).collect()
        };
        let versions = self.versions.into_iter().map(|(name, of)| Ok((rename(&name)?, all(of)?)));
        let aggregates = self.aggregates.into_iter().map(|(name, of)| Ok((rename(&name)?, of)));
        Ok(Self {
            replaced: all(self.replaced)?,
            versions: versions.collect::<Result<_>>()?,
            aggregates: aggregates.collect::<Result<_>>()?,
            is_narrowed: self.is_narrowed,
        })
    }
}

/// Whether `has` names the column that `text` names; what names none is refused by others.
pub(super) fn is_named(text: &str, has: impl Fn(&str) -> bool) -> bool {
    let Ok(named) = named(text, Nulls::First) else { return true };
    named.columns().iter().any(|column| has(&column.path.join(".")))
}

/// Which of the values of a column stays, or what is made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueRule {
    /// That of the row with the highest version of this version column.
    Newest(usize),
    /// What the function gives.
    By(Aggregate),
}

impl ValueRule {
    /// The rules of the columns of a schema. `is_key` says which of them have sort columns: they take
    /// the value of the first row, or the last if there are others in them. Empty if rows are not combined.
    ///
    /// # Errors
    /// [`Kind::UnknownColumn`]; [`Kind::InvalidArgument`] for a rule of a sort column, and for a
    /// function that does not take values of the column's type.
    pub fn find(
        on_duplicate: OnDuplicate,
        options: &CombineOptions,
        fields: &Fields,
        is_key: impl Fn(&str) -> bool,
    ) -> Result<Vec<Self>> {
        let otherwise = match on_duplicate {
            OnDuplicate::Update => Aggregate::LastNonNull,
            OnDuplicate::Aggregate => Aggregate::Last,
            _ => return Ok(Vec::new()),
        };
        let columns: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        // Rows of one key have one value there: that of the first is likely to be copied with others.
        let all = fields.iter().map(|field| match is_key(field.name()) {
            true if field.data_type().is_nested() => Self::By(Aggregate::Last),
            true => Self::By(Aggregate::First),
            false => Self::By(otherwise),
        });
        let mut rules: Vec<Self> = all.collect();
        let mut set = |name: &String, rule: Self| {
            let named = named(name, Nulls::First)?;
            let root = named.columns().first().and_then(|column| column.path.first());
            let found = columns.iter().position(|column| Some(column) == root);
            let Some((at, place)) = found.and_then(|at| Some((at, rules.get_mut(at)?))) else {
                return Err(Error::new(Kind::UnknownColumn, "no source has this column")
                    .with_column(name.as_str())
                    .with_hint(columns_hint(name, &columns)));
            };
            if is_key(&columns[at]) {
                return Err(Error::new(Kind::InvalidArgument, "a sort column has one value a key")
                    .with_column(name.as_str())
                    .with_hint("name columns that are not in sort_by"));
            }
            if let Self::By(function) = rule {
                function.check(fields[at].data_type()).map_err(|e| e.with_column(name.as_str()))?;
            }
            *place = rule;
            Ok(())
        };
        options.replaced.iter().try_for_each(|name| set(name, Self::By(Aggregate::Last)))?;
        for (at, (version, of)) in options.versions.iter().enumerate() {
            set(version, Self::Newest(at))?;
            of.iter().try_for_each(|name| set(name, Self::Newest(at)))?;
        }
        options.aggregates.iter().try_for_each(|(name, of)| set(name, Self::By(*of)))?;
        Ok(rules)
    }

    /// Whether all values are those of the last row.
    #[must_use]
    pub fn is_last(self) -> bool {
        self == Self::By(Aggregate::Last)
    }

    /// What several values that are not null become, if it is none of them.
    #[must_use]
    pub fn makes(self) -> Option<NewValue> {
        match self {
            Self::By(function) => function.makes(),
            Self::Newest(_) => None,
        }
    }

    /// Which row of `group` has the value that stays; `None` if it is a new value.
    ///
    /// # Errors
    /// Those of `values`.
    pub fn choose(
        self,
        group: KeyGroup<'_>,
        values: &mut dyn ColumnValues,
    ) -> Result<Option<usize>> {
        let rows = group.rows;
        let last = rows.len().saturating_sub(1);
        let mut best = |wins: fn(&[u8], &[u8]) -> bool| -> Result<Option<usize>> {
            let mut best: Option<(usize, Vec<u8>)> = None;
            for (at, row) in rows.iter().enumerate() {
                let Some(key) = values.key(*row)? else { continue };
                if best.as_ref().is_none_or(|(_, best)| wins(&key, best)) {
                    best = Some((at, key));
                }
            }
            Ok(Some(best.map_or(last, |(at, _)| at)))
        };
        match self {
            Self::Newest(at) => {
                let newest = group.newest.get(at).map(|place| *place as usize);
                Ok(Some(newest.unwrap_or(last).min(last)))
            }
            Self::By(Aggregate::Last) => Ok(Some(last)),
            Self::By(Aggregate::First) => Ok(Some(0)),
            Self::By(Aggregate::LastNonNull) => {
                // If no other row has a value, the first gives its own, or null.
                for (at, row) in rows.iter().enumerate().skip(1).rev() {
                    if !values.is_null(*row)? {
                        return Ok(Some(at));
                    }
                }
                Ok(Some(0))
            }
            Self::By(Aggregate::FirstNonNull) => {
                for (at, row) in rows.iter().enumerate().take(last) {
                    if !values.is_null(*row)? {
                        return Ok(Some(at));
                    }
                }
                Ok(Some(last))
            }
            Self::By(Aggregate::Min | Aggregate::BoolAnd) => best(|key, best| key < best),
            Self::By(Aggregate::Max | Aggregate::BoolOr) => best(|key, best| key > best),
            Self::By(_) => {
                let mut known = None;
                for (at, row) in rows.iter().enumerate() {
                    if !values.is_null(*row)? && known.replace(at).is_some() {
                        return Ok(None);
                    }
                }
                Ok(Some(known.unwrap_or(last)))
            }
        }
    }
}

/// The values of one column of all sources. Rows of a source are asked for in ascending order, but
/// for those of one key, which may come in any.
pub trait ColumnValues {
    /// Whether the value of a row is null.
    ///
    /// # Errors
    /// Whatever is wrong with the source.
    fn is_null(&mut self, row: SourceRow) -> Result<bool>;

    /// The key of the value; none if it is null.
    ///
    /// # Errors
    /// Whatever is wrong with the source.
    fn key(&mut self, row: SourceRow) -> Result<Option<Vec<u8>>>;
}
