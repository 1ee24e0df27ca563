//! Which column of an array is looked at, for messages.
//!
//! # Cost
//! Names are put together when something is wrong.

use arrow_schema::DataType;

use plait_base::{Error, Kind};

/// A column, or a field below it.
pub(super) struct ColumnPath<'a> {
    name: &'a str,
    above: Option<&'a ColumnPath<'a>>,
}

impl<'a> ColumnPath<'a> {
    pub(super) fn root(name: &'a str) -> Self {
        Self { name, above: None }
    }

    /// Child `place` of an array of type `parent`. Values of a dictionary have no name of their own.
    pub(super) fn child(&'a self, parent: &'a DataType, place: usize) -> Self {
        let name = match parent {
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::ListView(field)
            | DataType::LargeListView(field)
            | DataType::FixedSizeList(field, _)
            | DataType::Map(field, _) => field.name(),
            DataType::Struct(fields) => fields.get(place).map_or("", |field| field.name()),
            DataType::Union(fields, _) => {
                fields.iter().nth(place).map_or("", |(_, field)| field.name())
            }
            DataType::RunEndEncoded(ends, values) => {
                if place == 0 {
                    ends.name()
                } else {
                    values.name()
                }
            }
            _ => "",
        };
        Self { name, above: Some(self) }
    }

    /// Names from the root on, with dots between them.
    fn path(&self) -> String {
        let mut names = vec![self.name];
        let mut above = self.above;
        while let Some(place) = above {
            names.push(place.name);
            above = place.above;
        }
        names.retain(|name| !name.is_empty());
        names.reverse();
        names.join(".")
    }
}

/// The error for data that contradicts itself at a place.
pub(super) fn broken(at: &ColumnPath<'_>, what: &str) -> Error {
    let error = Error::new(Kind::CorruptSource, what)
        .with_hint("the library that made this Arrow data violated the format");
    let path = at.path();
    if path.is_empty() { error } else { error.with_column(path) }
}
