//! Slots of tasks: given, read and taken back. None is given to another task before its sums were read.

use std::sync::Arc;

use dyno_bpf::UNREAD;
use dyno_model::now_ns;
use dyno_observe::names::{FROZEN, SIGNALLED};
use dyno_observe::task::Task;
use dyno_observe::{Status, Word};

use super::{KnownTask, Trace, key, unread};
use crate::account::{Seed, durations, sums};
use crate::book::NewTask;
use crate::layout::Slot;
use crate::rows::Key;
use crate::system_calls::{self, Now};

/// Returns whether a task that no signal has stopped is frozen, by the kernel function in which it waits (proc(5),
/// wchan; 0 if hidden). This serves control groups that are not mounted here. A task that the v1 freezer met in a
/// sleep still waits in that sleep's function, and is not recognized.
fn trapped(task: &Task) -> bool {
    let path = format!("/proc/{}/task/{}/wchan", task.pid, task.tid);
    let function = std::fs::read_to_string(path).unwrap_or_default();
    // get_signal: the compiler has put do_freezer_trap into it
    matches!(
        function.trim(),
        "__refrigerator" | "do_freezer_trap" | "get_signal"
    )
}

impl Trace {
    /// Returns the slot of a task that is watched already, because it was registered or the program saw its birth.
    pub(super) fn find(&mut self, task: &Task) -> Option<usize> {
        let number = self.loaded.book.find(task.tid as u32)?;
        let Some(slot) = self.loaded.book.read(number) else {
            return Some(number); // a task that is so busy is the one that lives
        };
        let (theirs, ours) = (self.start_ticks(number, &slot), task.start_ticks());
        if theirs.is_some() && ours.is_some() && theirs != ours {
            self.end_unseen(number, &slot); // its number was given to another task
            return None;
        }
        Some(number)
    }

    /// Keeps the sums of a task whose end the program did not see, and takes its slot back. Its last state is counted
    /// up to now, as in the reads before.
    pub(super) fn end_unseen(&mut self, number: usize, slot: &Slot) {
        let known = self.known[number].take();
        let known = known.unwrap_or_else(|| self.newborn(slot));
        let throttled_ns = self.throttled_now_ns(number, slot);
        let now = now_ns();
        let (mut sums, labels) = sums(slot, known.seed, now as u64, throttled_ns);
        sums.lost += 1; // its end
        self.rows.read(now, now, known.key, Some(sums));
        self.rows.labels(labels, known.unread);
        if let Some(counts) = self
            .syscalls
            .then(|| self.loaded.book.read_calls(number))
            .flatten()
        {
            let now = Now::at_read(slot, &sums, now as u64, &self.client_waits);
            let (calls, sizes) = (
                system_calls::with_call_under_way(&counts, now),
                system_calls::sizes(&counts),
            );
            self.rows.calls(calls, sizes, counts.lost > 0);
        }
        self.rows
            .durations(durations(slot), known.unread, slot.unplaced > 0);
        self.mended.0 += sums.mended;
        self.loaded.book.retire(number, now as u64);
        self.given_back += 1;
    }

    fn start_ticks(&self, number: usize, slot: &Slot) -> Option<i64> {
        if slot.start_boottime_ns > 0 {
            return Some(slot.start_boottime_ns as i64 / self.ns_per_tick);
        }
        self.known[number].as_ref()?.task.as_ref()?.start_ticks()
    }

    pub(super) fn take(&mut self, task: &Arc<Task>) {
        let word = self.finder.as_mut().map(|f| f.address(task.pid));
        let address = word.as_ref().and_then(|w| w.as_ref().ok()).copied().unwrap_or(0);
        let new_task = NewTask {
            tid: task.tid as u32,
            tgid: task.pid as u32,
            word: address,
            statement: self.statements.locate(task.pid),
            now_ns: now_ns() as u64,
        };
        let Some(number) = self.loaded.book.take(new_task) else {
            self.refused += 1;
            return;
        };
        self.taken += 1;
        // only now: what it does is right from here until its first event
        let state = task.state(&mut self.buffer).unwrap_or('R');
        let label = if matches!(state, 'T' | 't') {
            Some(SIGNALLED)
        } else if self.frozen(task, state) {
            Some(FROZEN)
        } else if address == 0 {
            None
        } else {
            Word::new(task.pid, address).read().ok()
        };
        let query = new_task.statement.read(task.pid);
        self.loaded
            .book
            .seed(number, label.unwrap_or(UNREAD), query, state == 'D');
        if let Some(call) = self.syscalls.then(|| system_calls::under_way(task)).flatten() {
            self.loaded.book.seed_call(number, call, new_task.now_ns);
        }
        self.known[number] = Some(KnownTask {
            key: self.rows.key(key(task)),
            task: Some(Arc::clone(task)),
            seed: Seed::from_state(state),
            unread: unread(word.as_ref()),
        });
        if let (Ok(0), Some(Err(refusal))) = (&self.word, word) {
            self.word = Err(refusal); // there is no main process to be asked
        }
    }

    fn frozen(&mut self, task: &Task, state: char) -> bool {
        let now_ns = now_ns();
        self.freezers.look(now_ns);
        matches!(state, 'S' | 'D') && (self.freezers.hold(task.pid, now_ns) || trapped(task))
    }

    /// Returns the task of a slot that the program filled at a birth: a child of the main process.
    pub(super) fn newborn(&mut self, slot: &Slot) -> KnownTask {
        let key = Key {
            pid: i64::from(slot.tgid),
            tid: i64::from(slot.tid),
            start_ticks: Some(slot.start_boottime_ns as i64 / self.ns_per_tick),
            role: Arc::from("other"),
            session: None,
        };
        KnownTask {
            key: self.rows.key(key),
            task: None,
            seed: Seed::Runnable,
            unread: self.unread_of_children(),
        }
    }

    pub(super) fn unread_of_children(&self) -> Status {
        unread(self.finder.as_ref().map(|_| &self.word))
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
