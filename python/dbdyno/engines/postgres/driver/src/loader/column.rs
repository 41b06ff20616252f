//! A column as data, and what it holds in a row.

use dyno_model::{Error, Result};
use dyno_script::Rng;
use serde::Deserialize;

use super::binary::{self, Type};
use super::expression::{Expression, Row, Stream, Variables};
use super::hash;

/// Digits of a numeric after the decimal point (PostgreSQL documentation, "Numeric Types").
const MOST_DIGITS: u32 = 16_383;
/// Words or characters of a text.
const MOST_PIECES: i64 = 10_000_000;

/// A column.
#[derive(Clone, Debug, Deserialize)]
pub struct ColumnSpec {
    /// Its name, as expressions and SQL have it.
    pub name: String,
    /// Type in which it is sent.
    #[serde(rename = "type")]
    pub kind: Type,
    /// Decimal digits behind the point of a numeric or double.
    #[serde(default)]
    pub scale: u32,
    /// Share of rows that are NULL.
    #[serde(default)]
    pub nulls: f64,
    /// Which row of the stream; none: this one.
    #[serde(default)]
    pub key: Option<String>,
    /// False: a constant that is the column's default. It counts in the checksum and is not sent, which saves the
    /// server a tenth of its work.
    #[serde(default = "yes")]
    pub sent: bool,
    /// Content of the column.
    pub content: Content,
}

fn yes() -> bool {
    true
}

/// Content of a column.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// An expression of an integer, a boolean or NULL.
    Expression(String),
    /// A text; none: NULL.
    Constant(Option<String>),
    /// A random one of these texts, by weight.
    Choice(Vec<(String, f64)>),
    /// A number of these words, separated by spaces.
    Words(Vec<String>, i64, i64),
    /// A number of these characters (ASCII).
    Characters(String, i64, i64),
    /// A text with expressions in braces.
    Template(String),
}

enum Source {
    Integer(Expression),
    Constant(Option<Vec<u8>>),
    Choice(Vec<(Vec<u8>, f64)>),
    Words(Vec<Vec<u8>>, i64, i64),
    Characters(Vec<u8>, i64, i64),
    Template(Vec<(Vec<u8>, Option<Expression>)>),
}

/// Ready to make values.
pub struct Column {
    pub kind: Type,
    pub scale: u32,
    pub sent: bool,
    nulls: f64,
    null_stream: Stream,
    stream: Stream,
    key: Option<Expression>,
    source: Source,
}

impl Column {
    /// Its expressions may use the columns before it.
    pub fn new(spec: &ColumnSpec, table: &str, seed: u64, variables: &mut Variables) -> Result<Self> {
        let place = format!("{table}.{}", spec.name);
        if spec.scale > MOST_DIGITS {
            return Err(Error::Spec(format!("{place}: a scale is at most {MOST_DIGITS}")));
        }
        let mut read = |text: &str| variables.read(table, &spec.name, text);
        Ok(Self {
            kind: spec.kind,
            scale: spec.scale,
            sent: spec.sent,
            nulls: spec.nulls,
            null_stream: Stream::new(seed, &format!("{place} nulls")),
            stream: Stream::new(seed, &place),
            key: spec.key.as_deref().map(&mut read).transpose()?,
            source: source(spec, &mut read)?,
        })
    }

    /// Bytes of its longest value, about.
    pub fn longest(&self) -> u64 {
        let bytes = match &self.source {
            Source::Integer(_) => 40 + self.scale as usize / 2,
            Source::Constant(text) => text.as_ref().map_or(0, Vec::len),
            Source::Choice(choices) => choices.iter().map(|(text, _)| text.len()).max().unwrap_or(0),
            Source::Words(words, _, most) => {
                let longest = words.iter().map(Vec::len).max().unwrap_or(0);
                (longest + 1).saturating_mul(*most as usize)
            }
            Source::Characters(_, _, most) => *most as usize,
            Source::Template(parts) => parts.iter().map(|(literal, _)| literal.len() + 20).sum(),
        };
        bytes as u64
    }

    pub fn is_null(&self, row: i64) -> bool {
        self.nulls > 0.0 && self.null_stream.at(row).unit() < self.nulls
    }

    /// Whether it holds integers: [`Column::integer`] has them, otherwise [`Column::text`].
    pub fn is_integer(&self) -> bool {
        matches!(self.source, Source::Integer(_))
    }

    /// Its integer in row `number`.
    pub fn integer(&self, number: i64, row: &mut Row<'_>) -> Result<Option<i64>> {
        match &self.source {
            Source::Integer(e) => e.eval(self.random(number, row)?, row),
            _ => Ok(None),
        }
    }

    fn random(&self, number: i64, row: &mut Row<'_>) -> Result<Rng> {
        let key = match &self.key {
            Some(key) => key.number(self.stream.at(number), row)?,
            None => number,
        };
        Ok(self.stream.at(key))
    }

