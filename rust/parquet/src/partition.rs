//! Partitions of outputs: the order that keeps their rows together, and the folders they lie in.
//!
//! ```text
//! partition_by day, host; sort_by -ts         order of the merge    day, host, -ts
//!                                             order of a file       -ts
//! day 2024-05-01, host "a/b"                  folder                day=2024-05-01/host=a%2Fb/
//! ```
//!
//! # Invariants
//! Rows have one folder if and only if they have one key prefix: texts of values differ where keys
//! do, and values whose text other readers take for another value are refused. A folder's name is
//! one step of a path whatever the value is.
//!
//! # Not here
//! Where partitions begin (`plan`); making folders (`output`).

use std::fmt::Write;

use plait_core::key::{
    Curve, KeyShape, KeyType, Nulls, ShownAs, SortColumn, SortOrder, shown_values,
};
use plait_core::{Error, Kind, Result};

use crate::keys::KeyLeaves;
use crate::options::{MergeOptions, PartitionColumnsOption};
use crate::schema::{Reconciled, key_leaf, key_shown};

/// More partitions are a mistake, or make folders that nothing can list.
pub(crate) const PARTITIONS_MAX: usize = 100_000;

/// What Hive calls a null.
const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Longest name of a folder that file systems take.
const NAME_BYTES_MAX: usize = 255;

/// Characters that Hive and Spark escape, besides control characters.
const ESCAPED: &str = "\"#%'*/:=?\\{[]^\u{7f}";

/// The names of the partition columns in the output.
///
/// # Errors
/// As [`Reconciled::path`].
pub(crate) fn names(options: &MergeOptions, reconciled: &Reconciled) -> Result<Vec<String>> {
    let name = |name: &String| Ok(reconciled.path(std::slice::from_ref(name))?.concat());
    options.partition_by.iter().map(name).collect()
}

/// The order of the merge of partitions by `names` whose rows are to be in `order`: `order` itself
/// if its first columns are these, in any sequence and direction.
///
/// # Errors
/// [`Kind::InvalidArgument`] for a column that is named twice, or part of a curve.
pub(crate) fn order(names: &[String], order: &SortOrder) -> Result<SortOrder> {
    let is_partition = |column: &SortColumn| names.iter().any(|name| column.path == [&**name]);
    let columns = order.plain();
    if let Some(column) = order.columns().iter().skip(columns.len()).find(|c| is_partition(c)) {
        let what = "partition column is part of a curve";
        return Err(Error::new(Kind::InvalidArgument, what)
            .with_column(column.dotted())
            .with_hint("leave it out of the curve: it has one value in a file"));
    }
    let leading = columns.iter().take_while(|column| is_partition(column)).count();
    if leading == names.len() {
        return Ok(order.clone());
    }
    let first = names.iter().map(|name| {
        let asked = columns.iter().find(|column| column.path == [&**name]).cloned();
        let path = vec![name.clone()];
        asked.unwrap_or(SortColumn { path, descending: false, nulls: Nulls::Last })
    });
    let rest = order.columns().iter().filter(|column| !is_partition(column)).cloned();
    let all: Vec<SortColumn> = first.chain(rest).collect();
    let own = order.len() - columns.len();
    let curve = order.curve().map(|curve| Curve { start: all.len() - own, ..curve });
    SortOrder::try_new(all)?.with_curve(curve)
}

/// The order of the rows of one file, where the merge is in `order`.
///
/// # Errors
/// None that is known.
pub(crate) fn order_inside(order: &SortOrder, options: &MergeOptions) -> Result<SortOrder> {
    let skipped = options.partition_by.len();
    let curve = order.curve();
    let curve = curve.map(|curve| Curve { start: curve.start.saturating_sub(skipped), ..curve });
    SortOrder::try_new(order.columns().iter().skip(skipped).cloned().collect())?.with_curve(curve)
}

