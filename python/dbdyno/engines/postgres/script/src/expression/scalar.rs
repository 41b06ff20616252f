//! Values inside an expression, and what their types allow.

use crate::Value;

/// A value without memory of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
}

use Scalar::{Bool, Double, Int, Null};

impl From<Scalar> for Value {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Null => Self::Null,
            Bool(value) => Self::Bool(value),
            Int(value) => Self::Int(value),
            Double(value) => Self::Double(value),
        }
    }
}

impl Scalar {
    fn kind(self) -> &'static str {
        match self {
            Null => "NULL",
            Bool(_) => "a boolean",
            Int(_) => "an integer",
            Double(_) => "a double",
        }
    }

    /// The value of a variable. The error is the message.
    pub(crate) fn of(value: &Value) -> Result<Self, String> {
        match value {
            Value::Null => Ok(Null),
            Value::Bool(value) => Ok(Bool(*value)),
            Value::Int(value) => Ok(Int(*value)),
            Value::Double(value) => Ok(Double(*value)),
            Value::Text(text) => Self::of_text(text).ok_or_else(|| format!("{text:?} is not a number")),
        }
    }

    fn of_text(text: &str) -> Option<Self> {
        let trimmed = text.trim_start();
        let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return trimmed.parse().ok().map(Int);
        }
        let begins = |word: &str| {
            !text.is_empty()
                && word
                    .get(..text.len())
                    .is_some_and(|part| part.eq_ignore_ascii_case(text))
        };
        if text.eq_ignore_ascii_case("null") {
            Some(Null)
        } else if begins("true") || begins("yes") || text.eq_ignore_ascii_case("on") {
            Some(Bool(true))
        } else if begins("false") || begins("no") || (text.len() > 1 && begins("off")) {
            Some(Bool(false))
        } else {
            let value = trimmed.parse::<f64>().ok()?;
            (value.is_finite() || !digits.contains(|c: char| c.is_ascii_digit())).then_some(Double(value))
        }
    }

    /// Whether a condition with this value holds.
    pub(crate) fn holds(self) -> bool {
        match self {
            Null => false,
            Bool(value) => value,
            Int(value) => value != 0,
            Double(value) => value != 0.0,
        }
    }

    /// A boolean or NULL.
    pub(crate) fn truth(self) -> Result<Option<bool>, String> {
        if self == Null {
            Ok(None)
        } else {
            self.bool().map(Some)
        }
    }

    pub(crate) fn bool(self) -> Result<bool, String> {
        match self {
            Bool(value) => Ok(value),
            other => Err(format!(
                "{} is not a boolean: compare it, for example with <> 0",
                other.kind()
            )),
        }
    }

    pub(crate) fn int(self) -> Result<i64, String> {
        match self {
            Int(value) => Ok(value),
            Double(value) => {
                let rounded = value.round_ties_even();
                let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded);
                if fits {
                    Ok(rounded as i64)
                } else {
                    Err(format!("{value} is too large for an integer"))
                }
            }
            other => Err(format!("{} is not an integer", other.kind())),
        }
    }

    pub(crate) fn double(self) -> Result<f64, String> {
        match self {
            Double(value) => Ok(value),
            Int(value) => Ok(value as f64),
            other => Err(format!("{} is not a number", other.kind())),
        }
    }
}
