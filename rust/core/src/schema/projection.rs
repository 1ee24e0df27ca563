//! Which columns are asked for: names, members, elements, `*`.
//!
//! ```text
//! a            the column              m.x        of struct m (or of a list of structs) only x
//! a[1]         the list, whole         `a.b`.c    member c of the column named `a.b`
//! m['k']       of map m the value of k m.x as y   member x itself, called y
//! *            every column that is not named elsewhere in the list
//! ```
//!
//! # Invariants
//! Output order is the order of first mention. Duplicates collapse; `m` and `m.x` together are `m`.
//! Text that is a column's whole name is that column. What gets another name is a column of its own.
//!
//! # Not here
//! Which field of a source has a name (`pick`); columns with other names (`selection`).

use super::policy::SchemaPolicy;
use plait_base::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

/// A column that is asked for, and what of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Want {
    pub(super) name: String,
    /// Asked for as it is, not only some members.
    pub(super) whole: bool,
    /// Asked for elements of so many levels, which demands lists.
    pub(super) elements: usize,
    pub(super) members: Vec<Want>,
}

/// One column of the output, where some have other names than the columns they come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum OutputColumn {
    /// Everything that is not named.
    Star,
    /// Of the item at this place what is wanted, by its own name.
    Same(usize, Want),
    /// What a path leads to in the item at this place, by another name.
    Other { item: usize, path: Vec<Reach>, name: String },
}

/// One step from a column to what is below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reach {
    /// A member of a struct, or of the structs of a list.
    Member(String),
    /// The value of a key of a map, or of the maps of a list.
    Key(String),
}

/// Whether columns may get other names, or a name with ` as ` is a name like any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renaming {
    /// Names are names.
    #[default]
    Never,
    /// `a as b` is `a`, called `b`.
    As,
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
    /// The columns of the output; none if they are the items.
    pub(super) shown: Option<Vec<OutputColumn>>,
}

enum PathStep {
    Name(String),
    Element,
    Key(String),
}

impl Projection {
    /// Every column.
    pub(super) fn all() -> Self {
        Self { items: vec![Item::Star], shown: None }
    }

    /// The columns that `texts` name; `is_column` knows the names of whole columns.
    ///
    /// # Errors
    /// [`Kind::InvalidPath`] for text that is not a path.
    pub(super) fn parse(
        texts: &[String],
        policy: &SchemaPolicy,
        renaming: Renaming,
        is_column: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let mut items: Vec<Item> = Vec::new();
        let mut shown: Vec<OutputColumn> = Vec::new();
        for text in texts {
            if text == "*" && !is_column(text) {
                if !items.contains(&Item::Star) {
                    items.push(Item::Star);
                    shown.push(OutputColumn::Star);
                }
                continue;
            }
            let (path, name) = match renaming {
                Renaming::As if !is_column(text) => split(text)?,
                _ => (text.as_str(), None),
            };
            let steps =
                if is_column(path) { vec![PathStep::Name(path.to_owned())] } else { steps(path)? };
            let by_key = steps.iter().any(|step| matches!(step, PathStep::Key(_)));
            if by_key && renaming == Renaming::Never {
                return Err(no_key(text));
            }
            // The value of a key is no column of its own without a name: it gets that of its path.
            let name = name.or_else(|| by_key.then(|| path.to_owned()));
            let Some(item) = merge(&mut items, &steps, policy) else { continue };
            shown_as(&mut shown, item, &steps, name, policy);
        }
        let is_other = |shown: &OutputColumn| matches!(shown, OutputColumn::Other { .. });
        let shown = shown.iter().any(is_other).then_some(shown);
        Ok(Self { items, shown })
    }
}

/// Adds a path to the items; the place of its column.
fn merge(items: &mut Vec<Item>, steps: &[PathStep], policy: &SchemaPolicy) -> Option<usize> {
    let mut siblings: Vec<Want> = items
        .iter()
        .filter_map(|item| match item {
            Item::Column(want) => Some(want.clone()),
            Item::Star => None,
        })
        .collect();
    let at = add(&mut siblings, steps, policy);
    let want = siblings.get(at).cloned()?;
    let is_same = |item: &Item| match item {
        Item::Column(known) => policy.key(&known.name) == policy.key(&want.name),
        Item::Star => false,
    };
    let place = items.iter().position(is_same).unwrap_or(items.len());
    match items.get_mut(place) {
        Some(known) => *known = Item::Column(want),
        None => items.push(Item::Column(want)),
    }
    Some(place)
}

