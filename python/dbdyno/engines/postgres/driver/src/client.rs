//! A blocking client for what is not measured: set-up, preparing, probes, activity.

use std::io;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use dyno_model::{Breaker, Error, Result};
use dyno_script::copies_with_client;
use postgres_protocol::message::frontend;

use crate::collector::Collector;
use crate::frame::Message;
use crate::machine::COPY;
use crate::server_error::ServerError;
use crate::socket::{self, lost};
use crate::wire::Wire;

const CHUNK_BYTES: usize = 16 * 1024;
/// Most memory of one answer, all its rows together. Rows that are dropped do not count.
const MOST_HELD: usize = 64 << 20;
/// Most memory of a row, and of a value, in addition to the bytes of the message.
pub(crate) const ROW_BYTES: usize = 512;
const VALUE_BYTES: usize = size_of::<Option<String>>() + 16;
/// Characters shown of a statement whose answer is too large.
const SHOWN_CHARACTERS: usize = 200;

/// A connection with a blocking socket.
pub struct Client {
    pub(crate) wire: Wire,
    incoming: Collector,
    /// Time limit of an answer.
    limit: Option<Duration>,
    deadline: Option<Instant>,
    /// Breaks this connection off, and others of the same user.
    pub(crate) breaker: Breaker,
    /// The server's process id for this session.
    pub backend_pid: Option<i64>,
    /// Key of a request to cancel: process id and secret, as the server sent them.
    pub(crate) key: Vec<u8>,
}

/// A result: names of the columns, and texts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Column names.
    pub columns: Vec<String>,
    /// Values in text form; `None` is NULL.
    pub rows: Vec<Vec<Option<String>>>,
}

impl Client {
    pub(crate) fn new(wire: Wire) -> Self {
        Self {
            wire,
            incoming: Collector::default(),
            limit: None,
            deadline: None,
            breaker: Breaker::default(),
            backend_pid: None,
            key: Vec::new(),
        }
    }

