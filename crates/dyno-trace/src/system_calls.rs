//! System calls of each task: the data source `system calls` (`python/dbdyno/model/schema/data_sources/syscalls.py`).
//! The program's part is `bpf/syscalls.h`.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use dyno_observe::task::Task;
use syscalls::Sysno;

use crate::account::Sums;
use crate::book::{Book, TRIES};
use crate::layout::{CLIENT_WAITS, Call, Calls, NUMBERS, SIZED, SIZES, Slot, doing};

/// Tracepoints for system calls.
pub const TRACEPOINTS: [&str; 2] = ["sys_enter", "sys_exit"];

/// System calls that transfer data and return the number of bytes.
const TRANSFERS: [Sysno; SIZED] = [
    Sysno::read,
    Sysno::write,
    Sysno::pread64,
    Sysno::pwrite64,
    Sysno::preadv,
    Sysno::pwritev,
    Sysno::recvfrom,
    Sysno::sendto,
];

/// Returns the program's `sized`: by number of system call its place in [`TRANSFERS`] from 1 on, or 0.
pub fn sized() -> [u8; NUMBERS] {
    let mut places = [0; NUMBERS];
    for (place, call) in (1..).zip(TRANSFERS) {
        places[call as usize] = place;
    }
    places
}

/// Returns the program's `client_waits` for the labels of a server.
pub fn client_waits(labels: &[u32]) -> [u32; CLIENT_WAITS] {
    let mut all = [0; CLIENT_WAITS];
    for (place, label) in all.iter_mut().zip(labels) {
        *place = *label;
    }
    all
}

/// Number of calls of a system call in one bucket of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub number: u32,
    /// Lower bound of the bucket; its upper bound is twice as much.
    pub bytes: u64,
    pub calls: u64,
}

/// Time of a task on a CPU and in the run queue up to an instant, and its state then.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub at_ns: u64,
    pub run_ns: u64,
    pub runq_ns: u64,
    pub switches: u64,
    /// Whether its sleep, if it is asleep, is a wait for the client.
    pub at_client: bool,
}

impl Now {
    /// Returns the state at the read of a slot that gave `sums`.
    pub fn at_read(slot: &Slot, sums: &Sums, after_ns: u64, client_waits: &[u32]) -> Self {
        let label = slot.waits[slot.wait as usize % slot.waits.len()].label;
        Self {
            at_ns: if slot.doing == doing::ENDED {
                slot.since_ns
            } else {
                after_ns
            },
            run_ns: sums.run_ns as u64,
            runq_ns: sums.runq_ns as u64,
            switches: slot.voluntary + slot.involuntary,
            at_client: label != 0 && client_waits.contains(&label),
        }
    }
}

/// Returns the system calls up to now. The time of the current call is included, though it is not counted yet.
pub fn with_call_under_way(calls: &Calls, now: Now) -> Vec<Call> {
    let mut all: Vec<Call> = calls.each.iter().filter(|c| c.used != 0).copied().collect();
    let Some(number) = calls.under_way.checked_sub(1) else {
        return all;
    };
    let part = times_under_way(calls, now);
    match all.iter_mut().find(|c| c.number == number) {
        Some(known) => {
            known.time_ns += part.time_ns;
            known.run_ns += part.run_ns;
            known.runq_ns += part.runq_ns;
            known.client_ns += part.client_ns;
        }
        None => all.push(Call {
            number,
            used: 1,
            ..part
        }),
    }
    all
}

/// Returns the times of the current call, as `add_times` of the program does at its end.
fn times_under_way(calls: &Calls, now: Now) -> Call {
    let time_ns = now.at_ns.saturating_sub(calls.since_ns);
    let (mut run_ns, mut queued_ns) = (time_ns, 0);
    if now.switches != calls.since_switches {
        run_ns = now.run_ns.saturating_sub(calls.since_run_ns).min(time_ns); // 0 where that was not seen
        queued_ns = now
            .runq_ns
            .saturating_sub(calls.since_runq_ns)
            .min(time_ns - run_ns);
    }
    let sleep_ns = time_ns - run_ns - queued_ns;
    Call {
        time_ns,
        run_ns,
        runq_ns: queued_ns,
        client_ns: if now.at_client { sleep_ns } else { 0 },
        ..Call::default()
    }
}

/// Returns the buckets of sizes that have calls.
pub fn sizes(calls: &Calls) -> Vec<Size> {
    let sizes_of = |call: Sysno, all: &[u64; SIZES]| {
        let used = all.iter().enumerate().filter(|(_, calls)| **calls > 0);
        let size = |(n, calls): (usize, &u64)| Size {
            number: call as u32,
            bytes: if n == 0 { 0 } else { 1 << (n - 1) },
            calls: *calls,
        };
        used.map(size).collect::<Vec<_>>()
    };
    let each = TRANSFERS.into_iter().zip(&calls.sizes);
    each.flat_map(|(call, all)| sizes_of(call, all)).collect()
}

