//! Many sessions on one thread.

use std::cmp::Reverse;

use dyno_model::{Result, Session, now_ns};

use super::Worker;
use crate::run::poll::Poll;

/// While sessions think or wait for arrivals, the deadline is looked at this often: a stop may bring it nearer.
const PATIENCE_NS: i64 = 50_000_000;

impl<S: Session> Worker<S> {
    /// Many sessions: one epoll loop.
    pub(super) fn many(&mut self, mut poll: Poll) -> Result<()> {
        // Sessions whose call ended without waiting; they take turns with the others.
        let mut at_once: Vec<usize> = (0..self.seats.len()).collect();
        let mut turn = Vec::new();
        while self.counts.progress.live > 0 {
            std::mem::swap(&mut turn, &mut at_once);
            // Each start has a clock read of its own: sending to the sessions before it took time.
            for &i in &turn {
                self.begin(i, now_ns(), &poll, &mut at_once)?;
            }
            self.mark(&turn);
            turn.clear();
            self.next_round(&mut at_once);
            if self.counts.progress.live == 0 {
                break;
            }
            for event in 0..poll.wait(self.patience_ns(at_once.is_empty()))? {
                self.advance(poll.ready(event), &poll, &mut at_once)?;
            }
            self.go_on(&poll, &mut at_once)?;
            self.wake(&mut at_once);
        }
        Ok(())
    }

    /// Time to wait for an answer: none, without limit, or until the next session has thought or paused enough.
    #[inline]
    fn patience_ns(&self, may_block: bool) -> i64 {
        let due = [self.thinking.peek(), self.pausing.peek()];
        match due.into_iter().flatten().map(|Reverse((due_ns, _))| due_ns).min() {
            _ if !may_block => 0,
            None => -1,
            Some(due_ns) => (due_ns - now_ns()).clamp(0, PATIENCE_NS),
        }
    }

    /// Collects sessions that have thought enough; all of them once the deadline has passed.
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

    /// Advances calls that have paused enough. A stop does not shorten their pause.
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
    pub(super) fn mark(&mut self, begun: &[usize]) {
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
        match (self.think, round.first()) {
            (Some(think), Some(&first)) => {
                let ns = think.draw_ns(&mut self.seats[first].rng);
                let due_ns = now_ns().saturating_add(ns);
                self.thinking
                    .extend(round.drain(..).map(|i| Reverse((due_ns, i))));
            }
            _ => at_once.append(round),
        }
    }

    /// The session's next call: due in the next round, or when it has thought enough. False: at once.
    #[inline]
    pub(super) fn pauses(&mut self, i: usize, now: i64) -> bool {
        (self.round.is_some() || self.think.is_some()) && self.waits_or_thinks(i, now)
    }

    #[inline(never)]
    fn waits_or_thinks(&mut self, i: usize, now: i64) -> bool {
        if let Some(round) = &mut self.round {
            round.push(i);
            return true;
        }
        let Some(think) = self.think else { return false };
        let ns = think.draw_ns(&mut self.seats[i].rng);
        self.thinking.push(Reverse((now.saturating_add(ns), i)));
        true
    }
}
