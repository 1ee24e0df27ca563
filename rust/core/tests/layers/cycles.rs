//! Finds files of one folder that import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use super::check::own_code;

/// A module as the names that lead to it from the root of the crate.
type Module = Vec<String>;

/// What one file names of its own crate, as paths from the root.
#[derive(Default)]
struct Named {
    imports: Vec<Module>,
    /// Exported name, and what it is.
    exports: BTreeMap<String, Module>,
}

/// Circles of files below `src`, each as `folder: one, other`. `mod` is the file of the folder.
pub(crate) fn cycles(src: &Path) -> Vec<String> {
    let files: BTreeMap<Module, String> =
        own_code(src).into_iter().map(|(path, text)| (module(&path), text)).collect();
    let named: BTreeMap<&Module, Named> =
        files.iter().map(|(at, text)| (at, names(at, text, &files))).collect();
    let mut folders: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (at, names) in named.iter().filter(|(at, _)| !at.is_empty()) {
        for import in &names.imports {
            let to = target(import, &named, 0);
            let shared = at.iter().zip(&to).take_while(|(a, b)| a == b).count();
            let below = |path: &Module| path.get(shared).cloned().unwrap_or("mod".to_owned());
            let (from, to) = (below(at), below(&to));
            if from != to {
                let folder = folders.entry(at[..shared].to_vec()).or_default();
                folder.entry(from).or_default().insert(to);
            }
        }
    }
    let mut found = Vec::new();
    for (folder, arrows) in &folders {
        let reached: BTreeMap<&String, BTreeSet<String>> =
            arrows.keys().map(|from| (from, reach(from, arrows))).collect();
        let mut left: BTreeSet<&String> = arrows.keys().collect();
        while let Some(first) = left.pop_first() {
            let back = |other: &&&String| {
                reached[first].contains(**other) && reached[**other].contains(first)
            };
            let circle: Vec<&String> = left.iter().filter(back).copied().collect();
            if !circle.is_empty() {
                left.retain(|name| !circle.contains(name));
                let names: Vec<&str> =
                    std::iter::once(first).chain(circle).map(String::as_str).collect();
                found.push(format!("{}: {}", folder.join("/"), names.join(", ")));
            }
        }
    }
    found
}

fn reach(from: &String, arrows: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        for to in arrows.get(next).into_iter().flatten() {
            if seen.insert(to.clone()) {
                open.push(to);
            }
        }
    }
    seen
}

fn module(path: &Path) -> Module {
    let stem = path.with_extension("");
    let names = stem.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    });
    names.filter(|name| !matches!(name.as_str(), "mod" | "lib")).collect()
}

/// The file that `path` leads to, through re-exports.
fn target(path: &Module, named: &BTreeMap<&Module, Named>, depth: usize) -> Module {
    let found = (0..=path.len()).rev().find(|end| named.contains_key(&path[..*end].to_vec()));
    let (file, rest) = path.split_at(found.unwrap_or(0));
    let file = file.to_vec();
    let export = rest.first().and_then(|name| named.get(&file)?.exports.get(name));
    match export {
        Some(export) if depth < 5 => target(&[export, &rest[1..]].concat(), named, depth + 1),
        _ => file,
    }
}

fn names(at: &Module, text: &str, files: &BTreeMap<Module, String>) -> Named {
    let mut named = Named::default();
    let code = text.lines().map(|line| line.split("//").next().unwrap_or(""));
    let code = code.collect::<Vec<_>>().join("\n");
    let mut body = String::new();
    let mut statements = code.split_inclusive(';');
    for statement in &mut statements {
        let begin = [" use ", "\nuse ", "(crate) use ", "(super) use "]
            .iter()
            .filter_map(|word| statement.rfind(word).map(|i| i + word.len()))
            .max();
        // A `use` is the last thing before its semicolon and has no brackets but braces.
        let tree = begin.map(|begin| (begin, statement[begin..].trim_end_matches(';')));
        match tree.filter(|(_, tree)| !tree.contains(['(', '=', '"', '<'])) {
            Some((begin, tree)) => {
                let line = statement[..begin].rsplit('\n').next().unwrap_or("");
                body.push_str(&statement[..begin]);
                for (path, name) in leaves(tree, &[]) {
                    let Some(path) = absolute(at, &path, files) else { continue };
                    if line.trim_start().starts_with("pub") {
                        named.exports.insert(name, path);
                    } else {
                        named.imports.push(path);
                    }
                }
            }
            None => body.push_str(statement),
        }
    }
    let paths = body.split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)));
    for path in paths.filter(|path| path.contains("::")) {
        let path: Module = path.split("::").map(str::to_owned).collect();
        named.imports.extend(absolute(at, &path, files));
    }
    named
}

/// The paths of a `use` tree, each with the name that it gives.
fn leaves(tree: &str, above: &[String]) -> Vec<(Module, String)> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    let ends = tree.char_indices().chain([(tree.len(), ',')]);
    for (i, c) in ends {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c != ',' || depth > 0 {
            continue;
        }
        let part = tree[begin..i].trim();
        begin = (i + 1).min(tree.len());
        if let Some((path, inner)) = part.split_once('{') {
            let path = path.trim_end_matches("::").split("::").map(|name| name.trim().to_owned());
            let above: Module = above.iter().cloned().chain(path).collect();
            found.extend(leaves(inner.strip_suffix('}').unwrap_or(inner), &above));
        } else if !part.is_empty() {
            let (path, alias) = part.split_once(" as ").unwrap_or((part, ""));
            let mut path: Module = above
                .iter()
                .cloned()
                .chain(path.split("::").map(|n| n.trim().to_owned()))
                .collect();
            if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
                path.pop();
            }
            let name = if alias.is_empty() { path.last().cloned() } else { Some(alias.to_owned()) };
            found.push((path, name.unwrap_or_default()));
        }
    }
    found
}

/// `path` from the root; `None` if it leads out of the crate.
fn absolute(at: &Module, path: &Module, files: &BTreeMap<Module, String>) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([at, rest].concat()),
        "super" => {
            let above = path.iter().take_while(|name| *name == "super").count();
            Some([at.get(..at.len().checked_sub(above)?)?, &path[above..]].concat())
        }
        _ => {
            let below: Module = at.iter().chain([first]).cloned().collect();
            files.contains_key(&below).then(|| [&below, rest].concat())
        }
    }
}
