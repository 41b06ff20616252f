//! Context switches of a task: the last lines of `/proc/PID/task/TID/status` (proc(5)). The file is long and
//! its making costs several times as much as `stat`: not for every read.

use crate::read::parse::{Parsed, number};

const NAME: &str = "status";

/// How often a task gave its CPU away, and lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switches {
    /// It had to wait for something.
    pub voluntary: i64,
    /// Another was to run.
    pub involuntary: i64,
}

/// Reads the two lines.
///
/// # Errors
/// When one is missing or holds no number.
pub fn parse(text: &str) -> Parsed<Switches> {
    let value = |key: &str| {
        let word = text.lines().rev().find_map(|l| l.strip_prefix(key));
        number(NAME, key, word.map(str::trim))
    };
    Ok(Switches {
        voluntary: value("voluntary_ctxt_switches:")?,
        involuntary: value("nonvoluntary_ctxt_switches:")?,
    })
}
