//! What a merge is asked to leave out, in words, and the columns that say so.
//!
//! ```text
//! drop_where     ts < 1700000000   ─┐
//! delete_where   is_deleted        ─┼─▶ columns that a shell reads with the keys ─▶ Marks
//! version_by     version           ─┘
//! ```
//!
//! # Invariants
//! A null neither deletes nor expires, and is the lowest version. Files and tables in memory are asked in the
//! same words: only how a column is found and read is theirs.
//!
//! # Cost
//! One comparison of keys a row and condition.
//!
//! # Not here
//! Reading columns (the shells); who stays (`duplicates`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::DataType;

use super::aggregate::Aggregate;
use super::combine::{CombineOptions, VersionBy, is_named};
use super::named::named;
use super::{DropRule, OnDuplicate};
use crate::key::{
    KeyShape, KeyType, Keys, Nulls, Place, SortColumn, SortOrder, encode_arrow, literal, pack,
    place,
};
use plait_base::{Error, Kind, Result};

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct DropOptions {
    /// Which of several rows with one key stay.
    pub on_duplicate: OnDuplicate,
    /// Column of the versions of rows: the highest stays, of equal ones the last or the first.
    pub version_by: Option<String>,
    /// How the columns of rows with one key are combined, where they are.
    pub combine: CombineOptions,
    /// Boolean column: a row where it is true deletes its key.
    pub delete_where: Option<String>,
    /// Whether rows that delete stay.
    pub keep_tombstones: bool,
    /// Rows of a key column to drop, such as `timestamp < 1700000000`.
    pub drop_where: Option<String>,
    /// Whether the rows of a key come from the newest to the oldest.
    pub newest_first: bool,
}

impl DropOptions {
    /// The same with these rules for the columns of rows that are combined.
    #[must_use]
    pub fn combining(
        self,
        version_by: Option<&VersionBy>,
        replace_columns: &[String],
        aggregate: &BTreeMap<String, Aggregate>,
    ) -> Self {
        let (version_by, versions) = match version_by.cloned() {
            None => (None, BTreeMap::new()),
            Some(VersionBy::Row(name)) => (Some(name), BTreeMap::new()),
            Some(VersionBy::Columns(columns)) => (None, columns),
        };
        let replaced = replace_columns.to_vec();
        let aggregates = aggregate.clone();
        let combine = CombineOptions { replaced, versions, aggregates, is_narrowed: false };
        Self { version_by, combine, ..self }
    }

    /// Whether all rows leave.
    #[must_use]
    pub fn keeps_all(&self) -> bool {
        self.on_duplicate == OnDuplicate::KeepAll && self.drop_where.is_none()
    }

    /// Checks what can be checked without sources.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] naming the option.
    pub fn check(&self) -> Result<()> {
        use OnDuplicate::{KeepFirst, KeepLast};
        let bad = |what: &str, hint: &str| {
            Err(Error::new(Kind::InvalidArgument, what.to_owned()).with_hint(hint))
        };
        let keeps_one = matches!(self.on_duplicate, KeepFirst | KeepLast);
        if self.version_by.is_some() && self.on_duplicate.combines() {
            return bad(
                "`version_by` names one column where rows are combined",
                "with on_duplicate=\"update\", give each version column the columns that go by it",
            );
        }
        if self.version_by.is_some() && !keeps_one {
            return bad(
                "`version_by` needs on_duplicate=\"keep_last\" or \"keep_first\"",
                "pass that too: it decides which row of equal versions stays",
            );
        }
        if self.delete_where.is_some() && !keeps_one && !self.on_duplicate.combines() {
            return bad(
                "`delete_where` needs on_duplicate=\"keep_last\" or \"keep_first\"",
                "pass on_duplicate=\"keep_last\"",
            );
        }
        self.combine.check(self.on_duplicate)?;
        if self.keep_tombstones && self.delete_where.is_none() {
            return bad(
                "`keep_tombstones` needs `delete_where`",
                "name the column that marks tombstones",
            );
        }
        self.drop_where.as_deref().map_or(Ok(()), |text| {
            let (name, ..) = parse(text)?;
            named(name, Nulls::First).map(|_| ())
        })
    }

