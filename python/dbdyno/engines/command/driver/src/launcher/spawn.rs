//! Starting a program: clone(2) as vfork(2) does it, on a stack of the caller's, with a pidfd.
//!
//! The child shares our memory until it has executed the program, so it calls nothing but the system. All signals have
//! their default action in the launcher and are blocked in the thread that starts the child: no handler runs there.

use std::ffi::{CStr, CString, c_char, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use dyno_model::now_ns;
use rustix::process::{Resource, Rlimit, WaitId, WaitIdOptions, setrlimit, waitid};

const STACK_BYTES: usize = 64 * 1024;

/// A program and what goes with it.
#[derive(Debug, Clone)]
pub struct Program {
    /// Path of the program.
    pub path: CString,
    /// Name and arguments.
    pub argv: Vec<CString>,
    /// Environment, each as `NAME=value`.
    pub env: Vec<CString>,
    /// Working directory.
    pub directory: Option<CString>,
}

/// Standard input, output and error output. None of them is 0, 1 or 2.
#[derive(Debug, Clone, Copy)]
pub struct Streams<'a>(pub [BorrowedFd<'a>; 3]);

/// A process that was started.
#[derive(Debug)]
pub struct Child {
    /// Process id.
    pub pid: i32,
    /// Descriptor that becomes readable when the process has ended.
    pub pidfd: OwnedFd,
    /// Instant before it was started.
    pub start_ns: i64,
    /// Instant at which its program had been loaded.
    pub exec_ns: i64,
}

/// The reason for which a program was not started.
#[derive(Debug)]
pub struct Refused {
    /// The step that the system refused.
    pub step: &'static str,
    /// The system's reason.
    pub error: io::Error,
}

/// Starts processes, one at a time.
#[derive(Debug)]
pub struct Spawner {
    stack: Vec<u8>,
    /// Limit of open descriptors as the user has it; the launcher's own is higher.
    descriptors: Rlimit,
}

/// The memory of ours that the child reads and writes.
struct Shared<'a> {
    path: *const c_char,
    argv: &'a [*const c_char],
    env: &'a [*const c_char],
    directory: *const c_char,
    streams: Streams<'a>,
    descriptors: Rlimit,
    /// The step that failed, and its errno.
    failed: Option<(&'static str, i32)>,
}

impl Spawner {
    /// `descriptors`: the limit that children get.
    pub fn new(descriptors: Rlimit) -> Self {
        Self {
            stack: vec![0; STACK_BYTES],
            descriptors,
        }
    }

    /// Starts a program in a session (setsid(2)) and process group of its own; returns when it has been loaded.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start(&mut self, program: &Program, streams: Streams<'_>) -> Result<Child, Refused> {
        let (argv, env) = (pointers(&program.argv), pointers(&program.env));
        let mut shared = Shared {
            path: program.path.as_ptr(),
            argv: &argv,
            env: &env,
            directory: program
                .directory
                .as_deref()
                .map_or(std::ptr::null(), CStr::as_ptr),
            streams,
            descriptors: self.descriptors,
            failed: None,
        };
        let top = self.stack.as_mut_ptr_range().end.addr() & !63;
        let top: *mut c_void = self.stack.as_mut_ptr().with_addr(top).cast();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        let mut pidfd: RawFd = -1;
        let start_ns = now_ns();
        // SAFETY: the child runs on a stack of its own; we wait until it has executed a program or ended, and so long
        // `shared`, the stack and `pidfd` stay where they are.
        let pid = unsafe { libc::clone(child, top, flags, (&raw mut shared).cast(), &raw mut pidfd) };
        let exec_ns = now_ns();
        if pid < 0 {
            let error = io::Error::last_os_error();
            return Err(Refused {
                step: "start a process",
                error,
            });
        }
        // SAFETY: the system has given it to us alone.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        if let Some((step, errno)) = shared.failed {
            reap(&pidfd);
            let error = io::Error::from_raw_os_error(errno);
            return Err(Refused { step, error });
        }
        Ok(Child {
            pid,
            pidfd,
            start_ns,
            exec_ns,
        })
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    let all = texts.iter().map(|text| text.as_ptr());
    all.chain([std::ptr::null()]).collect()
}

/// Waits for a child that has ended without executing anything.
fn reap(pidfd: &OwnedFd) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::from_bits_retain(libc::__WALL as u32);
    let _ = waitid(WaitId::PidFd(pidfd.as_fd()), options);
}

/// Runs in the child: calls the system only, and does not return.
extern "C" fn child(shared: *mut c_void) -> libc::c_int {
    // SAFETY: the caller waits, so nobody else has it; every pointer in it was made from a text that lives there.
    unsafe {
        let shared = &mut *shared.cast::<Shared>();
        shared.failed = Some((become_program(shared), *libc::__errno_location()));
        libc::_exit(127)
    }
}

/// The step that failed, if this returns.
unsafe fn become_program(shared: &Shared) -> &'static str {
    // SAFETY: see `child`.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL); // should the launcher be killed
        if !shared.directory.is_null() && libc::chdir(shared.directory) != 0 {
            return "enter its directory";
        }
        for (place, fd) in shared.streams.0.iter().enumerate() {
            if libc::dup2(fd.as_raw_fd(), place as RawFd) < 0 {
                return "open its standard streams";
            }
        }
        let _ = setrlimit(Resource::Nofile, shared.descriptors); // the launcher's own will do
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(shared.path, shared.argv.as_ptr(), shared.env.as_ptr());
        "execute it"
    }
}
