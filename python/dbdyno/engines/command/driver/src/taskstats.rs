//! Task statistics at exit, as the kernel sends them (netlink, Documentation/accounting/taskstats.rst; the
//! structure is in include/uapi/linux/taskstats.h). They need `CAP_NET_ADMIN` in the machine's first namespaces.
//!
//! Run queue and switches are exact. CPU time is as of the task's last tick or switch, and without the freeing of
//! its memory: the rest is in the CPU time of ended children of its parents.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use dyno_model::{EndedTask, now_ns};

use crate::netlink::{HEADER, MESSAGE, Message, attributes, drops, receive, subscribe};

const CURE: &str = "give dbdyno CAP_NET_ADMIN, outside of containers; without it tasks that end between two samples \
                    are known by the CPU time of their parents' ended children";
const AGGREGATE_OF_TASK: u16 = 4;
const TID: u16 = 1;
const STATS: u16 = 3;
/// Statistics of some 6000 ends.
const BUFFER: usize = 8 << 20;
/// `AGROUP`: the last task of its process.
const LAST: u8 = 0x20;
/// First version of the statistics that has `ac_tgid` (Linux 5.19), and the bytes up to its end.
const NAMES_THE_PROCESS: u16 = 12;
const SHORTEST: usize = 372;

/// The kernel's statistics of a task that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    pub pid: i64,
    pub tid: i64,
    pub parent: i64,
    /// The task is the last of its process.
    pub last: bool,
    pub comm: [u8; 16],
    pub end_ns: i64,
    pub lived_ns: i64,
    pub run_ns: i64,
    pub runq_ns: i64,
    pub slices: i64,
    pub user_ns: i64,
    pub system_ns: i64,
    pub blkio: (i64, i64), // how often, ns
    pub switches: (i64, i64),
}

impl Exit {
    /// The task as a row.
    pub fn task(&self, session: Option<i64>) -> EndedTask {
        let name = self.comm.split(|&b| b == 0).next().unwrap_or_default();
        EndedTask {
            pid: self.pid,
            tid: self.tid,
            session,
            comm: String::from_utf8_lossy(name).into_owned(),
            life_ns: (self.end_ns - self.lived_ns, self.end_ns),
            run_ns: self.run_ns,
            runq_ns: self.runq_ns,
            slices: self.slices,
            ticks_ns: (self.user_ns, self.system_ns),
            blkio_ns: (self.blkio.0 > 0).then_some(self.blkio.1),
            switches: self.switches,
        }
    }

    /// Reads one `struct taskstats`. `None` if its version has the fields elsewhere.
    fn parse(stats: &[u8], tid: i64, end_ns: i64) -> Option<Self> {
        let word = |at: usize| -> Option<i64> {
            let bytes = stats.get(at..at + 8)?.try_into().ok()?;
            i64::try_from(u64::from_ne_bytes(bytes)).ok()
        };
        let half = |at: usize| -> Option<i64> {
            Some(i64::from(u32::from_ne_bytes(
                stats.get(at..at + 4)?.try_into().ok()?,
            )))
        };
        if stats.len() < SHORTEST || half(128)? != tid {
            return None;
        }
        let mut comm = [0; 16];
        comm.copy_from_slice(&stats[80..96]);
        Some(Self {
            tid,
            pid: half(368)?,
            parent: half(132)?,
            last: stats[8] & LAST != 0,
            comm,
            end_ns,
            lived_ns: word(144)? * 1000,
            run_ns: word(72)?,
            runq_ns: word(24)?,
            slices: word(16)?,
            user_ns: word(152)? * 1000,
            system_ns: word(160)? * 1000,
            blkio: (word(32)?, word(40)?),
            switches: (word(272)?, word(280)?),
        })
    }
}

/// Statistics that the kernel sent and that are in no [`Exit`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses {
    /// Messages that found no room in the socket's buffer, each about a task or two: ENOBUFS.
    pub dropped: u64,
    /// Messages that are cut off or not as the kernel writes them.
    pub malformed: u64,
    /// The version of the kernel's statistics, if it is too old to name the process.
    pub outdated: Option<u16>,
    /// The error that ended the reception.
    pub broken: Option<String>,
}

impl Losses {
    /// Status and reason; `None` if nothing was lost.
    pub fn state(&self) -> Option<(&'static str, String)> {
        if let Some(error) = &self.broken {
            return Some(("lost", format!("the kernel's messages ended early: {error}")));
        }
        if let Some(version) = self.outdated {
            let detail = format!(
                "this kernel's statistics, version {version}, do not name the process: it takes Linux 5.19"
            );
            return Some(("not supported", detail));
        }
        let counted = [
            (
                self.dropped,
                "messages about tasks that ended were lost, of all tasks of this machine: they came faster than they \
                 were read; leave dbdyno a CPU",
            ),
            (
                self.malformed,
                "messages about tasks that ended could not be read",
            ),
        ];
        let reasons: Vec<String> = counted
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{n} {what}"))
            .collect();
        (!reasons.is_empty()).then(|| ("limited", reasons.join("; ")))
    }
}

