//! Commands to the worker threads, and their live progress.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use dyno_model::{Breaker, now_ns};

use crate::count::histogram::LiveLatency;
use crate::pace::queue::{Behind, Lookout};
use crate::sync::{AtomicBool, AtomicI64, AtomicU64, Condvar, Mutex, MutexGuard};
use crate::{Schedule, Spec, thread};

/// A task that has ended cannot be read any more, and the read at t1 may be a little late.
const LINGER_NS: i64 = 50_000_000;

/// A thread that sleeps by itself looks at the deadline this often.
const STOP_NOTICED_NS: i64 = 50_000_000;

/// Commands to the worker threads and their live progress. Single words are relaxed atomics: each has one
/// writer, and none guards another.
pub struct Control {
    /// No call starts at or after this: t1, or the instant of [`stop`](Self::stop).
    deadline_ns: AtomicI64,
    aborted: AtomicBool,
    grace_ms: u64,
    /// Calls that all sessions together may still begin.
    shared_calls: Option<AtomicU64>,
    sessions: Vec<SessionFlags>,
    threads: Vec<ThreadProgress>,
    /// Durations by thread, from the first time they are asked for.
    durations: OnceLock<Vec<LiveLatency>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct SessionFlags {
    /// The session has ended by itself.
    ended: AtomicBool,
    /// The session was cut off: no answer within the grace.
    cut: AtomicBool,
}

/// Live figures of one thread, on a cache line of their own.
#[derive(Default)]
#[repr(align(128))]
pub struct ThreadProgress {
    calls: AtomicU64,
    errors: AtomicU64,
    live: AtomicU64,
    in_call_ns: AtomicU64,
}

/// Live figures of a load, from the barrier on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Calls that ended well.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Sessions that have not ended.
    pub live: u64,
    /// Sum of the durations of ended calls, ns.
    pub in_call_ns: u64,
    /// Backlog of a paced load.
    pub behind: Behind,
}

struct State {
    schedule: Option<Schedule>,
    threads_done: usize,
    /// Breakers by session, while the sessions belong to the threads.
    breakers: Vec<Breaker>,
    /// View of a paced load's backlog, once it has started.
    lookout: Option<Lookout>,
}

