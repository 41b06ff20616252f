//! Values in the server's binary COPY format: no text to parse on its side.

use dyno_model::{Error, Result};
use serde::Deserialize;

/// Format in which an integer or a text is sent.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    Smallint,
    Integer,
    Bigint,
    /// The integer divided by 10 to the power of the column's scale.
    Numeric,
    Double,
    Boolean,
    /// Days since 2000-01-01.
    Date,
    /// Microseconds since 2000-01-01, with or without time zone.
    Timestamp,
    /// text, varchar, char(n).
    Text,
}

/// The signature, no flags, no extension of the header.
pub const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// In place of a row's number of columns.
pub const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();

pub fn null(out: &mut Vec<u8>) {
    out.extend((-1_i32).to_be_bytes());
}

pub fn text(out: &mut Vec<u8>, value: &[u8]) {
    field(out, value);
}

/// # Errors
/// [`Error::Spec`] for a value that the type cannot hold.
#[inline]
pub fn integer(out: &mut Vec<u8>, kind: Type, scale: u32, value: i64) -> Result<()> {
    let too_large = |_| Error::Spec(format!("{value} does not fit type {kind:?}"));
    match kind {
        Type::Smallint => field(out, &i16::try_from(value).map_err(too_large)?.to_be_bytes()),
        Type::Integer | Type::Date => field(out, &i32::try_from(value).map_err(too_large)?.to_be_bytes()),
        Type::Bigint | Type::Timestamp => field(out, &value.to_be_bytes()),
        Type::Boolean => field(out, &[u8::from(value != 0)]),
        Type::Double => field(out, &(value as f64 / 10_f64.powi(scale as i32)).to_be_bytes()),
        Type::Numeric => numeric(out, scale, value),
        Type::Text => {
            let (mut digits, mut length) = ([0; 20], 0);
            decimal(value, &mut digits, &mut length);
            field(out, &digits[..length]);
        }
    }
    Ok(())
}

/// Digits of `value`, without a heap.
pub fn decimal(value: i64, digits: &mut [u8; 20], length: &mut usize) {
    let (mut rest, mut at) = (value.unsigned_abs(), 20);
    let mut reversed = [0; 20];
    loop {
        at -= 1;
        reversed[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        reversed[at] = b'-';
    }
    *length = 20 - at;
    digits[..*length].copy_from_slice(&reversed[at..]);
}

#[inline]
fn field(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as i32).to_be_bytes());
    out.extend(bytes);
}

/// Digits to the base 10,000, the decimal point between two of them.
fn numeric(out: &mut Vec<u8>, scale: u32, value: i64) {
    let after = scale.div_ceil(4); // digits behind the point
    let mut rest = u128::from(value.unsigned_abs()) * 10_u128.pow(after * 4 - scale);
    let mut digits = Vec::with_capacity(8);
    while rest > 0 {
        digits.push((rest % 10_000) as u16);
        rest /= 10_000;
    }
    let weight = digits.len() as i32 - 1 - after as i32;
    let zeros = digits.iter().take_while(|&&d| d == 0).count();
    out.extend((8 + 2 * (digits.len() - zeros) as i32).to_be_bytes());
    out.extend(((digits.len() - zeros) as u16).to_be_bytes());
    out.extend((weight as i16).to_be_bytes());
    out.extend((if value < 0 { 0x4000_u16 } else { 0 }).to_be_bytes());
    out.extend((scale as u16).to_be_bytes());
    for digit in digits[zeros..].iter().rev() {
        out.extend(digit.to_be_bytes());
    }
}