/// A thread that takes statistics in as they come: the end of a task is when they do.
#[derive(Debug)]
pub struct Listener {
    received: Arc<Mutex<Received>>,
    stop: Arc<AtomicBool>,
}

/// The thread's results.
#[derive(Debug, Default)]
struct Received {
    exits: Vec<Exit>,
    losses: Losses,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Listener {
    /// Listens to ends of tasks on all CPUs.
    ///
    /// # Errors
    /// Status and reason with the cure.
    pub fn open() -> Result<Self, (&'static str, String)> {
        let refusal = |e: &io::Error| match e.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::EINVAL) => ("not permitted", format!("{e}: {CURE}")),
            _ => (
                "not supported",
                format!("task statistics of the kernel (CONFIG_TASKSTATS): {e}"),
            ),
        };
        let socket = subscribe(BUFFER).map_err(|e| refusal(&e))?;
        let listener = Self {
            received: Arc::default(),
            stop: Arc::default(),
        };
        let (received, stop) = (Arc::clone(&listener.received), Arc::clone(&listener.stop));
        let run = move || listen(&socket, &received, &stop);
        let named = thread::Builder::new().name("dbdyno-ends".to_owned());
        named.spawn(run).map_err(|e| refusal(&e))?;
        Ok(listener)
    }

    /// Returns the ends since the call before.
    pub fn take(&self) -> Vec<Exit> {
        std::mem::take(&mut lock(&self.received).exits)
    }

    /// Statistics that were lost since the beginning.
    pub fn losses(&self) -> Losses {
        lock(&self.received).losses.clone()
    }
}

fn lock(received: &Mutex<Received>) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes messages in until `stop`, or until the socket breaks.
fn listen(socket: &OwnedFd, received: &Mutex<Received>, stop: &AtomicBool) {
    let mut buffer = vec![0; MESSAGE];
    while !stop.load(Ordering::Relaxed) {
        match receive(socket, &mut buffer) {
            Ok(Message::Of(length)) => {
                let mut reader = Reader {
                    end_ns: now_ns(),
                    ..Reader::default()
                };
                let whole = reader.read(&buffer[..length]);
                let mut received = lock(received);
                received.exits.append(&mut reader.exits);
                received.losses.malformed += u64::from(whole.is_none());
                received.losses.outdated = received.losses.outdated.or(reader.outdated);
            }
            Ok(Message::Cut) => lock(received).losses.malformed += 1,
            Ok(Message::Foreign) => {}
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                Some(libc::ENOBUFS) => {
                    let dropped = drops(socket);
                    let losses = &mut lock(received).losses;
                    losses.dropped = dropped.unwrap_or(0).max(losses.dropped + 1);
                }
                _ => {
                    lock(received).losses.broken = Some(error.to_string());
                    return;
                }
            },
        }
    }
}

/// Tasks of the kernel's messages.
#[derive(Debug, Default)]
struct Reader {
    end_ns: i64,
    exits: Vec<Exit>,
    outdated: Option<u16>,
}

impl Reader {
    /// Reads the messages of a datagram. `None`: a part of it is not as the kernel writes it.
    fn read(&mut self, mut datagram: &[u8]) -> Option<()> {
        if datagram.is_empty() {
            return None;
        }
        let mut whole = Some(());
        while !datagram.is_empty() {
            let length = u32::from_ne_bytes(datagram.get(..4)?.try_into().ok()?) as usize;
            let message = datagram.get(..length).filter(|m| m.len() >= HEADER)?;
            whole = whole.and(self.message(message));
            datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        whole
    }

    fn message(&mut self, message: &[u8]) -> Option<()> {
        let (outer, mut whole) = attributes(&message[HEADER..]);
        for (_, aggregate) in outer.iter().filter(|(kind, _)| *kind == AGGREGATE_OF_TASK) {
            let (inner, filled) = attributes(aggregate);
            whole &= filled && self.task(&inner).is_some();
        }
        whole.then_some(())
    }

    fn task(&mut self, attributes: &[(u16, &[u8])]) -> Option<()> {
        let of = |wanted: u16| Some(attributes.iter().find(|(kind, _)| *kind == wanted)?.1);
        let (tid, stats) = (of(TID)?.get(..4)?, of(STATS)?);
        let version = u16::from_ne_bytes(stats.get(..2)?.try_into().ok()?);
        if version < NAMES_THE_PROCESS {
            self.outdated = Some(version);
            return Some(());
        }
        let tid = i64::from(i32::from_ne_bytes(tid.try_into().ok()?));
        self.exits.push(Exit::parse(stats, tid, self.end_ns)?);
        Some(())
    }
}

#[cfg(test)]
#[path = "taskstats_tests.rs"]
mod tests;
