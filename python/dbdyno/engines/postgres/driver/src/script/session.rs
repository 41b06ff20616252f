//! A session that runs scripts. One message is sent and one answer read a statement, as for constant calls.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use dyno_model::poll::wait_for;
use dyno_model::{Breaker, CallEnd, Error, Progress, Result, Session, Start, TaskId, now_ns};
use dyno_script::{Action, Frame, Rng};
use rustix::event::PollFlags;

use crate::client::{COPY, Client};
use crate::link::{Link, failed};
use crate::script::commands::CommandTally;
use crate::script::out::Out;
use crate::script::plan::Plan;
use crate::script::rows::Results;
use crate::server::{SETUP_TIMEOUT, Server};
use crate::server_error::ServerError;

/// `ReadyForQuery`'s word where no transaction is open.
pub(super) const IDLE: u8 = b'I';
/// So much fits into the buffers of a socket, whatever the server does meanwhile.
const SAFE_BYTES: usize = 32 * 1024;

/// What the session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nothing: no call is under way.
    Nothing,
    /// The validation before the command's statement.
    Validation,
    /// The command's answer, or the pipeline's.
    Answer,
    /// The end of a pipeline that is left.
    Leaving,
    /// The end of ROLLBACK.
    Rollback,
    /// This instant.
    Instant(i64),
}

/// One connected session that runs scripts.
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub struct ScriptSession {
    pub(crate) link: Link,
    pub(super) plan: Arc<Plan>,
    pub(super) server: Option<Arc<Server>>,
    pub(super) frame: Frame,
    /// The frame at the start of the call, where calls may be tried again.
    pub(super) saved: Option<Frame>,
    pub(super) chooser: Rng,
    pub(super) script: usize,
    /// The command under way, and the first that is no more the script's.
    pub(super) at: usize,
    pub(super) end: usize,
    pub(super) waiting: Waiting,
    /// What is being sent, and how much of it is sent.
    pub(super) out: Out,
    pub(super) sent: usize,
    pub(super) sending: bool,
    /// `ReadyForQuery` still to come.
    pub(super) due: usize,
    /// What the last one said.
    pub(super) status: u8,
    pub(super) pipeline: bool,
    pub(super) validated: bool,
    pub(super) failure: Option<([u8; 5], String)>,
    pub(super) retries: u64,
    pub(super) no_try_from_ns: Option<i64>,
    /// For each statement: whether the server knows it by its name.
    pub(super) known: Vec<bool>,
    pub(super) results: Results,
    pub(super) blocking: bool,
    pub(super) used: bool,
    pub(super) replaced: bool,
    pub(super) measured: bool,
    /// Since when the present command runs.
    pub(super) since_ns: i64,
    /// When the call ended, if the clock was read then.
    pub(super) ended_ns: Option<i64>,
    pub(super) tallies: Vec<CommandTally>,
    /// Connections made within measured calls, and how long that took.
    pub(crate) reconnects: (u64, i64),
}

