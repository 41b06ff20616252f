//! Calls without I/O.
//!
//! A [`Machine`] knows what a session sends and what an answer means, and nothing of sockets: `begin` begins a call,
//! `pending` are the bytes to be sent, `sent` says how many of them have left, `feed` takes what came. Each [`Step`] says
//! what has to happen next. [`Link`](crate::link::Link) is the adapter to a socket and, as the driver's session, to its
//! epoll loop: it alone sends, receives, sleeps and connects again. One machine makes constant calls
//! ([`ConstantCalls`](crate::session::ConstantCalls)), another runs scripts
//! ([`ScriptCalls`](crate::script::session::ScriptCalls)). A machine never waits for the server, so that a whole call can be
//! tested, or fed with anything, without a server. Once its buffers have grown, a call allocates nothing.

use std::io;

use dyno_model::{CallEnd, Error, Result, Start};

use crate::frame::Walker;
use crate::server_error::ServerError;

/// Class of SQLSTATEs by which a server announces that it ends the session.
const OPERATOR_INTERVENTION: &[u8] = b"57";
/// Simple query, by the PostgreSQL documentation's "Message Formats".
pub(crate) const ROLLBACK: &[u8] = b"Q\x00\x00\x00\x0dROLLBACK\x00";
/// A call cannot copy from or to the client.
pub(crate) const COPY: &str = "COPY from or to the client cannot be a call: its data would have to come from dbdyno or go \
                               there; use INSERT ... SELECT, or COPY from or to a file or program of the server";

/// The next thing that a call needs.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send what is pending, then read.
    Send,
    /// Read.
    Read,
    /// Go on at this instant (ns of the one clock), by [`Machine::resume`].
    Sleep(i64),
    /// Connect again, then go on by [`Machine::resume`].
    Reconnect,
    /// Nothing: the call is over.
    Done(CallEnd),
}

/// The calls of a session, without I/O.
pub trait Machine: Send {
    /// Answers are read while a call is still being sent: it may be longer than the socket's buffers.
    const READS_WHILE_SENDING: bool = false;
    /// [`Step::Reconnect`] may occur.
    const RECONNECTS: bool = false;

    /// Begins a call.
    ///
    /// # Errors
    /// When the session is lost.
    fn begin(&mut self, start: Start) -> Result<Step>;
    /// Bytes that are still to be sent.
    fn pending(&self) -> &[u8];
    /// The first `count` pending bytes have been sent.
    fn sent(&mut self, count: usize);
    /// Takes a chunk of the answer, of any size.
    ///
    /// # Errors
    /// When the session is lost.
    fn feed(&mut self, chunk: &[u8]) -> Result<Step>;
    /// Goes on after a pause or on a new connection.
    ///
    /// # Errors
    /// When the session is lost.
    fn resume(&mut self) -> Result<Step>;
    /// Messages of the present connection.
    fn incoming(&self) -> &Incoming;
    /// Messages of the present connection, to take what no call waits for.
    fn incoming_mut(&mut self) -> &mut Incoming;
    /// Messages sent and waited for so far.
    fn round_trips(&self) -> u64;
    /// Simple queries that a new connection begins with.
    fn setup(&self) -> &[String] {
        &[]
    }
    /// A new connection has replaced the one before; connecting took from `begin_ns` to `now_ns`.
    fn reconnected(&mut self, _begin_ns: i64, _now_ns: i64) {}
    /// See [`Session::scripts`](dyno_model::Session::scripts).
    fn scripts(&self) -> usize {
        0
    }
    /// See [`Session::script`](dyno_model::Session::script).
    fn script(&self) -> usize {
        0
    }
    /// See [`Session::ended_ns`](dyno_model::Session::ended_ns).
    fn ended_ns(&self) -> Option<i64> {
        None
    }
    /// See [`Session::retries`](dyno_model::Session::retries).
    fn retries(&self) -> u64 {
        0
    }
}

/// Messages from a connection, asked for or not.
#[derive(Debug, Default)]
pub struct Incoming {
    /// Position in the stream of messages.
    pub walker: Walker,
    /// Notices in place of the answer that is due.
    pub notices: u64,
    /// The last notice that announced the session's end.
    last_words: Option<String>,
}

impl Incoming {
    /// Takes what no call waits for.
    ///
    /// # Errors
    /// When the session is lost.
    pub fn unasked(&mut self, chunk: &[u8]) -> Result<()> {
        let mut at = 0;
        while let Some(message) = self.walker.next(chunk, &mut at)? {
            match message.tag {
                b'E' => drop(failed(ServerError::parse(message.body))?),
                b'N' => notice(&mut self.notices, &mut self.last_words, message.body),
                _ => {}
            }
        }
        Ok(())
    }

    /// The loss of a session whose connection ended.
    #[cold]
    pub fn closed(&self, error: Option<&io::Error>) -> Error {
        let what = error.map_or("the server closed the connection".to_owned(), ToString::to_string);
        Error::Lost(match &self.last_words {
            None => what,
            Some(words) => format!("{what}; its last notice: {words}"),
        })
    }

    /// Describes what came in place of an answer. `None` if nothing did.
    pub fn remark(&self) -> Option<String> {
        (self.notices > 0).then(|| format!("the server sent {} notices meanwhile", self.notices))
    }

    /// The walker, and where [`notice`] puts notices: apart, because a message borrows the walker.
    #[inline]
    pub fn parts(&mut self) -> (&mut Walker, &mut u64, &mut Option<String>) {
        (&mut self.walker, &mut self.notices, &mut self.last_words)
    }
}

/// Counts a notice, and keeps one that announces the session's end: an immediate shutdown sends no error, only this.
#[cold]
pub(crate) fn notice(notices: &mut u64, last_words: &mut Option<String>, body: &[u8]) {
    *notices += 1;
    let notice = ServerError::parse(body);
    if notice.sqlstate.starts_with(OPERATOR_INTERVENTION) {
        *last_words = Some(format!("{} ({})", notice.message, notice.code()));
    }
}

/// A failed call; a fatal error loses the session.
#[cold]
pub(crate) fn failed(error: ServerError) -> Result<CallEnd> {
    if error.fatal {
        return Err(error.into_session_error());
    }
    Ok(CallEnd::Failed {
        code: error.sqlstate,
        message: error.message,
    })
}