    /// The same for rows of which only the columns that `has` names are there; the others are null.
    #[must_use]
    pub fn narrowed(self, has: impl Fn(&str) -> bool) -> Self {
        let is_there = |name: &String| is_named(name, &has);
        let delete_where = self.delete_where.filter(is_there);
        let is_tested = |text: &String| parse(text).map_or(true, |(name, ..)| is_named(name, &has));
        Self {
            version_by: self.version_by.filter(is_there),
            keep_tombstones: self.keep_tombstones && delete_where.is_some(),
            delete_where,
            drop_where: self.drop_where.filter(is_tested),
            combine: self.combine.narrowed(&has),
            ..self
        }
    }

    /// The columns that are named, as they are named.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        let tested = self.drop_where.as_deref().and_then(|text| Some(parse(text).ok()?.0));
        let one = self.version_by.as_deref().into_iter().chain(self.delete_where.as_deref());
        one.chain(tested).chain(self.combine.columns().map(String::as_str))
    }

    /// The same by other names of the columns.
    ///
    /// # Errors
    /// Those of `rename`; [`Kind::InvalidArgument`] for what names no column.
    pub fn renamed(self, rename: impl Fn(&[String]) -> Result<Vec<String>>) -> Result<Self> {
        let column = |text: &str| -> Result<String> {
            let column = named(text, Nulls::First)?.columns().first().cloned();
            let Some(column) = column else { return Ok(text.to_owned()) };
            Ok(SortColumn { path: rename(&column.path)?, ..column }.dotted())
        };
        let condition = |text: String| -> Result<String> {
            let (name, ..) = parse(&text)?;
            let rest = text.trim_start().get(name.len()..).unwrap_or_default();
            Ok(format!("{}{rest}", column(name)?))
        };
        Ok(Self {
            version_by: self.version_by.as_deref().map(column).transpose()?,
            delete_where: self.delete_where.as_deref().map(column).transpose()?,
            drop_where: self.drop_where.map(condition).transpose()?,
            combine: self.combine.renamed(column)?,
            ..self
        })
    }
}

/// A column as a shell knows it: one leaf, whose values have keys.
pub trait MarkColumn {
    /// The shape of its keys.
    fn shape(&self) -> &KeyShape;
    /// The Arrow type of its values.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the schema lacks it.
    fn data_type(&self) -> Result<DataType>;
}

/// What is dropped, and where it says so.
#[derive(Clone, Debug)]
pub struct Drops<C> {
    /// Who stays.
    pub rule: DropRule,
    /// Which rows delete their key.
    pub deletes: Option<Condition<C>>,
    /// Which rows are past their retention.
    pub expired: Option<Condition<C>>,
    /// The versions of rows.
    pub versions: Vec<C>,
}

