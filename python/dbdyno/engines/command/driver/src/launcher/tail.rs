//! Output of a command: read so that the command never waits, counted, and its end kept.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use crate::protocol::Printed;

const READ_BYTES: usize = 64 * 1024;
/// Reads in a row, before other things are looked at.
const READS: usize = 16;

/// A pipe whose writing end commands get, and the end of what they wrote.
#[derive(Debug)]
pub struct Tail {
    reader: io::PipeReader,
    writer: io::PipeWriter,
    kept: Vec<u8>,
    most: usize,
    bytes: u64,
    buffer: Vec<u8>,
}

impl Tail {
    /// A pipe of whose output `most` bytes are kept.
    ///
    /// # Errors
    /// When the system has no pipe left.
    pub fn new(most: usize) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok(Self {
            reader,
            writer,
            kept: Vec::new(),
            most,
            bytes: 0,
            buffer: vec![0; READ_BYTES],
        })
    }

    /// The reading end, to wait on.
    pub fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// The writing end, for commands.
    pub fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    /// Reads what is there; true if there may be more.
    pub fn drain(&mut self) -> bool {
        for _ in 0..READS {
            match self.reader.read(&mut self.buffer) {
                Ok(n) if n > 0 => self.take(n),
                _ => return false,
            }
        }
        true
    }

    fn take(&mut self, n: usize) {
        self.bytes += n as u64;
        self.kept.extend(&self.buffer[..n]);
        // Now and then, so that a byte is moved about once.
        if self.kept.len() > 2 * self.most + READ_BYTES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.kept.len().saturating_sub(self.most);
        self.kept.drain(..over);
    }

    /// Returns the end of what was printed since the call before.
    pub fn finish(&mut self) -> Printed {
        self.cut();
        let printed = Printed {
            bytes: self.bytes,
            text: String::from_utf8_lossy(&self.kept).into_owned(),
        };
        self.bytes = 0;
        self.kept.clear();
        self.kept.shrink_to(READ_BYTES);
        printed
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_end_is_kept_and_all_is_counted() {
        let mut tail = Tail::new(5).unwrap();
        for part in 0..100 {
            let written = tail
                .writer
                .write(format!("{part:08}").repeat(1000).as_bytes())
                .unwrap();
            assert_eq!(written, 8000);
            tail.drain();
        }
        let printed = tail.finish();
        assert_eq!((printed.bytes, printed.text.as_str()), (800_000, "00099"));
        assert_eq!(tail.finish(), Printed::default());
    }
}
