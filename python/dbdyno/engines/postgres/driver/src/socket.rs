//! Sockets: connecting with a time limit, breakable from another thread.

use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;

use dyno_model::{Error, Result};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::breaker::Breaker;
use crate::target::TargetSpec;

/// A connected, blocking socket whose reads and writes give up after the target's time limit.
pub fn connect(target: &TargetSpec, breaker: &Breaker) -> Result<Arc<Socket>> {
    let mut last = Error::Unreachable(format!("{}: the name has no address", target.place()));
    for address in addresses(target)? {
        match open(target, &address, breaker) {
            Ok(socket) => return Ok(socket),
            Err(Error::Aborted) => return Err(Error::Aborted),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn addresses(target: &TargetSpec) -> Result<Vec<SockAddr>> {
    let wrong = |e: io::Error| Error::Unreachable(format!("{}: {e}", target.place()));
    if let Some(path) = target.socket_path() {
        // A leading @ is an abstract socket, written with a zero byte.
        let path = path
            .strip_prefix('@')
            .map_or(path.clone(), |name| format!("\0{name}"));
        return Ok(vec![SockAddr::unix(path).map_err(wrong)?]);
    }
    let found = (target.host.as_str(), target.port)
        .to_socket_addrs()
        .map_err(wrong)?;
    Ok(found.map(SockAddr::from).collect())
}

/// The send time limit bounds connect(2) too: for TCP the handshake, for unix sockets a full backlog.
fn open(target: &TargetSpec, address: &SockAddr, breaker: &Breaker) -> Result<Arc<Socket>> {
    let domain = Domain::from(i32::from(address.family()));
    let socket = Arc::new(Socket::new(domain, Type::STREAM, None).map_err(|e| Error::Io(e.to_string()))?);
    breaker.watch(&socket)?;
    let limit = Duration::from_millis(target.connect_timeout_ms.max(1));
    set_timeout(&socket, Some(limit)).map_err(|e| Error::Io(e.to_string()))?;
    let connected = retry(|| socket.connect(address));
    if breaker.is_broken() {
        return Err(Error::Aborted);
    }
    connected.map_err(|e| unreachable(target, &e))?;
    if domain != Domain::UNIX {
        socket
            .set_tcp_nodelay(true)
            .map_err(|e| Error::Io(e.to_string()))?;
    }
    Ok(socket)
}

fn unreachable(target: &TargetSpec, error: &io::Error) -> Error {
    let timed_out = matches!(
        error.raw_os_error(),
        Some(libc::EINPROGRESS | libc::EAGAIN | libc::ETIMEDOUT)
    );
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

/// Reads and writes give up after `limit`; `None`: never.
pub fn set_timeout(socket: &Socket, limit: Option<Duration>) -> io::Result<()> {
    socket.set_read_timeout(limit)?;
    socket.set_write_timeout(limit)
}
