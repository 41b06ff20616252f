//! Whole messages of any kind, sans I/O: for set-up and control, where every message matters.

use dyno_model::{Error, Result};

use crate::frame::{HEADER, LONGEST, LONGEST_HELD, Message, garbage, length};

/// Before the server is ready it has little to say (libpq's limits there are 2,000 and 30,000 bytes).
pub const LONGEST_IN_STARTUP: usize = 64 * 1024;

#[cold]
fn too_long(tag: u8, length: usize) -> Error {
    Error::Protocol(format!(
        "message type {:?} of {length} bytes is longer than this connection takes",
        char::from(tag)
    ))
}

/// Collects whole messages from a stream that arrives in chunks.
#[derive(Debug)]
pub struct Collector {
    buffer: Vec<u8>,
    /// Beginning of the next message.
    from: usize,
    /// Bytes of a message still to come that are dropped.
    skip: usize,
    /// Bytes held of one message. Errors and notices are cut; other messages must not be longer.
    pub longest: usize,
    /// Rows are dropped, whatever their size.
    pub without_rows: bool,
}

impl Default for Collector {
    fn default() -> Self {
        Self {
            buffer: Vec::new(),
            from: 0,
            skip: 0,
            longest: LONGEST_HELD,
            without_rows: false,
        }
    }
}

impl Collector {
    /// Adds bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.from > 0 {
            self.buffer.drain(..self.from);
            self.from = 0;
        }
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        self.buffer.extend_from_slice(&bytes[skipped..]);
    }

    /// True if a message is there: a whole one, or as much as is held of an error or a notice.
    ///
    /// # Errors
    /// [`Error::Protocol`] on what no PostgreSQL server says, and on what is longer than we hold.
    pub fn is_ready(&mut self) -> Result<bool> {
        loop {
            let rest = &self.buffer[self.from..];
            let Some(header) = rest.get(..HEADER) else {
                return Ok(false);
            };
            let (tag, length) = (header[0], length(header));
            if !tag.is_ascii_alphanumeric() || !(4..LONGEST).contains(&length) {
                return Err(garbage(tag, length));
            }
            if self.without_rows && tag == b'D' {
                self.drop_next(length + 1);
                continue;
            }
            if length < self.longest {
                return Ok(rest.len() > length);
            }
            if !matches!(tag, b'E' | b'N') {
                return Err(too_long(tag, length));
            }
            return Ok(rest.len() >= self.longest);
        }
    }

    /// Drops the next `size` bytes, those that are still to come included.
    fn drop_next(&mut self, size: usize) {
        let here = size.min(self.buffer.len() - self.from);
        self.from += here;
        self.skip = size - here;
    }

    /// Returns the bytes that were not taken.
    pub fn into_rest(mut self) -> Vec<u8> {
        self.buffer.split_off(self.from)
    }

    /// The message that [`is_ready`](Self::is_ready) found.
    ///
    /// # Panics
    /// When it found none.
    pub fn take(&mut self) -> Message<'_> {
        let from = self.from;
        let size = length(&self.buffer[from..]) + 1;
        self.drop_next(size);
        let message = &self.buffer[from..from + size.min(self.longest)];
        Message {
            tag: message[0],
            body: &message[HEADER..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Rows of any size are dropped, of errors and notices the beginning is kept, all else is too long.
        #[test]
        fn what_is_held_has_a_limit(
            messages in prop::collection::vec((prop::sample::select(&b"23CDISTtnsAKZEN"[..]), prop::collection::vec(any::<u8>(), 0..30)), 0..12), longest in 6_usize..40, size in 1_usize..50, without_rows in any::<bool>(),
        ) {
            let mut collector = Collector { longest, without_rows, ..Collector::default() };
            let stream: Vec<u8> =
                messages.iter().flat_map(|(tag, body)| crate::messages::message(*tag, body)).collect();
            let mut taken = Vec::new();
            let mut refused = false;
            'all: for chunk in stream.chunks(size) {
                collector.push(chunk);
                loop {
                    match collector.is_ready() {
                        Ok(true) => {
                            let message = collector.take();
                            taken.push((message.tag, message.body.to_vec()));
                        }
                        Ok(false) => break,
                        Err(_) => {
                            refused = true;
                            break 'all;
                        }
                    }
                }
                prop_assert!(collector.buffer.len() <= longest + size);
            }
            let fits = |m: &&(u8, Vec<u8>)| m.1.len() + HEADER <= longest;
            let is_row = |m: &&(u8, Vec<u8>)| without_rows && m.0 == b'D';
            let good = messages.iter().take_while(|m| fits(m) || is_row(m) || b"EN".contains(&m.0));
            let count = good.clone().count();
            let expected: Vec<(u8, Vec<u8>)> = good
                .filter(|m| !is_row(m))
                .map(|(tag, body)| (*tag, body[..body.len().min(longest - HEADER)].to_vec()))
                .collect();
            prop_assert_eq!(taken, expected);
            prop_assert_eq!(refused, count < messages.len());
        }
    }
}