impl Control {
    /// Control of sessions with these breakers.
    pub fn new(breakers: Vec<Breaker>, threads: usize, spec: &Spec) -> Self {
        Self {
            deadline_ns: AtomicI64::new(i64::MAX),
            aborted: AtomicBool::new(false),
            grace_ms: spec.grace_ms,
            shared_calls: spec.shared_calls.map(AtomicU64::new),
            sessions: breakers.iter().map(|_| SessionFlags::default()).collect(),
            threads: (0..threads).map(|_| ThreadProgress::default()).collect(),
            durations: OnceLock::new(),
            state: Mutex::new(State {
                schedule: None,
                threads_done: 0,
                breakers,
                lookout: None,
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // -- the master's side ------------------------------------------------------------------------

    /// Opens the barrier.
    pub fn start(&self, schedule: Schedule) {
        // The least of both: a stop may have come before the start.
        self.deadline_ns.fetch_min(schedule.t1_ns, Relaxed);
        self.state().schedule = Some(schedule);
        self.changed.notify_all();
    }

    /// Makes progress include the backlog.
    pub fn watch(&self, lookout: Lookout) {
        self.state().lookout = Some(lookout);
    }

    /// Lets no further call start.
    pub fn stop(&self) {
        self.deadline_ns.fetch_min(now_ns(), Relaxed);
        // Under the lock, or a thread that is about to wait would miss it.
        let _state = self.state();
        self.changed.notify_all();
    }

    /// Breaks all connections.
    pub fn abort(&self) {
        self.aborted.store(true, Relaxed);
        self.stop();
        self.state().breakers.iter().for_each(Breaker::abort);
    }

    /// Waits until all threads are done; sessions whose call is still out when the grace is over are cut.
    pub fn supervise(&self) {
        let mut cut = false;
        let mut state = self.state();
        while state.threads_done < self.threads.len() {
            let left_ns = self.grace_end_ns().saturating_sub(now_ns());
            if left_ns <= 0 && !cut {
                self.cut(&state);
                cut = true;
            }
            // Woken by the end of a thread or by stop(); once cut, sessions end at once.
            let wait_ns = if cut { i64::MAX } else { left_ns };
            let wait = Duration::from_nanos(wait_ns.clamp(1, 3_600_000_000_000) as u64);
            state = self
                .changed
                .wait_timeout(state, wait)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        // The sessions go back to their owner: nobody may break them off from here any more.
        state.breakers.clear();
    }

    fn grace_end_ns(&self) -> i64 {
        let grace_ns = i64::try_from(self.grace_ms)
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000);
        self.deadline_ns.load(Relaxed).saturating_add(grace_ns)
    }

    fn cut(&self, state: &State) {
        for (flags, breaker) in self.sessions.iter().zip(&state.breakers) {
            if !flags.ended.load(Relaxed) {
                flags.cut.store(true, Relaxed);
                breaker.abort();
            }
        }
    }

    /// Sum of the threads' progress.
    pub fn progress(&self) -> Progress {
        // What is due after the deadline is never started, so it is no backlog.
        let now_ns = now_ns().min(self.deadline_ns());
        let behind = self.state().lookout.as_mut().map(|l| l.look(now_ns));
        let none = Progress {
            behind: behind.unwrap_or_default(),
            ..Progress::default()
        };
        self.threads.iter().fold(none, |sum, t| Progress {
            behind: sum.behind,
            calls: sum.calls + t.calls.load(Relaxed),
            errors: sum.errors + t.errors.load(Relaxed),
            live: sum.live + t.live.load(Relaxed),
            in_call_ns: sum.in_call_ns + t.in_call_ns.load(Relaxed),
        })
    }

    /// Durations of the calls that ended well: middle of a bucket (ns) and count, thread after thread. They are
    /// counted from the first time of asking.
    pub fn live_durations(&self) -> Vec<(u64, u64)> {
        let counted = self
            .durations
            .get_or_init(|| self.threads.iter().map(|_| LiveLatency::default()).collect());
        counted.iter().flat_map(LiveLatency::counts).collect()
    }

    // -- the threads' side ------------------------------------------------------------------------

    /// Waits for the barrier to be opened.
    pub fn wait_for_start(&self) -> Schedule {
        let mut state = self.state();
        loop {
            if let Some(schedule) = state.schedule {
                return schedule;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps until `at_ns`, or until no call may start any more.
    pub fn sleep_until(&self, at_ns: i64) {
        let mut state = self.state();
        loop {
            let left_ns = at_ns.min(self.deadline_ns()) - now_ns();
            if left_ns <= 0 {
                return;
            }
            let left = Duration::from_nanos(left_ns as u64);
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Sleeps until `at_ns` or the deadline without a shared lock, for short sleeps of many threads. An earlier deadline is
    /// noticed a little late.
    pub fn sleep_alone_until(&self, at_ns: i64) {
        loop {
            let now = now_ns();
            let until_ns = at_ns.min(self.deadline_ns());
            if until_ns <= now {
                return;
            }
            thread::sleep_until(until_ns.min(now + STOP_NOTICED_NS));
        }
    }

    /// Sleeps until `at_ns`, also beyond the deadline; not when the load is broken off, nor beyond the grace.
    pub fn pause_until(&self, at_ns: i64) {
        let mut state = self.state();
        loop {
            let left_ns = at_ns.min(self.grace_end_ns()) - now_ns();
            if left_ns <= 0 || self.is_aborted() {
                return;
            }
            state = self
                .changed
                .wait_timeout(state, Duration::from_nanos(left_ns as u64))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Sleeps for a while after the deadline, if that has passed: whoever reads the threads' CPU time at t1
    /// finds them there.
    pub fn linger(&self) {
        let deadline_ns = self.deadline_ns();
        let mut state = self.state();
        loop {
            let now = now_ns();
            let left_ns = deadline_ns.saturating_add(LINGER_NS) - now;
            if now < deadline_ns || left_ns <= 0 || self.is_aborted() {
                return;
            }
            state = self
                .changed
                .wait_timeout(state, Duration::from_nanos(left_ns as u64))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Takes one of the calls that the sessions share; false if none is left.
    #[inline]
    pub fn take_call(&self) -> bool {
        self.shared_calls.as_ref().is_none_or(|left| {
            let less = |left: u64| left.checked_sub(1);
            left.fetch_update(Relaxed, Relaxed, less).is_ok()
        })
    }

    /// True if all shared calls have been begun.
    pub fn calls_are_spent(&self) -> bool {
        self.shared_calls
            .as_ref()
            .is_some_and(|left| left.load(Relaxed) == 0)
    }

    /// No call starts at or after this.
    #[inline]
    pub fn deadline_ns(&self) -> i64 {
        self.deadline_ns.load(Relaxed)
    }

    /// True if the load is broken off.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    /// The reason for which a session was cut off. `None` if it was not.
    pub fn cut_reason(&self, session: usize) -> Option<String> {
        let cut = self.sessions[session].cut.load(Relaxed);
        cut.then(|| {
            format!(
                "no answer within {} ms after the end of the measurement",
                self.grace_ms
            )
        })
    }

    /// Notes that a session has ended.
    pub fn session_ended(&self, session: usize) {
        self.sessions[session].ended.store(true, Relaxed);
    }

    /// Publishes the live figures of a thread.
    #[inline]
    pub fn publish(&self, thread: usize, progress: &Progress) {
        let shared = &self.threads[thread];
        shared.calls.store(progress.calls, Relaxed);
        shared.errors.store(progress.errors, Relaxed);
        shared.live.store(progress.live, Relaxed);
        shared.in_call_ns.store(progress.in_call_ns, Relaxed);
    }

    /// Counts the duration of a call that ended well, once live durations have been asked for.
    #[inline]
    pub fn record_duration(&self, thread: usize, duration_ns: u64) {
        if let Some(durations) = self.durations.get() {
            durations[thread].record(duration_ns);
        }
    }

    /// Notes the end of a thread. From then on its sessions may be closed.
    pub fn thread_done(&self) {
        self.state().threads_done += 1;
        self.changed.notify_all();
    }
}
