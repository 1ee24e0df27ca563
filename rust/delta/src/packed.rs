//! A live file in few bytes: what many files have in common is there once.
//!
//! ```text
//! {"numRecords":9,"minValues":{"k":3}}   ─▶ {"numRecords":·,"minValues":{"k":·}}   of all files
//!                                           9 3                                    of one
//! ```
//!
//! # Invariants
//! What comes out is what went in, to the byte.
//!
//! # Cost
//! A pass over the statistics of a file each time.
//!
//! # Not here
//! What statistics say (`stats`, `prune`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::action::{Add, Texts, Vector};

/// In a pattern: a value. JSON has no such byte.
const VALUE: char = '\u{1}';
/// Between values.
const END: char = '\u{2}';

/// What files have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    partitions: BTreeMap<Texts, Arc<Texts>>,
    patterns: BTreeSet<Arc<str>>,
}

/// A text of JSON without what others have, too.
#[derive(Clone, Debug)]
struct PackedText {
    pattern: Arc<str>,
    values: Box<str>,
}

/// What a commit says of a file that it adds.
#[derive(Clone, Debug)]
pub(crate) struct PackedAdd {
    /// As the commit has it.
    pub(crate) path: Arc<str>,
    pub(crate) partition_values: Arc<Texts>,
    pub(crate) size: i64,
    /// In milliseconds since 1970.
    pub(crate) modification_time: i64,
    stats: Option<PackedText>,
    /// The rest, if there is any.
    rest: Option<Box<Add>>,
    data_change: bool,
}

impl PackedAdd {
    /// `name` is that of the file.
    pub(crate) fn new(add: Add, name: &Arc<str>, shared: &mut Shared) -> Self {
        let path = if *add.path == **name { Arc::clone(name) } else { add.path.into() };
        let stats = add.stats.map(|text| shared.packed(&text));
        let partition_values = shared.partition(add.partition_values);
        let (size, modification_time, data_change) =
            (add.size, add.modification_time, add.data_change);
        let rest = Add {
            tags: add.tags,
            deletion_vector: add.deletion_vector,
            base_row_id: add.base_row_id,
            default_row_commit_version: add.default_row_commit_version,
            clustering_provider: add.clustering_provider,
            ..Add::default()
        };
        let rest = (rest != Add::default()).then(|| Box::new(rest));
        Self { path, partition_values, size, modification_time, stats, rest, data_change }
    }

    /// As it was.
    pub(crate) fn unpacked(&self) -> Add {
        Add {
            path: self.path.to_string(),
            partition_values: (*self.partition_values).clone(),
            size: self.size,
            modification_time: self.modification_time,
            data_change: self.data_change,
            stats: self.stats(),
            ..self.rest.as_deref().cloned().unwrap_or_default()
        }
    }

    /// Statistics, as JSON.
    pub(crate) fn stats(&self) -> Option<String> {
        self.stats.as_ref().map(PackedText::unpacked)
    }

    /// Its deleted rows, if there are any.
    pub(crate) fn vector(&self) -> Option<&Vector> {
        self.rest.as_ref()?.deletion_vector.as_ref()
    }
}

impl Shared {
    fn partition(&mut self, values: Texts) -> Arc<Texts> {
        if let Some(known) = self.partitions.get(&values) {
            return Arc::clone(known);
        }
        let made = Arc::new(values.clone());
        self.partitions.insert(values, Arc::clone(&made));
        made
    }

    fn packed(&mut self, text: &str) -> PackedText {
        let (pattern, values) = divided(text);
        let pattern = match self.patterns.get(&*pattern) {
            Some(known) => Arc::clone(known),
            None => {
                let made: Arc<str> = pattern.into();
                self.patterns.insert(Arc::clone(&made));
                made
            }
        };
        PackedText { pattern, values: values.into() }
    }
}

impl PackedText {
    fn unpacked(&self) -> String {
        let mut text = String::with_capacity(self.pattern.len() + self.values.len());
        let mut values = self.values.split(END);
        for (i, part) in self.pattern.split(VALUE).enumerate() {
            if i > 0 {
                text.push_str(values.next().unwrap_or_default());
            }
            text.push_str(part);
        }
        text
    }
}

/// A text as a pattern and values: numbers, and strings that are no names.
fn divided(text: &str) -> (String, String) {
    if text.contains(|c: char| c < ' ') {
        return (VALUE.to_string(), text.to_owned());
    }
    let (mut pattern, mut values) = (String::new(), String::new());
    let mut left = text;
    while let Some(first) = left.chars().next() {
        let len = match first {
            '"' => string_len(left),
            '-' | '0'..='9' => left.find(|c: char| !"+-.eE0123456789".contains(c)),
            _ => Some(first.len_utf8()),
        };
        let (token, rest) = left.split_at(len.unwrap_or(left.len()));
        let is_value = first == '"' && !rest.starts_with(':') || "-0123456789".contains(first);
        if is_value {
            if pattern.contains(VALUE) {
                values.push(END);
            }
            pattern.push(VALUE);
            values.push_str(token);
        } else {
            pattern.push_str(token);
        }
        left = rest;
    }
    (pattern, values)
}

/// Bytes of the string in quotes that a text begins with.
fn string_len(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_is_what_went_in() {
        let mut shared = Shared::default();
        let texts = [
            r#"{"numRecords":9,"minValues":{"k":-3,"s":"a\"b: 1"},"nullCount":{"k":0}}"#,
            r#"{"numRecords":12,"minValues":{"k":3.5e-7,"s":"é"},"nullCount":{"k":5}}"#,
            r#"{"a":true,"b":[1,"x" ,null],"c":{}}"#,
            "{\n \"numRecords\": 1}",
            r#"{"numRecords" : 1}"#,
            "{\"unclosed",
            "",
            "12",
        ];
        for text in texts {
            assert_eq!(shared.packed(text).unpacked(), text);
        }
        assert_eq!(shared.patterns.len(), 6, "two and two have one pattern");
        let add = Add {
            path: "a%20b".into(),
            partition_values: [("d".to_owned(), None)].into(),
            size: 7,
            modification_time: 8,
            data_change: true,
            stats: Some(texts[0].into()),
            tags: Some([("t".to_owned(), Some("x".to_owned()))].into()),
            base_row_id: Some(3),
            ..Add::default()
        };
        let packed = PackedAdd::new(add.clone(), &"a b".into(), &mut shared);
        assert_eq!(packed.unpacked(), add);
        assert_eq!(packed.vector(), None);
    }
}
