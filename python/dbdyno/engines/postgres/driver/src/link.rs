//! A session's connection between two calls and within one: what all kinds of session share.

use std::io;

use dyno_model::poll::wait_for;
use dyno_model::{CallEnd, Error, Progress, Result};
use rustix::event::PollFlags;
use socket2::Socket;

use crate::client::Client;
use crate::frame::Walker;
use crate::server_error::ServerError;

/// Class of SQLSTATEs by which a server announces that it ends the session.
const OPERATOR_INTERVENTION: &[u8] = b"57";
/// Simple query, by the PostgreSQL documentation's "Message Formats".
pub(crate) const ROLLBACK: &[u8] = b"Q\x00\x00\x00\x0dROLLBACK\x00";

/// A connection, and what came over it unasked.
pub(crate) struct Link {
    pub client: Client,
    pub walker: Walker,
    /// Messages sent and waited for so far.
    pub round_trips: u64,
    /// Notices in place of the answer that is due.
    pub notices: u64,
    last_words: Option<String>,
    /// A read is to sleep in ppoll(2), see [`Link::recv`].
    polls: bool,
}

impl Link {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            walker: Walker::default(),
            round_trips: 0,
            notices: 0,
            last_words: None,
            polls: false,
        }
    }

    pub fn set_blocking(&mut self, blocking: bool) -> Result<()> {
        let socket = self.client.wire.socket();
        let is_unix = |socket: &Socket| Ok(socket.local_addr()?.is_unix());
        self.polls = socket
            .set_nonblocking(!blocking)
            .and_then(|()| is_unix(socket))
            .map_err(|e| Error::Io(e.to_string()))?
            && blocking;
        Ok(())
    }

    /// Reads what is there; in blocking mode waits for it.
    ///
    /// Not asleep in recv(2) on a unix socket: there the kernel wakes the reader not only when an answer has come, but also
    /// when the server has taken in the request and so made room to write (`unix_write_space` in `net/unix/af_unix.c`).
    /// ppoll(2) sleeps through that.
    #[inline]
    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.polls {
            wait_for(self.client.fd(), PollFlags::IN, None);
        }
        self.client.wire.recv(buffer)
    }

    /// Sends `bytes` from `sent` on; until all has left, the session is `sending`.
    #[expect(clippy::inline_always, reason = "the hot path; other uses are cold")]
    #[inline(always)]
    pub fn send(&mut self, bytes: &[u8], sent: &mut usize, sending: &mut bool) -> Result<Progress> {
        match self.send_all(bytes, sent) {
            Ok(()) => {
                *sending = false;
                Ok(Progress::Read)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                *sending = true;
                Ok(Progress::Write)
            }
            Err(e) => Err(self.broken(&e)),
        }
    }

    #[inline]
    fn send_all(&mut self, bytes: &[u8], sent: &mut usize) -> io::Result<()> {
        while *sent < bytes.len() {
            *sent += self.client.wire.send(&bytes[*sent..])?;
        }
        self.client.wire.flush()
    }

    /// Uses the blocking client between calls. What the server said unasked is not lost: a message that
    /// is half here is read to its end before, and what the client read too much of is looked at after.
    ///
    /// # Errors
    /// Those of `work`, or when the session is lost.
    pub fn with_client<T>(&mut self, work: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
        let mut buffer = [0; 4096];
        while !self.walker.is_between_messages() {
            match self.client.recv(&mut buffer)? {
                0 => return Err(self.closed(None)),
                n => self.unasked(&buffer[..n])?,
            }
        }
        let done = work(&mut self.client);
        let rest = self.client.take_rest();
        let taken = self.unasked(&rest);
        let value = done?;
        taken.map(|()| value)
    }

    /// Takes what no call waits for.
    pub fn unasked(&mut self, chunk: &[u8]) -> Result<()> {
        let mut at = 0;
        while let Some(message) = self.walker.next(chunk, &mut at)? {
            match message.tag {
                b'E' => drop(failed(ServerError::parse(message.body))?),
                b'N' => {
                    self.notices += 1;
                    note(&mut self.last_words, message.body);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The socket takes nothing more, for good: the server may have said why.
    #[cold]
    fn broken(&mut self, error: &io::Error) -> Error {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = self.client.wire.recv(&mut buffer) {
            if let Err(lost) = self.unasked(&buffer[..n]) {
                return lost;
            }
        }
        self.closed(Some(error))
    }

    #[cold]
    pub fn closed(&self, error: Option<&io::Error>) -> Error {
        let what = error.map_or("the server closed the connection".to_owned(), ToString::to_string);
        Error::Lost(match &self.last_words {
            None => what,
            Some(words) => format!("{what}; before that it said: {words}"),
        })
    }

    pub fn remark(&self) -> Option<String> {
        (self.notices > 0).then(|| format!("the server sent {} notices meanwhile", self.notices))
    }

    /// A notice within a call.
    #[cold]
    pub fn notice(notices: &mut u64, last_words: &mut Option<String>, body: &[u8]) {
        *notices += 1;
        note(last_words, body);
    }

    /// The walker, and where notices go: apart, because a message borrows the walker.
    #[inline]
    pub fn parts(&mut self) -> (&mut Walker, &mut u64, &mut Option<String>) {
        (&mut self.walker, &mut self.notices, &mut self.last_words)
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

/// Keeps a notice that announces the session's end (an immediate shutdown sends no error, only this).
#[cold]
fn note(last_words: &mut Option<String>, body: &[u8]) {
    let notice = ServerError::parse(body);
    if notice.sqlstate.starts_with(OPERATOR_INTERVENTION) {
        *last_words = Some(format!("{} ({})", notice.message, notice.code()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::Duration;

    const ROUNDS: i64 = 10;

    /// How often this thread has gone to sleep.
    fn sleeps() -> i64 {
        // SAFETY: the structure is valid for writing.
        unsafe {
            let mut usage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage.ru_nvcsw
        }
    }

    #[test]
    fn only_the_answer_wakes_who_waits_for_it() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                // By then the client is most likely asleep, and reading must not wake it.
                std::thread::sleep(Duration::from_millis(5));
                theirs.read_exact(&mut [0]).unwrap();
                std::thread::sleep(Duration::from_millis(5));
                theirs.write_all(b"a").unwrap();
            }
        });
        let mut link = Link::new(Client::new(Wire::Plain(Arc::new(OwnedFd::from(ours).into()))));
        link.set_blocking(true).unwrap();
        let before = sleeps();
        for _ in 0..ROUNDS {
            assert_eq!(link.client.wire.send(b"q").unwrap(), 1);
            assert_eq!(link.recv(&mut [0; 8]).unwrap(), 1);
        }
        let slept = sleeps() - before;
        assert!(slept < 2 * ROUNDS - 2, "slept {slept} times for {ROUNDS} answers");
        server.join().unwrap();
    }
}
