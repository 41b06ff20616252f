//! A session over a socket pair whose other end is a thread of known behaviour.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dyno_model::{
    Breaker, CallEnd, Counter, Engine, Error, Progress, Reading, Result, Session, Start, TaskId,
};

/// The other end's reaction to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Well,
    After(Duration),
    Failed,
    HangUp,
    Never,
}

/// The behaviour of session `.0` at its request `.1` (from 0).
pub type Behaviour = dyn Fn(usize, u64) -> Answer + Send + Sync;

pub type Closed = dyn Fn(RawFd) + Send + Sync;

/// Counts what the other end answered, session by session.
#[derive(Clone)]
pub struct Peers {
    pub served: Arc<Vec<AtomicU64>>,
    behaviour: Arc<Behaviour>,
    /// Each session makes calls of these in turn, and tries each third call three times.
    pub scripts: usize,
    /// Each session connects again before each of its calls.
    pub reconnect: bool,
    /// Called after each reconnection with the number of the descriptor that was closed.
    pub closed: Option<Arc<Closed>>,
}

impl Peers {
    pub fn new(sessions: usize, behaviour: impl Fn(usize, u64) -> Answer + Send + Sync + 'static) -> Self {
        let served = (0..sessions).map(|_| AtomicU64::new(0)).collect();
        Self {
            served: Arc::new(served),
            behaviour: Arc::new(behaviour),
            scripts: 0,
            reconnect: false,
            closed: None,
        }
    }

    pub fn served(&self, session: usize) -> u64 {
        self.served[session].load(SeqCst)
    }

    fn connection(&self, number: usize, breaker: &Breaker) -> Result<Arc<UnixStream>> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours = Arc::new(ours);
        breaker.watch(&ours)?;
        let peers = self.clone();
        std::thread::spawn(move || peers.serve(number, theirs));
        Ok(ours)
    }

    pub fn session(&self, number: usize) -> FakeSession {
        let breaker = Breaker::default();
        FakeSession {
            socket: self.connection(number, &breaker).unwrap(),
            breaker,
            again: self.reconnect.then(|| self.clone()),
            blocking: true,
            new: false,
            number,
            word: b' ',
            scripts: self.scripts,
            begun: 0,
        }
    }

    pub fn sessions(&self) -> Vec<FakeSession> {
        (0..self.served.len()).map(|i| self.session(i)).collect()
    }

    fn serve(&self, number: usize, mut socket: UnixStream) {
        let mut request = [0];
        while let Ok(1) = socket.read(&mut request) {
            let word = match (self.behaviour)(number, self.served(number)) {
                Answer::Well => b'o',
                Answer::Failed => b'e',
                Answer::After(pause) => {
                    std::thread::sleep(pause);
                    b'o'
                }
                Answer::HangUp => return,
                Answer::Never => continue,
            };
            // Two writes: an answer in pieces.
            self.served[number].fetch_add(1, SeqCst);
            if socket.write_all(&[word]).is_err() || socket.write_all(b".").is_err() {
                return;
            }
        }
    }
}

/// Sends one byte, reads two: a word and a full stop.
pub struct FakeSession {
    socket: Arc<UnixStream>,
    breaker: Breaker,
    number: usize,
    word: u8,
    scripts: usize,
    begun: u64,
    again: Option<Peers>,
    blocking: bool,
    new: bool,
}

impl Session for FakeSession {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn breaker(&self) -> Breaker {
        self.breaker.clone()
    }

    fn fd_changed(&mut self) -> bool {
        std::mem::take(&mut self.new)
    }

    fn set_blocking(&mut self, blocking: bool) -> Result<()> {
        self.blocking = blocking;
        self.socket
            .set_nonblocking(!blocking)
            .map_err(|e| Error::Io(e.to_string()))
    }

    fn begin(&mut self, _start: Start) -> Result<Progress> {
        self.begun += 1;
        if let Some(peers) = &self.again {
            let number = self.socket.as_raw_fd();
            self.socket = peers.connection(self.number, &self.breaker)?;
            if let Some(closed) = &peers.closed {
                closed(number);
            }
            self.new = true;
            self.set_blocking(self.blocking)?;
        }
        (&*self.socket)
            .write_all(b"?")
            .map(|()| Progress::Read)
            .map_err(|e| Error::Lost(e.to_string()))
    }

    fn advance(&mut self, buffer: &mut [u8]) -> Result<Progress> {
        loop {
            match (&*self.socket).read(&mut buffer[..1]) {
                Ok(0) => return Err(Error::Lost("hung up".into())),
                Ok(_) if buffer[0] == b'.' => return Ok(Progress::Done(end(self.word))),
                Ok(_) => self.word = buffer[0],
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Progress::Read),
                Err(e) => return Err(Error::Lost(e.to_string())),
            }
        }
    }

    fn scripts(&self) -> usize {
        self.scripts
    }

    fn script(&self) -> usize {
        (self.begun as usize).checked_rem(self.scripts).unwrap_or(0)
    }

    fn retries(&self) -> u64 {
        if self.begun.is_multiple_of(3) { 2 } else { 0 }
    }

    fn backend(&self) -> Option<TaskId> {
        Some(TaskId::main(1000 + self.number as i64))
    }
}

fn end(word: u8) -> CallEnd {
    match word {
        b'o' => CallEnd::Ok,
        _ => CallEnd::Failed {
            code: *b"40001",
            message: "no luck".into(),
        },
    }
}

/// An engine of such sessions; its one counter is what the other end served.
pub struct FakeEngine {
    pub peers: Peers,
    pub refuse: Option<usize>,
    pub counters: Vec<Counter>,
    pub open: Mutex<Vec<UnixStream>>,
}

impl FakeEngine {
    pub fn new(peers: Peers) -> Self {
        let counter = Counter {
            name: "served".into(),
            kind: "counter".into(),
            unit: "count".into(),
        };
        Self {
            peers,
            refuse: None,
            counters: vec![counter],
            open: Mutex::default(),
        }
    }
}

impl Engine for FakeEngine {
    type Session = FakeSession;

    fn sessions(&self) -> usize {
        self.peers.served.len()
    }

    fn connect(&self, session: usize) -> Result<FakeSession> {
        if self.refuse == Some(session) {
            return Err(Error::Unreachable("refused".into()));
        }
        let made = self.peers.session(session);
        self.open.lock().unwrap().push(made.socket.try_clone().unwrap());
        Ok(made)
    }

    fn prepare(&self, _: usize, _: &mut FakeSession) -> Result<()> {
        Ok(())
    }

    fn counters(&self) -> &[Counter] {
        &self.counters
    }

    fn probe(&self, connection: &mut FakeSession) -> Vec<Reading> {
        vec![Reading {
            value: Some(self.peers.served(connection.number) as f64),
            status: "ok",
        }]
    }

    fn scripts(&self) -> Vec<(String, u64)> {
        (0..self.peers.scripts as u64)
            .map(|i| (format!("script-{i}"), i + 1))
            .collect()
    }

    fn close(&self, connection: FakeSession) {
        drop(connection);
    }

    fn abort(&self) {
        self.open
            .lock()
            .unwrap()
            .iter()
            .for_each(|s| drop(s.shutdown(Shutdown::Both)));
    }
}
