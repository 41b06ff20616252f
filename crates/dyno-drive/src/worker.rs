//! One thread of the driver: its sessions' calls, one after another.
//!
//! One clock read a call: the end of a call is the start of the session's next, which is sent at once.
//! So a session without think time is in a call from its first start to its last end, less what the thread needs between
//! reading the clock and sending (some tens of nanoseconds, which count as part of the call).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use dyno_model::{CallEnd, Progress as Step, Result, Session, Start, now_ns};

use crate::call_log::{CallLog, CpuProbe, LoggedCall};
use crate::control::{Control, Progress};
use crate::poll::{Interest, Poll};
use crate::seat::{End, Seat};
use crate::{LOST, Latency, Schedule, Spec};

/// Room for a socket's whole receive buffer at a time; one a thread, so it stays in the cache.
const BUFFER_BYTES: usize = 64 * 1024;

/// While sessions think, the deadline is looked at this often: a stop may bring it nearer.
const PATIENCE_NS: i64 = 50_000_000;

impl Counts {
    /// A call that begins now.
    #[inline]
    fn call_at(&self, now_ns: i64) -> Start {
        let measured = self.schedule.measures(now_ns);
        Start { now_ns, measured }
    }
}

/// A thread's sessions and counts.
pub struct Worker<S> {
    pub seats: Vec<Seat<S>>,
    think_ns: i64,
    /// When the next call of each session that thinks is due.
    thinking: BinaryHeap<Reverse<(i64, usize)>>,
    /// When each call that pauses goes on.
    pausing: BinaryHeap<Reverse<(i64, usize)>>,
    /// In rounds: sessions whose call of this round is over.
    round: Option<Vec<usize>>,
    pub latency: Latency,
    pub log: Option<CallLog>,
    counts: Counts,
    buffer: Vec<u8>,
}

/// What all sessions of the thread write to.
struct Counts {
    thread: usize,
    control: Arc<Control>,
    schedule: Schedule,
    progress: Progress,
}