/// The leading columns of `keys`: those of the partitions.
///
/// # Errors
/// None that is known.
pub(crate) fn leading(keys: &KeyLeaves, options: &MergeOptions) -> Result<KeyLeaves> {
    let columns = options.partition_by.len();
    Ok(KeyLeaves {
        shape: keys.shape.leading(columns)?,
        leaves: keys.leaves.iter().take(columns).cloned().collect(),
        ranks: None,
        kept: None,
    })
}

/// Leaves that are not in the files.
pub(crate) fn left_out(keys: &KeyLeaves, options: &MergeOptions) -> Vec<usize> {
    match options.partition_columns {
        PartitionColumnsOption::Keep => Vec::new(),
        PartitionColumnsOption::Drop => {
            let columns = options.partition_by.len();
            keys.leaves.iter().take(columns).map(|leaf| leaf.index).collect()
        }
    }
}

/// Refuses columns whose values are no names of folders.
///
/// # Errors
/// [`Kind::UnsupportedKey`], [`Kind::InvalidArgument`].
pub(crate) fn check(names: &[String], keys: &KeyLeaves, reconciled: &Reconciled) -> Result<()> {
    for (at, name) in names.iter().enumerate() {
        if names.iter().take(at).any(|other| other == name) {
            let what = "partition column is named twice";
            return Err(Error::new(Kind::InvalidArgument, what).with_column(name));
        }
        if name.starts_with(['_', '.']) || name.is_empty() {
            let what = "partition column has a name that readers of folders pass over";
            return Err(Error::new(Kind::InvalidArgument, what)
                .with_column(name)
                .with_hint("rename it: names of folders must not begin with `_` or `.`"));
        }
    }
    let columns = keys.shape.columns().iter().zip(&keys.leaves);
    for (column, leaf) in columns.take(names.len()) {
        let is_text = match column.ty {
            KeyType::Boolean
            | KeyType::Int32
            | KeyType::Int64
            | KeyType::UInt32
            | KeyType::UInt64
            | KeyType::Decimal128 { .. }
            | KeyType::Decimal256 { .. } => true,
            KeyType::Bytes { text } => text,
            _ => false,
        };
        if !is_text {
            return Err(Error::new(Kind::UnsupportedKey, "type of a partition column has no text")
                .with_column(&column.name)
                .with_got(leaf.descr.physical_type().to_string())
                .with_hint("take text, whole numbers, decimals, dates, times or booleans"));
        }
    }
    if !names.is_empty() && reconciled.schema.get_fields().len() == names.len() {
        return Err(Error::new(Kind::InvalidArgument, "all columns are partition columns")
            .with_got(names.join(", "))
            .with_hint("leave one out, or pass partition_columns=\"keep\""));
    }
    Ok(())
}

/// Turns keys of partitions into folders.
pub(crate) struct Folders {
    shape: KeyShape,
    /// The columns of a key as the path has them: name, place in the key, meaning.
    steps: Vec<Step>,
}

struct Step {
    name: String,
    column: usize,
    shown: ShownAs,
}

impl Folders {
    /// Of partitions by `names`, whose keys are the leading columns of `keys`.
    ///
    /// # Errors
    /// [`Kind::UnknownColumn`].
    pub(crate) fn new(names: &[String], keys: &KeyLeaves, reconciled: &Reconciled) -> Result<Self> {
        let mut steps = Vec::with_capacity(names.len());
        for name in names {
            let leaf = key_leaf(&reconciled.descr, std::slice::from_ref(name))?;
            let column = keys.leaves.iter().position(|key| key.index == leaf).unwrap_or(0);
            let shown = key_shown(&reconciled.descr.column(leaf));
            steps.push(Step { name: name.clone(), column, shown });
        }
        Ok(Self { shape: keys.shape.leading(names.len())?, steps })
    }

