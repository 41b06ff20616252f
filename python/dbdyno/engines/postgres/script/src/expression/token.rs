//! The words of an expression.

use crate::error::Fault;
use crate::names::continues_name;

/// One word, with its offset in the script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub what: What,
    pub at: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    Int(i64),
    /// 9223372036854775808, which only a minus makes a number.
    BeyondInt,
    Double(f64),
    Variable(String),
    /// A keyword or the name of a function, in lower case.
    Word(String),
    /// An operator, a parenthesis, a comma.
    Sign(&'static str),
    End,
}

/// Longer ones first.
const SIGNS: [&str; 20] = [
    "<=", ">=", "<>", "!=", "<<", ">>", "<", ">", "=", "+", "-", "*", "/", "%", "|", "&", "#", "~", "(", ")",
];

/// All words, and one that marks the end. `at`: where the text begins in the script.
pub(crate) fn tokens(text: &str, at: usize) -> Result<Vec<Token>, Fault> {
    let (mut found, mut done) = (Vec::new(), 0);
    loop {
        let rest = text[done..].trim_start();
        done = text.len() - rest.len();
        if rest.is_empty() {
            let end = at + text.trim_end().len();
            found.push(Token {
                what: What::End,
                at: end,
            });
            return Ok(found);
        }
        let (what, length) = token(rest, at + done)?;
        found.push(Token { what, at: at + done });
        done += length;
    }
}

fn token(rest: &str, at: usize) -> Result<(What, usize), Fault> {
    let bytes = rest.as_bytes();
    let name = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|&&byte| continues_name(byte))
            .count()
    };
    match bytes[0] {
        b'0'..=b'9' | b'.' if bytes[0] != b'.' || bytes.get(1).is_some_and(u8::is_ascii_digit) => {
            number(rest, at)
        }
        b':' if name(1) > 0 => Ok((What::Variable(rest[1..=name(1)].to_owned()), 1 + name(1))),
        byte if byte.is_ascii_alphabetic() || byte == b'_' => {
            Ok((What::Word(rest[..name(0)].to_ascii_lowercase()), name(0)))
        }
        b',' => Ok((What::Sign(","), 1)),
        _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => Ok((What::Sign(sign), sign.len())),
            None => Err(unexpected(rest, at)),
        },
    }
}

fn unexpected(rest: &str, at: usize) -> Fault {
    let character = rest.chars().next().unwrap_or(' ');
    let cure = match character {
        ';' => "An expression ends with its line, without a semicolon.",
        '\'' | '"' => "Expressions have no texts: numbers, TRUE, FALSE, NULL and :variables only.",
        ':' => "Write the variable's name directly behind the colon.",
        _ => "Leave it out.",
    };
    Fault::new(at, format!("unexpected {character:?} in an expression"), cure)
}

fn number(rest: &str, at: usize) -> Result<(What, usize), Fault> {
    let bytes = rest.as_bytes();
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let whole = digits(0);
    let mut length = whole;
    if bytes.get(length) == Some(&b'.') {
        length += 1 + digits(length + 1);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits((length + 1 + sign).min(bytes.len()));
        length += if exponent > 0 { 1 + sign + exponent } else { 0 };
    }
    let text = &rest[..length];
    let large = |kind: &str| {
        Fault::new(
            at,
            format!("{text} is too large for {kind}"),
            "Write a smaller number.",
        )
    };
    if length == whole {
        return match text.parse::<i64>() {
            Ok(value) => Ok((What::Int(value), length)),
            Err(_) if text.trim_start_matches('0') == "9223372036854775808" => Ok((What::BeyondInt, length)),
            Err(_) => Err(large("64 bits")),
        };
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((What::Double(value), length)),
        _ => Err(large("a double")),
    }
}
