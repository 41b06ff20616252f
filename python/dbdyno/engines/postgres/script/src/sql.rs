//! SQL statements of a script: where one ends, and which variables stand in it.
//!
//! The lexical rules are PostgreSQL's (documentation 18, "Lexical Structure") with standard-conforming strings.

use crate::error::Fault;
use crate::names::{continues_name, starts_name};

/// The end of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Semicolon,
    Backslash,
    Text,
}

/// A statement as it stands in the script.
#[derive(Debug)]
pub(crate) struct Raw {
    /// The text to send, before variables are replaced.
    pub query: String,
    /// Parts of `query` that are quoted or a comment, in order.
    pub quoted: Vec<(usize, usize)>,
    /// Where it begins in the script.
    pub start: usize,
    /// Statements in it.
    pub statements: usize,
    pub end: End,
    /// Where the script goes on: behind the semicolon, or at the backslash.
    pub next: usize,
}

/// A variable in a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Use {
    /// Begins at the colon.
    pub at: usize,
    pub end: usize,
    pub place: Place,
}

/// Where a variable stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Apart from names and quotes: a parameter may stand there.
    Free,
    /// In quotes or in a comment.
    Quoted,
    /// Beside characters that would make one name or number with it: `part_:n`, `:schema$x`.
    Name,
}

