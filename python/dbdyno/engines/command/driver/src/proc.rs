//! Figures of tasks from proc(5). Names of tasks and environments are bytes: nothing is read as text before its numbers.

use std::fmt::Display;
use std::fs;
use std::str::{FromStr, from_utf8};

use dyno_model::proc::stat_fields;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, wait};

/// Fields of `/proc/PID/stat` (`proc_pid_stat(5)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// R, S, D, ...
    pub state: char,
    /// Parent of the process.
    pub parent: i32,
    /// Session of the process (setsid(2)).
    pub session: i32,
    /// Number of threads of the process.
    pub threads: u64,
    /// Start since boot, clock ticks.
    pub start_ticks: i64,
}

impl Stat {
    /// No zombie.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = stat_fields(line)?;
        Some(Self {
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            session: fields.nth(1)?.parse().ok()?,     // field 6
            threads: fields.nth(13)?.parse().ok()?,    // field 20
            start_ticks: fields.nth(1)?.parse().ok()?, // field 22
        })
    }
}

/// Reads the fields of a process, or of a task: `PID/task/TID`. `None` if it has ended or is hidden.
pub fn stat(whose: impl Display) -> Option<Stat> {
    Stat::parse(&fs::read(format!("/proc/{whose}/stat")).ok()?)
}

/// Threads of a process; none if it has ended.
pub fn tasks(pid: i64) -> impl Iterator<Item = i64> {
    numbers(format!("/proc/{pid}/task"))
}

/// Process ids of the machine.
pub fn processes() -> impl Iterator<Item = i32> {
    numbers("/proc".to_owned())
}

/// Sends a signal to a process; one that has ended is passed over.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) {
        let _ = kill_process(pid, signal);
    }
}

/// Sends a signal to the processes of a group.
pub fn signal_group(leader: i32, signal: Signal) {
    if let Some(leader) = Pid::from_raw(leader).filter(|_| leader > 1) {
        let _ = kill_process_group(leader, signal);
    }
}

/// Waits for a child of this thread that has ended; false if there is none. Children that other threads started are
/// theirs.
pub fn reap_one() -> bool {
    let of_this_thread = WaitOptions::from_bits_retain((libc::__WNOTHREAD | libc::__WALL) as u32);
    matches!(wait(WaitOptions::NOHANG | of_this_thread), Ok(Some(_)))
}

fn numbers<N: FromStr>(directory: String) -> impl Iterator<Item = N> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Processes that a thread has started and that live (`CONFIG_PROC_CHILDREN`). The list may lack some while
/// processes of it end: a later one has them.
pub fn children<N: FromStr>(pid: impl Display, tid: impl Display) -> Vec<N> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect()
}

/// The number in a variable of the environment that a process was started with.
pub fn variable(pid: impl Display, name: &str) -> Option<i64> {
    let environment = environment(pid);
    let mut values =
        entries(&environment).filter_map(|e| e.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    values.find_map(|value| from_utf8(value).ok()?.parse().ok())
}

/// Whether the environment that a process was started with has this `NAME=value`.
pub fn has_entry(pid: impl Display, entry: &str) -> bool {
    entries(&environment(pid)).any(|e| e == entry.as_bytes())
}

fn environment(pid: impl Display) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

fn entries(environment: &[u8]) -> impl Iterator<Item = &[u8]> {
    environment.split(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Stat {
        Stat {
            state: 'D',
            parent: 17,
            session: 4712,
            threads: 3,
            start_ticks: 99887,
        }
    }

    #[test]
    fn a_name_may_hold_anything() {
        let fields: &[u8] = b") D 17 4711 4712 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 3 0 99887 0 0\n";
        for name in [
            &b"sh"[..],
            b"",
            b"a) S (b",
            b"a) R 1 (",
            b")\n(",
            b"\xff\xfe \x80",
            b"caf\xc3",
        ] {
            assert_eq!(
                Stat::parse(&[b"4711 (", name, fields].concat()),
                Some(expected()),
                "{name:?}"
            );
        }
        assert_eq!(Stat::parse(b"4711 (short) S 1"), None);
        assert_eq!(Stat::parse(b"4711 sh S 1 1"), None);
    }

    #[test]
    fn a_task_whose_name_is_no_text_is_read() {
        for name in [c"\xff\x80", c"a) R 1 (", c"caf\xc3"] {
            let read = std::thread::spawn(move || {
                rustix::thread::set_name(name).unwrap();
                let tid = rustix::thread::gettid().as_raw_pid();
                let own = std::process::id();
                (stat(format_args!("{own}/task/{tid}")), stat(own))
            });
            let (task, process) = read.join().unwrap();
            let (task, process) = (task.unwrap(), process.unwrap());
            assert_eq!(task.parent, std::os::unix::process::parent_id() as i32);
            assert_eq!((task.parent, task.session), (process.parent, process.session));
            assert!(task.threads > 1 && task.is_alive());
        }
    }

    #[test]
    fn a_child_is_listed_under_the_thread_that_started_it() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env("DBDYNO_SESSION", "7")
            .spawn()
            .unwrap();
        let (own, pid) = (i64::from(std::process::id()), i64::from(child.id()));
        let listed: Vec<i64> = tasks(own).flat_map(|tid| children(own, tid)).collect();
        assert!(processes().any(|one| i64::from(one) == pid));
        // a program that is being loaded has no environment for a moment, though its starter goes on
        let number = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            variable(pid, "DBDYNO_SESSION")
        });
        let marked = ["DBDYNO_SESSION=7", "DBDYNO_SESSION="].map(|entry| has_entry(pid, entry));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(listed.contains(&pid));
        assert_eq!(number, Some(7));
        assert_eq!(marked, [true, false]);
        assert_eq!(variable(pid, "DBDYNO_SESSION"), None);
    }
}
