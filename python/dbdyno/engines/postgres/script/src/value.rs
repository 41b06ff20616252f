//! Values of variables and expressions.

use std::io::Write;

/// One value. A text (of `-D` or a result) is taken for a number, a boolean or NULL where an expression uses it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// NULL.
    #[default]
    Null,
    /// true, false.
    Bool(bool),
    /// 64 bits.
    Int(i64),
    /// Double precision.
    Double(f64),
    /// As it came.
    Text(Box<str>),
}

impl Value {
    /// Adds the value as pgbench writes it into a statement: a text as it is, without quotes; a double with 15
    /// digits.
    pub fn sql_text(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"NULL"),
            Self::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Self::Int(value) => drop(write!(out, "{value}")),
            Self::Double(value) => double_text(*value, out),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

/// As C's `%.15g`, with PostgreSQL's words for what is not finite.
fn double_text(value: f64, out: &mut Vec<u8>) {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() && !value.is_nan() {
            "-"
        } else {
            ""
        };
        let _ = write!(out, "{sign}{}", if value.is_nan() { "NaN" } else { "Infinity" });
        return;
    }
    let begin = out.len();
    let _ = write!(out, "{value:.14e}");
    let mark = begin + out[begin..].iter().position(|&byte| byte == b'e').unwrap_or(0);
    let exponent: i32 = std::str::from_utf8(&out[mark + 1..])
        .ok()
        .and_then(|e| e.parse().ok())
        .unwrap_or(0);
    out.truncate(if (-4..15).contains(&exponent) { begin } else { mark });
    if (-4..15).contains(&exponent) {
        let decimals = (14 - exponent) as usize;
        let _ = write!(out, "{value:.decimals$}");
    }
    if out[begin..].contains(&b'.') {
        let kept = out.iter().rposition(|&byte| byte != b'0').unwrap_or(begin);
        out.truncate(kept + usize::from(out[kept] != b'.'));
    }
    if !(-4..15).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
    }
}