impl ScriptSession {
    pub(crate) fn new(client: Client, plan: Arc<Plan>, session: usize, server: Option<Arc<Server>>) -> Self {
        let frame = plan.frame(session);
        Self {
            link: Link::new(client),
            server,
            saved: (plan.scripts.max_tries != 1).then(|| frame.clone()),
            frame,
            chooser: plan.chooser(session),
            script: 0,
            at: 0,
            end: 0,
            waiting: Waiting::Nothing,
            out: Out::default(),
            sent: 0,
            sending: false,
            due: 0,
            status: IDLE,
            pipeline: false,
            validated: false,
            failure: None,
            retries: 0,
            no_try_from_ns: None,
            known: vec![false; plan.statements.len()],
            results: Results::default(),
            blocking: true,
            used: false,
            replaced: false,
            measured: false,
            since_ns: 0,
            ended_ns: None,
            tallies: vec![CommandTally::default(); plan.commands.len()],
            reconnects: (0, 0),
            plan,
        }
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn tallies(&self) -> &[CommandTally] {
        &self.tallies
    }

    /// The server knows this statement by its name.
    pub(crate) fn prepared(&mut self, statement: usize) {
        self.known[statement] = true;
    }

    // -- the wire ---------------------------------------------------------------------------------

    #[expect(clippy::inline_always, reason = "the hot path; other uses are rare")]
    #[inline(always)]
    pub(super) fn send(&mut self, waiting: Waiting) -> Result<Progress> {
        self.waiting = waiting;
        self.sent = 0;
        self.link.round_trips += 1;
        if self.blocking && self.out.len() > SAFE_BYTES {
            return self.exchange();
        }
        self.link
            .send(self.out.bytes(), &mut self.sent, &mut self.sending)
    }

    /// Sends the rest of what is to be sent.
    #[cold]
    fn push(&mut self) -> Result<Progress> {
        self.link
            .send(self.out.bytes(), &mut self.sent, &mut self.sending)
    }

    /// Sends in blocking mode what the socket may not hold: reads meanwhile, or a server that waits until its
    /// answers are read would wait for ever.
    #[cold]
    fn exchange(&mut self) -> Result<Progress> {
        self.link.set_blocking(false)?;
        let mut buffer = vec![0; SAFE_BYTES];
        let mut sent = self.push();
        while sent == Ok(Progress::Write) {
            self.drain(&mut buffer)?;
            wait_for(self.link.client.fd(), PollFlags::IN | PollFlags::OUT, None);
            sent = self.push();
        }
        self.link.set_blocking(true)?;
        sent
    }

    /// Reads what is there while more is to be sent: it cannot be all.
    #[cold]
    fn drain(&mut self, buffer: &mut [u8]) -> Result<()> {
        loop {
            match self.link.client.wire.recv(buffer) {
                Ok(0) => return Err(self.link.closed(None)),
                Ok(n) => drop(self.take(&buffer[..n])?),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(self.link.closed(Some(&e))),
            }
        }
    }

    /// Takes a chunk of the answer; true: the last `ReadyForQuery` that was due was in it.
    #[inline]
    fn take(&mut self, chunk: &[u8]) -> Result<bool> {
        let (mut at, mut ready) = (0, false);
        let plan = &self.plan;
        let (walker, notices, last_words) = self.link.parts();
        while let Some(message) = walker.next(chunk, &mut at)? {
            if message.tag == b'Z' {
                self.status = message.body.first().copied().unwrap_or(IDLE);
                ready = self.due == 1;
                self.due = self.due.saturating_sub(1);
                if at == chunk.len() {
                    break;
                }
                continue;
            }
            match message.tag {
                b'T' | b'D' | b'C' | b'I' => {
                    if let Action::Sql(sql) = &plan.commands[self.at].command.action {
                        self.results
                            .take(message.tag, message.body, &sql.into, &plan.names, &mut self.frame);
                    }
                }
                b'E' => {
                    if let CallEnd::Failed { code, message } = failed(ServerError::parse(message.body))? {
                        self.failure.get_or_insert((code, message));
                    }
                }
                b'N' => Link::notice(notices, last_words, message.body),
                _ => return Err(Error::Lost(COPY.to_owned())),
            }
        }
        Ok(ready)
    }

    /// A connection of the next call's own. In blocking mode, so that it is as fast as it can be; its thread's other
    /// sessions wait meanwhile, as in pgbench.
    #[cold]
    fn reconnect(&mut self) -> Result<()> {
        let Some(server) = self.server.clone() else {
            return Ok(());
        };
        let begin = now_ns();
        let mut client = lost(server.connect_again(&self.link.client.breaker))?;
        lost(client.set_timeout(Some(SETUP_TIMEOUT)))?;
        for sql in &self.plan.session.setup {
            lost(client.execute(sql))?;
        }
        client.set_timeout(None)?;
        let trips = self.link.round_trips;
        let old = std::mem::replace(&mut self.link, Link::new(client));
        old.client.close();
        self.link.round_trips = trips;
        self.link.set_blocking(self.blocking)?;
        self.known.fill(false);
        (self.status, self.replaced) = (IDLE, true);
        let now = now_ns();
        if self.measured {
            self.reconnects.0 += 1;
            self.reconnects.1 += now - begin;
        }
        self.since_ns = now;
        Ok(())
    }
}

impl Session for ScriptSession {
    fn fd(&self) -> BorrowedFd<'_> {
        self.link.client.fd()
    }