    /// Descriptor of the socket.
    #[inline]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wire.fd()
    }

    /// Sets the time limit of each answer, even if it trickles in or comes in floods. `None`: no limit.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn set_timeout(&mut self, limit: Option<Duration>) -> Result<()> {
        self.limit = limit;
        self.set_deadline(limit.map(|l| Instant::now() + l))
    }

    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<()> {
        self.deadline = deadline;
        self.wire.set_deadline(deadline);
        if deadline.is_none() {
            socket::set_timeout(self.wire.socket(), None).map_err(|e| Error::Io(e.to_string()))?;
        }
        Ok(())
    }

    /// Sets the longest message that is held, in bytes.
    pub(crate) fn set_longest(&mut self, bytes: usize) {
        self.incoming.longest = bytes;
    }

    /// Runs SQL by the simple protocol and drops its rows.
    ///
    /// # Errors
    /// [`Error::Server`], or [`Error::Lost`].
    pub fn execute(&mut self, sql: &str) -> Result<()> {
        self.incoming.without_rows = true;
        let done = self.query(sql, |_| {});
        self.incoming.without_rows = false;
        done
    }

    /// Runs statements by the simple protocol after a pause; rows are dropped.
    ///
    /// # Errors
    /// As [`Client::execute`].
    pub fn execute_after(&mut self, pause_ms: u64, statements: &[String]) -> Result<()> {
        std::thread::sleep(Duration::from_millis(pause_ms));
        statements.iter().try_for_each(|sql| self.execute(sql))
    }

    /// Runs SQL by the simple protocol; the last statement's rows.
    ///
    /// # Errors
    /// [`Error::Server`], or [`Error::Lost`].
    pub fn simple_query(&mut self, sql: &str) -> Result<Rows> {
        let mut result = Rows::default();
        self.query(sql, |message| match message.tag {
            b'T' => {
                result = Rows {
                    columns: column_names(message.body),
                    rows: Vec::new(),
                }
            }
            b'D' => result
                .rows
                .push(values(message.body).map(|v| v.map(text)).collect()),
            _ => {}
        })?;
        Ok(result)
    }

    /// Runs SQL by the simple protocol and shows each RowDescription and DataRow to `see`.
    pub(crate) fn query(&mut self, sql: &str, see: impl FnMut(Message<'_>)) -> Result<()> {
        let mut bytes = BytesMut::new();
        frontend::query(sql, &mut bytes).map_err(|e| Error::Spec(e.to_string()))?;
        self.round_trip(sql, &bytes, see)
    }

    /// Prepares `sql` under `name` for `parameters` parameters, their types left to the server.
    ///
    /// # Errors
    /// [`Error::Server`] with the position of a mistake; [`Error::Spec`] on another number of parameters
    /// and on COPY.
    pub fn prepare(&mut self, name: &str, sql: &str, parameters: usize) -> Result<()> {
        refuse_copy(sql)?;
        let mut bytes = BytesMut::new();
        frontend::parse(name, sql, [], &mut bytes)
            .and_then(|()| frontend::describe(b'S', name, &mut bytes))
            .map_err(|e| Error::Spec(e.to_string()))?;
        frontend::sync(&mut bytes);
        let mut wanted = None;
        self.round_trip(sql, &bytes, |message| {
            if message.tag == b't' {
                wanted = message
                    .body
                    .first_chunk()
                    .map(|n| usize::from(u16::from_be_bytes(*n)));
            }
        })?;
        match wanted {
            Some(n) if n != parameters => Err(Error::Spec(format!(
                "the statement has {n} parameters, {parameters} were given: {}",
                sql.trim()
            ))),
            _ => Ok(()),
        }
    }

    /// Sends, and shows each answer up to ReadyForQuery to `see`; the first error is returned after it. A connection whose
    /// answer is too large is shut down: what else it says would be taken for the next answer.
    fn round_trip(&mut self, sql: &str, bytes: &[u8], mut see: impl FnMut(Message<'_>)) -> Result<()> {
        if let Some(limit) = self.limit {
            self.set_deadline(Some(Instant::now() + limit))?;
        }
        self.send(bytes)?;
        let (mut failure, mut held) = (None, 0_usize);
        loop {
            let message = self.receive()?;
            if matches!(message.tag, b'T' | b'D' | b't') {
                held += size_in_memory(message.body);
                if held > MOST_HELD {
                    let _ = self.wire.socket().shutdown(Shutdown::Both); // closed already: nothing to shut down
                    return Err(too_large(sql));
                }
            }
            match message.tag {
                b'Z' => return failure.map_or(Ok(()), Err),
                b'E' => {
                    let error = ServerError::parse(message.body).into_session_error();
                    if matches!(error, Error::Lost(_)) {
                        return Err(error);
                    }
                    failure.get_or_insert(error);
                }
                b'G' | b'H' | b'W' => return Err(Error::Spec(COPY.to_owned())),
                _ => see(message),
            }
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.arm()
            .and_then(|()| self.wire.send_all(bytes))
            .map_err(|e| lost(&e))
    }

    /// Reads what is there; waits until something is.
    pub(crate) fn recv(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.arm()
            .and_then(|()| self.wire.recv(buffer))
            .map_err(|e| lost(&e))
    }

    /// The socket gives up at the deadline.
    fn arm(&self) -> io::Result<()> {
        self.deadline
            .map_or(Ok(()), |deadline| socket::arm(self.wire.socket(), deadline))
    }

    /// The next message.
    pub(crate) fn receive(&mut self) -> Result<Message<'_>> {
        let mut chunk = [0; CHUNK_BYTES];
        while !self.incoming.is_ready()? {
            match self.recv(&mut chunk)? {
                0 => return Err(Error::Lost("the server closed the connection".to_owned())),
                n => self.incoming.push(&chunk[..n]),
            }
        }
        Ok(self.incoming.take())
    }

    /// Returns what was read behind the last ReadyForQuery.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.incoming).into_rest()
    }

    /// Ends the session as [`Self::terminate`] does, and the connection.
    pub fn close(mut self) {
        self.terminate();
    }

    /// Sends Terminate; the server ends the session by itself, and does not count it as abandoned.
    pub(crate) fn terminate(&mut self) {
        let mut bytes = BytesMut::new();
        frontend::terminate(&mut bytes);
        // Nobody is left to tell if this fails.
        let _ = self.wire.send_all(&bytes);
    }
}

/// Memory of a row or of its description: both begin with the number of columns.
fn size_in_memory(body: &[u8]) -> usize {
    let columns = body
        .first_chunk()
        .map_or(0, |n| usize::from(u16::from_be_bytes(*n)));
    ROW_BYTES + body.len() + columns * VALUE_BYTES
}

#[cold]
fn too_large(sql: &str) -> Error {
    let shown: String = sql.trim().chars().take(SHOWN_CHARACTERS).collect();
    Error::Lost(format!(
        "the server's answer takes more than {} MiB, the limit for what is asked beside the calls: {shown}",
        MOST_HELD >> 20
    ))
}

/// COPY from the client would wait for data that never comes, and one to it send what nobody reads: refused before
/// the server sees it.
fn refuse_copy(sql: &str) -> Result<()> {
    if copies_with_client(sql) {
        return Err(Error::Spec(COPY.to_owned()));
    }
    Ok(())
}

/// Names of a RowDescription: after each name and its zero come 18 bytes.
pub(crate) fn column_names(body: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some(end) = rest.iter().position(|&b| b == 0) {
        names.push(text(&rest[..end]));
        rest = rest.get(end + 19..).unwrap_or_default();
    }
    names
}

/// Values of a DataRow; `None` is NULL.
pub(crate) fn values(body: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = body.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let value = after.get(..length.unwrap_or(0))?;
        rest = &after[value.len()..];
        Some(length.map(|_| value))
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
