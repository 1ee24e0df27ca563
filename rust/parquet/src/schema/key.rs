//! Which leaf does a sort column name, and how are its keys encoded?
//!
//! # Invariants
//! A sort column is one leaf that has at most one value a row. Names match exactly; what is
//! near is offered, never taken.
//!
//! # Not here
//! The text of sort orders (`plait_core::key`).

use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor, SchemaDescriptor};
use plait_core::key::{KeyType, ShownAs};
use plait_core::{Error, Kind, Result, columns_hint};

use super::leaf::LeafType;

/// The leaf at `path`.
///
/// # Errors
/// [`Kind::UnknownColumn`] with the nearest names when there is none; [`Kind::UnsupportedKey`] when
/// it is a group, repeated, or not the only one of its name.
pub(crate) fn key_leaf(descr: &SchemaDescriptor, path: &[String]) -> Result<usize> {
    let name = path.join(".");
    let refuse = |what: &str| Error::new(Kind::UnsupportedKey, what).with_column(&name);
    let parts = |column: &ColumnDescriptor| column.path().parts().to_vec();
    let mut found = descr.columns().iter().enumerate().filter(|(_, c)| c.path().parts() == path);
    if let Some((leaf, column)) = found.next() {
        if found.next().is_some() {
            return Err(refuse("sort column has a name that several columns have"));
        }
        if column.max_rep_level() > 0 {
            return Err(refuse("sort column is repeated: a row has several values of it")
                .with_hint("sort by a column outside of lists and maps"));
        }
        return Ok(leaf);
    }
    let is_inside = |c: &&ColumnDescPtr| !path.is_empty() && parts(c).starts_with(path);
    let inside: Vec<&ColumnDescPtr> = descr.columns().iter().filter(is_inside).collect();
    if !inside.is_empty() {
        let single = inside.iter().filter(|c| c.max_rep_level() == 0);
        let single: Vec<String> = single.map(|c| format!("`{}`", c.path().string())).collect();
        let shown = single.get(..NAMES_MAX).unwrap_or(&single).join(", ");
        return Err(refuse("sort column is a list, map or struct").with_hint(
            match shown.is_empty() {
                true => "sort by a column outside of lists and maps".to_owned(),
                false => format!("sort by a field of it: {shown}"),
            },
        ));
    }
    // A dot in a name must be quoted, or it is taken for a field of a struct.
    let quoted = |path: &[String]| {
        path.iter()
            .map(|part| format!("\"{}\"", part.replace('"', "\"\"")))
            .collect::<Vec<_>>()
            .join(".")
    };
    if let Some(column) = descr.columns().iter().find(|c| c.path().string() == name) {
        return Err(Error::new(Kind::UnknownColumn, "sort column is in no source")
            .with_column(&name)
            .with_hint(format!(
                "a name with a dot goes in double quotes: {}",
                quoted(column.path().parts())
            )));
    }
    let names: Vec<String> = descr.columns().iter().map(|c| c.path().string()).collect();
    Err(Error::new(Kind::UnknownColumn, "sort column is in no source")
        .with_column(&name)
        .with_hint(columns_hint(&name, &names)))
}

/// Names in a hint.
const NAMES_MAX: usize = 12;

/// How keys of a leaf are encoded.
///
/// # Errors
/// [`Kind::UnsupportedKey`] when its values have no order, naming the type.
pub(crate) fn key_type(column: &ColumnDescriptor) -> Result<KeyType> {
    let leaf = LeafType::of(column.self_type());
    leaf.as_ref().and_then(LeafType::key_type).ok_or_else(|| {
        Error::new(Kind::UnsupportedKey, "type of a sort column has no order")
            .with_column(column.path().string())
            .with_got(leaf.map_or_else(String::new, |leaf| leaf.to_string()))
            .with_hint("sort by another column")
    })
}

/// What values of a leaf stand for in messages.
pub(crate) fn key_shown(column: &ColumnDescriptor) -> ShownAs {
    LeafType::of(column.self_type()).map_or(ShownAs::Plain, |leaf| leaf.shown())
}
