//! System calls of each task: the data source `system calls` (`python/dbdyno/model/data_sources/syscalls.py`).
//! The program's part is `bpf/syscalls.h`.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use dyno_model::{Column, Table};
use dyno_observe::task::Task;
use dyno_observe::{Status, Texts};
use syscalls::Sysno;

use crate::book::{Book, TRIES};
use crate::layout::{Call, Calls};
use crate::rows::{Part, Rows, statuses};

/// What the program attaches to for them.
pub const TRACEPOINTS: [&str; 2] = ["sys_enter", "sys_exit"];

/// System calls up to `now_ns`; the time of the one under way is counted, itself not yet.
pub fn up_to(calls: &Calls, now_ns: u64) -> Vec<Call> {
    let mut all: Vec<Call> = calls.each.iter().filter(|c| c.used != 0).copied().collect();
    if let Some(number) = calls.under_way.checked_sub(1) {
        let time_ns = now_ns.saturating_sub(calls.since_ns);
        match all.iter_mut().find(|c| c.number == number) {
            Some(known) => known.time_ns += time_ns,
            None => all.push(Call {
                number,
                used: 1,
                calls: 0,
                time_ns,
            }),
        }
    }
    all
}

/// The system call a task is blocked in: proc(5), `/proc/PID/syscall`; where it may be read.
pub fn under_way(task: &Task) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{}/task/{}/syscall", task.pid, task.tid)).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

impl Book {
    /// The system call a task was in when it was first watched: one that ends before the program sees
    /// anything else of it.
    pub fn seed_call(&self, number: usize, call: u32, now_ns: u64) {
        if number >= self.calls.len() {
            return;
        }
        let calls = self.calls.at(number);
        // SAFETY: mapped and aligned. If the call has ended meanwhile, the next one overwrites this.
        unsafe {
            (&raw mut (*calls).since_ns).write_volatile(now_ns);
            (&raw mut (*calls).under_way).write_volatile(call + 1);
        }
    }

    /// A copy of a task's system calls that was whole.
    pub fn read_calls(&self, number: usize) -> Option<Calls> {
        if number >= self.calls.len() {
            return None;
        }
        let sequence = || {
            // SAFETY: mapped and aligned.
            let seq = unsafe { AtomicU32::from_ptr(&raw mut (*self.calls.at(number)).seq) };
            seq.load(Ordering::Acquire)
        };
        (0..TRIES).find_map(|_| {
            let before = sequence();
            let calls = self.calls.read(number);
            fence(Ordering::Acquire);
            (before.is_multiple_of(2) && sequence() == before).then_some(calls)
        })
    }
}

impl Rows {
    /// System calls of the latest read; `lost`: some found no room.
    pub fn calls(&mut self, calls: Vec<Call>, lost: bool) {
        let read = self.reads.len() as u32 - 1;
        let status = if lost { Status::Lost } else { Status::Ok };
        self.calls
            .extend(calls.into_iter().map(|value| Part { read, value, status }));
    }

    /// `syscalls`, as `traced`.
    pub fn syscalls(&self, since_ns: i64) -> Table {
        let parts = self.parts(&self.calls, since_ns);
        let mut names = Texts::default();
        for part in parts {
            names.push(Some(&call_name(part.value.number)));
        }
        let mut columns = self.who(parts.iter().map(|p| &self.reads[p.read as usize]));
        columns.extend([
            ("name", Column::Coded(names.into())),
            ("calls", Column::known(parts.iter().map(|p| p.value.calls as i64))),
            (
                "time_ns",
                Column::known(parts.iter().map(|p| p.value.time_ns as i64)),
            ),
            ("status", statuses(parts.iter().map(|p| p.status))),
        ]);
        Table::new("syscalls", columns)
    }
}

/// Name of a system call of this machine's architecture.
fn call_name(number: u32) -> String {
    Sysno::new(number as usize).map_or_else(|| format!("#{number}"), |call| call.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{CALLS, Plain};

    #[test]
    fn a_system_call_under_way_adds_its_time_and_is_not_counted_yet() {
        let mut made = Calls::zeroed();
        made.each[3] = Call {
            number: 232,
            used: 1,
            calls: 10,
            time_ns: 900,
        };
        (made.under_way, made.since_ns) = (233, 1_000);
        assert_eq!(
            up_to(&made, 1_400),
            [Call {
                number: 232,
                used: 1,
                calls: 10,
                time_ns: 1_300
            }]
        );
        made.under_way = 1;
        assert_eq!(
            up_to(&made, 1_400)[1],
            Call {
                number: 0,
                used: 1,
                calls: 0,
                time_ns: 400
            }
        );
        made.under_way = 0;
        assert_eq!(up_to(&made, 1_400).len(), 1);
        assert_eq!(made.each.len(), CALLS);
    }
}