impl<C: MarkColumn> Drops<C> {
    /// What `options` ask for; `None` when every row stays. `find` finds the one column of an order.
    ///
    /// # Errors
    /// Those of `find`, and [`Kind::InvalidArgument`] for a condition that cannot be read or does not
    /// go with the sort order.
    pub fn find(
        options: &DropOptions,
        order: &SortOrder,
        find: impl Fn(&SortOrder) -> Result<C>,
    ) -> Result<Option<Self>> {
        if options.keeps_all() {
            return Ok(None);
        }
        if order.is_empty() {
            return Err(Error::new(
                Kind::InvalidArgument,
                "without a sort order all rows are equal",
            )
            .with_hint("name the key columns with sort_by to drop rows by their keys"));
        }
        let column = |name: &str, nulls: Nulls| find(&named(name, nulls)?);
        let deletes = options.delete_where.as_ref().map(|name| -> Result<_> {
            let column = column(name, Nulls::First)?;
            if column.shape().columns().iter().any(|column| column.ty != KeyType::Boolean) {
                return Err(Error::new(Kind::InvalidArgument, "`delete_where` is not boolean")
                    .with_column(name.as_str()));
            }
            let yes: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
            let value = encode_arrow(column.shape(), &[yes])?.to_bytes(column.shape(), 0);
            Ok(Condition { column, operator: Operator::Equal, value })
        });
        let versions = options.version_by.iter().chain(options.combine.versions.keys());
        let versions = versions.map(|name| column(name, Nulls::First));
        let expired = options.drop_where.as_ref().map(|text| {
            let (name, operator, value) = parse(text)?;
            // Nulls stand where the comparison is false.
            let nulls = match operator {
                Operator::Less | Operator::LessOrEqual => Nulls::Last,
                _ => Nulls::First,
            };
            let asked = named(name, nulls)?;
            let column = find(&asked).map_err(|e| match e.kind() {
                Kind::UnknownColumn => {
                    let what = "column of `drop_where` is in no source";
                    let error = Error::new(Kind::UnknownColumn, what).with_column(name);
                    match e.hint() {
                        Some(hint) => error.with_hint(hint),
                        None => error,
                    }
                }
                _ => e,
            })?;
            let is_key = |name: &str| order.columns().iter().any(|key| key.dotted() == name);
            if !column.shape().columns().iter().all(|column| is_key(&column.name)) {
                return Err(Error::new(Kind::InvalidArgument, "`drop_where` needs a key column")
                    .with_column(name)
                    .with_hint(
                        "all rows of a key are kept or dropped together: name a column of sort_by",
                    ));
            }
            let data_type = column.data_type()?;
            let (operator, value) = match (place(value, &data_type), operator) {
                // A moment within a unit of the column, such as noon of a day.
                (Ok(Place::After(before)), Operator::Less | Operator::LessOrEqual)
                    if data_type.is_temporal() =>
                {
                    (Operator::LessOrEqual, Ok(before))
                }
                (Ok(Place::After(before)), Operator::Greater | Operator::GreaterOrEqual)
                    if data_type.is_temporal() =>
                {
                    (Operator::Greater, Ok(before))
                }
                _ => (operator, literal(value, &data_type)),
            };
            let value = value
                .and_then(|value| encode_arrow(column.shape(), &[value]))
                .map_err(|e| e.with_column(name))?
                .to_bytes(column.shape(), 0);
            Ok(Condition { column, operator, value })
        });
        let versions = versions.collect::<Result<Vec<_>>>()?;
        let rule = DropRule {
            on_duplicate: options.on_duplicate,
            versions: versions.iter().map(|version| version.shape().clone()).collect(),
            keeps_tombstones: options.keep_tombstones,
            newest_first: options.newest_first,
            group_rows_max: 0,
        };
        let (deletes, expired) = (deletes.transpose()?, expired.transpose()?);
        Ok(Some(Self { rule, deletes, expired, versions }))
    }
}

/// A comparison of one column with one value.
#[derive(Clone, Debug)]
pub struct Condition<C> {
    /// The column.
    pub column: C,
    operator: Operator,
    /// The value's key.
    value: Vec<u8>,
}

impl<C> Condition<C> {
    /// Whether the condition holds for some value from `min` to `max`, both keys of its column.
    #[must_use]
    pub fn can_hold(&self, min: &[u8], max: &[u8]) -> bool {
        let value = self.value.as_slice();
        match self.operator {
            Operator::Less | Operator::LessOrEqual => self.operator.holds(min, value),
            Operator::Greater | Operator::GreaterOrEqual => self.operator.holds(max, value),
            Operator::Equal => min <= value && value <= max,
        }
    }

