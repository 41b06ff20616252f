//! The hot path: bytes built before, an answer of which only the headers are read.

use std::sync::Arc;

use dyno_model::{CallEnd, Error, Progress, Result, Session, Start};

use crate::client::Client;
use crate::link::Link;
use crate::machine::{COPY, Incoming, Machine, ROLLBACK, Step, failed, notice};
use crate::plan::Plan;
use crate::server_error::ServerError;

/// ReadyForQuery's word for a failed transaction.
const FAILED_TRANSACTION: u8 = b'E';

/// One connected session that makes constant calls.
pub type PgSession = Link<ConstantCalls>;

/// Calls that are the same each time.
pub struct ConstantCalls {
    plan: Arc<Plan>,
    incoming: Incoming,
    /// Which statement of the call is under way; past the end: the ROLLBACK after a failed one.
    step: usize,
    /// Number of bytes of its message that are sent.
    sent: usize,
    /// `ReadyForQuery` still to come: one a statement of a pipeline.
    due: usize,
    failure: Option<CallEnd>,
    round_trips: u64,
}

impl PgSession {
    pub(crate) fn new(client: Client, plan: Arc<Plan>) -> Self {
        Self::over(client, ConstantCalls::new(plan), None)
    }

    /// Makes one whole call, in blocking mode.
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
}

impl ConstantCalls {
    /// The calls of a plan, on a connection that is ready.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            plan,
            incoming: Incoming::default(),
            step: 0,
            sent: 0,
            due: 0,
            failure: None,
            round_trips: 0,
        }
    }

    #[inline]
    fn step(&mut self, step: usize) -> Step {
        self.step = step;
        self.sent = 0;
        self.due = self.plan.replies;
        self.round_trips += 1;
        Step::Send
    }

    /// Takes a chunk of the answer; the status of the last ReadyForQuery that was due, if that was in it.
    #[inline]
    fn take(&mut self, chunk: &[u8]) -> Result<Option<u8>> {
        let (mut at, mut ready) = (0, None);
        let (walker, notices, last_words) = self.incoming.parts();
        while let Some(message) = walker.next(chunk, &mut at)? {
            match message.tag {
                b'Z' => {
                    self.due = self.due.saturating_sub(1);
                    if self.due == 0 {
                        ready = message.body.first().copied();
                    }
                    // Nothing follows: one look at an empty rest is saved for each call.
                    if at == chunk.len() {
                        break;
                    }
                }
                b'E' => {
                    let end = failed(ServerError::parse(message.body))?;
                    // The first error is the reason; those after it follow from it.
                    self.failure.get_or_insert(end);
                }
                b'N' => notice(notices, last_words, message.body),
                _ => return Err(Error::Lost(COPY.to_owned())),
            }
        }
        Ok(ready)
    }

    /// The rest of the call is left out (of a pipeline the server has it already); a failed transaction is rolled back,
    /// so that the next call starts clean.
    #[cold]
    fn after_failure(&mut self, status: u8) -> Step {
        let rolled_back = self.step >= self.plan.messages.len();
        if status == FAILED_TRANSACTION && !rolled_back {
            let step = self.step(self.plan.messages.len());
            self.due = 1;
            return step;
        }
        Step::Done(self.failure.take().unwrap_or(CallEnd::Ok))
    }
}

impl Machine for ConstantCalls {
    #[inline]
    fn begin(&mut self, _start: Start) -> Result<Step> {
        self.incoming.notices = 0;
        Ok(self.step(0))
    }

    #[inline]
    fn pending(&self) -> &[u8] {
        let message = self.plan.messages.get(self.step).map_or(ROLLBACK, Vec::as_slice);
        message.get(self.sent..).unwrap_or_default()
    }

    #[inline]
    fn sent(&mut self, count: usize) {
        self.sent += count;
    }

    #[expect(clippy::inline_always, reason = "the hot path; other uses are cold")]
    #[inline(always)]
    fn feed(&mut self, chunk: &[u8]) -> Result<Step> {
        let Some(status) = self.take(chunk)? else {
            return Ok(Step::Read);
        };
        if self.failure.is_some() {
            return Ok(self.after_failure(status));
        }
        if self.step + 1 < self.plan.messages.len() {
            return Ok(self.step(self.step + 1));
        }
        Ok(Step::Done(CallEnd::Ok))
    }

    fn resume(&mut self) -> Result<Step> {
        Ok(Step::Read) // these calls do not pause
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
}
