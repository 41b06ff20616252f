//! One thread of the driver: its sessions' calls, one after another.
//!
//! One clock read a call: the end of a call is the start of the session's next, which is sent at once.
//! So a session without think time is in a call from its first start to its last end, less what the thread needs between
//! reading the clock and sending (some tens of nanoseconds, which count as part of the call).

mod ends;
mod many;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use dyno_model::{Progress as Step, Result, Session, Start, now_ns};

use crate::count::call_log::CallLog;
use crate::count::script::ScriptCalls;
use crate::count::seconds::{SecondCounts, Seconds, by_script};
use crate::pace::pacing::{Pace, PacePart, Turn};
use crate::pace::queue::Queue;
use crate::run::control::{Control, Progress};
use crate::run::poll::{Interest, Poll};
use crate::run::seat::Seat;
use crate::run::windows::Windows;
use crate::{ArrivalSpec, Schedule, Spec, Tally, Think, thread};

/// Room for a socket's whole receive buffer at a time; one a thread, so it stays in the cache.
const BUFFER_BYTES: usize = 64 * 1024;

impl Counts {
    /// A call that begins now. It is tried again until the window ends, and no longer than its latency may be.
    #[inline]
    fn call(&self, now_ns: i64, due_ns: i64, limit_ns: i64) -> Start {
        Start {
            now_ns,
            measured: self.schedule.measures(due_ns),
            no_try_from_ns: Some(due_ns.saturating_add(limit_ns).min(self.schedule.t1_ns)),
        }
    }
}

/// A thread's sessions and counts.
pub struct Worker<S> {
    pub seats: Vec<Seat<S>>,
    think: Option<Think>,
    arrivals: Option<(ArrivalSpec, Arc<Queue>)>,
    /// Pacing of a paced load, from the barrier on.
    pub pace: Option<Pace>,
    /// Instants of the next calls of sessions that think or wait for an arrival.
    thinking: BinaryHeap<Reverse<(i64, usize)>>,
    /// Instants at which calls that pause go on.
    pausing: BinaryHeap<Reverse<(i64, usize)>>,
    /// Sessions whose call of this round is over, if the load runs in rounds.
    round: Option<Vec<usize>>,
    /// Calls by script; one entry without scripts.
    pub scripts: Vec<ScriptCalls>,
    /// Counts of earlier windows.
    pub past: Vec<Past>,
    /// Durations by second, of each window that is over.
    pub seconds: Vec<SecondCounts>,
    windows_ns: Vec<i64>,
    windows: Windows,
    second: Seconds,
    /// End of the present second or window: one comparison a call for both.
    change_ns: i64,
    has_scripts: bool,
    pub log: Option<CallLog>,
    counts: Counts,
    buffer: Vec<u8>,
}

/// Counts of a thread's sessions in one window.
pub struct Past {
    /// Calls by script.
    pub scripts: Vec<ScriptCalls>,
    /// Counts of pacing, if the load is paced.
    pub pace: Option<PacePart>,
}

/// Counts that all sessions of the thread share.
struct Counts {
    thread: usize,
    control: Arc<Control>,
    schedule: Schedule,
    progress: Progress,
}

