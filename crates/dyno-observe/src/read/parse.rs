//! Common to all parsers: their error, and numbers.

use dyno_model::boot_ns;
use rustix::param::clock_ticks_per_second;

/// A text that is not what the kernel documents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}: {what}")]
pub struct ParseError {
    /// Which source.
    pub source_name: &'static str,
    /// The fault.
    pub what: String,
}

/// Result of a parser.
pub type Parsed<T> = Result<T, ParseError>;

/// Returns an error of the source `source_name`.
pub fn error(source_name: &'static str, what: impl Into<String>) -> ParseError {
    ParseError {
        source_name,
        what: what.into(),
    }
}

/// Returns a non-negative decimal number that fits into 63 bits. A sign or blanks are errors.
///
/// # Errors
/// When `word` is missing or something else; `field` names it.
pub fn number(source_name: &'static str, field: &str, word: Option<&str>) -> Parsed<i64> {
    let word = word.ok_or_else(|| error(source_name, format!("{field} is missing")))?;
    if !word.is_empty()
        && word.bytes().all(|b| b.is_ascii_digit())
        && let Ok(value) = word.parse()
    {
        return Ok(value);
    }
    let near: String = word.chars().take(24).collect();
    Err(error(
        source_name,
        format!("{field} is not a number of 63 bits: {near:?}"),
    ))
}

/// Returns `value * factor`.
///
/// # Errors
/// Beyond 63 bits; `field` names it.
pub fn scaled(source_name: &'static str, field: &str, value: i64, factor: i64) -> Parsed<i64> {
    value
        .checked_mul(factor)
        .ok_or_else(|| error(source_name, format!("{field} is beyond 63 bits")))
}

/// Returns the time since boot in clock ticks: the clock of field 22 of `/proc/*/stat`.
pub fn boot_ticks() -> i64 {
    boot_ns() / ns_per_tick()
}

/// Returns the nanoseconds of one clock tick (`USER_HZ`), the unit of `/proc/*/stat` and cgroup v1 `cpuacct.stat`.
pub fn ns_per_tick() -> i64 {
    1_000_000_000 / clock_ticks_per_second().max(1) as i64
}