    /// The folder of the partition whose keys begin with `prefix`: `day=2024-05-01/`.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a value that is no name of a folder.
    pub(crate) fn of(&self, prefix: &[u8]) -> Result<String> {
        let values = shown_values(&self.shape, prefix)?;
        let mut path = String::new();
        for Step { name, column, shown } in &self.steps {
            let text = values.get(*column).cloned().flatten().map(|value| value.to_string());
            let refuse = |what: &str, got: &str, hint: &str| {
                Err(Error::new(Kind::InvalidArgument, what)
                    .with_column(name)
                    .with_got(format!("`{got}`"))
                    .with_hint(hint))
            };
            let folder = match text.as_deref() {
                None => HIVE_NULL.to_owned(),
                Some(text @ ("" | HIVE_NULL)) => {
                    let hint = "replace the value, or partition by another column";
                    return refuse("readers take the folder of this value for a null", text, hint);
                }
                // Years that no calendar has are shown as numbers.
                Some(text) if *shown != ShownAs::Plain && text.parse::<i64>().is_ok() => {
                    let hint = "years go from 0 to 9999";
                    return refuse("a partition value is in no calendar", text, hint);
                }
                Some(text) => escaped(text),
            };
            let step = format!("{}={folder}", escaped(name));
            if step.len() > NAME_BYTES_MAX {
                let got: String = step.chars().take(64).collect();
                let hint = format!("names of folders have at most {NAME_BYTES_MAX} bytes");
                return refuse("a partition value is too long", &format!("{got}…"), &hint);
            }
            path.push_str(&step);
            path.push('/');
        }
        Ok(path)
    }
}

/// Whether `folder` is one that [`Folders::of`] makes, of so many columns.
pub(crate) fn is_folder(folder: &str, columns: usize) -> bool {
    let Some(steps) = folder.strip_suffix('/') else { return false };
    let is_step = |step: &str| {
        step.split_once('=').is_some_and(|(name, value)| {
            let is_plain = |text: &str| !text.is_empty() && !text.contains(['=', '\\', '\0']);
            is_plain(name) && is_plain(value) && !name.starts_with(['.', '_'])
        })
    };
    steps.split('/').count() == columns && steps.split('/').all(is_step)
}

/// `error`, in the words of partitions if it is that of a source which is not in `order`.
pub(crate) fn explained(error: Error, options: &MergeOptions, order: &SortOrder) -> Error {
    if error.kind() != Kind::UnsortedSource || options.partition_by.is_empty() {
        return error;
    }
    let what = "source is not sorted by its partition columns and sort_by";
    let mut said = Error::new(Kind::UnsortedSource, what).with_column(order.to_string());
    if let Some(path) = error.path() {
        said = said.with_path(path);
    }
    if let Some(row) = error.row() {
        said = said.with_row(row);
    }
    said.with_got(error.got().unwrap_or_else(|| error.what()))
        .with_hint("pass unsorted=\"sort\", or call plait.sort")
}

/// `text` as a part of a folder's name.
fn escaped(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for c in text.chars() {
        if c < ' ' || ESCAPED.contains(c) {
            let _ = write!(name, "%{:02X}", u32::from(c));
        } else {
            name.push(c);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(names: &[&str], asked: &str) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        order(&names, &SortOrder::try_parse(asked).unwrap()).unwrap().to_string()
    }

    #[test]
    fn partition_columns_lead_the_order() {
        assert_eq!(merged(&["day"], "ts"), "day, ts");
        assert_eq!(merged(&["day"], "ts, -day"), "-day, ts");
        assert_eq!(merged(&["a", "b"], "-b, a nulls first, c"), "-b, a nulls first, c");
        assert_eq!(merged(&["a", "b"], "a, c, b"), "a, b, c");
        assert_eq!(merged(&["a"], ""), "a");
        assert_eq!(merged(&["a"], "c, a, zorder(x, y)"), "a, c, zorder(x, y)");
    }

    #[test]
    fn names_of_folders_are_escaped_as_hive_does() {
        assert_eq!(escaped("a/b=c:d%é +\n"), "a%2Fb%3Dc%3Ad%25é +%0A");
    }

    #[test]
    fn folders_of_plans_are_checked() {
        assert!(is_folder("a=1/b=x%2F/", 2));
        for bad in ["a=1", "a=1/", "../a=1/", "a=1//", "/a=1/", "a=../../x/", "a=/b=1/"] {
            assert!(!is_folder(bad, 2), "{bad}");
        }
    }
}
