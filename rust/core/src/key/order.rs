//! What order? The text form of a sort order, and its value.
//!
//! ```text
//! order  = [ part { "," part } ]
//! part   = column | curve               a curve is the last part
//! curve  = ["-" | "+"] ("zorder" | "hilbert") "(" member "," member { "," member } ")"
//! member = path ["nulls" ("first" | "last")]
//! column = ["-" | "+"] path ["asc" | "desc"] ["nulls" ("first" | "last")]
//! path   = name { "." name }
//! name   = bare | '"' any text, a quote written twice '"'
//! ```
//!
//! # Invariants
//! No column twice, no empty path, no direction in a curve: upheld by [`SortOrder::try_new`] and
//! [`SortOrder::with_curve`]. `Display` writes text that parses back to the same value.
//!
//! # Cost
//! Linear in the text; names are compared through a set.
//!
//! # Not here
//! Whether the columns exist and have an order (`schema`, `shape`).

use std::collections::HashSet;
use std::fmt;

use super::curve::{Curve, CurveKind};
use super::quickwit;
use super::sort_column::{Nulls, SortColumn};
use plait_base::{Error, Kind, Result};

/// The declared order of rows: columns, first the most significant; the last ones may be those of a
/// curve, which orders rows by all of them at once.
///
/// ```
/// use plait_core::key::SortOrder;
/// let order = SortOrder::try_parse("metric_name, tags.host asc nulls first, ts DESC")?;
/// assert_eq!(order.to_string(), "metric_name, tags.host nulls first, -ts");
/// # Ok::<(), plait_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SortOrder {
    columns: Vec<SortColumn>,
    curve: Option<Curve>,
}

impl SortOrder {
    /// Reads the text form; blank text is the empty order.
    ///
    /// Quickwit's `metric_name|host|timestamp/V2` is read too: `+` or `-` before, after or behind a
    /// colon; `timestamp` and `timestamp_secs` descend by default; nulls last.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] when the text does not follow the grammar or names a column twice.
    pub fn try_parse(text: &str) -> Result<Self> {
        if quickwit::looks_like(text) {
            return quickwit::parse(text)
                .and_then(Self::try_new)
                .map_err(|e| e.with_got(got(text)));
        }
        let mut reader = Reader { text, at: 0, ends: &[','] };
        let mut columns = Vec::new();
        reader.skip_blank();
        if reader.rest().is_empty() {
            return Ok(Self::empty());
        }
        loop {
            if let Some((kind, descending)) = reader.curve_start() {
                let curve = Curve { kind, start: columns.len(), descending };
                columns.extend(reader.curve_columns(kind).map_err(|e| e.with_got(got(text)))?);
                return Self::try_new(columns)?
                    .with_curve(Some(curve))
                    .map_err(|e| e.with_got(got(text)));
            }
            columns.push(reader.column().map_err(|e| e.with_got(got(text)))?);
            if reader.rest().is_empty() {
                return Self::try_new(columns);
            }
        }
    }

    /// The order by `columns`.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] when a column appears twice or has no name.
    pub fn try_new(columns: Vec<SortColumn>) -> Result<Self> {
        let mut seen = HashSet::new();
        for column in &columns {
            if column.path.is_empty() {
                return Err(Error::new(Kind::InvalidArgument, "sort column has no name"));
            }
            if !seen.insert(&column.path) {
                return Err(Error::new(Kind::InvalidArgument, "sort column is named twice")
                    .with_column(column.dotted())
                    .with_hint("name each column once; the first place decides"));
            }
        }
        Ok(Self { columns, curve: None })
    }

    /// The same columns, the last of them taken as one by `curve`.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] when these are too few or too many, or one of them descends.
    pub fn with_curve(self, curve: Option<Curve>) -> Result<Self> {
        if let Some(curve) = curve {
            curve.check(self.columns.len())?;
            let own = self.columns.get(curve.start..).unwrap_or_default();
            if let Some(column) = own.iter().find(|column| column.descending) {
                return Err(directed(curve.kind).with_column(column.dotted()));
            }
        }
        Ok(Self { curve, ..self })
    }

    /// The same order of other columns: as many, one for each.
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new).
    pub fn with_columns(&self, columns: Vec<SortColumn>) -> Result<Self> {
        Self::try_new(columns)?.with_curve(self.curve)
    }

    /// The order in which all rows are equal.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// The columns, first the most significant; those of a curve are the last ones.
    #[must_use]
    pub fn columns(&self) -> &[SortColumn] {
        &self.columns
    }

    /// The columns that order rows one by one: all but those of a curve.
    #[must_use]
    pub fn plain(&self) -> &[SortColumn] {
        let end = self.curve.map_or(self.columns.len(), |curve| curve.start);
        self.columns.get(..end).unwrap_or(&self.columns)
    }

    /// The curve that takes the columns behind [`plain`](Self::plain), if there is one.
    #[must_use]
    pub fn curve(&self) -> Option<Curve> {
        self.curve
    }

    /// Number of columns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether all rows are equal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }
}

