//! Messages on the launcher's control socket (unix(7), `SOCK_SEQPACKET`): a session's socket (`SCM_RIGHTS`), or a text.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

const LONGEST_BYTES: usize = 64 * 1024;

/// A message, and the descriptor that came with it; `None`: the other end is closed.
pub fn receive(control: &OwnedFd) -> Option<(Option<OwnedFd>, Vec<u8>)> {
    let mut text = vec![0_u8; LONGEST_BYTES];
    let mut room = [0_u64; 8];
    let mut part = libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    };
    // Lengths have one type in glibc and another in musl.
    // SAFETY: the message's parts are valid for writing; the descriptor is new and ours.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_control, message.msg_controllen) = (room.as_mut_ptr().cast(), size_of_val(&room) as _);
        let got = libc::recvmsg(control.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        if got <= 0 {
            return None;
        }
        text.truncate(got as usize);
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        if head.is_null() || (*head).cmsg_type != libc::SCM_RIGHTS {
            return Some((None, text));
        }
        let fd = libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned();
        Some((Some(OwnedFd::from_raw_fd(fd)), text))
    }
}

/// Hands a session's socket to the launcher.
///
/// # Errors
/// When that has ended.
pub fn send(control: RawFd, socket: &UnixStream) -> io::Result<()> {
    let byte = 0_u8;
    let mut room = [0_u64; 4];
    let mut part = libc::iovec {
        iov_base: (&raw const byte).cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY: the message's parts are valid for reading, and the head lies in `room`.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = room.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(head)
            .cast::<RawFd>()
            .write_unaligned(socket.as_raw_fd());
        libc::sendmsg(control, &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
