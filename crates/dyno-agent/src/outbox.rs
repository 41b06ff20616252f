//! Answers on their way out. The thread that reads requests never waits for a long answer to be written.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::{Value, json};

use crate::frames;
use crate::reply::{Fault, Outcome, Reply};

/// Unread answers from which on no more requests are read.
const MOST_WAITING: usize = 1024;
const MOST_WAITING_BYTES: usize = 1 << 30;

/// Where answers are handed in.
pub struct Outbox<W> {
    state: Mutex<State<W>>,
    changed: Condvar,
}

/// A frame: what comes before the body, and the body.
type Parts = [Vec<u8>; 2];

struct State<W> {
    /// None while a thread is writing.
    to: Option<W>,
    waiting: VecDeque<Parts>,
    broken: bool,
}

impl<W: Write + Send + 'static> Outbox<W> {
    /// An outbox, and the thread that empties it.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn new(to: W) -> std::io::Result<Arc<Self>> {
        let outbox = Arc::new(Self {
            state: Mutex::new(State {
                to: Some(to),
                waiting: VecDeque::new(),
                broken: false,
            }),
            changed: Condvar::new(),
        });
        let writer = Arc::clone(&outbox);
        thread::Builder::new()
            .name("agent-write".to_owned())
            .spawn(move || writer.empty())?;
        Ok(outbox)
    }

    /// The answer to request `id`.
    pub fn answer(&self, id: &Value, outcome: Outcome) {
        let mut state = self.state();
        state.waiting.push_back(framed(id, outcome));
        drop(state);
        self.changed.notify_all();
    }

    /// Sends a short answer that must not wait: at once, or before all others.
    pub fn answer_at_once(&self, id: &Value, value: Value) {
        let parts = framed(id, Ok(value.into()));
        let mut state = self.state();
        match state.to.take() {
            Some(to) => {
                drop(state);
                self.write(to, &parts);
            }
            None => state.waiting.push_front(parts),
        }
    }

    /// Waits while too many answers are unread. No requests are read meanwhile, so a peer that reads no answers is
    /// taken for a silent one in the end.
    pub fn wait_for_room(&self) {
        let full = |state: &mut State<W>| {
            let bytes = || state.waiting.iter().flatten().map(Vec::len).sum::<usize>();
            !state.broken && (state.waiting.len() >= MOST_WAITING || bytes() >= MOST_WAITING_BYTES)
        };
        drop(self.changed.wait_while(self.state(), full));
    }

    /// Waits until all is written, at most for `most`.
    pub fn flush(&self, most: std::time::Duration) {
        let full = |state: &mut State<W>| !(state.broken || state.waiting.is_empty() && state.to.is_some());
        drop(self.changed.wait_timeout_while(self.state(), most, full));
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn empty(&self) {
        loop {
            let idle = |state: &mut State<W>| state.waiting.is_empty() || state.to.is_none();
            let mut state = self
                .changed
                .wait_while(self.state(), idle)
                .unwrap_or_else(PoisonError::into_inner);
            let (Some(parts), Some(to)) = (state.waiting.pop_front(), state.to.take()) else {
                continue;
            };
            drop(state);
            self.write(to, &parts);
        }
    }

    /// Writes the parts. A failure needs no report: a peer that reads nothing any more has closed our input, too,
    /// which ends the agent.
    fn write(&self, mut to: W, parts: &Parts) {
        let mut all = parts.iter();
        let written = all
            .try_for_each(|part| to.write_all(part))
            .and_then(|()| to.flush());
        let mut state = self.state();
        state.broken |= written.is_err();
        state.to = Some(to);
        drop(state);
        self.changed.notify_all();
    }
}

fn framed(id: &Value, outcome: Outcome) -> Parts {
    let (header, body) = match outcome {
        Ok(Reply { value, body }) => (json!({"id": id, "ok": value}), body),
        Err(fault) => (json!({"id": id, "error": fault}), Vec::new()),
    };
    match frames::start(&header, &body) {
        Ok(start) => [start, body],
        Err(e) => framed(id, Err(Fault::agent("request", format!("{e}: ask for less")))),
    }
}
