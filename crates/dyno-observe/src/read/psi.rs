//! `/proc/pressure/{cpu,io,memory}`: Documentation/accounting/psi.rst.

use crate::read::parse::{Parsed, error, number, scaled};

const NAME: &str = "pressure";

/// Accumulated stall times, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task stalled.
    pub some_ns: Option<i64>,
    /// All non-idle tasks stalled; absent for cpu before 5.13.
    pub full_ns: Option<i64>,
}

/// Reads the `total=` (microseconds there) of the lines `some` and `full`.
///
/// # Errors
/// When no line is known, or a known one has no total.
pub fn parse(text: &str) -> Parsed<Pressure> {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let place = match words.next() {
            Some("some") => &mut pressure.some_ns,
            Some("full") => &mut pressure.full_ns,
            _ => continue,
        };
        let total = number(NAME, "total", words.find_map(|w| w.strip_prefix("total=")))?;
        *place = Some(scaled(NAME, "total", total, 1000)?);
    }
    if pressure == Pressure::default() {
        return Err(error(NAME, "neither a line 'some' nor a line 'full'"));
    }
    Ok(pressure)
}