    /// Sends an integer, if the column is sent; the hash of the row up to it.
    #[inline]
    pub fn add_integer(&self, value: i64, out: &mut Vec<u8>, hashed: u64) -> Result<u64> {
        if self.sent {
            binary::integer(out, self.kind, self.scale, value)?;
        }
        if self.kind != Type::Text {
            return Ok(hash::integer(value, hashed));
        }
        let (mut digits, mut length) = ([0; 20], 0);
        binary::decimal(value, &mut digits, &mut length);
        Ok(hash::text(&digits[..length], hashed))
    }

    /// Sends a text; the hash of the row up to it.
    pub fn add_text(&self, text: &[u8], out: &mut Vec<u8>, hashed: u64) -> u64 {
        if self.sent {
            binary::text(out, text);
        }
        hash::text(text, hashed)
    }

    /// Sends NULL; the hash is as `coalesce` has it in the query of the checksum.
    pub fn add_null(&self, out: &mut Vec<u8>, hashed: u64) -> u64 {
        if self.sent {
            binary::null(out);
        }
        if self.kind == Type::Text {
            hash::text(b"\\N", hashed)
        } else {
            hash::integer(i64::MIN, hashed)
        }
    }

    /// Its text in row `number`.
    pub fn text<'a>(
        &'a self,
        number: i64,
        row: &mut Row<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>> {
        if let Source::Constant(text) = &self.source {
            return Ok(text.as_deref());
        }
        let mut random = self.random(number, row)?;
        scratch.clear();
        match &self.source {
            Source::Choice(choices) => {
                let at = random.unit();
                let chosen = choices.iter().find(|(_, until)| at < *until).or(choices.last());
                return Ok(chosen.map(|(text, _)| text.as_slice()));
            }
            Source::Words(words, low, high) => {
                for number in 0..between(&mut random, *low, *high) {
                    if number > 0 {
                        scratch.push(b' ');
                    }
                    scratch.extend(&words[random.up_to(words.len() as u64 - 1) as usize]);
                }
            }
            Source::Characters(alphabet, low, high) => {
                for _ in 0..between(&mut random, *low, *high) {
                    scratch.push(alphabet[random.up_to(alphabet.len() as u64 - 1) as usize]);
                }
            }
            Source::Template(parts) => {
                for (literal, expression) in parts {
                    scratch.extend(literal);
                    if let Some(e) = expression {
                        let (mut digits, mut length) = ([0; 20], 0);
                        binary::decimal(e.number(random.clone(), row)?, &mut digits, &mut length);
                        scratch.extend(&digits[..length]);
                    }
                }
            }
            Source::Integer(_) | Source::Constant(_) => return Ok(None),
        }
        Ok(Some(scratch))
    }
}

fn between(random: &mut Rng, low: i64, high: i64) -> i64 {
    low + random.up_to((high - low) as u64) as i64
}

fn source(column: &ColumnSpec, read: &mut impl FnMut(&str) -> Result<Expression>) -> Result<Source> {
    let empty = |what: &str| Err(Error::Spec(format!("no {what}")));
    let bytes = |text: &String| text.clone().into_bytes();
    Ok(match &column.content {
        Content::Expression(text) => Source::Integer(read(text)?),
        Content::Constant(text) => {
            if text.is_some() && column.kind != Type::Text {
                return Err(Error::Spec(
                    "a constant text for a column that is none".to_owned(),
                ));
            }
            Source::Constant(text.as_ref().map(bytes))
        }
        Content::Choice(choices) => {
            let all: f64 = choices.iter().map(|(_, weight)| weight).sum();
            let mut until = 0.0;
            let each = choices.iter().map(|(text, weight)| {
                until += weight / all;
                (bytes(text), until)
            });
            Source::Choice(each.collect())
        }
        Content::Words(words, ..) if words.is_empty() => return empty("words"),
        Content::Words(_, low, high) | Content::Characters(_, low, high)
            if !(0 <= *low && low <= high && *high <= MOST_PIECES) =>
        {
            let words = format!("give from 0 to {MOST_PIECES} words or characters, the smaller number first");
            return Err(Error::Spec(words));
        }
        Content::Words(words, low, high) => Source::Words(words.iter().map(bytes).collect(), *low, *high),
        Content::Characters(all, ..) if all.is_empty() || !all.is_ascii() => {
            return empty("ASCII characters");
        }
        Content::Characters(all, low, high) => Source::Characters(bytes(all), *low, *high),
        Content::Template(text) => Source::Template(parts(text, read)?),
    })
}

/// `user{:row}@example.com`: each literal with the expression behind it.
fn parts(
    text: &str,
    read: &mut impl FnMut(&str) -> Result<Expression>,
) -> Result<Vec<(Vec<u8>, Option<Expression>)>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((literal, after)) = rest.split_once('{') {
        let (expression, behind) = after
            .split_once('}')
            .ok_or_else(|| Error::Spec(format!("`{text}`: a brace is not closed")))?;
        parts.push((literal.into(), Some(read(expression)?)));
        rest = behind;
    }
    parts.push((rest.into(), None));
    Ok(parts)
}
