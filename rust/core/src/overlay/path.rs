//! Which field? A path of names from the root, and its text form.
//!
//! ```text
//! text  = name { "." name }                 a.b        names a, b
//! name  = bare | '"' any text, "" is a quote '"'    "a.b"      one name with a dot
//! ```
//!
//! # Invariants
//! A path has at least one name. A text without quotes that a schema can read in two ways is
//! refused when it is looked up (`plan`), never guessed.
//!
//! # Not here
//! Looking fields up (`plan`).

use std::fmt;

use plait_base::{Error, Kind, Result};

/// Names from the root to a field; exact, case-sensitive.
///
/// ```
/// use plait_core::overlay::FieldPath;
/// let path = FieldPath::try_parse("tags.\"k8s.pod\"")?;
/// assert_eq!(path.names(), ["tags", "k8s.pod"]);
/// assert_eq!(path.to_string(), "tags.\"k8s.pod\"");
/// # Ok::<(), plait_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    names: Vec<String>,
    /// Whether it was split at dots that might have been part of a name.
    pub(super) is_split: bool,
}

impl FieldPath {
    /// The path of `names`.
    ///
    /// # Errors
    /// [`Kind::InvalidPath`] when there is no name.
    pub fn try_new(names: Vec<String>) -> Result<Self> {
        if names.is_empty() {
            return Err(Error::new(Kind::InvalidPath, "a path of fields has no name"));
        }
        Ok(Self { names, is_split: false })
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`Kind::InvalidPath`] when the text does not follow the grammar.
    pub fn try_parse(text: &str) -> Result<Self> {
        let bad = |what: &str| {
            Error::new(Kind::InvalidPath, what)
                .with_got(format!("`{text}`"))
                .with_hint("write `a.b`, `\"odd.name\".b`, or a tuple of names")
        };
        let mut names = Vec::new();
        let mut is_quoted = false;
        let mut rest = text;
        loop {
            if let Some(inner) = rest.strip_prefix('"') {
                is_quoted = true;
                let (name, behind) =
                    quoted(inner).ok_or_else(|| bad("a quoted name does not end"))?;
                names.push(name);
                rest = behind;
            } else {
                let end = rest.find('.').unwrap_or(rest.len());
                let name = &rest[..end];
                if name.is_empty() || name.contains('"') {
                    return Err(bad("a name in a path of fields is empty or half quoted"));
                }
                names.push(name.to_owned());
                rest = &rest[end..];
            }
            match rest.strip_prefix('.') {
                Some(behind) => rest = behind,
                None if rest.is_empty() => break,
                None => return Err(bad("text follows a quoted name")),
            }
        }
        let is_split = names.len() > 1 && !is_quoted;
        Ok(Self { names, is_split })
    }

    /// The names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

/// The name up to the closing quote, and what is behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(behind) => {
                name.push('"');
                rest = behind;
            }
            None => return Some((name, rest)),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&dotted(&self.names))
    }
}

/// The text form of `names`.
pub(super) fn dotted<S: AsRef<str>>(names: &[S]) -> String {
    let text = |name: &S| {
        let name = name.as_ref();
        if name.is_empty() || name.contains(['.', '"']) {
            format!("\"{}\"", name.replace('"', "\"\""))
        } else {
            name.to_owned()
        }
    };
    names.iter().map(text).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back_what_it_shows() {
        for names in [vec!["a"], vec!["a", "b"], vec!["a.b"], vec![""], vec!["say \"x\"", "é"]] {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let path = FieldPath::try_new(names.clone()).unwrap();
            assert_eq!(FieldPath::try_parse(&path.to_string()).unwrap().names(), names);
        }
    }

    #[test]
    fn broken_text_is_refused() {
        for text in ["", ".", "a.", ".a", "a..b", "\"a", "\"a\"b", "a\"b\""] {
            let kind = FieldPath::try_parse(text).unwrap_err().kind();
            assert_eq!(kind, Kind::InvalidPath, "{text}");
        }
        assert_eq!(FieldPath::try_new(Vec::new()).unwrap_err().kind(), Kind::InvalidPath);
    }
}
