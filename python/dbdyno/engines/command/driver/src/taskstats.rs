//! Task statistics at exit, as the kernel sends them (netlink, Documentation/accounting/taskstats.rst; the
//! structure is in include/uapi/linux/taskstats.h). They need `CAP_NET_ADMIN` in the machine's first namespaces.
//!
//! Run queue and switches are exact. CPU time is as of the task's last tick or switch, and without the freeing of
//! its memory: the rest is in the CPU time of ended children of its parents.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use dyno_model::{EndedTask, now_ns};

const CURE: &str = "give dbdyno CAP_NET_ADMIN, outside of containers; without it tasks that end between two samples \
                    are known by the CPU time of their parents' ended children";
const NETLINK_GENERIC: libc::c_int = 16;
const HEADER: usize = 20; // of netlink, and of the generic family
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const TASKSTATS_GET: u8 = 1;
const REGISTER_CPUMASK: u16 = 3;
const AGGREGATE_OF_TASK: u16 = 4;
const STATS: u16 = 3;
const ERROR: u16 = 2;
/// Statistics of some 6000 ends.
const BUFFER: libc::c_int = 8 << 20;
const PATIENCE_MS: i64 = 100;
/// `AGROUP`: the last task of its process.
const LAST: u8 = 0x20;
/// Room for `ac_tgid`, which version 12 has.
const SHORTEST: usize = 372;

/// What the kernel says of a task that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    pub pid: i64,
    pub tid: i64,
    pub parent: i64,
    /// The last of its process.
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
    /// As a row.
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

    /// From one `struct taskstats`; `None`: of a version whose fields lie elsewhere.
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

