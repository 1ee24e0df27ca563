//! Reads the `crate::` paths of a crate's own code and the words it uses. Shared by two crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which modules each module imports.
pub(crate) type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Rust files below `src` without tests: path below `src`, and the text before `mod tests`.
pub(crate) fn own_code(src: &Path) -> Vec<(PathBuf, String)> {
    let (mut folders, mut files) = (vec![src.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    // A file behind `#[cfg(test)] mod name;` is a test.
    let mut tests = BTreeSet::new();
    for (path, text) in &files {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (i, _) in lines.iter().enumerate().filter(|(_, line)| **line == "#[cfg(test)]") {
            for line in lines[i + 1..].iter().take(2) {
                if let Some((_, name)) = line.strip_suffix(';').and_then(|l| l.split_once("mod ")) {
                    let file = format!("{name}.rs");
                    tests.insert(path.with_file_name(&file)); // of `mod.rs`
                    tests.insert(path.with_extension("").join(file)); // of any other file
                    break; // the next line may be a module that is no test
                }
                if let Some(file) = line.strip_prefix("#[path = \"") {
                    tests.insert(path.with_file_name(file.trim_end_matches("\"]")));
                }
            }
        }
    }
    // So are the modules of its own, in the folder of its name.
    let is_test =
        |path: &Path| path.ancestors().any(|above| tests.contains(&above.with_extension("rs")));
    files.retain(|(path, _)| !is_test(path));
    files.sort();
    files
        .into_iter()
        .map(|(path, text)| {
            let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            (path.strip_prefix(src).unwrap().to_owned(), text[..end].to_owned())
        })
        .collect()
}

/// The arrows between the top-level modules of the crate; what `lib.rs` re-exports is `re_export`.
pub(crate) fn arrows(src: &Path, re_export: &str) -> Arrows {
    let mut arrows = Arrows::new();
    for (path, text) in own_code(src) {
        let module = module(&path);
        if module == "lib" {
            continue;
        }
        let targets = arrows.entry(module.clone()).or_default();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code.filter(|line| !line.trim_start().starts_with("macro_rules!")) {
            for (at, found) in line.match_indices("crate::") {
                let rest = &line[at + found.len()..];
                let name: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                // Types and braces are re-exports of the crate's root.
                let is_type = name.is_empty() || name.starts_with(char::is_uppercase);
                targets.insert(if is_type { re_export.to_owned() } else { name });
            }
        }
        targets.remove(&module);
    }
    arrows
}

/// The top-level module a file belongs to.
fn module(path: &Path) -> String {
    let first = path.components().next().unwrap();
    Path::new(first.as_os_str()).file_stem().unwrap().to_string_lossy().into_owned()
}

/// Compares `found` with `table`, lowest module first.
pub(crate) fn assert_layers(found: &Arrows, table: &[(&str, &str)]) {
    let mut expected = Arrows::new();
    for (module, targets) in table {
        for target in targets.split_whitespace() {
            let is_below = expected.contains_key(target);
            assert!(is_below, "`{module}` may not import `{target}`, which is above it");
        }
        let targets = targets.split_whitespace().map(str::to_owned).collect();
        expected.insert((*module).to_owned(), targets);
    }
    let modules = |arrows: &Arrows| arrows.keys().cloned().collect::<Vec<_>>();
    assert_eq!(modules(found), modules(&expected), "the table does not list these modules");
    for (module, targets) in found {
        assert_eq!(
            targets, &expected[module],
            "`{module}` imports other modules than the table says"
        );
    }
}

/// Words of the glossary's rejected list in `text`: line, word, what to say instead.
pub(crate) fn rejected<'a>(
    text: &str,
    words: &[(&'a str, &'a str)],
) -> Vec<(usize, &'a str, &'a str)> {
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let lower = line.to_ascii_lowercase();
        for word in lower.split(|c: char| !c.is_ascii_alphanumeric()) {
            let hits =
                words.iter().filter(|(bad, _)| word == *bad || word.strip_suffix('s') == Some(bad));
            found.extend(hits.map(|(bad, good)| (i + 1, *bad, *good)));
        }
    }
    found
}