/// The next statement from `at` on. It is empty where a backslash command or the end comes first.
pub(crate) fn scan(text: &str, at: usize) -> Result<Raw, Fault> {
    let mut scanner = Scanner::new(text, at);
    let end = scanner.statement()?;
    scanner.unclosed(end)?;
    Ok(scanner.finish(end))
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    query: String,
    quoted: Vec<(usize, usize)>,
    start: Option<usize>,
    statements: usize,
    /// Whether the statement at hand has more than blanks and comments.
    content: bool,
    parens: Vec<usize>,
    /// BEGIN ATOMIC and CASE that are open in the body of a function.
    bodies: Vec<usize>,
    /// The first words of the statement, in lower case: only CREATE FUNCTION and PROCEDURE have bodies.
    words: Vec<String>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str, at: usize) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at,
            query: String::new(),
            quoted: Vec::new(),
            start: None,
            statements: 0,
            content: false,
            parens: Vec::new(),
            bodies: Vec::new(),
            words: Vec::new(),
        }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn statement(&mut self) -> Result<End, Fault> {
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'-', b'-') => self.at = self.end_of_line(),
                (b'/', b'*') => self.comment()?,
                (b'\'' | b'"', _) => self.string(0, false)?,
                (b'$', _) if self.dollar_tag().is_some() => self.dollar_quoted()?,
                (b'\\', b';') => self.escaped(),
                (b'\\', b':') => {
                    self.at += 1;
                    self.take(1, true);
                }
                (b'\\', _) => return Ok(End::Backslash),
                (b';', _) if self.parens.is_empty() && self.bodies.is_empty() => return Ok(End::Semicolon),
                (byte, _) if starts_name(byte) => self.word()?,
                (byte, _) if byte.is_ascii_digit() => self.number(),
                (byte, _) if byte.is_ascii_whitespace() => self.take(1, false),
                (byte, _) => self.symbol(byte),
            }
        }
        Ok(End::Text)
    }

    /// Takes over so many bytes into the query.
    fn take(&mut self, length: usize, content: bool) {
        if self.start.is_none() && (content || !self.bytes[self.at].is_ascii_whitespace()) {
            self.start = Some(self.at);
        }
        if self.start.is_some() {
            self.query.push_str(&self.text[self.at..self.at + length]);
        }
        if content && !self.content {
            self.content = true;
            self.statements += 1;
        }
        self.at += length;
    }

    fn take_quoted(&mut self, length: usize, content: bool) {
        let begin = self.query.len();
        self.take(length, content);
        self.quoted.push((begin, self.query.len()));
    }

    fn symbol(&mut self, byte: u8) {
        match byte {
            b'(' => self.parens.push(self.at),
            b')' => drop(self.parens.pop()),
            _ => {}
        }
        self.take(1, true);
    }

    /// `\;`: the query goes on behind a semicolon.
    fn escaped(&mut self) {
        self.at += 1;
        self.take(1, false);
        self.content = false;
        self.words.clear();
    }

    fn end_of_line(&self) -> usize {
        self.text[self.at..]
            .find('\n')
            .map_or(self.text.len(), |length| self.at + length)
    }

    fn comment(&mut self) -> Result<(), Fault> {
        let (mut depth, mut length) = (0, 0);
        loop {
            match (self.peek(length), self.peek(length + 1)) {
                (b'/', b'*') => (depth, length) = (depth + 1, length + 2),
                (b'*', b'/') => (depth, length) = (depth - 1, length + 2),
                _ if self.at + length >= self.bytes.len() => {
                    let cure = "End the comment with */; comments may be nested.";
                    return Err(Fault::new(self.at, "comment without an end", cure));
                }
                _ => length += 1,
            }
            if depth == 0 {
                self.take_quoted(length, false);
                return Ok(());
            }
        }
    }

    /// A quoted string or identifier whose quote stands so many bytes ahead.
    fn string(&mut self, prefix: usize, escapes: bool) -> Result<(), Fault> {
        let quote = self.peek(prefix);
        let mut length = prefix + 1;
        while self.at + length < self.bytes.len() {
            let byte = self.peek(length);
            length += match byte {
                b'\\' if escapes => 2,
                _ if byte == quote && self.peek(length + 1) == quote => 2,
                _ if byte == quote => {
                    self.take_quoted(length + 1, true);
                    return Ok(());
                }
                _ => 1,
            };
        }
        let cure = format!(
            "Close it with {}; write the quote itself twice.",
            char::from(quote)
        );
        Err(Fault::new(self.at + prefix, "quoted text without an end", cure))
    }

    /// The tag of a dollar quote with its dollars.
    fn dollar_tag(&self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let end = rest[1..].find('$')? + 2;
        let tag = &rest[1..end - 1];
        (tag.is_empty() || crate::is_name(tag)).then(|| &rest[..end])
    }

    fn dollar_quoted(&mut self) -> Result<(), Fault> {
        let tag = self.dollar_tag().unwrap_or("$$");
        let rest = &self.text[self.at + tag.len()..];
        let Some(end) = rest.find(tag) else {
            return Err(Fault::new(
                self.at,
                "quoted text without an end",
                format!("Close it with {tag}."),
            ));
        };
        self.take_quoted(end + 2 * tag.len(), true);
        Ok(())
    }

    fn number(&mut self) {
        let digits = self.bytes[self.at..]
            .iter()
            .take_while(|b| b.is_ascii_alphanumeric())
            .count();
        self.take(digits, true);
    }

    fn word(&mut self) -> Result<(), Fault> {
        let length = self.bytes[self.at..]
            .iter()
            .take_while(|&&b| continues_name(b) || b == b'$')
            .count();
        if length == 1 && self.peek(1) == b'\'' && self.peek(0).eq_ignore_ascii_case(&b'e') {
            return self.string(1, true);
        }
        self.body(&self.text[self.at..self.at + length].to_ascii_lowercase());
        self.take(length, true);
        Ok(())
    }

    /// Follows BEGIN ... END of a function's body, in which a semicolon does not end the statement.
    fn body(&mut self, word: &str) {
        if self.words.len() < 4 {
            self.words.push(word.to_owned());
        }
        let creates = self.words[0] == "create"
            && self.words[1..]
                .iter()
                .any(|word| word == "function" || word == "procedure");
        match word {
            "begin" if creates => self.bodies.push(self.at),
            "case" if !self.bodies.is_empty() => self.bodies.push(self.at),
            "end" => drop(self.bodies.pop()),
            _ => {}
        }
    }

    /// Checks that no quote or comment is open at the end of a statement.
    fn unclosed(&self, end: End) -> Result<(), Fault> {
        let open = self
            .parens
            .last()
            .map(|&at| (at, "parenthesis without an end", "Close it with )."));
        let open = open.or_else(|| {
            self.bodies
                .last()
                .map(|&at| (at, "body without an end", "Close BEGIN ATOMIC and CASE with END."))
        });
        match open {
            Some((at, message, cure)) if end != End::Semicolon => Err(Fault::new(at, message, cure)),
            _ => Ok(()),
        }
    }

    fn finish(mut self, end: End) -> Raw {
        self.query.truncate(self.query.trim_end().len());
        if self.statements == 0 && end != End::Semicolon && !self.query.contains(';') {
            self.query.clear(); // nothing but comments
        }
        Raw {
            query: self.query,
            quoted: self.quoted,
            start: self.start.unwrap_or(self.at),
            statements: self.statements.max(1),
            end,
            next: self.at + usize::from(end == End::Semicolon),
        }
    }
}

