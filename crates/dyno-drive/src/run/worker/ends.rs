//! The end of a call, and of a session.

use dyno_model::{CallEnd, Session, now_ns};

use super::Worker;
use crate::LOST;
use crate::count::call_log::{CpuProbe, LoggedCall};
use crate::run::seat::End;

impl<S: Session> Worker<S> {
    /// False: the session has ended, and it is noted why.
    #[inline]
    pub(super) fn may_start(&mut self, i: usize, now: i64) -> bool {
        let control = &self.counts.control;
        if now < control.deadline_ns() && self.seats[i].calls_left > 0 && control.take_call() {
            return true;
        }
        self.end(i, now);
        false
    }

    #[cold]
    fn end(&mut self, i: usize, now: i64) {
        let end = if self.counts.control.is_aborted() {
            End::Aborted("broken off".to_owned())
        } else if self.seats[i].calls_left == 0 || self.counts.control.calls_are_spent() {
            End::Limit
        } else if now < self.counts.schedule.t1_ns {
            End::Stopped
        } else {
            End::Deadline
        };
        self.close(i, end);
    }

    #[cold]
    pub(super) fn lose(&mut self, i: usize, error: &dyno_model::Error) {
        // Before the loss is counted, so that it falls into the window in which it happens.
        self.look_at_windows(now_ns());
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
            let now = now_ns();
            seat.errors.count(LOST, now, words.clone());
            if self.has_scripts {
                let script = &mut self.scripts[seat.session.script()];
                script.errors.count(LOST, now, words.clone());
            }
            End::Lost(words)
        };
        self.close(i, end);
    }

    fn close(&mut self, i: usize, end: End) {
        let seat = &mut self.seats[i];
        (seat.end, seat.end_ns) = (Some(end), now_ns());
        // Another session takes the arrival: it is not lost with this one.
        if let (Some(pace), Some(claim)) = (&self.pace, seat.claim.take()) {
            pace.give_back(claim);
        }
        if let Some(round) = &mut self.round {
            round.retain(|&other| other != i);
        }
        self.counts.control.session_ended(seat.number);
        self.counts.progress.live -= 1;
        self.counts
            .control
            .publish(self.counts.thread, &self.counts.progress);
    }

    /// Counts a call that ended.
    #[expect(clippy::inline_always, reason = "the hot path; the other use is cold")]
    #[inline(always)]
    pub(super) fn ended(&mut self, i: usize, now: i64, end: CallEnd) {
        match end {
            CallEnd::Ok => self.count(i, now, true),
            CallEnd::Failed { code, message } => self.failed(i, now, code, message),
            CallEnd::NotMade => {}
        }
    }

    #[cold]
    fn failed(&mut self, i: usize, now: i64, code: [u8; 5], message: String) {
        self.count(i, now, false);
        let seat = &mut self.seats[i];
        if self.has_scripts {
            let script = &mut self.scripts[seat.session.script()];
            script.errors.count(code, now, message.clone());
        }
        seat.errors.count(code, now, message);
    }

    #[inline]
    fn count(&mut self, i: usize, now: i64, ok: bool) {
        if now >= self.change_ns {
            self.look_at_windows(now);
        }
        let seat = &mut self.seats[i];
        let counts = &mut self.counts;
        let script = seat.session.script();
        // A session that began later than it was asked counts from then; a paced call from when it was due.
        if let Some(started_ns) = seat.session.started_ns().filter(|_| self.pace.is_none()) {
            (seat.times.due_ns, seat.times.start_ns) = (started_ns, started_ns);
        }
        seat.times.end_ns = now;
        let times = &seat.times;
        seat.calls_left -= 1;
        let tally = &mut seat.tallies[script];
        if let Some(duration) = tally.count(&counts.schedule, times, ok, seat.session.retries()) {
            self.scripts[script].latency.record(duration);
        }
        seat.session.counted(counts.schedule.measures(seat.times.due_ns));
        let duration_ns = (now - times.due_ns) as u64;
        counts.progress.in_call_ns += duration_ns;
        if ok {
            counts.progress.calls += 1;
            counts.control.record_duration(counts.thread, duration_ns);
        } else {
            counts.progress.errors += 1;
        }
        counts.control.publish(counts.thread, &counts.progress);
        if self.pace.is_some() || self.log.is_some() {
            self.ended_too(i, ok);
        }
    }

    /// Counts for pacing and the log; not inlined, since most loads do without.
    #[inline(never)]
    fn ended_too(&mut self, i: usize, ok: bool) {
        let seat = &mut self.seats[i];
        if let Some(pace) = &mut self.pace
            && self.counts.schedule.measures(seat.times.due_ns)
        {
            pace.ended(&seat.times, ok, &mut seat.service);
        }
        self.log_call(i, ok);
    }

    fn log_call(&mut self, i: usize, ok: bool) {
        let seat = &mut self.seats[i];
        let Some(log) = &mut self.log else { return };
        let place = seat.cpu.as_mut().map(CpuProbe::read).unwrap_or_default();
        let times = seat.times;
        log.push(LoggedCall {
            start_ns: times.start_ns,
            duration_ns: times.end_ns - times.start_ns,
            due_ns: times.due_ns,
            session: seat.number as u32,
            cpu: place.cpu,
            migrations: place.migrations,
            ok,
            measured: self.counts.schedule.measures(times.due_ns),
        });
    }
}
