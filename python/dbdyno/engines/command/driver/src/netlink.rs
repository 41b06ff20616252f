//! A netlink socket that the kernel sends task statistics to.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_timeout,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, netlink, socket_with};

pub(crate) const HEADER: usize = 20; // of netlink, and of the generic family
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const TASKSTATS_GET: u8 = 1;
const REGISTER_CPUMASK: u16 = 3;
const ERROR: u16 = 2;
const PATIENCE: Duration = Duration::from_millis(100);
/// More than any message of the kernel has.
pub(crate) const MESSAGE: usize = 1 << 16;
/// In `asm-generic/socket.h`; libc has no name for it.
const SO_MEMINFO: libc::c_int = 55;
/// `SK_MEMINFO_DROPS` of `linux/sock_diag.h`: index in the answer to `SO_MEMINFO`.
const DROPS: usize = 8;

/// Subscribes to the ends of tasks on all CPUs, with `room` bytes for messages.
///
/// # Errors
/// The system's: `EPERM` without the right, `ENOENT` without such statistics.
pub(crate) fn subscribe(room: usize) -> io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::GENERIC),
    )?;
    set_socket_recv_buffer_size_force(&socket, room)
        .or_else(|_| set_socket_recv_buffer_size(&socket, room))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    send(
        &socket,
        CONTROL,
        GET_FAMILY,
        &attribute(FAMILY_NAME, b"TASKSTATS\0"),
    )?;
    let mut buffer = vec![0; MESSAGE];
    let message = loop {
        // statistics for a closed socket of the same address may come first
        let message = answer(&socket, &mut buffer)?;
        refusal(message)?;
        if kind(message) == Some(CONTROL) {
            break message;
        }
    };
    let (all, _) = attributes(message.get(HEADER..).unwrap_or_default());
    let family = all.into_iter().find(|(kind, _)| *kind == FAMILY_ID);
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
        let message = answer(&socket, &mut buffer)?;
        let ours = message.get(8..12) == Some(&2_u32.to_ne_bytes());
        if refusal(message)? && ours {
            return Ok(socket);
        }
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
    rustix::net::send(socket, &message, SendFlags::empty())?;
    Ok(())
}

/// A datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A datagram of the kernel, of this length.
    Of(usize),
    /// A datagram of the kernel that is longer than the buffer.
    Cut,
    /// A datagram of another process.
    Foreign,
}

/// Receives a datagram; waits for it at most 100 ms.
///
/// # Errors
/// The system's: `ENOBUFS` after messages found no room, `EAGAIN` if none came.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Message> {
    // SAFETY: all zero is a value of both.
    let (mut sender, mut header): (libc::sockaddr_nl, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
    let mut room = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    header.msg_name = (&raw mut sender).cast();
    header.msg_namelen = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    header.msg_iov = &raw mut room;
    header.msg_iovlen = 1;
    // SAFETY: an address and one room, which live until the call is over.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let named = header.msg_namelen as usize >= size_of::<libc::sockaddr_nl>();
    Ok(if !named || sender.nl_pid != 0 {
        Message::Foreign
    } else if header.msg_flags & libc::MSG_TRUNC != 0 {
        Message::Cut
    } else {
        Message::Of(length)
    })
}

/// The kernel's next answer while nothing is subscribed to yet, or not for long.
fn answer<'b>(socket: &OwnedFd, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    loop {
        match receive(socket, buffer) {
            Ok(Message::Of(length)) => return Ok(&buffer[..length]),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Number of messages that the socket had no room for. `None` on a kernel before 4.12.
pub(crate) fn drops(socket: &OwnedFd) -> Option<u64> {
    let mut figures = [0_u32; DROPS + 1];
    let mut size = size_of_val(&figures) as libc::socklen_t;
    // SAFETY: room of this size.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            figures.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    (failed == 0 && size as usize == size_of_val(&figures)).then(|| u64::from(figures[DROPS]))
}

/// Returns a message's type: the family it is from, or [`ERROR`].
fn kind(message: &[u8]) -> Option<u16> {
    let bytes = message.get(4..6)?;
    Some(u16::from_ne_bytes([bytes[0], bytes[1]]))
}

/// Whether a message is an acknowledgement; its error if it is one.
fn refusal(message: &[u8]) -> io::Result<bool> {
    if kind(message) != Some(ERROR) {
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

pub(crate) fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + data.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Kind and data of each attribute, and whether they fill `bytes`.
pub(crate) fn attributes(mut bytes: &[u8]) -> (Vec<(u16, &[u8])>, bool) {
    let mut all = Vec::new();
    while let Some(&[a, b, c, d]) = bytes.first_chunk() {
        let (length, kind) = (
            usize::from(u16::from_ne_bytes([a, b])),
            u16::from_ne_bytes([c, d]),
        );
        let Some(data) = bytes.get(4..length) else { break };
        all.push((kind & 0x3fff, data));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    (all, bytes.is_empty())
}
