//! Sockets: connecting until a deadline, breakable from another thread.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dyno_model::{Breaker, Error, Result};
use rustix::io::Errno;
use rustix::net::{self, SendFlags};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use crate::resolve;
use crate::target::{TargetSpec, TcpSpec};

/// A connected, blocking socket whose reads and writes give up at `deadline`.
pub fn connect(target: &TargetSpec, deadline: Instant, breaker: &Breaker) -> Result<Arc<Socket>> {
    let mut last = Error::Unreachable(format!("{}: the name has no address", target.place()));
    for address in addresses(target, deadline, breaker)? {
        match open(target, &address, deadline, breaker) {
            Ok(socket) => return Ok(socket),
            Err(Error::Aborted) => return Err(Error::Aborted),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn addresses(target: &TargetSpec, deadline: Instant, breaker: &Breaker) -> Result<Vec<SockAddr>> {
    let wrong = |e: io::Error| Error::Unreachable(format!("{}: {e}", target.place()));
    if let Some(path) = target.socket_path() {
        // A leading @ is an abstract socket, written with a zero byte.
        let path = path
            .strip_prefix('@')
            .map_or(path.clone(), |name| format!("\0{name}"));
        return Ok(vec![SockAddr::unix(path).map_err(wrong)?]);
    }
    let resolved = resolve::addresses(&target.host, target.port, deadline, breaker)?;
    Ok(resolved.map_err(wrong)?.into_iter().map(SockAddr::from).collect())
}

/// The send time limit bounds connect(2) too: for TCP the handshake, for unix sockets a full backlog.
fn open(
    target: &TargetSpec,
    address: &SockAddr,
    deadline: Instant,
    breaker: &Breaker,
) -> Result<Arc<Socket>> {
    let domain = Domain::from(i32::from(address.family()));
    let socket = Arc::new(Socket::new(domain, Type::STREAM, None).map_err(|e| Error::Io(e.to_string()))?);
    breaker.watch(&socket)?;
    arm(&socket, deadline).map_err(|e| unreachable(target, &e))?;
    let connected = retry(|| socket.connect(address));
    if breaker.is_broken() {
        return Err(Error::Aborted);
    }
    connected.map_err(|e| unreachable(target, &e))?;
    if domain == Domain::UNIX {
        check_peer(target, &socket)?;
    } else {
        set_tcp(&socket, &target.tcp).map_err(|e| Error::Io(e.to_string()))?;
    }
    Ok(socket)
}

fn set_tcp(socket: &Socket, spec: &TcpSpec) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    if spec.user_timeout_ms > 0 {
        socket.set_tcp_user_timeout(Some(Duration::from_millis(spec.user_timeout_ms)))?;
    }
    if !spec.keepalives {
        return Ok(());
    }
    let mut keepalive = TcpKeepalive::new();
    if spec.idle_s > 0 {
        keepalive = keepalive.with_time(Duration::from_secs(spec.idle_s));
    }
    if spec.interval_s > 0 {
        keepalive = keepalive.with_interval(Duration::from_secs(spec.interval_s));
    }
    if spec.count > 0 {
        keepalive = keepalive.with_retries(spec.count);
    }
    socket.set_tcp_keepalive(&keepalive)
}

/// `requirepeer`: checks that the server runs as this user before anything is sent.
fn check_peer(target: &TargetSpec, socket: &Socket) -> Result<()> {
    let Some(wanted) = target.peer_uid else {
        return Ok(());
    };
    let uid = peer_uid(socket).map_err(|e| Error::Io(e.to_string()))?;
    if uid == wanted {
        return Ok(());
    }
    Err(Error::Authentication {
        code: None,
        message: format!(
            "requirepeer: the server at {} runs as user id {uid}, not {wanted}",
            target.place()
        ),
    })
}

fn peer_uid(socket: &Socket) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // Not by rustix: the process id of a peer in another pid namespace is 0, which its type has no value for.
    // SAFETY: the structure is valid for writing, of the size that is given.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if done == 0 {
        Ok(peer.uid)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn unreachable(target: &TargetSpec, error: &io::Error) -> Error {
    let timed_out = matches!(
        error.raw_os_error(),
        Some(libc::EINPROGRESS | libc::EAGAIN | libc::ETIMEDOUT)
    ) || error.kind() == io::ErrorKind::WouldBlock;
    let why = if timed_out {
        format!("no answer within {} ms", target.connect_timeout_ms)
    } else {
        error.to_string()
    };
    Error::Unreachable(format!("{}: {why}", target.place()))
}

fn retry(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Reads and writes give up at `deadline`.
///
/// # Errors
/// `WouldBlock`, as theirs, when that is past.
pub fn arm(socket: &Socket, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // Less than a microsecond would be none at all: for ever.
    set_timeout(socket, Some(left.max(Duration::from_millis(1))))
}

/// Reads and writes give up after `limit`; `None`: never.
pub fn set_timeout(socket: &Socket, limit: Option<Duration>) -> io::Result<()> {
    socket.set_read_timeout(limit)?;
    socket.set_write_timeout(limit)
}

/// The loss of a session by an error of its socket.
pub fn lost(error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return Error::Lost("the server did not answer in time".to_owned());
    }
    Error::Lost(error.to_string())
}

// rustix makes system calls without libc's functions: those are cancellation points, which cost about as much as all
// else here does for a message.

/// read(2), which is recv(2) without flags in fewer instructions; again after a signal.
#[inline]
pub fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(fd, &mut *buffer) {
            Err(Errno::INTR) => {}
            received => return received.map_err(error),
        }
    }
}

/// send(2) without SIGPIPE, again after a signal.
#[inline]
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match net::send(fd, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map_err(error),
        }
    }
}

#[cold]
fn error(errno: Errno) -> io::Error {
    errno.into()
}
