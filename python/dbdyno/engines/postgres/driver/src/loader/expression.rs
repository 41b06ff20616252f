//! Integer expressions over a row: `(row - 1) / 100000 + 1`, `sum(i, 1, children, draw('price', row * 16 + i, 1, 99))`.
//!
//! `+ - * / %` (division truncates, as in SQL), parentheses, names, `draw('stream', key, low, high)`,
//! `zipf('stream', key, low, high, exponent in hundredths)`, `sum(name, first, last, of)`, `min(a, b)`, `max(a, b)`.

use dyno_model::{Error, Result};

use super::random::{Random, Zipf, stream};

/// Where a name's value stands in a row's values.
pub type Slot = usize;

#[derive(Clone, Debug)]
pub enum Expression {
    Number(i64),
    Name(Slot),
    Binary(u8, Box<(Expression, Expression)>),
    Draw(u64, Box<(Expression, Expression, Expression)>),
    Zipf(u64, Box<Zipf>, i64, Box<Expression>),
    Sum(Slot, Box<(Expression, Expression, Expression)>),
}

impl Expression {
    /// Reads `text`; `names`: by slot. A sum's variable gets a slot behind them, which `slots` counts.
    ///
    /// # Errors
    /// [`Error::Spec`].
    pub fn read(text: &str, names: &[String], seed: u64, slots: &mut usize) -> Result<Self> {
        let mut reader = Reader {
            rest: text,
            names: names.iter().cloned().enumerate().map(|(i, n)| (n, i)).collect(),
            seed,
            slots,
        };
        let read = reader.sum();
        read.and_then(|e| {
            if reader.rest.trim().is_empty() {
                Ok(e)
            } else {
                reader.refuse("an operator")
            }
        })
        .map_err(|why| Error::Spec(format!("expression `{text}`: {why}")))
    }