/// Adds the column that a path is to those of the output.
fn shown_as(
    shown: &mut Vec<OutputColumn>,
    item: usize,
    steps: &[PathStep],
    name: Option<String>,
    policy: &SchemaPolicy,
) {
    if let Some(name) = name {
        let below = steps.iter().skip(1).filter_map(|step| match step {
            PathStep::Name(name) => Some(Reach::Member(name.clone())),
            PathStep::Key(key) => Some(Reach::Key(key.clone())),
            PathStep::Element => None,
        });
        return shown.push(OutputColumn::Other { item, path: below.collect(), name });
    }
    let known = shown.iter_mut().find_map(|shown| match shown {
        OutputColumn::Same(at, want) if *at == item => Some(want),
        _ => None,
    });
    let mut wants: Vec<Want> = known.as_deref().cloned().into_iter().collect();
    add(&mut wants, steps, policy);
    match (known, wants.into_iter().next()) {
        (Some(known), Some(want)) => *known = want,
        (None, Some(want)) => shown.push(OutputColumn::Same(item, want)),
        (_, None) => {}
    }
}

fn no_key(text: &str) -> Error {
    Error::new(Kind::InvalidPath, "path of a column has a key of a map")
        .with_column(text)
        .with_hint("name the map, which has the key; scans take the values of one key")
}

/// The path and the name of `path as name`, by the last ` as ` that is not in quotes.
fn split(text: &str) -> Result<(&str, Option<String>)> {
    let (mut quote, mut before): (Option<char>, char) = (None, '`');
    let mut found = None;
    for (at, c) in text.char_indices() {
        let last = std::mem::replace(&mut before, c);
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '`' || (last == '[' && matches!(c, '\'' | '"')) => quote = Some(c),
            None => {
                let word = text.get(at..at + 4);
                found = word.filter(|w| w.eq_ignore_ascii_case(" as ")).map(|_| at).or(found);
            }
        }
    }
    let Some(at) = found else { return Ok((text, None)) };
    let (path, rest) = text.split_at(at);
    let name = rest.get(4..).unwrap_or_default().trim();
    let quoted = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
    let name = quoted.unwrap_or(name);
    if name.is_empty() || name.contains('`') {
        return Err(Error::new(Kind::InvalidPath, "column gets an empty or open name")
            .with_column(text)
            .with_hint("write `path as name`, with the name between backticks if it has spaces"));
    }
    Ok((path.trim(), Some(name.to_owned())))
}

/// Adds a path to `wants`; the place of its first name.
fn add(wants: &mut Vec<Want>, steps: &[PathStep], policy: &SchemaPolicy) -> usize {
    let Some((PathStep::Name(name), rest)) = steps.split_first() else { return usize::MAX };
    let key = policy.key(name);
    let at = wants.iter().position(|want| policy.key(&want.name) == key).unwrap_or_else(|| {
        let name = name.clone();
        wants.push(Want { name, whole: false, elements: 0, members: Vec::new() });
        wants.len() - 1
    });
    if let Some(want) = wants.get_mut(at) {
        let elements = rest.iter().take_while(|step| matches!(step, PathStep::Element)).count();
        want.elements = want.elements.max(elements);
        match rest.get(elements..).unwrap_or_default() {
            // Of a map all keys are read.
            [] | [PathStep::Key(_), ..] => want.whole = true,
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
            if let Some((key, after)) = key_of_map(index) {
                steps.push(PathStep::Key(key.to_owned()));
                rest = after;
                continue;
            }
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

/// The key between quotes at the start of `text`, and what follows its bracket.
fn key_of_map(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text.get(1..)?.split_once(&format!("{quote}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Result<Projection> {
        let texts: Vec<String> = texts.iter().map(|t| (*t).to_owned()).collect();
        Projection::parse(&texts, &SchemaPolicy::default(), Renaming::As, |name| name == "x.y")
    }

    #[test]
    fn duplicates_collapse() {
        assert_eq!(parse(&["a", "b", "a"]).unwrap(), parse(&["a", "b"]).unwrap());
    }

    #[test]
    fn another_name_is_that_behind_the_last_as_outside_of_quotes() {
        let shown = |text: &str| match parse(&[text]).unwrap().shown.as_deref() {
            Some([OutputColumn::Other { path, name, .. }]) => (path.clone(), name.clone()),
            other => panic!("{other:?}"),
        };
        let member = |name: &str| Reach::Member(name.to_owned());
        assert_eq!(shown("a as b"), (vec![], "b".to_owned()));
        assert_eq!(shown("m.x AS `a as b`"), (vec![member("x")], "a as b".to_owned()));
        assert_eq!(shown("`a as b`.c as d"), (vec![member("c")], "d".to_owned()));
        assert_eq!(shown("x.y as z"), (vec![], "z".to_owned()));
        assert_eq!(shown("m['k as l'].v").1, "m['k as l'].v");
        for text in ["a as ", "a as `b"] {
            assert_eq!(parse(&[text]).unwrap_err().kind(), Kind::InvalidPath, "{text}");
        }
        assert_eq!(parse(&["a", "b"]).unwrap().shown, None);
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
