//! The hot path: bytes built before, an answer of which only the headers are read.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use dyno_model::{CallEnd, Error, Progress, Result, Session, Start, TaskId};

use crate::client::{COPY, Client};
use crate::frame::Walker;
use crate::plan::Plan;
use crate::server_error::ServerError;

/// Simple query, by the PostgreSQL documentation's "Message Formats".
const ROLLBACK: &[u8] = b"Q\x00\x00\x00\x0dROLLBACK\x00";
/// ReadyForQuery's word for a failed transaction.
const FAILED_TRANSACTION: u8 = b'E';
/// Class of SQLSTATEs by which a server announces that it ends the session.
const OPERATOR_INTERVENTION: &[u8] = b"57";

/// One connected session that makes calls.
pub struct PgSession {
    client: Client,
    plan: Arc<Plan>,
    walker: Walker,
    /// Which statement of the call is under way; past the end: the ROLLBACK after a failed one.
    step: usize,
    /// How much of its message is sent.
    sent: usize,
    /// Not all of it is sent, or not all has left TLS's buffer.
    sending: bool,
    /// `ReadyForQuery` still to come: one a statement of a pipeline.
    due: usize,
    /// Messages sent and waited for so far.
    round_trips: u64,
    /// Notices in place of the answer that is due.
    notices: u64,
    failure: Option<CallEnd>,
    last_words: Option<String>,
}

impl PgSession {
    pub(crate) fn new(client: Client, plan: Arc<Plan>) -> Self {
        let (walker, step) = (Walker::default(), 0);
        Self {
            client,
            plan,
            walker,
            step,
            sent: 0,
            sending: false,
            due: 0,
            round_trips: 0,
            notices: 0,
            failure: None,
            last_words: None,
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

    /// Uses the blocking client between calls. What the server said unasked is not lost: a message that
    /// is half here is read to its end before, and what the client read too much of is looked at after.
    ///
    /// # Errors
    /// Those of `work`, or when the session is lost.
    pub(crate) fn with_client<T>(&mut self, work: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
        let mut buffer = [0; 4096];
        while !self.walker.is_between_messages() {
            match self.client.recv(&mut buffer)? {
                0 => return Err(self.closed(None)),
                n => self.take(&buffer[..n])?,
            };
        }
        let done = work(&mut self.client);
        let rest = self.client.take_rest();
        let taken = self.take(&rest);
        let value = done?;
        taken.map(|_| value)
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.client.key
    }

    pub(crate) fn into_client(self) -> Client {
        self.client
    }

    /// Sends (the rest of) the present message.
    #[inline]
    fn send(&mut self) -> Result<Progress> {
        let message = self.plan.messages.get(self.step).map_or(ROLLBACK, Vec::as_slice);
        while self.sent < message.len() {
            match self.client.wire.send(&message[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) => return self.not_sent(&e),
            }
        }
        match self.client.wire.flush() {
            Ok(()) => {
                self.sending = false;
                Ok(Progress::Read)
            }
            Err(e) => self.not_sent(&e),
        }
    }

    /// The socket is full, or the server is gone; then it may have said why.
    #[cold]
    fn not_sent(&mut self, error: &io::Error) -> Result<Progress> {
        if error.kind() == io::ErrorKind::WouldBlock {
            self.sending = true;
            return Ok(Progress::Write);
        }
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = self.client.wire.recv(&mut buffer) {
            self.take(&buffer[..n])?;
        }
        Err(self.closed(Some(error)))
    }

    #[inline]
    fn step(&mut self, step: usize) -> Result<Progress> {
        self.step = step;
        self.sent = 0;
        self.due = self.plan.replies;
        self.round_trips += 1;
        self.send()
    }

    /// Takes a chunk of the answer; the status of the last ReadyForQuery that was due, if that was in it.
    #[inline]
    fn take(&mut self, chunk: &[u8]) -> Result<Option<u8>> {
        let (mut at, mut ready) = (0, None);
        while let Some(message) = self.walker.next(chunk, &mut at)? {
            match message.tag {
                b'Z' => {
                    self.due = self.due.saturating_sub(1);
                    if self.due == 0 {
                        ready = message.body.first().copied();
                    }
                }
                b'E' => {
                    let end = failed(ServerError::parse(message.body))?;
                    self.failure.get_or_insert(end);
                }
                b'N' => {
                    self.notices += 1;
                    note(&mut self.last_words, message.body);
                }
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

    #[cold]
    fn closed(&self, error: Option<&io::Error>) -> Error {
        let what = error.map_or("the server closed the connection".to_owned(), ToString::to_string);
        Error::Lost(match &self.last_words {
            None => what,
            Some(words) => format!("{what}; before that it said: {words}"),
        })
    }
}

impl Session for PgSession {
    fn fd(&self) -> RawFd {
        self.client.fd()
    }

    fn set_blocking(&mut self, blocking: bool) -> Result<()> {
        self.client
            .wire
            .socket()
            .set_nonblocking(!blocking)
            .map_err(|e| Error::Io(e.to_string()))
    }

    #[inline]
    fn begin(&mut self, _start: Start) -> Result<Progress> {
        self.notices = 0;
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
            let n = match self.client.wire.recv(buffer) {
                Ok(0) => return Err(self.closed(None)),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Read),
                Err(e) => return Err(self.closed(Some(&e))),
            };
            if let Some(status) = self.take(&buffer[..n])? {
                return self.ready(status);
            }
        }
    }

    fn backend(&self) -> Option<TaskId> {
        self.client.backend_pid.map(TaskId::main)
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.round_trips)
    }

    fn remark(&self) -> Option<String> {
        (self.notices > 0).then(|| format!("the server sent {} notices meanwhile", self.notices))
    }
}

/// A failed call; a fatal error loses the session.
#[cold]
fn failed(error: ServerError) -> Result<CallEnd> {
    if error.fatal {
        return Err(error.into_session_error());
    }
    Ok(CallEnd::Failed {
        code: error.sqlstate,
        message: error.message,
    })
}

/// Keeps a notice that announces the session's end (an immediate shutdown sends no error, only this).
#[cold]
fn note(last_words: &mut Option<String>, body: &[u8]) {
    let notice = ServerError::parse(body);
    if notice.sqlstate.starts_with(OPERATOR_INTERVENTION) {
        *last_words = Some(format!("{} ({})", notice.message, notice.code()));
    }
}
