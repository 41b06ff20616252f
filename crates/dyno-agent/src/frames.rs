//! Frames: two lengths, a JSON header, a body of bytes. See the README.

use std::io::{self, ErrorKind, Read};

use serde_json::{Map, Value};

/// Longest header of a request: a specification with its scripts.
pub const MOST_HEADER_BYTES: u32 = 64 << 20;
/// Longest header of an answer, which a client parses though it need not trust the host.
pub const MOST_ANSWER_HEADER_BYTES: u32 = 16 << 20;
/// Longest body of a request.
pub const MOST_REQUEST_BYTES: u32 = 64 << 20;
/// Longest body of an answer.
pub const MOST_ANSWER_BYTES: u32 = 1 << 30;

/// A header and its body.
#[derive(Debug, Default, PartialEq)]
pub struct Frame {
    /// A JSON object.
    pub header: Map<String, Value>,
    /// Bytes that belong to the header.
    pub body: Vec<u8>,
}

/// Returns the next request, or None at the end of the stream.
///
/// # Errors
/// `InvalidData` for what is no frame, `UnexpectedEof` in the middle of one, or what `from` says.
pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut lengths = [0; 8];
    match from.read(&mut lengths[..1])? {
        0 => return Ok(None),
        _ => from.read_exact(&mut lengths[1..])?,
    }
    let length = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| lengths[at + i]));
    let (header, body) = (length(0), length(4));
    if header > MOST_HEADER_BYTES || body > MOST_REQUEST_BYTES {
        return Err(no_frame(&format!(
            "a frame of {header} + {body} bytes is too long"
        )));
    }
    let header = bytes(from, header)?;
    let header = serde_json::from_slice(&header).map_err(|_| no_frame("a header is a JSON object"))?;
    let body = bytes(from, body)?;
    Ok(Some(Frame { header, body }))
}

/// Returns `length` bytes. Memory is allocated as they come, so that a length alone takes none.
fn bytes(from: &mut impl Read, length: u32) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut read)?;
    if read.len() < length as usize {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(read)
}

fn no_frame(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// Returns lengths and header as they go over the wire before `body`.
///
/// # Errors
/// `InvalidInput` where one of the two is too long.
pub fn start(header: &Value, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut start = vec![0; 8];
    serde_json::to_writer(&mut start, header)?;
    let length = |bytes: usize, most: u32| match u32::try_from(bytes) {
        Ok(length) if length <= most => Ok(length.to_le_bytes()),
        _ => Err(io::Error::new(ErrorKind::InvalidInput, "an answer is too long")),
    };
    let (first, second) = (
        length(start.len() - 8, MOST_ANSWER_HEADER_BYTES)?,
        length(body.len(), MOST_ANSWER_BYTES)?,
    );
    start[..4].copy_from_slice(&first);
    start[4..8].copy_from_slice(&second);
    Ok(start)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wire(header: &Value, body: &[u8]) -> Vec<u8> {
        [&start(header, body).unwrap(), body].concat()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let sent = wire(&json!({"id": 1, "op": "clock"}), b"abc");
        let mut stream = sent.as_slice();
        let frame = read(&mut stream).unwrap().unwrap();
        assert_eq!(
            (frame.header["op"].as_str(), frame.body.as_slice()),
            (Some("clock"), &b"abc"[..])
        );
        assert_eq!(read(&mut stream).unwrap(), None);
    }

    #[test]
    fn an_answer_s_header_is_bounded() {
        let long = json!({"id": 1, "ok": "x".repeat(MOST_ANSWER_HEADER_BYTES as usize)});
        assert_eq!(start(&long, b"").unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_frame_that_is_none_is_an_error() {
        let kind = |bytes: &[u8]| read(&mut &*bytes).unwrap_err().kind();
        assert_eq!(kind(&[0xff; 8]), ErrorKind::InvalidData, "too long");
        assert_eq!(kind(&[1, 0, 0, 0, 0, 0, 0, 0, b'{']), ErrorKind::InvalidData);
        assert_eq!(
            kind(&[2, 0, 0, 0, 0, 0, 0, 0, b'[', b']']),
            ErrorKind::InvalidData
        );
        let whole = wire(&json!({"id": 1}), b"abc");
        for cut in 1..whole.len() {
            assert_eq!(kind(&whole[..cut]), ErrorKind::UnexpectedEof, "cut after {cut}");
        }
    }
}
