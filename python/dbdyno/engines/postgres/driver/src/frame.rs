//! Message framing, sans I/O (PostgreSQL documentation, "Message Formats"): a type byte, four bytes of
//! length that count themselves, the body.
//!
//! [`Walker`] is the hot path's reader: it walks headers, skips bodies nobody asks for without looking at
//! them, and hands out the few messages that steer a call. Any split of the stream gives the same messages.

use dyno_model::{Error, Result};

/// Type byte and length.
pub(crate) const HEADER: usize = 5;
/// The server refuses to send more than 1 GB in one message; a larger length is garbage.
pub(crate) const LONGEST: usize = 0x4000_0000;
/// Bytes held of one message after start-up; rows are walked over, whatever their size.
pub const LONGEST_HELD: usize = 1024 * 1024;

/// Treatment of a message type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Completions of Parse and Bind, parameter changes, notifications: walked over.
    Skip,
    /// Row descriptions, rows and ends of statements: handed out on request, otherwise walked over.
    Row,
    /// Ready, errors, notices, copy: handed out.
    #[default]
    Keep,
    Unknown,
}

const fn kinds() -> [Kind; 256] {
    let mut kinds = [Kind::Unknown; 256];
    let mut i = 0;
    while i < b"123AKRSVntsv".len() {
        kinds[b"123AKRSVntsv"[i] as usize] = Kind::Skip;
        i += 1;
    }
    i = 0;
    while i < b"TDCI".len() {
        kinds[b"TDCI"[i] as usize] = Kind::Row;
        i += 1;
    }
    i = 0;
    while i < b"ZENGHWdc".len() {
        kinds[b"ZENGHWdc"[i] as usize] = Kind::Keep;
        i += 1;
    }
    kinds
}

static KINDS: [Kind; 256] = kinds();

/// A message that steers a call.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Message<'a> {
    /// Type byte.
    pub tag: u8,
    /// Body without header.
    pub body: &'a [u8],
}

/// Walks a stream that arrives in chunks.
#[derive(Debug, Default)]
pub struct Walker {
    /// Bytes of the present message still to be skipped.
    skip: usize,
    /// The beginning of a message that arrived in pieces: of its header, or of a kept message.
    held: Vec<u8>,
    /// `held` was handed out and is to be emptied.
    spent: bool,
    /// The least kind that is handed out.
    least: Kind,
}

impl Walker {
    /// Sets whether rows and what belongs to them are handed out, from the next message on.
    #[inline]
    pub fn want_rows(&mut self, wanted: bool) {
        self.least = if wanted { Kind::Row } else { Kind::Keep };
    }

    /// The next message that matters in `chunk` from `*at` on; `None`: the chunk is used up.
    ///
    /// # Errors
    /// [`Error::Protocol`] on what no PostgreSQL server says.
    #[inline]
    pub fn next<'a>(&'a mut self, chunk: &'a [u8], at: &mut usize) -> Result<Option<Message<'a>>> {
        if self.skip != 0 || !self.held.is_empty() {
            return self.resume(chunk, at);
        }
        self.walk(chunk, at)
    }

    /// False while only a part of a message has arrived.
    pub fn is_between_messages(&self) -> bool {
        self.skip == 0 && (self.held.is_empty() || self.spent)
    }

    #[expect(clippy::inline_always, reason = "the hot path; the other use of it is cold")]
    #[inline(always)]
    fn walk<'a>(&mut self, chunk: &'a [u8], at: &mut usize) -> Result<Option<Message<'a>>> {
        let mut rest = chunk.get(*at..).unwrap_or_default();
        *at = chunk.len();
        while let Some(&header) = rest.first_chunk() {
            let (kind, size) = parse(header)?;
            if kind < self.least {
                if size > rest.len() {
                    self.skip = size - rest.len();
                    return Ok(None);
                }
                rest = &rest[size..];
                continue;
            }
            known(kind, header)?;
            if size > rest.len() {
                break;
            }
            *at -= rest.len() - size;
            return Ok(Some(Message {
                tag: header[0],
                body: &rest[HEADER..size],
            }));
        }
        if !rest.is_empty() {
            self.held.extend_from_slice(rest);
        }
        Ok(None)
    }

    #[cold]
    fn resume<'a>(&'a mut self, chunk: &'a [u8], at: &mut usize) -> Result<Option<Message<'a>>> {
        if self.spent {
            self.spent = false;
            self.held.clear();
        }
        if !self.held.is_empty() {
            self.hold(HEADER, chunk, at);
            let Some(&header) = self.held.first_chunk() else {
                return Ok(None);
            };
            let (kind, size) = parse(header)?;
            if kind >= self.least {
                known(kind, header)?;
                // The rest of a longer one (its message, by far) is walked over.
                let most = size.min(LONGEST_HELD);
                self.hold(most, chunk, at);
                if self.held.len() < most {
                    return Ok(None);
                }
                self.skip = size - most;
                self.spent = true;
                return Ok(Some(Message {
                    tag: self.held[0],
                    body: &self.held[HEADER..],
                }));
            }
            self.held.clear();
            self.skip = size - HEADER;
        }
        let skipped = self.skip.min(chunk.len() - *at);
        self.skip -= skipped;
        *at += skipped;
        if self.skip != 0 {
            return Ok(None);
        }
        self.walk(chunk, at)
    }

    /// Moves bytes of `chunk` into `held` until that has `size`.
    fn hold(&mut self, size: usize, chunk: &[u8], at: &mut usize) {
        let take = size.saturating_sub(self.held.len()).min(chunk.len() - *at);
        self.held.extend_from_slice(&chunk[*at..*at + take]);
        *at += take;
    }
}

