//! A session of the driver: an order to the launcher is a call, its report is the answer.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dyno_model::{Breaker, CallEnd, Error, Progress, Result, Session, Start, TaskId, now_ns};

use crate::plan::Plan;
use crate::protocol::{Frames, Order, Outcome, Report};

/// A session's record of one execution.
#[derive(Debug)]
pub struct Execution {
    /// Index of the job.
    pub job: usize,
    /// The launcher's report; of an execution under way when the session was lost, as much as is known.
    pub report: Report,
    /// The execution was measured.
    pub measured: bool,
}

/// A session that executes commands one after another.
pub struct CommandSession {
    socket: Arc<UnixStream>,
    breaker: Breaker,
    frames: Frames,
    plan: Arc<Plan>,
    number: usize,
    /// Executions in the order of starting.
    pub(crate) executions: Vec<Execution>,
    /// Job and beginning of the execution under way.
    under_way: Option<(usize, i64)>,
    script: usize,
    orders: i64,
    ended_ns: i64,
    started_ns: i64,
}

impl CommandSession {
    pub(crate) fn new(socket: Arc<UnixStream>, breaker: Breaker, plan: Arc<Plan>, number: usize) -> Self {
        Self {
            socket,
            breaker,
            frames: Frames::default(),
            plan,
            number,
            executions: Vec::new(),
            under_way: None,
            script: 0,
            orders: 0,
            ended_ns: 0,
            started_ns: 0,
        }
    }

    /// The execution that was under way when the session was lost.
    pub(crate) fn stopped(&self) -> Option<Execution> {
        let (job, start_ns) = self.under_way?;
        let report = Report {
            outcome: Outcome::Stopped,
            start_ns,
            end_ns: now_ns(),
            ..Report::default()
        };
        Some(Execution {
            job,
            report,
            measured: false,
        })
    }

    fn take(&mut self, mut report: Report) -> CallEnd {
        let Some((job, _)) = self.under_way.take() else {
            return CallEnd::NotMade;
        };
        self.ended_ns = report.end_ns;
        // A shell's own start-up is no part of the command; nothing ends before it begins.
        let shell_ns = self.plan.jobs[job].shell_ns;
        self.started_ns = report.start_ns.saturating_add(shell_ns).min(report.end_ns);
        if report.outcome == Outcome::TooLate {
            return CallEnd::NotMade;
        }
        let end = match code(&report) {
            None => CallEnd::Ok,
            Some(code) => CallEnd::Failed {
                code,
                message: report.detail.clone(),
            },
        };
        let room = self.plan.room_for(report.printed.as_ref());
        report.printed = report.printed.filter(|_| room);
        self.executions.push(Execution {
            job,
            report,
            measured: false,
        });
        end
    }
}

/// The code by which the driver counts the error. `None` if the execution ended well.
fn code(report: &Report) -> Option<[u8; 5]> {
    let number = report.get("exit_code").unwrap_or_default();
    let text = match report.outcome {
        Outcome::Ok => return None,
        Outcome::Exit => format!("X{number:04}"),
        Outcome::Signal => format!("S{number:04}"),
        Outcome::Timeout => "TIMED".to_owned(),
        Outcome::Verify => "CHECK".to_owned(),
        Outcome::Stopped => "ENDED".to_owned(),
        Outcome::NotStarted | Outcome::TooLate => "START".to_owned(),
    };
    text.as_bytes().first_chunk().copied()
}

fn lost(error: Option<&io::Error>) -> Error {
    let reason = error.map_or_else(String::new, |e| format!(" ({e})"));
    Error::Lost(format!("the launcher of commands has ended{reason}"))
}

impl Session for CommandSession {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn breaker(&self) -> Breaker {
        self.breaker.clone()
    }

    fn set_blocking(&mut self, blocking: bool) -> Result<()> {
        self.socket.set_nonblocking(!blocking).map_err(|e| lost(Some(&e)))
    }

    fn begin(&mut self, start: Start) -> Result<Progress> {
        self.script = self.plan.next_job(self.number, self.orders);
        let order = Order {
            job: self.script,
            number: self.orders,
            not_from_ns: start.no_try_from_ns.unwrap_or(i64::MAX),
        };
        self.orders += 1;
        self.under_way = Some((order.job, start.now_ns));
        // Some tens of bytes into an empty socket: it never blocks.
        (&*self.socket)
            .write_all(&order.encode())
            .map_err(|e| lost(Some(&e)))?;
        Ok(Progress::Read)
    }

    fn advance(&mut self, buffer: &mut [u8]) -> Result<Progress> {
        loop {
            if let Some(body) = self.frames.next()? {
                return Ok(Progress::Done(self.take(Report::decode(&body)?)));
            }
            match (&*self.socket).read(buffer) {
                Ok(0) => return Err(lost(None)),
                Ok(n) => self.frames.feed(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Read),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(lost(Some(&e))),
            }
        }
    }

    fn backend(&self) -> Option<TaskId> {
        None // its processes come and go
    }

    fn scripts(&self) -> usize {
        self.plan.jobs.len()
    }

    fn script(&self) -> usize {
        self.script
    }

    fn ended_ns(&self) -> Option<i64> {
        Some(self.ended_ns)
    }

    fn started_ns(&self) -> Option<i64> {
        Some(self.started_ns)
    }

    fn counted(&mut self, measured: bool) {
        if let Some(last) = self.executions.last_mut() {
            last.measured = measured;
        }
    }
}
