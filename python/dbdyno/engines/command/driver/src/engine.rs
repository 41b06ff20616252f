//! Commands as an engine of the driver.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use dyno_model::{Breaker, Counter, Engine, Error, Reading, Refusal, Result, Table, count_sessions};
use serde::Deserialize;

use crate::launcher::{control_socket, send_descriptor};
use crate::plan::Plan;
use crate::protocol::{Frames, Hello, Job, frame};
use crate::session::CommandSession;
use crate::tables;

/// Time that the launcher has to take a session in.
const PATIENCE: Duration = Duration::from_secs(10);
/// Kept of what one execution prints: both streams must fit into a frame.
const MOST_OUTPUT: usize = 16 << 20;

/// The engine's half of a load's specification.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// Descriptor of the launcher's control socket.
    pub control: RawFd,
    /// Number of sessions.
    pub sessions: usize,
    /// Jobs that they run in turn.
    pub jobs: Vec<Job>,
    /// The next job is whoever's turn it is, of all sessions together.
    #[serde(default)]
    pub in_turn: bool,
    /// Bytes kept of what each prints.
    #[serde(default)]
    pub keep_output: usize,
    /// The run's id.
    #[serde(default)]
    pub run: String,
}

/// Makes sessions at a launcher.
pub struct Commands {
    control: OwnedFd,
    plan: Arc<Plan>,
    spec: CommandSpec,
    breaker: Breaker,
}

impl Commands {
    /// Checks the specification; starts nothing yet.
    ///
    /// # Errors
    /// [`Error::Spec`] for a load without sessions or jobs, or a number that is no control socket.
    pub fn new(spec: CommandSpec) -> Result<Self> {
        count_sessions([spec.sessions])?;
        if spec.jobs.is_empty() {
            return Err(Error::Spec("commands: no jobs".to_owned()));
        }
        if spec.keep_output > MOST_OUTPUT {
            let words = format!("keep_output: give at most {MOST_OUTPUT} bytes");
            return Err(Error::Spec(words));
        }
        if let Some(job) = spec.jobs.iter().find(|job| job.shell_ns < 0) {
            let words = format!("job {}: shell_ns is a time, from 0 on", job.name);
            return Err(Error::Spec(words));
        }
        let control = control_socket(spec.control)?;
        let plan = Plan::new(spec.jobs.clone(), spec.in_turn);
        Ok(Self {
            control,
            plan: Arc::new(plan),
            spec,
            breaker: Breaker::default(),
        })
    }

    fn hello(&self, session: usize) -> Result<Vec<u8>> {
        let hello = Hello {
            session,
            run: self.spec.run.clone(),
            keep_output: self.spec.keep_output,
            jobs: self.spec.jobs.clone(),
        };
        serde_json::to_vec(&hello)
            .map(|body| frame(&body))
            .map_err(|e| Error::Spec(e.to_string()))
    }

    /// Hands the other end of a session's socket to the launcher.
    fn reach(&self, session: usize, ours: &UnixStream, theirs: UnixStream) -> std::io::Result<()> {
        send_descriptor(self.control.as_fd(), &theirs)?;
        drop(theirs);
        ours.set_read_timeout(Some(PATIENCE))?;
        ours.set_write_timeout(Some(PATIENCE))?;
        (&*ours).write_all(&self.hello(session).map_err(std::io::Error::other)?)
    }
}

/// The answer to a hello.
fn answer(mut socket: &UnixStream) -> Result<Vec<u8>> {
    let (mut frames, mut buffer) = (Frames::default(), [0; 4096]);
    loop {
        if let Some(body) = frames.next()? {
            return Ok(body);
        }
        match socket.read(&mut buffer) {
            Ok(n) if n > 0 => frames.feed(&buffer[..n]),
            other => return Err(unreachable(other.err().as_ref())),
        }
    }
}

fn unreachable(error: Option<&std::io::Error>) -> Error {
    let reason = error.map_or_else(String::new, |e| format!(": {e}"));
    Error::Lost(format!("the launcher of commands does not answer{reason}"))
}

fn refused(message: String) -> Error {
    Error::Server {
        code: "START".to_owned(),
        refusal: Refusal::Statement,
        message,
        position: None,
    }
}

impl Engine for Commands {
    type Session = CommandSession;

    fn sessions(&self) -> usize {
        self.spec.sessions
    }

    fn connect(&self, session: usize) -> Result<CommandSession> {
        let breaker = self.breaker.child()?;
        let (ours, theirs) = UnixStream::pair().map_err(|e| unreachable(Some(&e)))?;
        let socket = Arc::new(ours);
        breaker.watch(&socket)?;
        let reached = self
            .reach(session, &socket, theirs)
            .map_err(|e| unreachable(Some(&e)));
        let words = reached
            .and_then(|()| answer(&socket))
            .map_err(|e| if breaker.is_broken() { Error::Aborted } else { e })?;
        if !words.is_empty() {
            return Err(refused(String::from_utf8_lossy(&words).into_owned()));
        }
        let patient = socket
            .set_read_timeout(None)
            .and_then(|()| socket.set_write_timeout(None));
        patient.map_err(|e| unreachable(Some(&e)))?;
        Ok(CommandSession::new(socket, breaker, self.plan.clone(), session))
    }

    fn prepare(&self, _session: usize, _connection: &mut CommandSession) -> Result<()> {
        Ok(())
    }

    fn counters(&self) -> &[Counter] {
        &[]
    }

    fn probe(&self, _connection: &mut CommandSession) -> Vec<Reading> {
        Vec::new()
    }

    fn scripts(&self) -> Vec<(String, u64)> {
        self.spec.jobs.iter().map(|job| (job.name.clone(), 1)).collect()
    }

    fn tables(&self, sessions: &[CommandSession]) -> Vec<Table> {
        tables::all(&self.plan, sessions)
    }

    fn close(&self, connection: CommandSession) {
        drop(connection);
    }

    fn abort(&self) {
        self.breaker.abort();
    }
}
