//! Resources used by an ended process: from its files while it is a zombie, then from wait4(2).

use std::io::Read;

use crate::protocol::Report;

/// The way a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
}

/// Main task and I/O of a zombie: `/proc/PID/schedstat` (Documentation/scheduler/sched-stats.rst) and `/proc/PID/io`
/// (proc(5); children that were waited for are in it).
pub fn read_zombie(pid: i32, report: &mut Report) {
    let mut text = String::with_capacity(512);
    if read(&format!("/proc/{pid}/schedstat"), &mut text) {
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        report.set("run_ns", fields.next().flatten());
        report.set("runq_ns", fields.next().flatten());
    }
    if read(&format!("/proc/{pid}/io"), &mut text) {
        for line in text.lines() {
            let Some((name, value)) = line.split_once(": ") else {
                continue;
            };
            let column = match name {
                "rchar" => "read_calls_bytes",
                "wchar" => "written_calls_bytes",
                "read_bytes" => "read_bytes",
                "write_bytes" => "written_bytes",
                _ => continue,
            };
            report.set(column, value.trim().parse().ok());
        }
    }
}

fn read(path: &str, text: &mut String) -> bool {
    text.clear();
    std::fs::File::open(path).is_ok_and(|mut file| file.read_to_string(text).is_ok())
}

/// Waits for a process that has ended. Until it has executed a program, the system counts the launcher's memory as its
/// own: a largest resident set that is not above that is not known.
pub fn wait(pid: i32, report: &mut Report) -> Ended {
    let mut status = 0;
    // SAFETY: zeros are a valid rusage, and both are valid for writing.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        while libc::wait4(pid, &raw mut status, libc::__WALL, &raw mut usage) < 0
            && *libc::__errno_location() == libc::EINTR
        {}
        usage
    };
    let rss_bytes = usage.ru_maxrss * 1024;
    report.set("user_ns", Some(ns(usage.ru_utime)));
    report.set("system_ns", Some(ns(usage.ru_stime)));
    report.set(
        "max_rss_bytes",
        Some(rss_bytes).filter(|&bytes| bytes > own_peak_bytes()),
    );
    report.set("minor_faults", Some(usage.ru_minflt));
    report.set("major_faults", Some(usage.ru_majflt));
    report.set("voluntary", Some(usage.ru_nvcsw));
    report.set("involuntary", Some(usage.ru_nivcsw));
    if libc::WIFSIGNALED(status) {
        Ended::Signal(libc::WTERMSIG(status))
    } else {
        Ended::Code(libc::WEXITSTATUS(status))
    }
}

fn ns(time: libc::timeval) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_usec * 1000
}

/// The largest resident set that the launcher's program has had (`VmHWM`, `proc_pid_status(5)`). `getrusage(2)` would
/// have that of whoever started it, too. More than there can be: not known.
fn own_peak_bytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let peak = lines.find_map(|l| {
        l.strip_prefix("VmHWM:")?
            .trim()
            .strip_suffix(" kB")?
            .parse::<i64>()
            .ok()
    });
    peak.map_or(i64::MAX, |kib| kib * 1024)
}
