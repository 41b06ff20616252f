//! The byte stream below the protocol: a plain socket, or TLS over one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use socket2::Socket;

use crate::socket::{recv, send};
use crate::tls::TlsStream;

/// A connected byte stream. Plain text pays one predictable branch for the choice.
pub enum Wire {
    /// The socket itself.
    Plain(Arc<Socket>),
    /// TLS over it.
    Tls(Box<TlsStream>),
}

impl Wire {
    /// The socket below.
    #[inline]
    pub fn socket(&self) -> &Arc<Socket> {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// Descriptor to wait on.
    #[inline]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }

    /// Reads what is there; 0 is the end of the stream.
    #[inline]
    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => recv(socket.as_fd(), buffer),
            Self::Tls(tls) => tls.recv(buffer),
        }
    }

    /// Sends as much as can be; the rest is for a later call.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => send(socket.as_fd(), bytes),
            Self::Tls(tls) => tls.send(bytes),
        }
    }

    /// Pushes out what [`send`](Self::send) took but the socket did not.
    #[inline]
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Until when reads may last that need several of the socket's; `None`: for ever.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        if let Self::Tls(tls) = self {
            tls.deadline = deadline;
        }
    }

    /// Sends all of `bytes`, on a blocking socket.
    pub fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.send(bytes)?;
            bytes = &bytes[sent..];
        }
        self.flush()
    }
}
