//! What the frozen schema calls a field that a source calls otherwise.
//!
//! ```text
//! frozen   m { old #7 }        source   n { new #7 }        n.new is m.old
//! ```
//!
//! # Invariants
//! A path of the frozen schema is itself. Other paths are what sources call so, by the same matching as
//! adapters; a path that is several fields is refused.
//!
//! # Not here
//! Names that are asked of a projection (`pick`).

use std::collections::BTreeSet;

use arrow_schema::{DataType, Fields, SchemaRef};

use super::frozen::Frozen;
use plait_base::{Error, Kind, Result};

impl Frozen {
    /// The path in the schema of what any of `sources` calls `path`; `path` itself if none does.
    ///
    /// # Errors
    /// [`Kind::UnsupportedKey`] for what sources call several fields.
    pub fn path(&self, sources: &[SchemaRef], path: &[String]) -> Result<Vec<String>> {
        if is_there(self.schema().fields(), path) {
            return Ok(path.to_vec());
        }
        let found = sources.iter().filter_map(|source| self.path_of(source.fields(), path));
        let found: BTreeSet<Vec<String>> = found.collect();
        let mut all = found.iter();
        match (all.next(), all.next()) {
            (None, _) => Ok(path.to_vec()),
            (Some(one), None) => Ok(one.clone()),
            (Some(one), Some(other)) => {
                let what = "column has a name that several columns have";
                Err(Error::new(Kind::UnsupportedKey, what)
                    .with_column(path.join("."))
                    .with_got(format!("`{}` and `{}`", one.join("."), other.join(".")))
                    .with_hint("name it as the output does"))
            }
        }
    }

    /// The path in the schema of `path` in a source.
    fn path_of(&self, source: &Fields, path: &[String]) -> Option<Vec<String>> {
        let (mut from, mut to) = (source, self.schema().fields());
        let mut places = self.places(source);
        let mut found = Vec::with_capacity(path.len());
        for (depth, name) in path.iter().enumerate() {
            let (at, own) = from.find(name)?;
            let place = places.iter().position(|place| *place == Some(at))?;
            let field = to.get(place)?;
            found.push(field.name().clone());
            if depth + 1 == path.len() {
                return Some(found);
            }
            (from, to) = match (own.data_type(), field.data_type()) {
                (DataType::Struct(from), DataType::Struct(to)) => (from, to),
                _ => return None,
            };
            places = self.members(from, to);
        }
        None
    }
}

fn is_there(mut fields: &Fields, path: &[String]) -> bool {
    for (depth, name) in path.iter().enumerate() {
        let Some((_, field)) = fields.find(name) else { return false };
        if depth + 1 == path.len() {
            return true;
        }
        let DataType::Struct(inside) = field.data_type() else { return false };
        fields = inside;
    }
    false
}
