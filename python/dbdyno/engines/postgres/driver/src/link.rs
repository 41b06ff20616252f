//! A connection with the machine that speaks over it: the adapter of calls without I/O to a socket and to the driver.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use dyno_model::poll::wait_for;
use dyno_model::{Breaker, Error, Progress, Reading, Result, Session, Start, TaskId, Traffic, now_ns};
use rustix::event::PollFlags;
use socket2::Socket;

use crate::client::Client;
use crate::machine::{Incoming, Machine, Step};
use crate::server::{SETUP_TIMEOUT, Server};

/// Bytes that fit into the buffers of a socket, whatever the server does meanwhile.
const SAFE_BYTES: usize = 32 * 1024;

/// The event for which the driver is to call [`Session::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// Nothing: no call is under way.
    Nothing,
    /// The answer.
    Answer,
    /// Room in the socket: not all is sent, or not all has left TLS's buffer.
    Room,
    /// An instant.
    Instant(i64),
}

/// A connected session whose calls are those of `M`.
pub struct Link<M> {
    pub(crate) client: Client,
    pub(crate) machine: M,
    /// Server to connect to again.
    server: Option<Arc<Server>>,
    waiting: Waiting,
    blocking: bool,
    /// A read is to sleep in ppoll(2), see [`Link::recv`].
    polls: bool,
    /// The connection was replaced, and the driver does not know yet.
    replaced: bool,
    /// Bytes that calls sent and received.
    traffic: Traffic,
}

impl<M: Machine> Link<M> {
    pub(crate) fn over(client: Client, machine: M, server: Option<Arc<Server>>) -> Self {
        Self {
            client,
            machine,
            server,
            waiting: Waiting::Nothing,
            blocking: true,
            polls: false,
            replaced: false,
            traffic: Traffic::default(),
        }
    }