impl<S: Session> Worker<S> {
    /// A worker before the barrier.
    pub fn new(
        thread: usize,
        seats: Vec<Seat<S>>,
        spec: &Spec,
        log: Option<CallLog>,
        control: Arc<Control>,
        queue: &Arc<Queue>,
    ) -> Self {
        let progress = Progress {
            live: seats.len() as u64,
            ..Progress::default()
        };
        control.publish(thread, &progress);
        let schedule = Schedule {
            start_ns: 0,
            t0_ns: 0,
            t1_ns: 0,
        };
        let counts = Counts {
            thread,
            control,
            schedule,
            progress,
        };
        let scripts = seats.first().map_or(0, |seat| seat.session.scripts());
        Self {
            seats,
            think: spec.thinks(),
            arrivals: spec.arrivals.clone().map(|a| (a, queue.clone())),
            pace: None,
            thinking: BinaryHeap::new(),
            pausing: BinaryHeap::new(),
            round: spec.rounds.then(Vec::new),
            scripts: vec![ScriptCalls::default(); scripts.max(1)],
            past: Vec::new(),
            seconds: Vec::new(),
            windows_ns: spec.windows_ns.clone(),
            windows: Windows::new(&[], schedule),
            second: Seconds::new(0),
            change_ns: 0,
            has_scripts: scripts > 0,
            log,
            counts,
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    /// Waits at the barrier, then makes calls until every session has ended.
    pub fn run(&mut self) {
        let poll = self.make_ready();
        if self.think.is_some() || self.arrivals.is_some() {
            thread::wake_precisely();
        }
        let whole = self.counts.control.wait_for_start();
        let schedule = Windows::counted(&self.windows_ns, whole);
        self.windows = Windows::new(&self.windows_ns, whole);
        self.begin_seconds(schedule.t0_ns);
        self.counts.schedule = schedule;
        let arrivals = self.arrivals.as_ref();
        self.pace = arrivals.map(|(spec, queue)| Pace::new(spec, queue.clone(), schedule));
        self.counts.control.sleep_until(self.counts.schedule.start_ns);
        let done = poll.and_then(|poll| match poll {
            None => self.alone(),
            Some(poll) => self.many(poll),
        });
        if let Err(error) = done {
            (0..self.seats.len()).for_each(|i| self.lose(i, &error));
        }
        // All threads have as many parts, so that these can be put together by window.
        (0..self.windows.left()).for_each(|_| self.next_window());
        self.end_seconds();
        self.counts.control.linger();
    }

    /// Goes on to the window and to the second that have begun, if a further window begins at all.
    #[cold]
    fn look_at_windows(&mut self, now: i64) {
        loop {
            let t0_ns = self.windows.next_ns();
            if !self.windows.is_over(now) || !self.windows.next(&self.counts.control) {
                break;
            }
            self.next_window();
            self.begin_seconds(t0_ns);
        }
        if now >= self.second.next_ns() {
            let tallies = self.tallies();
            self.second.change(now, &self.scripts, &tallies);
        }
        self.change_ns = self.second.next_ns().min(self.windows.next_ns());
    }

    fn begin_seconds(&mut self, t0_ns: i64) {
        self.second = Seconds::new(t0_ns);
        self.change_ns = self.second.next_ns().min(self.windows.next_ns());
    }

    fn end_seconds(&mut self) {
        let over = std::mem::replace(&mut self.second, Seconds::new(i64::MAX));
        self.seconds.push(over.end(&self.scripts, &self.tallies()));
    }

    /// The window's counts by script.
    fn tallies(&self) -> Vec<Tally> {
        by_script(
            self.seats.iter().map(|seat| &seat.tallies[..]),
            self.scripts.len(),
        )
    }

    fn next_window(&mut self) {
        self.end_seconds();
        self.seats.iter_mut().for_each(Seat::next_window);
        let fresh = vec![ScriptCalls::default(); self.scripts.len()];
        self.past.push(Past {
            scripts: std::mem::replace(&mut self.scripts, fresh),
            pace: self.pace.as_mut().map(|p| std::mem::take(&mut p.part)),
        });
    }

    /// Prepares the descriptors. `None` for a single session: it needs no poll.
    fn make_ready(&mut self) -> Result<Option<Poll>> {
        if let [seat] = &mut self.seats[..] {
            // A blocking read needs no epoll_wait(2) before it: one system call less for each call.
            return seat.session.set_blocking(true).map(|()| None);
        }
        let poll = Poll::new()?;
        for (i, seat) in self.seats.iter_mut().enumerate() {
            seat.session.set_blocking(false)?;
            poll.add(seat.session.fd(), i)?;
        }
        Ok(Some(poll))
    }

    /// One session: blocking reads, two system calls a call.
    fn alone(&mut self) -> Result<()> {
        let mut now = now_ns();
        while self.may_start(0, now) {
            let due_ns = match self.turn(0, now) {
                Ok(due_ns) => due_ns,
                Err(due_ns) => {
                    self.counts.control.sleep_alone_until(due_ns);
                    now = now_ns();
                    continue;
                }
            };
            let start = self.counts.call(now, due_ns, self.limit_ns());
            let mut step = self.seats[0].begin(start, due_ns)?;
            self.mark(&[0]);
            let end = loop {
                match step {
                    Step::Done(end) => break end,
                    Step::Sleep(until_ns) => self.counts.control.pause_until(until_ns),
                    Step::Read | Step::Write => {}
                }
                step = self.seats[0].session.advance(&mut self.buffer)?;
            };
            now = self.seats[0].end_ns();
            self.ended(0, now, end);
            now = self.seats[0].free_ns(now);
            if let Some(think) = self.think {
                let ns = think.draw_ns(&mut self.seats[0].rng);
                self.counts.control.sleep_until(now.saturating_add(ns));
                now = now_ns();
            }
        }
        Ok(())
    }

    fn limit_ns(&self) -> i64 {
        self.pace.as_ref().map_or(i64::MAX, |pace| pace.limit_ns)
    }

    /// Returns when the call that may begin now was due; as error, the instant before which none may begin.
    #[inline]
    fn turn(&mut self, i: usize, now: i64) -> std::result::Result<i64, i64> {
        if self.pace.is_some() {
            return self.paced_turn(i, now);
        }
        Ok(now)
    }

    /// The turn of a paced load; not inlined, since most loads are not paced.
    #[inline(never)]
    fn paced_turn(&mut self, i: usize, now: i64) -> std::result::Result<i64, i64> {
        if now >= self.change_ns {
            self.look_at_windows(now);
        }
        let Some(pace) = &mut self.pace else {
            return Ok(now);
        };
        match pace.turn(&mut self.seats[i].claim, now) {
            Turn::Start(due_ns) => Ok(due_ns),
            Turn::Wait(due_ns) => Err(due_ns),
        }
    }

    #[inline]
    fn begin(&mut self, i: usize, now: i64, poll: &Poll, at_once: &mut Vec<usize>) -> Result<()> {
        // A session may be lost between two calls.
        if self.seats[i].end.is_some() || !self.may_start(i, now) {
            return Ok(());
        }
        let due_ns = match self.turn(i, now) {
            Ok(due_ns) => due_ns,
            Err(due_ns) => {
                self.thinking.push(Reverse((due_ns, i)));
                return Ok(());
            }
        };
        let start = self.counts.call(now, due_ns, self.limit_ns());
        match self.seats[i].begin(start, due_ns) {
            Ok(Step::Read) => self.watch(i, poll),
            Ok(Step::Sleep(until_ns)) => {
                self.pausing.push(Reverse((until_ns, i)));
                self.watch(i, poll)
            }
            Ok(Step::Done(end)) => {
                let now = self.seats[i].end_ns();
                self.ended(i, now, end);
                if !self.pauses(i, now) {
                    at_once.push(i);
                }
                Ok(())
            }
            Ok(Step::Write) => self.wait_for(i, Interest::Write, poll),
            Err(error) => {
                self.lose(i, &error);
                Ok(())
            }
        }
    }

    #[inline]
    fn advance(&mut self, i: usize, poll: &Poll, at_once: &mut Vec<usize>) -> Result<()> {
        let seat = &mut self.seats[i];
        if seat.end.is_some() {
            return Ok(());
        }
        match seat.session.advance(&mut self.buffer) {
            Ok(Step::Done(end)) => {
                let now = self.seats[i].end_ns();
                self.ended(i, now, end);
                if self.pauses(i, now) {
                    return Ok(());
                }
                self.begin(i, self.seats[i].free_ns(now), poll, at_once)
            }
            Ok(Step::Read) => self.wait_for(i, Interest::Read, poll),
            Ok(Step::Sleep(until_ns)) => {
                self.pausing.push(Reverse((until_ns, i)));
                self.wait_for(i, Interest::Read, poll)
            }
            Ok(Step::Write) => self.wait_for(i, Interest::Write, poll),
            Err(error) => {
                self.lose(i, &error);
                Ok(())
            }
        }
    }

    /// Waits for the new descriptor of a session that connected again; closing the old one removed that.
    #[inline]
    fn watch(&mut self, i: usize, poll: &Poll) -> Result<()> {
        let seat = &mut self.seats[i];
        if !seat.session.fd_changed() {
            return Ok(());
        }
        seat.writing = false;
        poll.add(seat.session.fd(), i)
    }

    /// Waits for reading or writing; calls epoll only if that changes.
    #[inline]
    fn wait_for(&mut self, i: usize, interest: Interest, poll: &Poll) -> Result<()> {
        self.watch(i, poll)?;
        let seat = &mut self.seats[i];
        let writing = interest == Interest::Write;
        if seat.writing != writing {
            seat.writing = writing;
            return poll.change(seat.session.fd(), i, interest);
        }
        Ok(())
    }
}
