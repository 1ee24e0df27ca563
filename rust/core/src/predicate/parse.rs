//! The text form of a predicate.
//!
//! # Not here
//! What values mean (`bind`).

use super::asked::{Asked, Comparison, Test};
use plait_base::{Error, Kind, Result};

const HINT: &str = "write conditions with AND between them: column < value (or <= = != >= >), \
                    column IN (a, b), column BETWEEN a AND b, column IS [NOT] NULL, \
                    column LIKE 'prefix%'; odd names go in double quotes, texts in single quotes";

const OR_HINT: &str = "conditions have AND between them, never OR; for several values of one column \
                       write column IN (a, b)";

const QUOTE_HINT: &str = "texts go in single quotes, as in name = 'api'; double quotes are for odd \
                          names of columns";

/// Longer ones first: `<` begins `<=`.
const SIGNS: [(&str, Comparison); 8] = [
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<>", Comparison::NotEqual),
    ("!=", Comparison::NotEqual),
    ("==", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
    ("=", Comparison::Equal),
];

pub(super) fn predicate(text: &str) -> Result<Vec<Asked>> {
    let mut reader = Text { text, at: 0 };
    let mut conditions = Vec::new();
    loop {
        conditions.push(reader.condition()?);
        if reader.rest().is_empty() {
            return Ok(conditions);
        }
        reader.take_word("AND")?;
    }
}

/// A place in the text; `at` is always on a character boundary.
struct Text<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Text<'a> {
    /// What is left, without blanks in front.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let left = rest.trim_start();
        self.at += rest.len() - left.len();
        left
    }

    fn wrong(&mut self, expected: &str) -> Error {
        let rest = self.rest();
        let found = match rest.is_empty() {
            true => "the end".to_owned(),
            false => format!("`{rest}`"),
        };
        let is_or = rest.get(..2).is_some_and(|word| word.eq_ignore_ascii_case("OR"));
        let hint = if is_or {
            OR_HINT
        } else if rest.starts_with('"') {
            QUOTE_HINT
        } else {
            HINT
        };
        Error::new(Kind::InvalidArgument, format!("`where` cannot be read: {expected} expected"))
            .with_got(format!("{found} in `{}`", self.text))
            .with_hint(hint)
    }

    fn condition(&mut self) -> Result<Asked> {
        let path = self.path()?;
        let test = self.test()?;
        Ok(Asked { path, test })
    }

    fn test(&mut self) -> Result<Test> {
        let rest = self.rest();
        if let Some((sign, comparison)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            self.at += sign.len();
            return Ok(Test::Compare(*comparison, self.value()?));
        }
        if self.takes_word("IS") {
            let not = self.takes_word("NOT");
            self.take_word("NULL")?;
            return Ok(if not { Test::IsNotNull } else { Test::IsNull });
        }
        if self.takes_word("BETWEEN") {
            let low = self.value()?;
            self.take_word("AND")?;
            return Ok(Test::Between(low, self.value()?));
        }
        if self.takes_word("LIKE") {
            return self.pattern();
        }
        let not = self.takes_word("NOT");
        if self.takes_word("IN") {
            let values = self.list()?;
            return Ok(if not { Test::NotIn(values) } else { Test::In(values) });
        }
        Err(self.wrong("a comparison, IN, BETWEEN, IS or LIKE"))
    }

    fn list(&mut self) -> Result<Vec<String>> {
        self.take_sign('(')?;
        let mut values = vec![self.value()?];
        while self.rest().starts_with(',') {
            self.at += 1;
            values.push(self.value()?);
        }
        self.take_sign(')')?;
        Ok(values)
    }

    fn pattern(&mut self) -> Result<Test> {
        let text = self.value()?;
        let inner = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')).unwrap_or(&text);
        let (prefix, is_prefix) = match inner.strip_suffix('%') {
            Some(prefix) => (prefix, true),
            None => (inner, false),
        };
        if prefix.contains(['%', '_', '\\']) {
            return Err(Error::new(Kind::InvalidArgument, "`LIKE` takes a prefix only")
                .with_got(text.clone())
                .with_hint(
                    "write LIKE 'prefix%'; apply other patterns to the rows that were read",
                ));
        }
        Ok(match is_prefix {
            true => Test::StartsWith(prefix.to_owned()),
            false => Test::Compare(Comparison::Equal, format!("'{prefix}'")),
        })
    }

    fn take_sign(&mut self, sign: char) -> Result<()> {
        if self.rest().starts_with(sign) {
            self.at += sign.len_utf8();
            return Ok(());
        }
        Err(self.wrong(&format!("`{sign}`")))
    }

    fn take_word(&mut self, word: &str) -> Result<()> {
        if self.takes_word(word) { Ok(()) } else { Err(self.wrong(word)) }
    }

    /// Takes `word` in any case, if it is next.
    fn takes_word(&mut self, word: &str) -> bool {
        let rest = self.rest();
        let is_next = rest.get(..word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word))
            && !rest[word.len()..].starts_with(is_name);
        if is_next {
            self.at += word.len();
        }
        is_next
    }

    fn path(&mut self) -> Result<Vec<String>> {
        let mut path = Vec::new();
        self.rest();
        loop {
            path.push(self.name()?);
            if !self.text[self.at..].starts_with('.') {
                return Ok(path);
            }
            self.at += 1;
        }
    }

    fn name(&mut self) -> Result<String> {
        let rest = &self.text[self.at..];
        if rest.starts_with('"') {
            return self.quoted('"').ok_or_else(|| self.wrong("a closing double quote"));
        }
        let len = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        if len == 0 {
            return Err(self.wrong("the name of a column"));
        }
        self.at += len;
        Ok(rest[..len].to_owned())
    }

    /// Text between two `quote`s, of which those inside are written twice.
    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut inner = String::new();
        let mut letters = self.text[self.at + 1..].char_indices().peekable();
        while let Some((at, letter)) = letters.next() {
            if letter != quote {
                inner.push(letter);
            } else if letters.next_if(|(_, next)| *next == quote).is_some() {
                inner.push(quote);
            } else {
                self.at += 1 + at + 1;
                return Some(inner);
            }
        }
        None
    }

    /// A value: in single quotes if it was.
    fn value(&mut self) -> Result<String> {
        let rest = self.rest();
        if rest.starts_with('\'') {
            let inner = self.quoted('\'').ok_or_else(|| self.wrong("a closing single quote"))?;
            return Ok(format!("'{inner}'"));
        }
        // Bare text may have blanks inside: 2024-05-01 13:00:00.
        let start = self.at;
        let mut end = start;
        while !self.rest().is_empty()
            && !self.rest().starts_with([',', ')', '(', '\'', '"', '<', '=', '>', '!'])
        {
            let is_and = self.takes_word("AND");
            if is_and || (self.takes_word("OR")) {
                self.at -= if is_and { 3 } else { 2 };
                break;
            }
            let rest = self.rest();
            let blank = |letter: char| letter.is_whitespace() || ",)('\"<=>!".contains(letter);
            self.at += rest.find(blank).unwrap_or(rest.len());
            end = self.at;
        }
        let text = &self.text[start..end];
        match text {
            "" => Err(self.wrong("a value")),
            text if text.eq_ignore_ascii_case("null") => {
                Err(Error::new(Kind::InvalidArgument, "a comparison with NULL is never true")
                    .with_got(format!("`{}`", self.text))
                    .with_hint("write column IS NULL or column IS NOT NULL"))
            }
            text => Ok(text.to_owned()),
        }
    }
}

/// Letters of names that stand without quotes.
fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || "_-@#$/:".contains(letter)
}
