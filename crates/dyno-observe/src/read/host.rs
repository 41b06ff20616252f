//! `/proc/stat`: proc(5), "/proc/stat". All CPUs together.

use crate::read::parse::{Parsed, error, number, scaled};

const NAME: &str = "/proc/stat";

/// Keys of the times of the line `cpu`, in its order. `guest` and `guest_nice` follow there; they are
/// already counted in user and nice.
pub const TIMES: [&str; 8] = [
    "cpu.user_ns",
    "cpu.nice_ns",
    "cpu.system_ns",
    "cpu.idle_ns",
    "cpu.iowait_ns",
    "cpu.irq_ns",
    "cpu.softirq_ns",
    "cpu.steal_ns",
];

/// Figures of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostStat {
    /// Times in the order of [`TIMES`], nanoseconds (tick resolution).
    pub times_ns: [Option<i64>; 8],
    /// Online CPUs.
    pub cpus: i64,
    /// Context switches since boot.
    pub context_switches: Option<i64>,
    /// Runnable tasks now.
    pub procs_running: Option<i64>,
    /// Tasks waiting for I/O now.
    pub procs_blocked: Option<i64>,
}

/// Reads `/proc/stat`.
///
/// # Errors
/// When the line `cpu` is missing, or a line we know is wrong.
pub fn parse(text: &str, ns_per_tick: i64) -> Parsed<HostStat> {
    let mut host = HostStat::default();
    let mut has_cpu = false;
    for line in text.lines() {
        let Some((word, rest)) = line.split_once(' ') else {
            continue;
        };
        match word {
            "cpu" => {
                host.times_ns = times(rest, ns_per_tick)?;
                has_cpu = true;
            }
            "ctxt" => host.context_switches = Some(number(NAME, word, Some(rest.trim()))?),
            "procs_running" => host.procs_running = Some(number(NAME, word, Some(rest.trim()))?),
            "procs_blocked" => host.procs_blocked = Some(number(NAME, word, Some(rest.trim()))?),
            _ if is_one_cpu(word) => host.cpus += 1,
            _ => {}
        }
    }
    if has_cpu {
        Ok(host)
    } else {
        Err(error(NAME, "no line 'cpu'"))
    }
}

fn times(rest: &str, ns_per_tick: i64) -> Parsed<[Option<i64>; 8]> {
    let mut times = [None; 8];
    for (place, word) in times.iter_mut().zip(rest.split_ascii_whitespace()) {
        *place = Some(scaled(
            NAME,
            "cpu",
            number(NAME, "cpu", Some(word))?,
            ns_per_tick,
        )?);
    }
    if times[0].is_none() {
        return Err(error(NAME, "the line 'cpu' is empty"));
    }
    Ok(times)
}

fn is_one_cpu(word: &str) -> bool {
    word.strip_prefix("cpu")
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}
