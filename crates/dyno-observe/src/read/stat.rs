//! `/proc/PID/task/TID/stat`: proc(5), "/proc/pid/stat". Fields are numbered as there.

use dyno_model::proc::stat_name;

use crate::read::parse::{Parsed, error, number, scaled};

const NAME: &str = "stat";

/// The fields we use of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Field 1: task id.
    pub tid: i64,
    /// Field 2: name, up to 15 bytes, any bytes: also blanks and parentheses.
    pub comm: &'a str,
    /// Field 3: R running or runnable, S asleep, D asleep and not interruptible, ...
    pub state: char,
    /// Field 4: process id of the parent.
    pub parent: i64,
    /// Field 14: user time, nanoseconds (tick resolution).
    pub user_ns: i64,
    /// Field 15: kernel time, nanoseconds (tick resolution).
    pub system_ns: i64,
    /// Fields 16 and 17: CPU time of children that have ended and were waited for, nanoseconds (tick
    /// resolution).
    pub children_ns: Option<i64>,
    /// Field 22: start since boot, clock ticks.
    pub start_ticks: i64,
    /// Field 39: CPU last run on.
    pub cpu: Option<i64>,
    /// Field 42: delay by block I/O, nanoseconds (tick resolution). Means something only where delay
    /// accounting was on when the task was forked: see [`crate::read::task`].
    pub blkio_ns: Option<i64>,
}

/// Reads one line. `ns_per_tick`: see [`crate::read::parse::ns_per_tick`].
///
/// # Errors
/// When a field up to 22 is missing or wrong, or a later one is there and wrong.
pub fn parse(text: &str, ns_per_tick: i64) -> Parsed<Stat<'_>> {
    let (head, comm, tail) = parts(text)?;
    let mut words = tail.split_ascii_whitespace();
    let state = state(text)?;
    words.next();
    let parent = number(NAME, "ppid", words.next())?;
    // `words` stands at field 5.
    let user = number(NAME, "utime", words.nth(14 - 5))?;
    let system = number(NAME, "stime", words.next())?;
    // signed in the kernel's format: unknown where they are no plain numbers
    let mut child = || number(NAME, "children", words.next()).ok();
    let children = child()
        .zip(child())
        .and_then(|(user, system)| user.checked_add(system));
    let start_ticks = number(NAME, "starttime", words.nth(22 - 18))?;
    let cpu = optional("processor", words.nth(39 - 23))?;
    let blkio = optional("delayacct_blkio_ticks", words.nth(42 - 40))?;
    Ok(Stat {
        tid: number(NAME, "pid", Some(head.trim()))?,
        comm,
        state,
        parent,
        user_ns: scaled(NAME, "utime", user, ns_per_tick)?,
        system_ns: scaled(NAME, "stime", system, ns_per_tick)?,
        children_ns: children.and_then(|c| c.checked_mul(ns_per_tick)),
        start_ticks,
        cpu,
        blkio_ns: blkio
            .map(|b| scaled(NAME, "delayacct_blkio_ticks", b, ns_per_tick))
            .transpose()?,
    })
}

/// Field 3 alone.
///
/// # Errors
/// When it is missing.
pub fn state(text: &str) -> Parsed<char> {
    let (_, _, tail) = parts(text)?;
    let state = tail.trim_start().chars().next();
    state.ok_or_else(|| error(NAME, "no state"))
}

/// Field 26: address where the program's code begins; 0 or 1 to those who may not know it.
///
/// # Errors
/// When the field is missing or wrong.
pub fn start_code(text: &str) -> Parsed<i64> {
    let (_, _, tail) = parts(text)?;
    number(NAME, "startcode", tail.split_ascii_whitespace().nth(26 - 3))
}

/// Before, inside and after the parentheses.
fn parts(text: &str) -> Parsed<(&str, &str, &str)> {
    let name = stat_name(text.as_bytes()).ok_or_else(|| error(NAME, "no name in parentheses"))?;
    Ok((
        &text[..name.start - 1],
        &text[name.clone()],
        &text[name.end + 1..],
    ))
}

fn optional(field: &str, word: Option<&str>) -> Parsed<Option<i64>> {
    word.map(|w| number(NAME, field, Some(w))).transpose()
}
