//! Messages on the launcher's control socket (unix(7), `SOCK_SEQPACKET`): a session's socket (`SCM_RIGHTS`), or a text.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use dyno_model::{Error, Result};

const LONGEST_BYTES: usize = 64 * 1024;

/// A descriptor of our own for the control socket that has this number in the process. The number is used in this call
/// alone: whoever gave it may close it afterwards.
///
/// # Errors
/// [`Error::Spec`] where the number belongs to no such socket.
pub fn own(number: RawFd) -> Result<OwnedFd> {
    let wrong = |why: &str| Err(Error::Spec(format!("control socket of the launcher: {why}")));
    // SAFETY: a number of no open file is refused; the descriptor is new and ours.
    let control = unsafe {
        let fd = libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3);
        if fd < 0 {
            return wrong(&io::Error::last_os_error().to_string());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let is = |name, wanted| option(&control, name) == Some(wanted);
    if is(libc::SO_DOMAIN, libc::AF_UNIX) && is(libc::SO_TYPE, libc::SOCK_SEQPACKET) {
        Ok(control)
    } else {
        wrong("this descriptor is another file")
    }
}

/// An option of a socket; `None`: it is no socket.
fn option(socket: &OwnedFd, name: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of_val(&value) as libc::socklen_t;
    let (fd, place) = (socket.as_raw_fd(), (&raw mut value).cast());
    // SAFETY: the value is valid for writing, of the size that is given.
    let done = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, place, &raw mut size) };
    (done == 0).then_some(value)
}

/// A message, and the descriptor that came with it; `None`: the other end is closed.
pub fn receive(control: &OwnedFd) -> Option<(Option<OwnedFd>, Vec<u8>)> {
    let mut text = vec![0_u8; LONGEST_BYTES];
    let mut room = [0_u64; 4];
    let mut part = libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    };
    // Lengths have one type in glibc and another in musl.
    // SAFETY: the message's parts are valid for writing; the descriptor is new and ours.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = room.as_mut_ptr().cast();
        // One descriptor fits: the system gives us no other.
        message.msg_controllen = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        let got = libc::recvmsg(control.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        if got <= 0 {
            return None;
        }
        text.truncate(got as usize);
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        let is_rights =
            |head: &libc::cmsghdr| (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        if head.is_null() || !is_rights(&*head) {
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
pub fn send(control: BorrowedFd<'_>, socket: &UnixStream) -> io::Result<()> {
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
        libc::sendmsg(control.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;

    fn control() -> (OwnedFd, OwnedFd) {
        let mut both = [0; 2];
        // SAFETY: both are valid for writing, then new and ours.
        unsafe {
            let done = libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, both.as_mut_ptr());
            assert_eq!(done, 0);
            (OwnedFd::from_raw_fd(both[0]), OwnedFd::from_raw_fd(both[1]))
        }
    }

    #[test]
    fn a_socket_that_is_handed_over_is_the_same_one() {
        let (here, yonder) = control();
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(here.as_fd(), &theirs).unwrap();
        drop(theirs);
        let (socket, text) = receive(&yonder).unwrap();
        UnixStream::from(socket.unwrap()).write_all(b"x").unwrap();
        let mut all = Vec::new();
        (&ours).read_to_end(&mut all).unwrap();
        assert_eq!((all, text), (b"x".to_vec(), vec![0]));
        drop(here);
        assert!(receive(&yonder).is_none());
    }

    #[test]
    fn a_number_of_another_file_is_refused_and_left_open() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for number in [-1, RawFd::MAX, ours.as_raw_fd(), file.as_raw_fd()] {
            assert!(matches!(own(number), Err(Error::Spec(_))), "{number}");
        }
        (&ours).write_all(b"x").unwrap();
        theirs.read_exact(&mut [0]).unwrap();
        let (here, _yonder) = control();
        let owned = own(here.as_raw_fd()).unwrap();
        assert_ne!(owned.as_raw_fd(), here.as_raw_fd());
    }
}