    /// Reads what is there; in blocking mode waits for it.
    ///
    /// Not asleep in recv(2) on a unix socket: there the kernel wakes the reader not only when an answer has come, but also
    /// when the server has taken in the request and so made room to write (`unix_write_space` in `net/unix/af_unix.c`).
    /// ppoll(2) sleeps through that.
    #[inline]
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.polls {
            wait_for(self.client.fd(), PollFlags::IN, None);
        }
        self.client.wire.recv(buffer)
    }

    /// Does what the machine needs next, as far as that is possible without waiting.
    #[expect(clippy::inline_always, reason = "the hot path; other uses are rare")]
    #[inline(always)]
    fn follow(&mut self, step: Step) -> Result<Progress> {
        match step {
            Step::Send if !(M::READS_WHILE_SENDING && self.must_exchange()) => self.send(),
            Step::Done(end) => {
                self.waiting = Waiting::Nothing;
                Ok(Progress::Done(end))
            }
            Step::Send => self.exchange(),
            Step::Read => {
                self.waiting = Waiting::Answer;
                Ok(Progress::Read)
            }
            Step::Sleep(until_ns) => {
                self.waiting = Waiting::Instant(until_ns);
                Ok(Progress::Sleep(until_ns))
            }
            Step::Reconnect => self.reconnect(),
        }
    }

    /// True if a server that waits until its answers are read might keep us from sending, and from reading.
    #[inline]
    fn must_exchange(&self) -> bool {
        self.blocking && self.machine.pending().len() > SAFE_BYTES
    }

    #[expect(clippy::inline_always, reason = "the hot path; other uses are cold")]
    #[inline(always)]
    fn send(&mut self) -> Result<Progress> {
        // Counted as a whole, since a count after each part would take registers from the loop.
        self.traffic.sent += self.machine.pending().len() as u64;
        match self.send_all() {
            Ok(()) => {
                self.waiting = Waiting::Answer;
                Ok(Progress::Read)
            }
            Err(e) => self.unsent(&e),
        }
    }

    /// The socket did not take all.
    #[cold]
    fn unsent(&mut self, error: &io::Error) -> Result<Progress> {
        self.traffic.sent -= self.machine.pending().len() as u64;
        if error.kind() == io::ErrorKind::WouldBlock {
            self.waiting = Waiting::Room;
            return Ok(Progress::Write);
        }
        Err(self.broken(error))
    }

    #[inline]
    fn send_all(&mut self) -> io::Result<()> {
        loop {
            let pending = self.machine.pending();
            // Asked for anew after each part: only the machine knows how much is left.
            let count = self.client.wire.send(pending)?;
            let is_all = count == pending.len();
            self.machine.sent(count);
            if is_all {
                return self.client.wire.flush();
            }
        }
    }

    /// Sends the rest.
    #[cold]
    fn push(&mut self) -> Result<Progress> {
        self.send()
    }

    /// Sends in blocking mode what the socket may not hold: reads meanwhile, or a server that waits until its
    /// answers are read would wait for ever.
    #[cold]
    fn exchange(&mut self) -> Result<Progress> {
        self.set_socket_blocking(false)?;
        let mut buffer = vec![0; SAFE_BYTES];
        let mut sent = self.push();
        while sent == Ok(Progress::Write) {
            self.drain(&mut buffer)?;
            wait_for(self.client.fd(), PollFlags::IN | PollFlags::OUT, None);
            sent = self.push();
        }
        self.set_socket_blocking(true)?;
        sent
    }

    /// Reads what is there while more is to be sent: it cannot be all.
    #[cold]
    fn drain(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.read_all(buffer, |machine, chunk| machine.feed(chunk).map(drop))
    }

    /// Reads until the socket is empty.
    fn read_all(&mut self, buffer: &mut [u8], take: fn(&mut M, &[u8]) -> Result<()>) -> Result<()> {
        loop {
            match self.client.wire.recv(buffer) {
                Ok(0) => return Err(self.machine.incoming().closed(None)),
                Ok(n) => {
                    self.traffic.received += n as u64;
                    take(&mut self.machine, &buffer[..n])?;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(self.machine.incoming().closed(Some(&e))),
            }
        }
    }

    /// The socket takes nothing more, for good: the server may have sent the reason.
    #[cold]
    fn broken(&mut self, error: &io::Error) -> Error {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = self.client.wire.recv(&mut buffer) {
            if let Err(lost) = self.machine.incoming_mut().unasked(&buffer[..n]) {
                return lost;
            }
        }
        self.machine.incoming().closed(Some(error))
    }

    /// The descriptor is ready, or an instant has come, where no answer is waited for.
    #[cold]
    fn advance_otherwise(&mut self, buffer: &mut [u8]) -> Result<Progress> {
        match self.waiting {
            Waiting::Instant(until_ns) if now_ns() >= until_ns => {
                let step = self.machine.resume()?;
                self.follow(step)
            }
            Waiting::Room => {
                let sent = self.push()?;
                if sent == Progress::Read {
                    return self.advance(buffer);
                }
                if M::READS_WHILE_SENDING {
                    self.drain(buffer)?;
                }
                Ok(sent)
            }
            _ => {
                let unasked = |machine: &mut M, chunk: &[u8]| machine.incoming_mut().unasked(chunk);
                self.read_all(buffer, unasked).map(|()| Progress::Read)
            }
        }
    }

    /// Reads until the answer is whole or the socket says that it is empty: a short read is no proof of that.
    /// The end of the stream may wait behind it, and its edge is past.
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> Result<Progress> {
        loop {
            let n = match self.recv(buffer) {
                Ok(0) => return Err(self.machine.incoming().closed(None)),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Read),
                Err(e) => return Err(self.machine.incoming().closed(Some(&e))),
            };
            self.traffic.received += n as u64;
            match self.machine.feed(&buffer[..n])? {
                Step::Read => {}
                step => return self.follow(step),
            }
        }
    }

    /// A connection of the next call's own. In blocking mode, so that it is as fast as it can be; its thread's other
    /// sessions wait meanwhile, as in pgbench.
    #[cold]
    fn reconnect(&mut self) -> Result<Progress> {
        if let Some(server) = self.server.clone() {
            let begin_ns = now_ns();
            let mut client = lost(server.connect_again(&self.client.breaker))?;
            lost(client.set_timeout(Some(SETUP_TIMEOUT)))?;
            for sql in self.machine.setup() {
                lost(client.execute(sql))?;
            }
            client.set_timeout(None)?;
            std::mem::replace(&mut self.client, client).close();
            *self.machine.incoming_mut() = Incoming::default();
            self.set_socket_blocking(self.blocking)?;
            self.replaced = true;
            self.machine.reconnected(begin_ns, now_ns());
        }
        let step = self.machine.resume()?;
        self.follow(step)
    }

    fn set_socket_blocking(&mut self, blocking: bool) -> Result<()> {
        let socket = self.client.wire.socket();
        let is_unix = |socket: &Socket| Ok(socket.local_addr()?.is_unix());
        self.polls = socket
            .set_nonblocking(!blocking)
            .and_then(|()| is_unix(socket))
            .map_err(|e| Error::Io(e.to_string()))?
            && blocking;
        Ok(())
    }

    /// Uses the blocking client between calls. What the server sent unasked is not lost: a message that
    /// is half here is read to its end before, and what the client read too much of is looked at after.
    ///
    /// # Errors
    /// Those of `work`, or when the session is lost.
    pub(crate) fn with_client<T>(&mut self, work: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
        let mut buffer = [0; 4096];
        while !self.machine.incoming().walker.is_between_messages() {
            match self.client.recv(&mut buffer)? {
                0 => return Err(self.machine.incoming().closed(None)),
                n => self.machine.incoming_mut().unasked(&buffer[..n])?,
            }
        }
        let done = work(&mut self.client);
        let rest = self.client.take_rest();
        let taken = self.machine.incoming_mut().unasked(&rest);
        let value = done?;
        taken.map(|()| value)
    }

    /// Reads each of the server's counters.
    pub(crate) fn probe(&mut self, server: &Server) -> Vec<Reading> {
        if server.counters.is_empty() {
            return Vec::new();
        }
        self.with_client(|client| server.probe(client))
            .unwrap_or_else(|e| server.unknown(&e))
    }
}