/// A thread that takes statistics in as they come: the end of a task is when they do.
#[derive(Debug)]
pub struct Listener {
    ended: Arc<Mutex<Vec<Exit>>>,
    stop: Arc<AtomicBool>,
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
        let told = |e: &io::Error| match e.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::EINVAL) => ("not permitted", format!("{e}: {CURE}")),
            _ => (
                "not supported",
                format!("task statistics of the kernel (CONFIG_TASKSTATS): {e}"),
            ),
        };
        let socket = subscribe().map_err(|e| told(&e))?;
        let listener = Self {
            ended: Arc::default(),
            stop: Arc::default(),
        };
        let (ended, stop) = (Arc::clone(&listener.ended), Arc::clone(&listener.stop));
        let run = move || {
            let mut buffer = vec![0; 1 << 16];
            while !stop.load(Ordering::Relaxed) {
                let Ok(length) = receive(&socket, &mut buffer) else {
                    continue;
                };
                let end_ns = now_ns();
                let exits = exits(&buffer[..length], end_ns);
                ended.lock().unwrap_or_else(PoisonError::into_inner).extend(exits);
            }
        };
        let named = thread::Builder::new().name("dbdyno-ends".to_owned());
        named.spawn(run).map_err(|e| told(&e))?;
        Ok(listener)
    }

    /// What has come since this was asked last.
    pub fn take(&self) -> Vec<Exit> {
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn subscribe() -> io::Result<OwnedFd> {
    // SAFETY: a plain call; the descriptor is ours.
    let socket = unsafe {
        let fd = libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            NETLINK_GENERIC,
        );
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    option(&socket, libc::SO_RCVBUFFORCE, &BUFFER).or_else(|_| option(&socket, libc::SO_RCVBUF, &BUFFER))?;
    let patience = libc::timeval {
        tv_sec: 0,
        tv_usec: PATIENCE_MS * 1000,
    };
    option(&socket, libc::SO_RCVTIMEO, &patience)?;
    send(
        &socket,
        CONTROL,
        GET_FAMILY,
        &attribute(FAMILY_NAME, b"TASKSTATS\0"),
    )?;
    let mut buffer = vec![0; 1 << 16];
    let length = receive(&socket, &mut buffer)?;
    refusal(&buffer[..length])?;
    let answer = attributes(buffer[..length].get(HEADER..).unwrap_or_default());
    let family = answer.into_iter().find(|(kind, _)| *kind == FAMILY_ID);
    let family = family.and_then(|(_, data)| Some(u16::from_ne_bytes(data.get(..2)?.try_into().ok()?)));
    let family = family.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
    let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let mut mask = cpus.trim().as_bytes().to_vec();
    mask.push(0);
    send(
        &socket,
        family,
        TASKSTATS_GET,
        &attribute(REGISTER_CPUMASK, &mask),
    )?;
    loop {
        // the family's own acknowledgement comes first
        let length = receive(&socket, &mut buffer)?;
        let ours = buffer[..length].get(8..12) == Some(&2_u32.to_ne_bytes());
        if refusal(&buffer[..length])? && ours {
            return Ok(socket);
        }
    }
}

fn option<T>(socket: &OwnedFd, name: libc::c_int, value: &T) -> io::Result<()> {
    let (at, size) = ((&raw const *value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: a value of this size.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, at, size) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// With an acknowledgement; its sequence is the command's: 1 of the family, 2 of the subscription.
fn send(socket: &OwnedFd, family: u16, command: u8, attributes: &[u8]) -> io::Result<()> {
    const REQUEST_AND_ACK: u16 = 5;
    let sequence: u32 = if family == CONTROL { 1 } else { 2 };
    let mut message = Vec::new();
    message.extend(((HEADER + attributes.len()) as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    // SAFETY: bytes of this length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: room of this length.
    let length = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Whether a message is an acknowledgement; its error if it is one.
fn refusal(message: &[u8]) -> io::Result<bool> {
    let kind = message.get(4..6).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    if kind != Some(ERROR) {
        return Ok(false);
    }
    match message
        .get(16..20)
        .map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
    {
        Some(0) => Ok(true),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Ok(false),
    }
}

fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + data.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Kind and data of each attribute.
fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some(&[a, b, c, d]) = bytes.first_chunk() {
        let (length, kind) = (
            usize::from(u16::from_ne_bytes([a, b])),
            u16::from_ne_bytes([c, d]),
        );
        let Some(data) = bytes.get(4..length) else { break };
        found.push((kind & 0x3fff, data));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// The tasks of a message.
fn exits(message: &[u8], end_ns: i64) -> Vec<Exit> {
    let mut found = Vec::new();
    let body = message.get(HEADER..).unwrap_or_default();
    for (_, inner) in attributes(body)
        .into_iter()
        .filter(|(kind, _)| *kind == AGGREGATE_OF_TASK)
    {
        let inner = attributes(inner);
        let tid = inner.iter().find(|(kind, _)| *kind == 1);
        let tid = tid.and_then(|(_, data)| Some(i32::from_ne_bytes(data.get(..4)?.try_into().ok()?)));
        let stats = inner.iter().find(|(kind, _)| *kind == STATS);
        if let (Some(tid), Some((_, stats))) = (tid, stats) {
            found.extend(Exit::parse(stats, i64::from(tid), end_ns));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_as_they_were_written() {
        let mut bytes = attribute(7, b"abc");
        bytes.extend(attribute(9, b""));
        assert_eq!(attributes(&bytes), [(7, &b"abc"[..]), (9, &b""[..])]);
        assert_eq!(attributes(&bytes[..6]), []);
    }

    #[test]
    fn a_structure_whose_task_lies_elsewhere_is_not_read() {
        let mut stats = vec![0; 400];
        stats[128..132].copy_from_slice(&77_u32.to_ne_bytes());
        stats[144..152].copy_from_slice(&5_u64.to_ne_bytes());
        assert_eq!(Exit::parse(&stats, 78, 0), None);
        assert_eq!(Exit::parse(&stats[..300], 77, 0), None);
        assert_eq!(
            Exit::parse(&stats, 77, 9000).map(|e| e.task(None).life_ns),
            Some((4000, 9000))
        );
    }

    #[test]
    fn a_child_that_lives_a_moment_is_told_of_where_that_is_permitted() {
        let listener = match Listener::open() {
            Ok(listener) => listener,
            Err((status, detail)) => {
                assert!(matches!(status, "not permitted" | "not supported"), "{detail}");
                return;
            }
        };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i64::from(child.id());
        child.wait().unwrap();
        let mut met = Vec::new();
        for _ in 0..200 {
            met.extend(listener.take().into_iter().filter(|e| e.pid == pid));
            if !met.is_empty() {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(20));
        }
        let exit = met[0];
        assert_eq!((exit.tid, exit.parent), (pid, i64::from(std::process::id())));
        assert!(exit.last && exit.slices > 0 && exit.lived_ns >= exit.run_ns + exit.runq_ns);
    }
}