    /// For which of some rows the condition holds, by the keys of its column.
    #[must_use]
    pub fn holds(&self, keys: &Keys) -> Vec<bool> {
        match keys {
            Keys::Packed(keys) => {
                let value = pack(&self.value);
                keys.iter().map(|key| self.operator.holds(key, &value)).collect()
            }
            Keys::Bytes(keys) => {
                let value = self.value.as_slice();
                (0..keys.len()).map(|row| self.operator.holds(keys.get(row), value)).collect()
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

impl Operator {
    fn holds<T: Ord + ?Sized>(self, key: &T, value: &T) -> bool {
        match self {
            Self::Less => key < value,
            Self::LessOrEqual => key <= value,
            Self::Equal => key == value,
            Self::GreaterOrEqual => key >= value,
            Self::Greater => key > value,
        }
    }
}

/// Longer ones first: `<` begins `<=`.
const OPERATORS: [(&str, Operator); 6] = [
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("==", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("=", Operator::Equal),
];

/// Column, operator and value of a condition.
fn parse(text: &str) -> Result<(&str, Operator, &str)> {
    let mut in_quotes = false;
    let error = |what| {
        Error::new(Kind::InvalidArgument, what).with_got(text).with_hint(
            "write a key column, one of < <= = >= >, and a value: timestamp < 1700000000",
        )
    };
    for (at, letter) in text.char_indices() {
        in_quotes ^= letter == '"';
        let found = OPERATORS.iter().find(|(sign, _)| !in_quotes && text[at..].starts_with(sign));
        if let Some((sign, operator)) = found {
            let (name, value) = (text[..at].trim(), text[at + sign.len()..].trim());
            if name.ends_with('!') || value.starts_with(['<', '>']) {
                return Err(error("`drop_where` has another operator"));
            }
            if goes_on(value) {
                return Err(error("`drop_where` takes a single comparison"));
            }
            if !name.is_empty() && !value.is_empty() {
                return Ok((name, *operator, value));
            }
            break;
        }
    }
    Err(error("`drop_where` is not a comparison"))
}

/// Whether a further comparison follows a value.
fn goes_on(value: &str) -> bool {
    let outside: String = value.split('\'').step_by(2).collect::<Vec<_>>().join("''");
    let words = || outside.split_whitespace().map(str::to_lowercase);
    words().any(|word| word == "and" || word == "or") && outside.contains(['<', '=', '>'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_a_column_an_operator_and_a_value() {
        let read = |text: &'static str| parse(text).map(|(name, _, value)| (name, value)).ok();
        assert_eq!(read("ts<5"), Some(("ts", "5")));
        assert_eq!(read(" ts >= '2024-01-01 00:00' "), Some(("ts", "'2024-01-01 00:00'")));
        assert_eq!(read("\"a<b\".c == x"), Some(("\"a<b\".c", "x")));
        assert_eq!(read("ts"), None);
        assert_eq!(read("< 5"), None);
        assert_eq!(read("ts <"), None);
        let refused = |text: &str| parse(text).unwrap_err().what().to_owned();
        for other in ["ts <> 5", "ts != 5", "ts => 5"] {
            assert_eq!(refused(other), "`drop_where` has another operator");
        }
        let single = "`drop_where` takes a single comparison";
        assert_eq!(refused("ts < 5 AND ts > 2"), single);
        assert_eq!(refused("ts < '5' or host = 'a'"), "`drop_where` takes a single comparison");
        assert_eq!(read("k = 'a or b = c'"), Some(("k", "'a or b = c'")));
        assert_eq!(read("k = rock and roll"), Some(("k", "rock and roll")));
        let (_, operator, _) = parse("ts <= 5").unwrap();
        assert!(matches!(operator, Operator::LessOrEqual));
    }

    #[test]
    fn a_condition_that_holds_for_a_value_can_hold_between_bounds_of_it() {
        for operator in OPERATORS.map(|(_, operator)| operator) {
            let condition = Condition { column: (), operator, value: vec![5] };
            for (min, max) in (0..10_u8).flat_map(|a| (a..10).map(move |b| (a, b))) {
                let holds = (min..=max).any(|key| operator.holds(&[key][..], &[5][..]));
                assert_eq!(condition.can_hold(&[min], &[max]), holds, "{operator:?} {min} {max}");
            }
        }
    }

    #[test]
    fn a_condition_holds_for_packed_keys_as_for_bytes() {
        let bytes: Vec<[u8; 2]> = vec![[0, 0], [1, 0], [1, 1], [2, 0]];
        let packed = Keys::Packed(bytes.iter().map(|key| pack(key)).collect());
        let mut long = crate::key::KeyBytes::default();
        bytes.iter().for_each(|key| long.push(key));
        let long = Keys::Bytes(long);
        for (sign, expected) in [
            ("<", [true, true, false, false]),
            ("<=", [true, true, true, false]),
            ("==", [false, false, true, false]),
            (">=", [false, false, true, true]),
            (">", [false, false, false, true]),
        ] {
            let operator = OPERATORS.iter().find(|(name, _)| *name == sign).unwrap().1;
            let condition = Condition { column: (), operator, value: vec![1, 1] };
            assert_eq!(condition.holds(&packed), expected);
            assert_eq!(condition.holds(&long), expected);
        }
    }
}