impl fmt::Display for SortOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, column) in self.columns.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            if let Some(curve) = self.curve.filter(|curve| curve.start == i) {
                write!(f, "{}{}(", if curve.descending { "-" } else { "" }, curve.kind)?;
            }
            column.fmt(f)?;
        }
        if self.curve.is_some() { f.write_str(")") } else { Ok(()) }
    }
}

impl std::str::FromStr for SortOrder {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::try_parse(text)
    }
}

fn got(text: &str) -> String {
    format!("`{text}`")
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::InvalidArgument, what)
}

/// A direction inside of a curve, which has none for one column.
fn directed(kind: CurveKind) -> Error {
    invalid(format!("a column of `{kind}` has a direction"))
        .with_hint(format!("a curve descends as a whole: write `-{kind}(…)`"))
}

/// A place in the text; `at` is always on a character boundary.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// What ends a column, besides the end of the text.
    ends: &'static [char],
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_blank(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.rest().starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    /// The kind and direction of a curve, if its name and parenthesis come next: these are passed.
    fn curve_start(&mut self) -> Option<(CurveKind, bool)> {
        let mut ahead = Reader { text: self.text, at: self.at, ends: self.ends };
        ahead.skip_blank();
        let descending = ahead.eat('-');
        if !descending {
            ahead.eat('+');
        }
        let rest = ahead.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default();
        let kind =
            CurveKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))?;
        ahead.at += end;
        ahead.skip_blank();
        let is_curve = ahead.eat('(');
        self.at = if is_curve { ahead.at } else { self.at };
        is_curve.then_some((kind, descending))
    }

    /// The columns of a curve and its closing parenthesis, behind which nothing may follow.
    fn curve_columns(&mut self, kind: CurveKind) -> Result<Vec<SortColumn>> {
        let mut columns = Vec::new();
        self.ends = &[',', ')'];
        loop {
            self.skip_blank();
            if self.rest().starts_with(['-', '+']) {
                return Err(directed(kind));
            }
            columns.push(self.curve_column(kind)?);
            self.skip_blank();
            if self.eat(',') {
                continue;
            }
            if !self.eat(')') {
                return Err(invalid(format!("`{kind}(` is not closed")));
            }
            self.skip_blank();
            if self.rest().is_empty() {
                return Ok(columns);
            }
            let hint = "a curve comes last: put columns that matter more before it, as in \
                        `day, zorder(a, b)`";
            return Err(invalid(format!("something follows `{kind}(…)`")).with_hint(hint));
        }
    }

    /// A column inside of a curve.
    fn curve_column(&mut self, kind: CurveKind) -> Result<SortColumn> {
        let path = self.path()?;
        let mut column = SortColumn { path, descending: false, nulls: Nulls::Last };
        let named = |e: Error| e.with_column(column.dotted());
        match self.word().as_str() {
            "" => {}
            "nulls" => {
                let nulls = self.nulls().map_err(named)?;
                let word = self.word();
                if !word.is_empty() {
                    return Err(named(invalid(format!("`{word}` is not understood here"))));
                }
                column.nulls = nulls;
            }
            "asc" | "desc" => return Err(named(directed(kind))),
            word => {
                return Err(named(invalid(format!("`{word}` is not understood here")).with_hint(
                    format!("`{kind}` takes columns, each with `nulls first` if wanted"),
                )));
            }
        }
        Ok(column)
    }

    /// `first` or `last`, behind `nulls`.
    fn nulls(&mut self) -> Result<Nulls> {
        match self.word().as_str() {
            "first" => Ok(Nulls::First),
            "last" => Ok(Nulls::Last),
            other => {
                Err(invalid(format!("`nulls` is followed by `{other}`, not `first` or `last`")))
            }
        }
    }

    fn path(&mut self) -> Result<Vec<String>> {
        let mut path = vec![self.name()?];
        while self.eat('.') {
            path.push(self.name()?);
        }
        Ok(path)
    }

    /// The next word of letters, lower case, without moving past anything else.
    fn word(&mut self) -> String {
        self.skip_blank();
        let rest = self.rest();
        let is_end = |c: char| c.is_whitespace() || self.ends.contains(&c);
        let end = rest.find(is_end).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default().to_ascii_lowercase()
    }

    /// One column and the comma after it, if there is one.
    fn column(&mut self) -> Result<SortColumn> {
        self.skip_blank();
        let mut direction = None;
        if self.eat('-') {
            direction = Some(true);
        } else if self.eat('+') {
            direction = Some(false);
        }
        let path = self.path()?;
        let mut column = SortColumn { path, descending: false, nulls: Nulls::Last };
        let at_word = |e: Error, column: &SortColumn| e.with_column(column.dotted());
        let mut word = self.word();
        if word == "asc" || word == "desc" {
            if direction.is_some() {
                let hint = "write `-` before the name or `desc` after it, not both";
                return Err(at_word(invalid("direction is given twice").with_hint(hint), &column));
            }
            direction = Some(word == "desc");
            word = self.word();
        }
        if word == "nulls" {
            column.nulls = self.nulls().map_err(|e| at_word(e, &column))?;
            word = self.word();
        }
        if !word.is_empty() {
            return Err(at_word(
                invalid(format!("`{word}` is not understood here")).with_hint(
                    "a column is `name`, `-name` or `name desc`, then `nulls first` if wanted; \
                     columns are separated by commas, and odd names go in double quotes",
                ),
                &column,
            ));
        }
        column.descending = direction.unwrap_or(false);
        self.skip_blank();
        if self.eat(',') && self.rest().trim_start().is_empty() {
            return Err(invalid("a column is missing after the last comma"));
        }
        Ok(column)
    }

    fn name(&mut self) -> Result<String> {
        if self.eat('"') {
            return self.quoted_name();
        }
        let rest = self.rest();
        let odd = |c: char| c.is_whitespace() || matches!(c, '.' | '"') || self.ends.contains(&c);
        let end = rest.find(odd).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default();
        self.at += end;
        if name.is_empty() || name.starts_with(['-', '+']) {
            return Err(invalid("a column name is missing")
                .with_hint("an empty or odd name goes in double quotes"));
        }
        if self.rest().starts_with('"') {
            return Err(invalid("a quote in the middle of a name")
                .with_hint("put the whole name in double quotes and write each quote twice"));
        }
        Ok(name.to_owned())
    }

    /// What follows the opening quote.
    fn quoted_name(&mut self) -> Result<String> {
        let mut name = String::new();
        loop {
            let rest = self.rest();
            let Some(end) = rest.find('"') else {
                return Err(invalid("a double quote is not closed"));
            };
            name.push_str(rest.get(..end).unwrap_or_default());
            self.at += end + 1;
            if !self.eat('"') {
                break;
            }
            name.push('"');
        }
        match self.rest().chars().next() {
            None | Some('.') => Ok(name),
            Some(c) if c.is_whitespace() || self.ends.contains(&c) => Ok(name),
            Some(_) => Err(invalid("a closing double quote is followed by a letter")
                .with_hint("write a quote inside a name twice")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Vec<(String, bool, Nulls)> {
        let order = SortOrder::try_parse(text).unwrap();
        order.columns().iter().map(|c| (c.dotted(), c.descending, c.nulls)).collect()
    }

    fn column(name: &str, descending: bool, nulls: Nulls) -> (String, bool, Nulls) {
        (name.to_owned(), descending, nulls)
    }

    #[test]
    fn every_way_to_write_a_column_is_read() {
        use Nulls::{First, Last};
        assert_eq!(
            parsed(" metric_name,tags.host ASC Nulls First , -ts,+a, b desc nulls last,desc desc"),
            [
                column("metric_name", false, Last),
                column("tags.host", false, First),
                column("ts", true, Last),
                column("a", false, Last),
                column("b", true, Last),
                column("desc", true, Last),
            ]
        );
        assert_eq!(parsed("-\"a \"\"b\"\".c\".d"), [column("\"a \"\"b\"\".c\".d", true, Last)]);
        assert_eq!(
            parsed("\" | /V2\", größe"),
            [column("\" | /V2\"", false, Last), column("größe", false, Last)]
        );
    }

    #[test]
    fn blank_text_is_the_empty_order() {
        assert!(parsed("").is_empty());
        assert!(parsed(" \n\t").is_empty());
        assert_eq!(SortOrder::empty().to_string(), "");
    }

    #[test]
    fn what_cannot_be_read_is_refused_in_words() {
        for (text, what) in [
            ("a,,b", "a column name is missing"),
            ("a,", "a column is missing after the last comma"),
            (",a", "a column name is missing"),
            ("--a", "a column name is missing"),
            ("a.", "a column name is missing"),
            ("-a desc", "direction is given twice"),
            ("a down", "`down` is not understood here"),
            ("a b c", "`b` is not understood here"),
            ("a nulls", "`nulls` is followed by ``, not `first` or `last`"),
            ("a nulls first last", "`last` is not understood here"),
            ("\"a", "a double quote is not closed"),
            ("\"a\"b", "a closing double quote is followed by a letter"),
            ("a\"b", "a quote in the middle of a name"),
            ("a, -a", "sort column is named twice"),
        ] {
            let error = SortOrder::try_parse(text).unwrap_err();
            assert_eq!((error.kind(), error.what()), (Kind::InvalidArgument, what), "{text}");
        }
        let nameless = SortColumn { path: vec![], descending: false, nulls: Nulls::Last };
        assert!(SortOrder::try_new(vec![nameless]).is_err());
    }

    #[test]
    fn a_curve_takes_the_last_columns_as_one() {
        let order =
            SortOrder::try_parse(" day, -HILBERT ( a.x nulls first,\"b)\", c nulls last ) ");
        let order = order.unwrap();
        let curve = Curve { kind: CurveKind::Hilbert, start: 1, descending: true };
        assert_eq!(order.curve(), Some(curve));
        assert_eq!(order.to_string(), "day, -hilbert(a.x nulls first, \"b)\", c)");
        assert_eq!((order.len(), order.plain().len()), (4, 1));
        assert_eq!(SortOrder::try_parse(&order.to_string()).unwrap(), order);
        let plain = SortOrder::try_parse("zorder, \"zorder(a)\"").unwrap();
        assert_eq!((plain.curve(), plain.plain().len()), (None, 2));
        assert_eq!(plain.to_string(), "zorder, \"zorder(a)\"");
        assert_eq!(SortOrder::try_parse(&plain.to_string()).unwrap(), plain);
    }

    #[test]
    fn a_curve_that_cannot_be_is_refused_in_words() {
        for (text, what) in [
            ("zorder(a)", "`zorder` takes 2 to 8 columns"),
            ("zorder()", "a column name is missing"),
            ("zorder(a, b, c, d, e, f, g, h, i)", "`zorder` takes 2 to 8 columns"),
            ("zorder(a, b", "`zorder(` is not closed"),
            ("zorder(a, b) desc", "something follows `zorder(…)`"),
            ("zorder(a, b), c", "something follows `zorder(…)`"),
            ("zorder(a, b),", "something follows `zorder(…)`"),
            ("zorder(a, -b)", "a column of `zorder` has a direction"),
            ("hilbert(a desc, b)", "a column of `hilbert` has a direction"),
            ("zorder(a, b up)", "`up` is not understood here"),
            ("zorder(a, b nulls)", "`nulls` is followed by ``, not `first` or `last`"),
            ("zorder(a, b nulls first x)", "`x` is not understood here"),
            ("zorder(a, a)", "sort column is named twice"),
            ("a, zorder(a, b)", "sort column is named twice"),
            ("zorder(a,, b)", "a column name is missing"),
        ] {
            let error = SortOrder::try_parse(text).unwrap_err();
            assert_eq!((error.kind(), error.what()), (Kind::InvalidArgument, what), "{text}");
        }
    }

    fn name() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z_]{1,5}", "[-+.,\"|/V2 a\u{0}\né=&()]{0,6}", Just("desc".into()), ".{0,4}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn text_of_an_order_parses_back_to_the_order(
            columns in prop::collection::vec(
                (prop::collection::vec(name(), 1..4), any::<bool>(), any::<bool>()), 0..5
            ),
            curve in prop::option::of((0usize..3, any::<bool>(), prop::sample::select(&CurveKind::ALL[..]))),
        ) {
            let columns: Vec<_> = columns.into_iter().map(|(path, descending, first)| {
                let nulls = if first { Nulls::First } else { Nulls::Last };
                SortColumn { path, descending, nulls }
            }).collect();
            let mut columns: Vec<SortColumn> = columns;
            let curve = curve.map(|(start, descending, kind)| Curve { kind, start, descending });
            if let Some(curve) = curve {
                columns.iter_mut().skip(curve.start).for_each(|column| column.descending = false);
            }
            let order = SortOrder::try_new(columns).and_then(|order| order.with_curve(curve));
            if let Ok(order) = order {
                prop_assert_eq!(SortOrder::try_parse(&order.to_string()).unwrap(), order);
            }
        }

        #[test]
        fn any_text_is_an_order_or_an_error(
            text in "[-+.,\"|/V2 a:&=\u{0}\né()]{0,12}|-?zorder\\([-ab,\") ]{0,9}|.{0,20}"
        ) {
            if let Ok(order) = SortOrder::try_parse(&text) {
                prop_assert_eq!(SortOrder::try_parse(&order.to_string()).unwrap(), order);
            }
        }
    }
}