    fn breaker(&self) -> Breaker {
        self.link.client.breaker.clone()
    }

    fn set_blocking(&mut self, blocking: bool) -> Result<()> {
        self.blocking = blocking;
        self.link.set_blocking(blocking)
    }

    #[inline]
    fn begin(&mut self, start: Start) -> Result<Progress> {
        self.link.notices = 0;
        (self.retries, self.validated, self.ended_ns) = (0, false, None);
        (self.measured, self.since_ns) = (start.measured, start.now_ns);
        self.no_try_from_ns = start.no_try_from_ns;
        self.script = self.plan.choose(&mut self.chooser);
        let place = &self.plan.places[self.script];
        (self.at, self.end) = (place.start, place.end);
        if let Some(saved) = &mut self.saved {
            saved.clone_from(&self.frame);
        }
        if self.plan.scripts.reconnect {
            if self.used {
                self.reconnect()?;
            }
            self.used = true;
        }
        self.run()
    }

    #[inline]
    fn advance(&mut self, buffer: &mut [u8]) -> Result<Progress> {
        match self.waiting {
            Waiting::Instant(until_ns) => {
                if now_ns() < until_ns {
                    return self.disturbed(buffer);
                }
                self.timed();
                self.at += 1;
                return self.run();
            }
            Waiting::Nothing => return self.disturbed(buffer),
            _ => {}
        }
        if self.sending {
            let sent = self.push()?;
            if sent == Progress::Write {
                self.drain(buffer)?;
                return Ok(sent);
            }
        }
        // Until the answer is whole or the socket says that it is empty: a short read is no proof of that.
        // The end of the stream may wait behind it, and its edge is past.
        loop {
            let n = match self.link.recv(buffer) {
                Ok(0) => return Err(self.link.closed(None)),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Read),
                Err(e) => return Err(self.link.closed(Some(&e))),
            };
            if self.take(&buffer[..n])? {
                return self.ready();
            }
        }
    }

    fn backend(&self) -> Option<TaskId> {
        self.link.client.backend_pid.map(TaskId::main)
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.link.round_trips)
    }

    fn scripts(&self) -> usize {
        self.plan.places.len()
    }

    #[inline]
    fn script(&self) -> usize {
        self.script
    }

    #[inline]
    fn ended_ns(&self) -> Option<i64> {
        self.ended_ns
    }

    #[inline]
    fn retries(&self) -> u64 {
        self.retries
    }

    #[inline]
    fn fd_changed(&mut self) -> bool {
        std::mem::take(&mut self.replaced)
    }

    fn remark(&self) -> Option<String> {
        self.link.remark()
    }
}

impl ScriptSession {
    /// The server said something while nobody waited for it.
    #[cold]
    fn disturbed(&mut self, buffer: &mut [u8]) -> Result<Progress> {
        loop {
            match self.link.client.wire.recv(buffer) {
                Ok(0) => return Err(self.link.closed(None)),
                Ok(n) => self.link.unasked(&buffer[..n])?,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Read),
                Err(e) => return Err(self.link.closed(Some(&e))),
            }
        }
    }
}

/// Within the load, a session without a connection is lost.
fn lost<T>(done: Result<T>) -> Result<T> {
    done.map_err(|e| match e {
        Error::Aborted | Error::Lost(_) => e,
        other => Error::Lost(format!("cannot connect again: {other}")),
    })
}