/// Returns the system call in which a task is blocked (proc(5), `/proc/PID/syscall`), or None if that may not be read.
pub fn under_way(task: &Task) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{}/task/{}/syscall", task.pid, task.tid)).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

impl Book {
    /// Sets the system call in which a task was when it was first watched. It ends before the program sees any other
    /// event of the task.
    pub fn seed_call(&self, number: usize, call: u32, now_ns: u64) {
        if number >= self.calls.entries() {
            return;
        }
        let calls = self.calls.at(number);
        // SAFETY: mapped and aligned. If the call has ended meanwhile, the next one overwrites this.
        unsafe {
            (&raw mut (*calls).since_ns).write_volatile(now_ns);
            (&raw mut (*calls).since_switches).write_volatile(u64::MAX); // it has left its CPU inside
            (&raw mut (*calls).under_way).write_volatile(call + 1);
        }
    }

    /// Returns a consistent copy of a task's system calls, or None if it changed at each try.
    pub fn read_calls(&self, number: usize) -> Option<Calls> {
        if number >= self.calls.entries() {
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

/// Returns the name of a system call on this machine's architecture.
pub fn call_name(number: u32) -> String {
    Sysno::new(number as usize).map_or_else(|| format!("#{number}"), |call| call.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::CALLS;
    use dyno_bpf::Plain;

    const NOW: Now = Now {
        at_ns: 1_400,
        run_ns: 700,
        runq_ns: 30,
        switches: 5,
        at_client: false,
    };

    fn calls() -> Calls {
        let mut calls = Calls::zeroed();
        calls.each[3] = Call {
            number: 232,
            used: 1,
            calls: 10,
            time_ns: 900,
            run_ns: 500,
            ..Call::default()
        };
        (calls.under_way, calls.since_ns, calls.since_switches) = (233, 1_000, 5);
        calls
    }

    #[test]
    fn a_system_call_under_way_adds_its_time_and_is_not_counted_yet() {
        let mut calls = calls();
        let known = with_call_under_way(&calls, NOW)[0];
        assert_eq!((known.calls, known.time_ns, known.run_ns), (10, 1_300, 900));
        calls.under_way = 1;
        let new = with_call_under_way(&calls, NOW)[1];
        assert_eq!((new.number, new.calls, new.time_ns, new.run_ns), (0, 0, 400, 400));
        calls.under_way = 0;
        assert_eq!(with_call_under_way(&calls, NOW).len(), 1);
        assert_eq!(calls.each.len(), CALLS);
    }

    #[test]
    fn a_call_that_left_its_cpu_has_run_waited_and_slept_and_never_more_than_its_time() {
        let mut calls = calls();
        calls.under_way = 1;
        (calls.since_switches, calls.since_run_ns, calls.since_runq_ns) = (4, 600, 10);
        let inside = |calls: &Calls, at_client| with_call_under_way(calls, Now { at_client, ..NOW })[1];
        let asleep = inside(&calls, true);
        assert_eq!((asleep.run_ns, asleep.runq_ns, asleep.client_ns), (100, 20, 280));
        assert_eq!(inside(&calls, false).client_ns, 0);
        calls.since_run_ns = u64::MAX;
        assert_eq!(inside(&calls, false).run_ns, 0);
        (calls.since_run_ns, calls.since_runq_ns) = (0, 0);
        let long = inside(&calls, true);
        assert_eq!((long.run_ns, long.runq_ns, long.client_ns), (400, 0, 0));
    }

    #[test]
    fn sizes_are_by_powers_of_two_of_the_calls_that_transfer_data() {
        let mut calls = Calls::zeroed();
        (calls.sizes[0][0], calls.sizes[2][14], calls.sizes[2][23]) = (1, 7, 2);
        let rows: Vec<_> = sizes(&calls)
            .iter()
            .map(|s| (call_name(s.number), s.bytes, s.calls))
            .collect();
        let expected = [("read", 0, 1), ("pread64", 8_192, 7), ("pread64", 1 << 22, 2)];
        assert_eq!(
            rows,
            expected.map(|(name, bytes, calls)| (name.to_owned(), bytes, calls))
        );
        let places = sized();
        assert_eq!(places.iter().filter(|p| **p > 0).count(), SIZED);
        assert_eq!(places[Sysno::sendto as usize] as usize, SIZED);
    }
}
