//! One process from its start to its end: what it prints is taken, and it is killed where it has to be.

use std::os::fd::BorrowedFd;

use dyno_model::{now_ns, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, pidfd_send_signal};

use super::spawn::{Child, Program, Refused, Spawner, Streams};
use super::tail::Tail;
use super::{tree, used};
use crate::proc;
use crate::protocol::Report;

/// Time from SIGTERM to SIGKILL.
const PATIENCE_NS: i64 = 2_000_000_000;

/// Resources shared by the executions of a session.
#[derive(Debug)]
pub struct Bench<'a> {
    /// Starts processes.
    pub spawner: Spawner,
    /// `/dev/null`.
    pub null: BorrowedFd<'a>,
    /// Standard output, if it is read.
    pub output: Option<Tail>,
    /// Error output.
    pub errors: Tail,
    /// The session's socket; all ends when that is closed.
    pub session: BorrowedFd<'a>,
    /// `DBDYNO_SESSION=n`.
    pub mark: String,
}

/// The reason for which a process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killed {
    /// It took too long.
    Timeout,
    /// Its session has ended.
    Stopped,
}

/// The end of an execution: by itself, or the reason for which it was killed.
pub type End = (used::Ended, Option<Killed>);

impl Bench<'_> {
    /// Runs a program to its end. Its times, and what it used, go into `report`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(
        &mut self,
        program: &Program,
        input: Option<BorrowedFd<'_>>,
        timeout_ns: Option<i64>,
        report: &mut Report,
    ) -> Result<End, Refused> {
        let output = self.output.as_ref().map_or(self.null, Tail::writer);
        let streams = Streams([input.unwrap_or(self.null), output, self.errors.writer()]);
        report.start_ns = now_ns();
        report.end_ns = report.start_ns;
        let child = self.spawner.start(program, streams)?;
        report.start_ns = child.start_ns;
        report.set("pid", Some(i64::from(child.pid)));
        report.set("exec_ns", Some(child.exec_ns));
        let until_ns = timeout_ns.map(|ns| child.start_ns.saturating_add(ns));
        let killed = self.attend(&child, until_ns, report);
        used::read_zombie(child.pid, report);
        if killed.is_some() {
            self.let_end(&child);
        }
        report.set("left_over", Some(tree::kill_left_over(child.pid, &self.mark)));
        self.drain();
        Ok((used::wait(child.pid, report), killed))
    }

    /// Waits until the process has ended.
    fn attend(&mut self, child: &Child, until_ns: Option<i64>, report: &mut Report) -> Option<Killed> {
        let (mut killed, mut kill_ns) = (None, until_ns);
        loop {
            let (ended, closed) = self.look(child, kill_ns, killed.is_none());
            if ended {
                report.end_ns = now_ns();
                return killed;
            }
            self.drain();
            let over = kill_ns.is_some_and(|at_ns| now_ns() >= at_ns);
            match killed {
                None if closed || over => {
                    killed = Some(if closed { Killed::Stopped } else { Killed::Timeout });
                    tree::ask_to_end(child.pid, &self.mark);
                    kill_ns = Some(now_ns() + PATIENCE_NS);
                }
                Some(_) if over => {
                    proc::signal_group(child.pid, Signal::KILL);
                    let _ = pidfd_send_signal(&child.pidfd, Signal::KILL); // refused, it has ended
                    kill_ns = None;
                }
                _ => {}
            }
        }
    }

    /// The others of a tree that was asked to end have as long for it as the first process.
    fn let_end(&mut self, child: &Child) {
        let until_ns = now_ns() + PATIENCE_NS;
        while tree::has_left_over(child.pid, &self.mark) && now_ns() < until_ns {
            self.drain();
            std::thread::sleep(tree::ROUND);
        }
    }

    /// Waits until something happens: the process has ended, the session is closed.
    fn look(&self, child: &Child, until_ns: Option<i64>, session: bool) -> (bool, bool) {
        let mut polled = vec![
            PollFd::new(&child.pidfd, PollFlags::IN),
            PollFd::from_borrowed_fd(self.errors.reader(), PollFlags::IN),
        ];
        polled.extend(session.then(|| PollFd::from_borrowed_fd(self.session, PollFlags::RDHUP)));
        let output = self.output.as_ref().map(Tail::reader);
        polled.extend(output.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let left = until_ns.map(|at_ns| timespec((at_ns - now_ns()).max(0)));
        let _ = poll(&mut polled, left.as_ref()); // a signal ends the wait early
        let happened = |place: usize| !polled[place].revents().is_empty();
        (happened(0), session && happened(2))
    }

    fn drain(&mut self) {
        self.errors.drain();
        if let Some(output) = &mut self.output {
            output.drain();
        }
    }
}
