//! The conversation: requests are read by one thread and worked on by others, until the peer is gone.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use dyno_model::now_ns;
use serde_json::{Map, Value};

use crate::frames::{self, Frame};
use crate::handles::Handles;
use crate::outbox::Outbox;
use crate::reply::{Fault, Outcome, parsed};
use crate::{host_ops, live_ops};

/// Upper bound of requests at a time, each of which has a thread.
const MOST_AT_ONCE: usize = 256;
const LOOK: Duration = Duration::from_millis(250);

/// Standard output, or a stand-in for it.
pub type Out = Box<dyn io::Write + Send>;

/// State that the threads of a conversation share.
pub struct Conversation {
    pub handles: Handles,
    outbox: Arc<Outbox<Out>>,
    at_once: AtomicUsize,
    last_read_ns: AtomicI64,
}

/// A reader that notes the time of its last read.
struct TimedReader<'a, R>(R, &'a AtomicI64);

impl<R: Read> Read for TimedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer);
        self.1.store(now_ns(), Relaxed);
        read
    }
}

impl Conversation {
    /// Returns a conversation that answers to `out`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(out: Out) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            handles: Handles::default(),
            outbox: Outbox::new(out)?,
            at_once: AtomicUsize::new(0),
            last_read_ns: AtomicI64::new(now_ns()),
        }))
    }

    /// Executes requests until the stream ends.
    ///
    /// # Errors
    /// The stream broke off or held no frame, which was reported to the peer.
    pub fn serve(self: &Arc<Self>, input: impl Read) -> io::Result<()> {
        let mut input = io::BufReader::new(TimedReader(input, &self.last_read_ns));
        loop {
            self.outbox.wait_for_room();
            match frames::read(&mut input) {
                Ok(None) => return Ok(()),
                Ok(Some(frame)) => self.take(frame),
                Err(e) => {
                    let fault = Fault::agent("request", format!("no frame: {e}"));
                    self.outbox.answer(&Value::Null, Err(fault));
                    self.outbox.flush(LOOK);
                    return Err(e);
                }
            }
        }
    }

    /// Returns when nothing came for `silence`. A stopped process that goes on has time to read pending requests.
    pub fn wait_for_silence(&self, silence: Duration, more: impl Fn() -> bool) {
        let mut patience = 4;
        while patience > 0 {
            thread::sleep(LOOK);
            let since_ns = now_ns() - self.last_read_ns.load(Relaxed);
            if i128::from(since_ns) < silence.as_nanos() as i128 {
                patience = 4;
            } else {
                patience = if more() { patience - 1 } else { 0 };
            }
        }
    }

    fn take(self: &Arc<Self>, Frame { mut header, body }: Frame) {
        let op = header.get("op").and_then(Value::as_str).unwrap_or_default();
        let clock = op == "clock";
        if op == "alive" {
            return;
        }
        let id = header.remove("id").filter(Value::is_number).unwrap_or_default();
        if clock {
            return self.outbox.answer_at_once(&id, now_ns().into());
        }
        if self.at_once.fetch_add(1, Relaxed) >= MOST_AT_ONCE {
            return self.end(&id, Err(Fault::agent("busy", "too many requests at a time")));
        }
        let (all, number) = (Arc::clone(self), id.clone());
        let work = move || {
            let worked = catch_unwind(AssertUnwindSafe(|| work(header, &body, &all.handles)));
            let panicked = |_| Err(Fault::agent("request", "this is a bug: the agent panicked"));
            all.end(&id, worked.unwrap_or_else(panicked));
        };
        let spawned = thread::Builder::new().name("agent-work".to_owned()).spawn(work);
        if let Err(e) = spawned {
            self.end(&number, Err(e.into()));
        }
    }

    fn end(&self, id: &Value, outcome: Outcome) {
        self.at_once.fetch_sub(1, Relaxed);
        self.outbox.answer(id, outcome);
    }
}

fn work(header: Map<String, Value>, body: &[u8], handles: &Handles) -> Outcome {
    let op = header.get("op").and_then(Value::as_str).unwrap_or_default();
    match op.split('.').next() {
        Some("load" | "watch" | "pulse" | "drop") => live_ops::work(header, handles),
        _ => host_ops::work(&parsed(header)?, body),
    }
}