/// The variables of a query, as pgbench finds them: in its text, wherever they stand.
pub(crate) fn variables(raw: &Raw) -> Vec<Use> {
    let bytes = raw.query.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    let mut quoted = raw.quoted.iter().peekable();
    while let Some(colon) = bytes[at..]
        .iter()
        .position(|&byte| byte == b':')
        .map(|ahead| at + ahead)
    {
        let length = bytes[colon + 1..]
            .iter()
            .take_while(|&&byte| continues_name(byte))
            .count();
        if length > 0 && starts_name(bytes[colon + 1]) {
            at = colon + 1 + length;
            while quoted.next_if(|&&(_, end)| end <= colon).is_some() {}
            let touches = |byte: Option<&u8>| byte.is_some_and(|&b| continues_name(b) || b == b'$');
            let place = if quoted.peek().is_some_and(|&&(begin, _)| begin <= colon) {
                Place::Quoted
            } else if touches(bytes[..colon].last()) || touches(bytes.get(at)) {
                Place::Name
            } else {
                Place::Free
            };
            found.push(Use {
                at: colon,
                end: at,
                place,
            });
        } else {
            at = colon + bytes[colon..].iter().take_while(|&&byte| byte == b':').count();
        }
    }
    found
}

/// Whether a statement of this query is a COPY whose data would come from the client or go there.
pub fn copies_with_client(query: &str) -> bool {
    let mut at = 0;
    while let Ok(raw) = scan(query, at) {
        if is_copy_with_client(&raw) {
            return true;
        }
        if raw.end != End::Semicolon {
            break;
        }
        at = raw.next;
    }
    false
}

/// COPY ... FROM STDIN or TO STDOUT; the server takes either name in both directions.
fn is_copy_with_client(raw: &Raw) -> bool {
    let words = bare_words(raw);
    words.first().is_some_and(|word| word == "copy")
        && words.windows(2).any(|pair| {
            matches!(pair[0].as_str(), "from" | "to") && matches!(pair[1].as_str(), "stdin" | "stdout")
        })
}

/// The words outside of quotes, comments and parentheses, in lower case.
fn bare_words(raw: &Raw) -> Vec<String> {
    let bytes = raw.query.as_bytes();
    let (mut words, mut at, mut depth) = (Vec::new(), 0, 0_usize);
    let mut quoted = raw.quoted.iter().peekable();
    while at < bytes.len() {
        if let Some(&(_, end)) = quoted.next_if(|&&(begin, _)| begin <= at) {
            at = at.max(end);
            continue;
        }
        let word = bytes[at..]
            .iter()
            .take_while(|&&byte| continues_name(byte))
            .count();
        match bytes[at] {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ if word > 0 && depth == 0 => words.push(raw.query[at..at + word].to_ascii_lowercase()),
            _ => {}
        }
        at += word.max(1);
    }
    words
}