/// Within the load, a session without a connection is lost.
fn lost<T>(done: Result<T>) -> Result<T> {
    done.map_err(|e| match e {
        Error::Aborted | Error::Lost(_) => e,
        other => Error::Lost(format!("cannot connect again: {other}")),
    })
}

impl<M: Machine> Session for Link<M> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.client.fd()
    }

    fn breaker(&self) -> Breaker {
        self.client.breaker.clone()
    }

    fn set_blocking(&mut self, blocking: bool) -> Result<()> {
        self.blocking = blocking;
        self.set_socket_blocking(blocking)
    }

    #[inline]
    fn begin(&mut self, start: Start) -> Result<Progress> {
        let step = self.machine.begin(start)?;
        self.follow(step)
    }

    #[inline]
    fn advance(&mut self, buffer: &mut [u8]) -> Result<Progress> {
        if self.waiting != Waiting::Answer {
            return self.advance_otherwise(buffer);
        }
        self.read(buffer)
    }

    fn backend(&self) -> Option<TaskId> {
        self.client.backend_pid.map(TaskId::main)
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.machine.round_trips())
    }

    fn traffic(&self) -> Option<Traffic> {
        Some(self.traffic)
    }

    fn scripts(&self) -> usize {
        self.machine.scripts()
    }

    #[inline]
    fn script(&self) -> usize {
        self.machine.script()
    }

    #[inline]
    fn ended_ns(&self) -> Option<i64> {
        self.machine.ended_ns()
    }

    #[inline]
    fn retries(&self) -> u64 {
        self.machine.retries()
    }

    #[inline]
    fn fd_changed(&mut self) -> bool {
        M::RECONNECTS && std::mem::take(&mut self.replaced)
    }

    fn remark(&self) -> Option<String> {
        self.machine.incoming().remark()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::session::PgSession;
    use crate::wire::Wire;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
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
        let client = Client::new(Wire::Plain(Arc::new(OwnedFd::from(ours).into())));
        let spec = serde_json::from_str(r#"{"call": [{"sql": "select 1"}]}"#).unwrap();
        let mut link = PgSession::new(client, Arc::new(Plan::new(spec).unwrap()));
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