    /// Its value; overflow wraps, division by zero is 0: neither is in a description that was tried.
    pub fn eval(&self, values: &mut [i64]) -> i64 {
        match self {
            Self::Number(n) => *n,
            Self::Name(slot) => values[*slot],
            Self::Binary(operator, sides) => {
                let (a, b) = (sides.0.eval(values), sides.1.eval(values));
                match operator {
                    b'+' => a.wrapping_add(b),
                    b'-' => a.wrapping_sub(b),
                    b'*' => a.wrapping_mul(b),
                    b'/' => a.checked_div(b).unwrap_or(0),
                    b'%' => a.checked_rem(b).unwrap_or(0),
                    b'<' => a.min(b),
                    _ => a.max(b),
                }
            }
            Self::Draw(stream, of) => {
                let (key, low, high) = (of.0.eval(values), of.1.eval(values), of.2.eval(values));
                Random::new(*stream, key).between(low, high)
            }
            Self::Zipf(stream, zipf, low, key) => {
                low - 1 + zipf.draw(&mut Random::new(*stream, key.eval(values)))
            }
            Self::Sum(slot, of) => {
                let (first, last) = (of.0.eval(values), of.1.eval(values));
                let each = |n| {
                    values[*slot] = n;
                    of.2.eval(values)
                };
                (first..=last).map(each).fold(0, i64::wrapping_add)
            }
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
    names: Vec<(String, Slot)>,
    seed: u64,
    slots: &'a mut usize,
}

type Read<T> = std::result::Result<T, String>;

impl Reader<'_> {
    fn sum(&mut self) -> Read<Expression> {
        self.chain(b"+-", Self::product)
    }

    fn product(&mut self) -> Read<Expression> {
        self.chain(b"*/%", Self::factor)
    }

    fn chain(&mut self, operators: &[u8], next: fn(&mut Self) -> Read<Expression>) -> Read<Expression> {
        let mut left = next(self)?;
        while let Some(&operator) = self.peek().filter(|b| operators.contains(b)).as_ref() {
            self.rest = &self.rest[1..];
            left = Expression::Binary(operator, Box::new((left, next(self)?)));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Read<Expression> {
        if self.take('(') {
            let inner = self.sum()?;
            return self.expect(')').map(|()| inner);
        }
        if self.take('-') {
            return Ok(match self.factor()? {
                Expression::Number(n) => Expression::Number(-n),
                other => Expression::Binary(b'-', Box::new((Expression::Number(0), other))),
            });
        }
        match self.peek() {
            Some(b) if b.is_ascii_digit() => {
                let digits = self.word(|c| c.is_ascii_digit() || c == '_').replace('_', "");
                digits
                    .parse()
                    .map(Expression::Number)
                    .map_err(|_| format!("{digits} is too large"))
            }
            Some(b) if b.is_ascii_alphabetic() || b == b'_' => {
                let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
                if self.take('(') {
                    self.function(&name)
                } else {
                    self.slot(&name).map(Expression::Name)
                }
            }
            _ => self.refuse("a number, a name or a parenthesis"),
        }
    }

    fn function(&mut self, name: &str) -> Read<Expression> {
        let made = match name {
            "min" | "max" => {
                let pair = (self.argument()?, self.sum()?);
                Expression::Binary(if name == "min" { b'<' } else { b'>' }, Box::new(pair))
            }
            "draw" => {
                let stream = self.stream()?;
                Expression::Draw(
                    stream,
                    Box::new((self.argument()?, self.argument()?, self.sum()?)),
                )
            }
            "zipf" => {
                let (stream, key) = (self.stream()?, self.argument()?);
                let (Expression::Number(low), Expression::Number(high)) =
                    (self.argument()?, self.argument()?)
                else {
                    return Err("the bounds of zipf() must be numbers".to_owned());
                };
                let Expression::Number(exponent) = self.sum()? else {
                    return Err("the exponent of zipf() must be a number (in hundredths)".to_owned());
                };
                let zipf = Zipf::new((high - low + 1).max(1), exponent as f64 / 100.0);
                Expression::Zipf(stream, Box::new(zipf), low, Box::new(key))
            }
            "sum" => {
                self.peek();
                let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
                self.expect(',')?;
                let bounds = (self.argument()?, self.argument()?);
                let slot = *self.slots;
                *self.slots += 1;
                self.names.push((name, slot));
                let of = self.sum()?;
                self.names.pop();
                Expression::Sum(slot, Box::new((bounds.0, bounds.1, of)))
            }
            _ => return Err(format!("no function {name}(): draw, zipf, sum, min, max")),
        };
        self.expect(')').map(|()| made)
    }

    fn argument(&mut self) -> Read<Expression> {
        let read = self.sum()?;
        self.expect(',').map(|()| read)
    }

    fn stream(&mut self) -> Read<u64> {
        self.expect('\'')?;
        let name = self.word(|c| c != '\'');
        self.expect('\'')?;
        self.expect(',').map(|()| stream(self.seed, &name))
    }

    fn slot(&self, name: &str) -> Read<Slot> {
        let found = self.names.iter().rev().find(|(n, _)| n == name);
        found.map(|(_, slot)| *slot).ok_or_else(|| {
            let known: Vec<&str> = self.names.iter().map(|(n, _)| n.as_str()).collect();
            format!("no name {name}: {}", known.join(", "))
        })
    }

    fn word(&mut self, of: fn(char) -> bool) -> String {
        let end = self.rest.find(|c| !of(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_start();
        self.rest.bytes().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        self.peek();
        let stripped = self.rest.strip_prefix(wanted);
        self.rest = stripped.unwrap_or(self.rest);
        stripped.is_some()
    }

    fn expect(&mut self, wanted: char) -> Read<()> {
        if self.take(wanted) {
            Ok(())
        } else {
            self.refuse(&format!("`{wanted}`"))
        }
    }

    fn refuse<T>(&self, expected: &str) -> Read<T> {
        let at = if self.rest.trim().is_empty() {
            "the end"
        } else {
            self.rest.trim()
        };
        Err(format!("expected {expected} at `{at}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> i64 {
        let mut slots = 1;
        let read = Expression::read(text, &["row".to_owned()], 7, &mut slots).unwrap();
        let mut values = vec![0; slots];
        values[0] = 250_001;
        read.eval(&mut values)
    }

    #[test]
    fn values_are_those_of_arithmetic() {
        assert_eq!(value("(row - 1) / 100_000 + 1"), 3);
        assert_eq!(value("2 + 3 * 4 - -row % 7"), 14 + 250_001 % 7);
        assert_eq!(
            value("sum(i, 1, 4, sum(j, 1, i, i * j))"),
            1 + 2 * 3 + 3 * 6 + 4 * 10
        );
        assert_eq!(value("min(3, max(row, 1)) / 0"), 0);
        assert_eq!(value("draw('a', row, 5, 5)"), 5);
        assert_eq!(value("draw('a', row, 1, 99) - draw('a', 250001, 1, 99)"), 0);
        assert!((3..=6).contains(&value("zipf('z', row, 3, 6, 110)")));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, words) in [
            ("row +", "at `the end`"),
            ("(row", "expected `)`"),
            ("rows", "no name rows: row"),
            ("row row", "an operator at `row`"),
            ("random(1)", "no function random()"),
            ("99999999999999999999", "too large"),
        ] {
            let mut slots = 1;
            let Err(Error::Spec(said)) = Expression::read(text, &["row".to_owned()], 7, &mut slots) else {
                panic!("{text} was not refused")
            };
            assert!(said.contains(words), "{said}");
        }
    }
}
