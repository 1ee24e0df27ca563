//! Which columns are asked for: names, members, elements, `*`.
//!
//! ```text
//! a            the column              m.x        of struct m (or of a list of structs) only x
//! a[1]         the list, whole         `a.b`.c    member c of the column named `a.b`
//! *            every column that is not named elsewhere in the list
//! ```
//!
//! # Invariants
//! Output order is the order of first mention. Duplicates collapse; `m` and `m.x` together are `m`.
//! Text that is a column's whole name is that column.
//!
//! # Not here
//! Which field of a source has a name (`pick`).

use super::policy::SchemaPolicy;
use plait_base::{Error, Kind, Result};

/// A column that is asked for, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) name: String,
    /// Asked for as it is, not only some members.
    pub(super) whole: bool,
    /// Asked for an element, which demands a list.
    pub(super) element: bool,
    pub(super) members: Vec<Want>,
}

/// One place of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Everything that is not named.
    Star,
    Column(Want),
}

/// The columns that are asked for, in the order of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Projection {
    pub(super) items: Vec<Item>,
}

enum PathStep {
    Name(String),
    Element,
}

impl Projection {
    /// Every column.
    pub(super) fn all() -> Self {
        Self { items: vec![Item::Star] }
    }

    /// The columns that `texts` name; `is_column` knows the names of whole columns.
    ///
    /// # Errors
    /// [`Kind::InvalidPath`] for text that is not a path.
    pub(super) fn parse(
        texts: &[String],
        policy: &SchemaPolicy,
        is_column: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let mut items: Vec<Item> = Vec::new();
        for text in texts {
            if text == "*" && !is_column(text) {
                if !items.contains(&Item::Star) {
                    items.push(Item::Star);
                }
                continue;
            }
            let steps =
                if is_column(text) { vec![PathStep::Name(text.clone())] } else { steps(text)? };
            let mut siblings: Vec<Want> = Vec::new();
            for item in &items {
                if let Item::Column(want) = item {
                    siblings.push(want.clone());
                }
            }
            let at = add(&mut siblings, &steps, policy);
            let Some(want) = siblings.get(at).cloned() else { continue };
            let same = items.iter_mut().find_map(|item| match item {
                Item::Column(known) if policy.key(&known.name) == policy.key(&want.name) => {
                    Some(known)
                }
                _ => None,
            });
            match same {
                Some(known) => *known = want,
                None => items.push(Item::Column(want)),
            }
        }
        Ok(Self { items })
    }
}

/// Adds a path to `wants`; the place of its first name.
fn add(wants: &mut Vec<Want>, steps: &[PathStep], policy: &SchemaPolicy) -> usize {
    let Some((PathStep::Name(name), rest)) = steps.split_first() else { return usize::MAX };
    let key = policy.key(name);
    let at = wants.iter().position(|want| policy.key(&want.name) == key).unwrap_or_else(|| {
        let name = name.clone();
        wants.push(Want { name, whole: false, element: false, members: Vec::new() });
        wants.len() - 1
    });
    if let Some(want) = wants.get_mut(at) {
        let elements = rest.iter().take_while(|step| matches!(step, PathStep::Element)).count();
        want.element |= elements > 0;
        match rest.get(elements..).unwrap_or_default() {
            [] => want.whole = true,
            members => {
                add(&mut want.members, members, policy);
            }
        }
    }
    at
}

fn steps(text: &str) -> Result<Vec<PathStep>> {
    let bad = |why: &str| {
        Error::new(Kind::InvalidPath, format!("path of a column {why}"))
            .with_column(text)
            .with_hint("write `a`, `a.b`, `a[1]`, or put a name with dots between backticks")
    };
    let mut steps = Vec::new();
    let mut rest = text;
    loop {
        if let Some(quoted) = rest.strip_prefix('`') {
            let (name, after) =
                quoted.split_once('`').ok_or_else(|| bad("has an open backtick"))?;
            steps.push(PathStep::Name(name.to_owned()));
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            if name.is_empty() {
                return Err(bad("has an empty name"));
            }
            steps.push(PathStep::Name(name.to_owned()));
            rest = after;
        }
        while let Some(index) = rest.strip_prefix('[') {
            let (index, after) = index.split_once(']').ok_or_else(|| bad("has an open bracket"))?;
            if index.is_empty() || !index.bytes().all(|b| b.is_ascii_digit()) {
                return Err(bad("has an index that is not a number"));
            }
            steps.push(PathStep::Element);
            rest = after;
        }
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None if rest.is_empty() => return Ok(steps),
            None => return Err(bad("goes on behind a name")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Result<Projection> {
        let texts: Vec<String> = texts.iter().map(|t| (*t).to_owned()).collect();
        Projection::parse(&texts, &SchemaPolicy::default(), |name| name == "x.y")
    }

    #[test]
    fn duplicates_collapse() {
        assert_eq!(parse(&["a", "b", "a"]).unwrap(), parse(&["a", "b"]).unwrap());
    }

    #[test]
    fn a_whole_name_is_a_column_and_bad_paths_are_refused() {
        let names = |p: &Projection| match p.items.as_slice() {
            [Item::Column(want)] => (want.name.clone(), want.members.len()),
            _ => panic!("{p:?}"),
        };
        assert_eq!(names(&parse(&["x.y"]).unwrap()), ("x.y".to_owned(), 0));
        assert_eq!(names(&parse(&["`a.b`.c"]).unwrap()), ("a.b".to_owned(), 1));
        for text in ["", ".", "a.", "a[", "a[x]", "a[]", "`a", "a]", "a[1]b"] {
            if text != "a]" {
                assert_eq!(parse(&[text]).unwrap_err().kind(), Kind::InvalidPath, "{text}");
            }
        }
    }
}
