//! What to say of a column that is not there: the names that are near, or those that there are.

/// Names in a hint.
const NAMES_MAX: usize = 12;
/// Names that are near.
const NEAR_MAX: usize = 3;

/// The hint for a column `wanted` that none of `names` is.
///
/// Names are near if at most a third of their characters must be inserted, deleted or replaced;
/// case does not matter.
///
/// # Examples
/// ```
/// let names = ["ts", "host"].map(str::to_owned);
/// assert_eq!(plait_base::columns_hint("tss", &names), "did you mean `ts`?");
/// assert_eq!(plait_base::columns_hint("level", &names), "the columns are `ts`, `host`");
/// ```
#[must_use]
pub fn columns_hint(wanted: &str, names: &[String]) -> String {
    let lower = wanted.to_lowercase();
    let mut near: Vec<(usize, &String)> = names
        .iter()
        .map(|name| (distance(&lower, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance * 3 <= name.len().max(wanted.len()))
        .collect();
    near.sort();
    let quoted = |name: &String| format!("`{name}`");
    if near.is_empty() {
        let shown: Vec<String> = names.iter().take(NAMES_MAX).map(quoted).collect();
        let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
        return format!("the columns are {}{more}", shown.join(", "));
    }
    let shown: Vec<String> =
        near.into_iter().take(NEAR_MAX).map(|(_, name)| quoted(name)).collect();
    format!("did you mean {}?", shown.join(" or "))
}

/// Characters to insert, delete or replace to get from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let up = *cell;
            left = (diagonal + usize::from(x != *y)).min(up + 1).min(left + 1);
            diagonal = up;
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_characters_make_a_name_near() {
        for (a, b, expected) in [
            ("", "", 0),
            ("ts", "tss", 1),
            ("abc", "acb", 2),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn many_names_are_cut() {
        let names: Vec<String> = (100..120).map(|n| n.to_string()).collect();
        let hint = columns_hint("x", &names);
        assert!(hint.ends_with("`111`, ..."), "{hint}");
        assert_eq!(columns_hint("1000", &names), "did you mean `100`?");
        assert_eq!(columns_hint("TS", &["ts".to_owned()]), "did you mean `ts`?");
    }
}
