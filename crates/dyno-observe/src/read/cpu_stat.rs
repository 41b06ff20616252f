//! CPU figures of control groups, normalised to the keys of the schema (all times nanoseconds).
//! v1: Documentation/admin-guide/cgroup-v1/cpuacct.rst and scheduler/sched-bwc.rst; v2: cgroup-v2.rst, "cpu.stat".

use crate::read::parse::{Parsed, error, number, scaled};

/// CPU time used, nanoseconds.
pub const USAGE: &str = "usage_ns";
/// CPU time in user mode, nanoseconds.
pub const USER: &str = "user_ns";
/// CPU time in the kernel, nanoseconds.
pub const SYSTEM: &str = "system_ns";
/// Enforcement periods that began with something to run.
pub const PERIODS: &str = "nr_periods";
/// Number of periods in which the quota ran out.
pub const THROTTLED: &str = "nr_throttled";
/// Throttled time summed over per-CPU queues (can exceed wall time), nanoseconds.
pub const THROTTLED_NS: &str = "throttled_ns";

/// A key of the schema with its value.
pub type Entry = (&'static str, i64);

/// v1 `cpu.stat`; times are nanoseconds there.
///
/// # Errors
/// When a line we know has no number.
pub fn parse_v1(text: &str) -> Parsed<Vec<Entry>> {
    keyed("cgroup v1 cpu.stat", text, |word| match word {
        "nr_periods" => Some((PERIODS, 1)),
        "nr_throttled" => Some((THROTTLED, 1)),
        "throttled_time" => Some((THROTTLED_NS, 1)),
        _ => None,
    })
}

/// v2 `cpu.stat`; times are microseconds there. Without the cpu controller only the usage lines are there.
///
/// # Errors
/// When a line we know has no number.
pub fn parse_v2(text: &str) -> Parsed<Vec<Entry>> {
    keyed("cgroup v2 cpu.stat", text, |word| match word {
        "usage_usec" => Some((USAGE, 1000)),
        "user_usec" => Some((USER, 1000)),
        "system_usec" => Some((SYSTEM, 1000)),
        "nr_periods" => Some((PERIODS, 1)),
        "nr_throttled" => Some((THROTTLED, 1)),
        "throttled_usec" => Some((THROTTLED_NS, 1000)),
        _ => None,
    })
}

/// v1 `cpuacct.stat`: `user` and `system` in clock ticks.
///
/// # Errors
/// When a line we know has no number.
pub fn parse_cpuacct_stat(text: &str, ns_per_tick: i64) -> Parsed<Vec<Entry>> {
    keyed("cgroup v1 cpuacct.stat", text, |word| match word {
        "user" => Some((USER, ns_per_tick)),
        "system" => Some((SYSTEM, ns_per_tick)),
        _ => None,
    })
}

/// v1 `cpuacct.usage`, `cpuacct.usage_user`, `cpuacct.usage_sys`: one number, nanoseconds.
///
/// # Errors
/// When it is not one number of 63 bits.
pub fn parse_cpuacct_usage(text: &str) -> Parsed<i64> {
    number("cgroup v1 cpuacct.usage", "usage", Some(text.trim()))
}

fn keyed(
    source: &'static str,
    text: &str,
    known: impl Fn(&str) -> Option<(&'static str, i64)>,
) -> Parsed<Vec<Entry>> {
    let mut entries = Vec::with_capacity(6);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some((key, factor)) = words.next().and_then(&known) else {
            continue;
        };
        if entries.iter().any(|&(k, _)| k == key) {
            return Err(error(source, format!("{key} twice")));
        }
        let value = number(source, key, words.next())?;
        entries.push((key, scaled(source, key, value, factor)?));
    }
    Ok(entries)
}
