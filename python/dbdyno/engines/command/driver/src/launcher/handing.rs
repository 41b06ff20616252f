//! Messages on the launcher's control socket (unix(7), `SOCK_SEQPACKET`): a session's socket (`SCM_RIGHTS`), or a text.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use dyno_model::{Error, Result};
use rustix::cmsg_space;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, recvmsg, sendmsg,
};

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
    if socket_domain(&control) == Ok(AddressFamily::UNIX)
        && socket_type(&control) == Ok(SocketType::SEQPACKET)
    {
        Ok(control)
    } else {
        wrong("this descriptor is another file")
    }
}

/// Receives a message and the descriptor that came with it. `None` if the other end is closed.
pub fn receive(control: &OwnedFd) -> Option<(Option<OwnedFd>, Vec<u8>)> {
    let mut text = vec![0_u8; LONGEST_BYTES];
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let parts = &mut [IoSliceMut::new(&mut text)];
    let received = recvmsg(control, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    if received.bytes == 0 {
        return None;
    }
    text.truncate(received.bytes);
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Some((descriptor, text))
}

/// Hands a session's socket to the launcher.
///
/// # Errors
/// When the launcher has ended.
pub fn send(control: BorrowedFd<'_>, socket: &UnixStream) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    let descriptors = [socket.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(
        control,
        &[IoSlice::new(&[0])],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    use rustix::net::{SocketFlags, socketpair};

    use super::*;

    fn control() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap()
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