/// Kind and whole size of a message, from its header.
#[inline]
fn parse(header: [u8; HEADER]) -> Result<(Kind, usize)> {
    let size = length(&header) + 1;
    if (HEADER..=LONGEST).contains(&size) {
        Ok((KINDS[usize::from(header[0])], size))
    } else {
        Err(garbage(header[0], size - 1))
    }
}

#[inline]
fn known(kind: Kind, header: [u8; HEADER]) -> Result<()> {
    match kind {
        Kind::Unknown => Err(garbage(header[0], length(&header))),
        _ => Ok(()),
    }
}

pub(crate) fn length(header: &[u8]) -> usize {
    u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize
}

#[cold]
pub(crate) fn garbage(tag: u8, length: usize) -> Error {
    Error::Protocol(format!(
        "message type {:?} of length {length}: this is not a PostgreSQL server",
        char::from(tag)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::Collector;
    use proptest::prelude::*;

    type Owned = (u8, Vec<u8>);

    fn bytes(messages: &[Owned]) -> Vec<u8> {
        messages
            .iter()
            .flat_map(|(tag, body)| crate::messages::message(*tag, body))
            .collect()
    }

    /// Returns the messages that a walker finds in these chunks, and whether it ends between two.
    fn walk<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<(Vec<Owned>, bool)> {
        let mut walker = Walker::default();
        let mut kept = Vec::new();
        for chunk in chunks {
            let mut at = 0;
            while let Some(message) = walker.next(chunk, &mut at)? {
                kept.push((message.tag, message.body.to_vec()));
            }
            assert_eq!(at, chunk.len());
        }
        Ok((kept, walker.is_between_messages()))
    }

    fn collect<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Owned>> {
        let mut collector = Collector::default();
        let mut all = Vec::new();
        for chunk in chunks {
            collector.push(chunk);
            while collector.is_ready()? {
                let message = collector.take();
                all.push((message.tag, message.body.to_vec()));
            }
        }
        Ok(all)
    }

    fn messages() -> impl Strategy<Value = Vec<Owned>> {
        let tag = prop::sample::select(&b"23CDISTtnsAKZEN"[..]);
        prop::collection::vec((tag, prop::collection::vec(any::<u8>(), 0..30)), 0..12)
    }

    /// `stream` cut at these places.
    fn split<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
        let mut places: Vec<usize> = cuts.iter().map(|c| c.index(stream.len() + 1)).collect();
        places.extend([0, stream.len()]);
        places.sort_unstable();
        places.windows(2).map(|w| &stream[w[0]..w[1]]).collect()
    }

    proptest! {
        #[test]
        fn any_split_of_the_stream_gives_the_same(
            messages in messages(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let stream = bytes(&messages);
            let kept: Vec<Owned> = messages.iter().filter(|m| b"ZEN".contains(&m.0)).cloned().collect();
            let chunks = split(&stream, &cuts);
            prop_assert_eq!(walk(chunks.iter().copied()).unwrap(), (kept.clone(), true));
            prop_assert_eq!(walk(stream.chunks(1)).unwrap(), (kept, true));
            prop_assert_eq!(collect(chunks).unwrap(), messages);
        }

        #[test]
        fn a_stream_that_ends_within_a_message_is_known_to(messages in messages(), cut in 1_usize..5) {
            let stream = bytes(&messages);
            prop_assume!(!stream.is_empty());
            let part = &stream[..stream.len() - cut.min(stream.len())];
            let whole = walk([part]).unwrap();
            prop_assert_eq!(&whole, &walk(part.chunks(3)).unwrap());
            // A message has at least five bytes: one to four less end within the last.
            prop_assert!(!whole.1);
        }

        #[test]
        fn garbage_never_panics(stream in prop::collection::vec(any::<u8>(), 0..60), size in 1_usize..9) {
            // Errors come at the same message, so what was handed out before is the same.
            prop_assert_eq!(walk([&stream[..]]).is_err(), walk(stream.chunks(size)).is_err());
            let _ = collect(stream.chunks(size));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "three megabytes, made byte by byte")]
    fn of_a_long_error_in_a_call_the_beginning_is_kept() {
        let long = bytes(&[(b'E', vec![b'x'; 3 * LONGEST_HELD]), (b'Z', b"I".to_vec())]);
        let kept = vec![(b'E', vec![b'x'; LONGEST_HELD - HEADER]), (b'Z', b"I".to_vec())];
        assert_eq!(walk(long.chunks(65_536)).unwrap(), (kept, true));
    }

    #[test]
    fn an_answer_to_a_prepared_select_by_the_documentation() {
        let answer = b"2\0\0\0\x04D\0\0\0\x0b\0\x01\0\0\0\x010C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I";
        assert_eq!(walk([&answer[..]]).unwrap(), (vec![(b'Z', b"I".to_vec())], true));
    }

    #[test]
    fn what_no_server_says_is_an_error() {
        for wrong in [
            &b"HTTP/1.1 400 Bad Request"[..],
            b"\0\0\0\0\x08",
            b"Z\0\0\0\x03",
            b"D\xff\xff\xff\xff",
        ] {
            assert!(matches!(walk([wrong]), Err(Error::Protocol(_))), "{wrong:?}");
        }
    }
}