impl<S: Session> Worker<S> {
    /// Before the barrier.
    pub fn new(
        thread: usize,
        seats: Vec<Seat<S>>,
        spec: &Spec,
        log: Option<CallLog>,
        control: Arc<Control>,
    ) -> Self {
        let progress = Progress {
            live: seats.len() as u64,
            ..Progress::default()
        };
        control.tell(thread, &progress);
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
        Self {
            seats,
            think_ns: i64::try_from(spec.think_us)
                .unwrap_or(i64::MAX)
                .saturating_mul(1000),
            thinking: BinaryHeap::new(),
            pausing: BinaryHeap::new(),
            round: spec.rounds.then(Vec::new),
            latency: Latency::default(),
            log,
            counts,
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    /// Waits at the barrier, then makes calls until every session has ended.
    pub fn run(&mut self) {
        let poll = self.make_ready();
        self.counts.schedule = self.counts.control.wait_for_start();
        self.counts.control.sleep_until(self.counts.schedule.start_ns);
        let done = poll.and_then(|poll| match poll {
            None => self.alone(),
            Some(poll) => self.many(poll),
        });
        if let Err(error) = done {
            (0..self.seats.len()).for_each(|i| self.lose(i, &error));
        }
        self.counts.control.linger();
    }

    /// A thread with one session needs no poll.
    fn make_ready(&mut self) -> Result<Option<Poll>> {
        if let [seat] = &mut self.seats[..] {
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
            let seat = &mut self.seats[0];
            seat.start_ns = now;
            let mut step = seat.session.begin(self.counts.call_at(now))?;
            self.mark(&[0]);
            let seat = &mut self.seats[0];
            seat.watch_descriptor(&self.counts.control);
            let end = loop {
                match step {
                    Step::Done(end) => break end,
                    Step::Sleep(until_ns) => self.counts.control.pause_until(until_ns),
                    Step::Read | Step::Write => {}
                }
                step = seat.session.advance(&mut self.buffer)?;
                seat.watch_descriptor(&self.counts.control);
            };
            now = now_ns();
            self.ended(0, now, end);
            if self.think_ns > 0 {
                self.counts.control.sleep_until(now.saturating_add(self.think_ns));
                now = now_ns();
            }
        }
        Ok(())
    }

    /// Many sessions: one epoll loop.
    fn many(&mut self, mut poll: Poll) -> Result<()> {
        // Sessions whose call ended without waiting; they take turns with the others.
        let mut at_once: Vec<usize> = (0..self.seats.len()).collect();
        let mut turn = Vec::new();
        while self.counts.progress.live > 0 {
            std::mem::swap(&mut turn, &mut at_once);
            for &i in &turn {
                self.begin(i, now_ns(), &poll, &mut at_once)?;
            }
            self.mark(&turn);
            turn.clear();
            self.next_round(&mut at_once);
            if self.counts.progress.live == 0 {
                break;
            }
            for event in 0..poll.wait(self.patience_ms(at_once.is_empty()))? {
                self.advance(poll.ready(event), &poll, &mut at_once)?;
            }
            self.go_on(&poll, &mut at_once)?;
            self.wake(&mut at_once);
        }
        Ok(())
    }

    /// How long to wait for an answer: not at all, for ever, or until the next session has thought or paused enough.
    #[inline]
    fn patience_ms(&self, may_block: bool) -> i32 {
        let due = [self.thinking.peek(), self.pausing.peek()];
        match due.into_iter().flatten().map(|Reverse((due_ns, _))| due_ns).min() {
            _ if !may_block => 0,
            None => -1,
            Some(due_ns) => {
                let left_ns = (due_ns - now_ns()).clamp(0, PATIENCE_NS);
                (left_ns as u64).div_ceil(1_000_000) as i32
            }
        }
    }

    /// Sessions that have thought enough; all of them once the deadline has passed.
    #[inline]
    fn wake(&mut self, at_once: &mut Vec<usize>) {
        if self.thinking.is_empty() {
            return;
        }
        let now = now_ns();
        let over = now >= self.counts.control.deadline_ns();
        while let Some(&Reverse((due_ns, i))) = self.thinking.peek() {
            if !over && due_ns > now {
                break;
            }
            self.thinking.pop();
            at_once.push(i);
        }
    }

    /// Calls that have paused enough. Their end does not come nearer with the deadline.
    #[inline]
    fn go_on(&mut self, poll: &Poll, at_once: &mut Vec<usize>) -> Result<()> {
        if self.pausing.is_empty() {
            return Ok(());
        }
        let now = now_ns();
        while let Some(&Reverse((due_ns, i))) = self.pausing.peek() {
            if due_ns > now && !self.counts.control.is_aborted() {
                break;
            }
            self.pausing.pop();
            self.advance(i, poll, at_once)?;
        }
        Ok(())
    }

    /// In rounds: moves count from here, when all of a round have been woken. (Who sends wakes, and a wake-up
    /// may be a move: `try_to_wake_up` in kernel/sched/core.c.)
    #[inline]
    fn mark(&mut self, begun: &[usize]) {
        for &i in begun.iter().filter(|_| self.round.is_some()) {
            if let Some(probe) = &mut self.seats[i].cpu {
                probe.mark();
            }
        }
    }

    /// When the last call of a round has ended, all begin the next: at once, or when they have thought.
    #[inline]
    fn next_round(&mut self, at_once: &mut Vec<usize>) {
        let Some(round) = &mut self.round else { return };
        if round.len() as u64 != self.counts.progress.live {
            return;
        }
        if self.think_ns == 0 {
            at_once.append(round);
        } else {
            let due_ns = now_ns().saturating_add(self.think_ns);
            self.thinking
                .extend(round.drain(..).map(|i| Reverse((due_ns, i))));
        }
    }

    /// The session's next call: due in the next round, or when it has thought enough. False: at once.
    #[inline]
    fn pauses(&mut self, i: usize, now: i64) -> bool {
        if let Some(round) = &mut self.round {
            round.push(i);
            return true;
        }
        if self.think_ns == 0 {
            return false;
        }
        self.thinking
            .push(Reverse((now.saturating_add(self.think_ns), i)));
        true
    }

    #[inline]
    fn begin(&mut self, i: usize, now: i64, poll: &Poll, at_once: &mut Vec<usize>) -> Result<()> {
        // A session may be lost between two calls.
        if self.seats[i].end.is_some() || !self.may_start(i, now) {
            return Ok(());
        }
        let start = self.counts.call_at(now);
        let seat = &mut self.seats[i];
        seat.start_ns = now;
        let step = seat.session.begin(start);
        self.watch(i, poll)?;
        match step {
            Ok(Step::Read) => Ok(()),
            Ok(Step::Sleep(until_ns)) => {
                self.pausing.push(Reverse((until_ns, i)));
                Ok(())
            }
            Ok(Step::Done(end)) => {
                let now = now_ns();
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
        let step = seat.session.advance(&mut self.buffer);
        self.watch(i, poll)?;
        match step {
            Ok(Step::Done(end)) => {
                let now = now_ns();
                self.ended(i, now, end);
                if self.pauses(i, now) {
                    return Ok(());
                }
                self.begin(i, now, poll, at_once)
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

    /// A session that connected again is waited for by its new descriptor; closing the old one took that out.
    #[inline]
    fn watch(&mut self, i: usize, poll: &Poll) -> Result<()> {
        let seat = &mut self.seats[i];
        if !seat.watch_descriptor(&self.counts.control) {
            return Ok(());
        }
        seat.writing = false;
        poll.add(seat.session.fd(), i)
    }

    /// Tells epoll only where that changes something.
    fn wait_for(&mut self, i: usize, interest: Interest, poll: &Poll) -> Result<()> {
        let seat = &mut self.seats[i];
        let writing = interest == Interest::Write;
        if seat.writing != writing {
            seat.writing = writing;
            return poll.change(seat.session.fd(), i, interest);
        }
        Ok(())
    }

    /// False: the session has ended, and it is noted why.
    #[inline]
    fn may_start(&mut self, i: usize, now: i64) -> bool {
        if now < self.counts.control.deadline_ns() && self.seats[i].calls_left > 0 {
            return true;
        }
        self.end(i, now);
        false
    }

    #[cold]
    fn end(&mut self, i: usize, now: i64) {
        let end = if self.counts.control.is_aborted() {
            End::Aborted("broken off".to_owned())
        } else if self.seats[i].calls_left == 0 {
            End::Limit
        } else if now < self.counts.schedule.t1_ns {
            End::Stopped
        } else {
            End::Deadline
        };
        self.close(i, end);
    }

    #[cold]
    fn lose(&mut self, i: usize, error: &dyno_model::Error) {
        let seat = &mut self.seats[i];
        if seat.end.is_some() {
            return;
        }
        let words = match error {
            dyno_model::Error::Lost(words) => words.clone(),
            other => other.to_string(),
        };
        let control = &self.counts.control;
        seat.given_up = control.is_aborted() || control.cut_reason(seat.number).is_some();
        let end = if control.is_aborted() {
            End::Aborted("broken off".to_owned())
        } else {
            let words = match (control.cut_reason(seat.number), seat.session.remark()) {
                (Some(cut), Some(remark)) => format!("{cut}; {remark}"),
                (cut, _) => cut.unwrap_or(words),
            };
            seat.errors.count(LOST, now_ns(), words.clone());
            End::Lost(words)
        };
        self.close(i, end);
    }

    fn close(&mut self, i: usize, end: End) {
        let seat = &mut self.seats[i];
        seat.end = Some(end);
        if let Some(round) = &mut self.round {
            round.retain(|&other| other != i);
        }
        self.counts.control.session_ended(seat.number);
        self.counts.progress.live -= 1;
        self.counts
            .control
            .tell(self.counts.thread, &self.counts.progress);
    }

    /// Counts the call that ended.
    #[inline]
    fn ended(&mut self, i: usize, now: i64, end: CallEnd) {
        let seat = &mut self.seats[i];
        let counts = &mut self.counts;
        let (start_ns, ok) = (seat.start_ns, matches!(end, CallEnd::Ok));
        seat.calls_left -= 1;
        if let Some(duration) = seat.tally.count(&counts.schedule, start_ns, now, ok) {
            self.latency.record(duration);
        }
        counts.progress.in_call_ns += (now - start_ns) as u64;
        if let CallEnd::Failed { code, message } = end {
            seat.errors.count(code, now, message);
            counts.progress.errors += 1;
        } else {
            counts.progress.calls += 1;
        }
        counts.control.tell(counts.thread, &counts.progress);
        if let Some(log) = &mut self.log {
            let measured = counts.schedule.measures(start_ns);
            let place = seat.cpu.as_mut().map(CpuProbe::read).unwrap_or_default();
            let (session, duration_ns) = (seat.number as u32, now - start_ns);
            log.push(LoggedCall {
                start_ns,
                duration_ns,
                session,
                cpu: place.cpu,
                migrations: place.migrations,
                ok,
                measured,
            });
        }
    }
}
