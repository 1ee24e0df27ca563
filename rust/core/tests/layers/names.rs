//! Counts what a reader of a crate has to learn: names with two meanings, tuples, public items.

use std::collections::BTreeMap;
use std::path::Path;

use super::check::own_code;

/// Structs, enums and traits below `src` whose name is given more than once, with the number.
pub(crate) fn reused_types(src: &Path) -> Vec<(String, usize)> {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for (_, text) in own_code(src) {
        for line in text.lines() {
            let words = ["struct ", "enum ", "trait "];
            let line = private(line.trim_start());
            let Some(rest) = words.iter().find_map(|word| line.strip_prefix(word)) else {
                continue;
            };
            let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
            *count.entry(name).or_default() += 1;
        }
    }
    count.into_iter().filter(|(_, n)| *n > 1).collect()
}

/// Parameters below `src` that are tuples of names: file and pattern.
pub(crate) fn tuple_parameters(src: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in own_code(src) {
        for (end, _) in text.match_indices("): (") {
            let Some(begin) = text[..end].rfind('(') else { continue };
            let pattern = &text[begin + 1..end];
            let is_tuple = pattern.contains(", ")
                && pattern.split(", ").all(|name| !name.is_empty() && name.chars().all(is_word));
            let before = text[..begin].trim_end_matches([' ', '\n']);
            let is_parameter = before.ends_with(['(', ',']) || before.ends_with("mut");
            if is_tuple && is_parameter {
                found.push(format!("{}: ({pattern})", path.display()));
            }
        }
    }
    found
}

/// Number of items below `src` that are declared `pub`, methods included.
pub(crate) fn public_items(src: &Path) -> usize {
    let is_public = |line: &str| {
        let Some(mut rest) = line.trim_start().strip_prefix("pub ") else { return false };
        while let Some(more) =
            ["const ", "async ", "unsafe "].iter().find_map(|word| rest.strip_prefix(word))
        {
            rest = more;
        }
        let kinds = ["fn ", "struct ", "enum ", "trait ", "type ", "static "];
        kinds.iter().any(|kind| rest.starts_with(kind)) || line.contains("pub const ")
    };
    let own = own_code(src);
    own.iter().map(|(_, text)| text.lines().filter(|line| is_public(line)).count()).sum()
}

/// `line` without `pub` and where to.
fn private(line: &str) -> &str {
    let rest = line.strip_prefix("pub").unwrap_or(line);
    let rest = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => rest,
        None => rest,
    };
    rest.trim_start()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
