//! The hot path: bytes built before, an answer of which only the headers are read.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use dyno_model::{Breaker, CallEnd, Error, Progress, Result, Session, Start, TaskId};

use crate::client::{COPY, Client};
use crate::link::{Link, ROLLBACK, failed};
use crate::plan::Plan;
use crate::server_error::ServerError;

/// ReadyForQuery's word for a failed transaction.
const FAILED_TRANSACTION: u8 = b'E';

/// One connected session that makes calls.
pub struct PgSession {
    pub(crate) link: Link,
    plan: Arc<Plan>,
    /// Which statement of the call is under way; past the end: the ROLLBACK after a failed one.
    step: usize,
    /// How much of its message is sent.
    sent: usize,
    /// Not all of it is sent, or not all has left TLS's buffer.
    sending: bool,
    /// `ReadyForQuery` still to come: one a statement of a pipeline.
    due: usize,
    failure: Option<CallEnd>,
}

impl PgSession {
    pub(crate) fn new(client: Client, plan: Arc<Plan>) -> Self {
        Self {
            link: Link::new(client),
            plan,
            step: 0,
            sent: 0,
            sending: false,
            due: 0,
            failure: None,
        }
    }

    /// One whole call, in blocking mode.
    ///
    /// # Errors
    /// When the session is lost.
    pub(crate) fn call(&mut self, buffer: &mut [u8]) -> Result<CallEnd> {
        let mut progress = self.begin(Start::default())?;
        loop {
            if let Progress::Done(end) = progress {
                return Ok(end);
            }
            progress = self.advance(buffer)?;
        }
    }

    /// Sends (the rest of) the present message.
    #[inline]
    fn send(&mut self) -> Result<Progress> {
        let message = self.plan.messages.get(self.step).map_or(ROLLBACK, Vec::as_slice);
        self.link.send(message, &mut self.sent, &mut self.sending)
    }

    #[inline]
    fn step(&mut self, step: usize) -> Result<Progress> {
        self.step = step;
        self.sent = 0;
        self.due = self.plan.replies;
        self.link.round_trips += 1;
        self.send()
    }

    /// Takes a chunk of the answer; the status of the last ReadyForQuery that was due, if that was in it.
    #[inline]
    fn take(&mut self, chunk: &[u8]) -> Result<Option<u8>> {
        let (mut at, mut ready) = (0, None);
        let (walker, notices, last_words) = self.link.parts();
        while let Some(message) = walker.next(chunk, &mut at)? {
            match message.tag {
                b'Z' => {
                    self.due = self.due.saturating_sub(1);
                    if self.due == 0 {
                        ready = message.body.first().copied();
                    }
                    if at == chunk.len() {
                        break;
                    }
                }
                b'E' => {
                    let end = failed(ServerError::parse(message.body))?;
                    self.failure.get_or_insert(end);
                }
                b'N' => Link::notice(notices, last_words, message.body),
                _ => return Err(Error::Lost(COPY.to_owned())),
            }
        }
        Ok(ready)
    }

    /// A statement is over: on to the next, or the end.
    #[inline]
    fn ready(&mut self, status: u8) -> Result<Progress> {
        if self.failure.is_some() {
            return self.after_failure(status);
        }
        if self.step + 1 < self.plan.messages.len() {
            return self.step(self.step + 1);
        }
        Ok(Progress::Done(CallEnd::Ok))
    }

    /// The rest of the call is left out (of a pipeline the server has it already); a failed transaction is rolled back, so that the next call
    /// starts clean.
    #[cold]
    fn after_failure(&mut self, status: u8) -> Result<Progress> {
        let rolled_back = self.step >= self.plan.messages.len();
        if status == FAILED_TRANSACTION && !rolled_back {
            let sent = self.step(self.plan.messages.len());
            self.due = 1;
            return sent;
        }
        Ok(Progress::Done(self.failure.take().unwrap_or(CallEnd::Ok)))
    }
}

impl Session for PgSession {
    fn fd(&self) -> BorrowedFd<'_> {
        self.link.client.fd()
    }

    fn breaker(&self) -> Breaker {
        self.link.client.breaker.clone()
    }

    fn set_blocking(&mut self, blocking: bool) -> Result<()> {
        self.link.set_blocking(blocking)
    }

    #[inline]
    fn begin(&mut self, _start: Start) -> Result<Progress> {
        self.link.notices = 0;
        self.step(0)
    }

    #[inline]
    fn advance(&mut self, buffer: &mut [u8]) -> Result<Progress> {
        if self.sending {
            return self.send();
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
            if let Some(status) = self.take(&buffer[..n])? {
                return self.ready(status);
            }
        }
    }

    fn backend(&self) -> Option<TaskId> {
        self.link.client.backend_pid.map(TaskId::main)
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.link.round_trips)
    }

    fn remark(&self) -> Option<String> {
        self.link.remark()
    }
}
