//! Quickwit's text form of a sort order: `[label=]column|column|…/V2`.
//!
//! ```text
//! metrics=metric_name|host-|+env|ts:-|timestamp/V2
//!   label       │       │    │     │      └─ descends by default, as does `timestamp_secs`
//!               └─ +/- before, after, or behind a colon: at most one of them
//! ```
//!
//! # Invariants
//! What has two readings is refused with the plain form as the hint: `&` (columns kept for metadata
//! only), type suffixes such as `host__s`, other versions than 2. Nulls are always last.
//!
//! # Cost
//! Linear in the text.
//!
//! # Not here
//! Names: Quickwit stores the column `timestamp` as `timestamp_secs` in some files; the name is
//! taken as written.

use super::sort_column::{Nulls, SortColumn};
use plait_base::{Error, Kind, Result};

/// Columns that descend when nothing is said.
const DESCENDING: [&str; 2] = ["timestamp", "timestamp_secs"];

/// Endings that Quickwit takes off a name and reads as its type.
const TYPE_SUFFIXES: [&str; 6] = ["__s", "__i", "__nf", "__sk", "__cpcsk", "__isk"];

const HINT: &str = "write the plain form, for example `metric_name, host, -timestamp`";

/// Whether `text` has a `|` outside double quotes or ends in `/V` and a number.
pub(super) fn looks_like(text: &str) -> bool {
    let mut quoted = false;
    let bar = text.chars().any(|c| {
        quoted ^= c == '"';
        c == '|' && !quoted
    });
    bar || (!quoted && split_version(text.trim()).is_some())
}

/// Reads the columns; `text` is known to look like this form.
pub(super) fn parse(text: &str) -> Result<Vec<SortColumn>> {
    let Some((columns, version)) = split_version(text.trim()) else {
        return Err(refused("a sort order with `|` has no version at its end")
            .with_hint("append `/V2`, or separate the columns with commas"));
    };
    if version != "2" {
        return Err(refused(format!("Quickwit sort version {version} is not known, only 2 is")));
    }
    let columns = match columns.split_once('=') {
        Some((_label, columns)) => columns,
        None => columns,
    };
    if columns.contains('&') {
        return Err(refused("`&` in a Quickwit sort order does not say how rows are sorted")
            .with_hint("name only the columns that rows are sorted by"));
    }
    columns.split('|').map(column).collect()
}

fn split_version(text: &str) -> Option<(&str, &str)> {
    let (columns, version) = text.rsplit_once("/V")?;
    let digits = !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit());
    digits.then_some((columns, version))
}

fn refused(what: impl Into<String>) -> Error {
    Error::new(Kind::InvalidArgument, what)
}

fn column(text: &str) -> Result<SortColumn> {
    let mut name = text;
    let mut directions = Vec::new();
    if let Some((before, direction)) = name.split_once(':') {
        match direction {
            "+" | "-" => directions.push(direction == "-"),
            _ => {
                return Err(refused("a colon in a Quickwit sort column is followed by `+` or `-`")
                    .with_column(text)
                    .with_hint(HINT));
            }
        }
        name = before;
    }
    for (sign, descending) in [('+', false), ('-', true)] {
        if let Some(rest) = name.strip_prefix(sign) {
            directions.push(descending);
            name = rest;
            break;
        }
    }
    for (sign, descending) in [('+', false), ('-', true)] {
        if let Some(rest) = name.strip_suffix(sign) {
            directions.push(descending);
            name = rest;
            break;
        }
    }
    if directions.len() > 1 {
        return Err(refused("direction is given twice").with_column(text).with_hint(HINT));
    }
    let odd = |c: char| c.is_whitespace() || matches!(c, ',' | '"' | '=' | '/' | '+' | ':');
    if name.is_empty() || name.starts_with('-') || name.ends_with('-') || name.contains(odd) {
        return Err(refused("a Quickwit sort column has no plain name")
            .with_column(text)
            .with_hint(HINT));
    }
    if TYPE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
        return Err(refused("a type suffix in a Quickwit sort order is not read")
            .with_column(text)
            .with_hint(HINT));
    }
    let descending = directions.first().copied().unwrap_or_else(|| DESCENDING.contains(&name));
    Ok(SortColumn { path: vec![name.to_owned()], descending, nulls: Nulls::Last })
}

#[cfg(test)]
mod tests {
    use super::super::order::SortOrder;

    #[test]
    fn directions_and_defaults_are_read() {
        for (text, plain) in [
            ("metric_name|service|timestamp/V2", "metric_name, service, -timestamp"),
            (
                "m=metric_name|host-|+env|ts:-|timestamp+/V2",
                "metric_name, -host, env, -ts, timestamp",
            ),
            ("timestamp_secs/V2", "-timestamp_secs"),
            ("-value|service.name/V2 ", "-value, \"service.name\""),
        ] {
            assert_eq!(SortOrder::try_parse(text).unwrap().to_string(), plain, "{text}");
        }
    }

    #[test]
    fn what_has_two_readings_is_refused() {
        for (text, what) in [
            ("a|b", "a sort order with `|` has no version at its end"),
            ("a|b/V1", "Quickwit sort version 1 is not known, only 2 is"),
            (
                "a|timestamp&service/V2",
                "`&` in a Quickwit sort order does not say how rows are sorted",
            ),
            ("a|&b/V2", "`&` in a Quickwit sort order does not say how rows are sorted"),
            ("host__s|timestamp/V2", "a type suffix in a Quickwit sort order is not read"),
            ("+a+|b/V2", "direction is given twice"),
            ("-a:-|b/V2", "direction is given twice"),
            ("a:dense-int64:+|b/V2", "a colon in a Quickwit sort column is followed by `+` or `-`"),
            ("a||b/V2", "a Quickwit sort column has no plain name"),
            ("a, b|c/V2", "a Quickwit sort column has no plain name"),
            ("/V2", "a Quickwit sort column has no plain name"),
            ("a|a/V2", "sort column is named twice"),
        ] {
            assert_eq!(SortOrder::try_parse(text).unwrap_err().what(), what, "{text}");
        }
    }
}
