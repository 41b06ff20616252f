//! A session that runs scripts. One message is sent and one answer read a statement, as for constant calls.

use std::sync::Arc;

use dyno_model::{Breaker, CallEnd, Error, Result, Start};
use dyno_script::{Action, Frame, Rng};

use crate::client::Client;
use crate::link::Link;
use crate::machine::{COPY, Incoming, Machine, Step, failed, notice};
use crate::script::commands::CommandTally;
use crate::script::out::Out;
use crate::script::plan::Plan;
use crate::script::rows::Results;
use crate::server::Server;
use crate::server_error::ServerError;

/// `ReadyForQuery`'s word where no transaction is open.
pub(super) const IDLE: u8 = b'I';
/// The thing that the machine waits for.
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
    /// The end of a pause.
    Instant,
}

/// One connected session that runs scripts.
pub type ScriptSession = Link<ScriptCalls>;

/// Calls that run scripts.
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub struct ScriptCalls {
    pub(super) incoming: Incoming,
    /// Breaks off a shell command.
    pub(super) breaker: Breaker,
    pub(super) plan: Arc<Plan>,
    pub(super) frame: Frame,
    /// The frame at the start of the call, where calls may be tried again.
    pub(super) saved: Option<Frame>,
    pub(super) chooser: Rng,
    pub(super) script: usize,
    /// The command under way, and the first that is no more the script's.
    pub(super) at: usize,
    pub(super) end: usize,
    pub(super) waiting: Waiting,
    /// Bytes of the present message, and how many of them are sent.
    pub(super) out: Out,
    pub(super) sent: usize,
    /// `ReadyForQuery` still to come.
    pub(super) due: usize,
    /// Status of the last `ReadyForQuery`.
    pub(super) status: u8,
    pub(super) pipeline: bool,
    pub(super) validated: bool,
    pub(super) failure: Option<([u8; 5], String)>,
    pub(super) retries: u64,
    pub(super) no_try_from_ns: Option<i64>,
    /// For each statement: whether the server knows it by its name.
    pub(super) known: Vec<bool>,
    pub(super) results: Results,
    pub(super) used: bool,
    pub(super) round_trips: u64,
    pub(super) measured: bool,
    /// Instant since which the present command runs.
    pub(super) since_ns: i64,
    /// Instant at which the call ended, if the clock was read then.
    pub(super) ended_ns: Option<i64>,
    pub(super) tallies: Vec<CommandTally>,
    /// Connections made within measured calls, and how long that took.
    pub(crate) reconnects: (u64, i64),
}

impl ScriptSession {
    pub(crate) fn new(client: Client, plan: Arc<Plan>, session: usize, server: Option<Arc<Server>>) -> Self {
        let calls = ScriptCalls::new(plan, session, client.breaker.clone());
        Self::over(client, calls, server)
    }
}

impl ScriptCalls {
    /// The calls of a session's plan, on a connection that is ready.
    pub(crate) fn new(plan: Arc<Plan>, session: usize, breaker: Breaker) -> Self {
        let frame = plan.frame(session);
        Self {
            incoming: Incoming::default(),
            breaker,
            saved: (plan.scripts.max_tries != 1).then(|| frame.clone()),
            frame,
            chooser: plan.chooser(session),
            script: 0,
            at: 0,
            end: 0,
            waiting: Waiting::Nothing,
            out: Out::default(),
            sent: 0,
            due: 0,
            status: IDLE,
            pipeline: false,
            validated: false,
            failure: None,
            retries: 0,
            no_try_from_ns: None,
            known: vec![false; plan.statements.len()],
            results: Results::default(),
            used: false,
            round_trips: 0,
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

    #[expect(clippy::inline_always, reason = "the hot path; other uses are rare")]
    #[inline(always)]
    pub(super) fn send(&mut self, waiting: Waiting) -> Step {
        self.waiting = waiting;
        self.sent = 0;
        self.round_trips += 1;
        Step::Send
    }

    /// Takes a chunk of the answer; true: the last `ReadyForQuery` that was due was in it.
    #[expect(clippy::inline_always, reason = "the hot path; other uses are cold")]
    #[inline(always)]
    fn take(&mut self, chunk: &[u8]) -> Result<bool> {
        let (mut at, mut ready) = (0, false);
        let plan = &self.plan;
        let (walker, notices, last_words) = self.incoming.parts();
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
                b'N' => notice(notices, last_words, message.body),
                _ => return Err(Error::Lost(COPY.to_owned())),
            }
        }
        Ok(ready)
    }
}

impl Machine for ScriptCalls {
    const READS_WHILE_SENDING: bool = true;
    const RECONNECTS: bool = true;

    #[inline]
    fn begin(&mut self, start: Start) -> Result<Step> {
        self.incoming.notices = 0;
        (self.retries, self.validated, self.ended_ns) = (0, false, None);
        (self.measured, self.since_ns) = (start.measured, start.now_ns);
        self.no_try_from_ns = start.no_try_from_ns;
        self.script = self.plan.choose(&mut self.chooser);
        let place = &self.plan.places[self.script];
        (self.at, self.end) = (place.start, place.end);
        if let Some(saved) = &mut self.saved {
            saved.clone_from(&self.frame);
        }
        if self.plan.scripts.reconnect && std::mem::replace(&mut self.used, true) {
            return Ok(Step::Reconnect);
        }
        self.run()
    }

    #[inline]
    fn pending(&self) -> &[u8] {
        &self.out.bytes()[self.sent..]
    }

    #[inline]
    fn sent(&mut self, count: usize) {
        self.sent += count;
    }

    #[expect(clippy::inline_always, reason = "the hot path; other uses are cold")]
    #[inline(always)]
    fn feed(&mut self, chunk: &[u8]) -> Result<Step> {
        // While a part is still to be sent, no answer can be the last.
        if self.take(chunk)? && self.sent == self.out.len() {
            return self.ready();
        }
        Ok(Step::Read)
    }

    fn resume(&mut self) -> Result<Step> {
        if self.waiting == Waiting::Instant {
            self.timed();
            self.at += 1;
        }
        self.run()
    }

    fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    fn incoming_mut(&mut self) -> &mut Incoming {
        &mut self.incoming
    }

    fn round_trips(&self) -> u64 {
        self.round_trips
    }

    fn setup(&self) -> &[String] {
        &self.plan.session.setup
    }

    fn reconnected(&mut self, begin_ns: i64, now_ns: i64) {
        // Prepared statements end with their connection.
        self.known.fill(false);
        self.status = IDLE;
        if self.measured {
            self.reconnects.0 += 1;
            self.reconnects.1 += now_ns - begin_ns;
        }
        self.since_ns = now_ns;
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
}
