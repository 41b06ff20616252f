//! The launcher: one process that starts all commands and waits for them. See README.md.
//!
//! Its main thread takes sessions in (a byte and a socket each) and waits for processes that outlived who started
//! them; each session has a thread of its own, `session-N`, whose children are the commands of that session.

mod attendant;
mod execution;
mod handing;
mod prepared;
mod spawn;
mod tail;
mod tree;
mod used;
mod worker;

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dyno_model::{Breaker, Error, Result, raise_open_files, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{getpid, set_child_subreaper};

use attendant::Attendant;
pub use handing::{own as control_socket, send as send_descriptor};
pub use worker::Find;
use worker::Shared;

/// Interval at which the main thread waits for orphans that have ended.
const REAPING_NS: i64 = 100_000_000;
/// Stack of a session's thread, which calls the system and parses a few lines.
const STACK_BYTES: usize = 512 * 1024;
/// A session's socket, what it prints, and its process: so many descriptors, and as many again for thousands of them.
const DESCRIPTORS: u64 = 65_536;

/// Serves sessions until the other end of `control` is closed or we are to end; then nothing that we started is left.
/// `control` is a descriptor's number; the descriptor stays its owner's.
///
/// # Errors
/// [`Error::Spec`] where that is no control socket; when the system refuses what a launcher needs.
pub fn launch(control: RawFd, find: Box<Find>) -> Result<()> {
    let control = handing::own(control)?;
    let endings = become_launcher().map_err(|e| refused(&e))?;
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|e| refused(&e))?;
    let shared = Shared {
        find: find.into(),
        task_limit: Arc::default(),
        descriptors: raise_open_files(DESCRIPTORS).before,
    };
    let sessions = Breaker::default();
    let mut attendant = Attendant::new(shared.task_limit.clone());
    std::thread::scope(|scope| {
        while let Some(socket) = next_session(&control, &endings, &mut attendant, &sessions) {
            let (null, shared) = (&null, &shared);
            let socket = Arc::new(socket);
            // Nobody has broken them off before this loop ends.
            let _ = sessions.watch(&socket);
            // A session that gets no thread finds its socket closed.
            let _ = std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || worker::serve(&socket, null, shared));
        }
        sessions.abort();
    });
    attendant.end();
    Ok(())
}

/// Orphans come to us; signals have their default actions, but are blocked: those that ask us to end are read.
fn become_launcher() -> io::Result<OwnedFd> {
    set_child_subreaper(Some(getpid()))?; // any number but 0 switches it on
    // SAFETY: changes attributes of this process alone; the sets are valid.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL); // refused for some
        }
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        let mut endings: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut endings);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::sigaddset(&raw mut endings, signal);
        }
        let fd = libc::signalfd(-1, &raw const endings, libc::SFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Waits for the socket of the next session. `None` at the end.
fn next_session(
    control: &OwnedFd,
    endings: &OwnedFd,
    attendant: &mut Attendant,
    sessions: &Breaker,
) -> Option<UnixStream> {
    loop {
        let mut both = [
            PollFd::new(control, PollFlags::IN),
            PollFd::new(endings, PollFlags::IN),
        ];
        let _ = poll(&mut both, Some(&timespec(REAPING_NS))); // a signal ends the wait early
        attendant.look(!sessions.is_in_use());
        if !both[1].revents().is_empty() {
            return None;
        }
        if !both[0].revents().is_empty() {
            match handing::receive(control)? {
                (Some(socket), _) => return Some(socket.into()),
                (None, text) => attendant.arrange(&text),
            }
        }
    }
}

fn refused(error: &io::Error) -> Error {
    Error::Io(format!("launcher of commands: {error}"))
}
