//! Properties of any bytes, one function per target. `make fuzz` calls them with bytes that cargo-fuzz finds, the tests below
//! with the seeds in `fuzz/seeds` and mutations of them.

mod call;
mod script;
mod startup;

pub use call::call;
pub use script::script;
pub use startup::startup;

use dyno_model::Error;

use crate::collector::Collector;
use crate::frame::{HEADER, LONGEST, LONGEST_HELD, Walker};
use crate::plan::Protocol;
use crate::script::{FileSpec, ScriptSessionSpec, ScriptsSpec};
use crate::server_error::ServerError;
use crate::x509;

/// A script with these variables, and one session that runs it.
fn specs(text: &str, variables: &[(&str, &str)], protocol: Protocol) -> (ScriptsSpec, ScriptSessionSpec) {
    let scripts = ScriptsSpec {
        files: vec![FileSpec {
            name: "t.sql".to_owned(),
            text: text.to_owned(),
            weight: 1,
        }],
        variables: variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        max_tries: 1,
        reconnect: false,
        allow_shell: false,
        seed: 1,
        first_client: 0,
    };
    let session = ScriptSessionSpec {
        count: 1,
        setup: Vec::new(),
        protocol,
        validation: None,
        warm: Vec::new(),
        pause_ms: 0,
    };
    (scripts, session)
}

/// Whole messages of a stream, type and body, read in the plainest way; the readers are compared with it.
fn messages(stream: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = stream;
    std::iter::from_fn(move || {
        let (message, after) = rest.split_at_checked(size(rest)?)?;
        rest = after;
        Some((message[0], message.get(HEADER..)?))
    })
}

/// Size of the message at the beginning, header included, as the header has it.
fn size(stream: &[u8]) -> Option<usize> {
    let [_, length @ ..] = stream.first_chunk::<HEADER>()?;
    Some(1 + u32::from_be_bytes(*length) as usize)
}

/// Framing: both readers of messages agree with the plain one, whatever the pieces. The first byte is the size of the
/// pieces, the lowest bit of the second says whether rows are wanted.
pub fn frames(data: &[u8]) {
    let [most, rows, stream @ ..] = data else {
        return;
    };
    let pieces = || stream.chunks(usize::from(*most).max(1));
    let skipped: &[u8] = if rows & 1 == 1 {
        b"123AKRSVntsv"
    } else {
        b"123AKRSVntsvTDCI"
    };
    let is_wanted = |tag: u8| b"ZENGHWdc".contains(&tag) || (rows & 1 == 1 && b"TDCI".contains(&tag));
    let is_known = |tag| is_wanted(tag) || skipped.contains(&tag);
    let fits = |body: &[u8]| body.len() + HEADER < LONGEST_HELD;
    let mut walker = Walker::default();
    walker.want_rows(rows & 1 == 1);
    let (mut out, mut refused) = (Vec::new(), false);
    'stream: for piece in pieces() {
        let mut at = 0;
        loop {
            match walker.next(piece, &mut at) {
                Ok(Some(message)) => out.push((message.tag, message.body.to_vec())),
                Ok(None) => break,
                Err(error) => {
                    assert!(matches!(error, Error::Protocol(_)), "{error}");
                    refused = true;
                    break 'stream;
                }
            }
        }
        assert_eq!(at, piece.len());
    }
    let known: Vec<_> = messages(stream).take_while(|(tag, _)| is_known(*tag)).collect();
    let wanted: Vec<_> = known.iter().filter(|(tag, _)| is_wanted(*tag)).collect();
    assert!(
        wanted.iter().all(|(_, body)| fits(body)),
        "seeds and mutations are short"
    );
    assert!(
        out.iter()
            .map(|(tag, body)| (*tag, &body[..]))
            .eq(wanted.into_iter().copied())
    );
    let end: usize = known.iter().map(|(_, body)| HEADER + body.len()).sum();
    let rest = &stream[end..];
    let possible = size(rest).is_none_or(|size| (HEADER..=LONGEST).contains(&size) && is_known(rest[0]));
    assert_eq!(refused, !possible);
    assert!(refused || walker.is_between_messages() == rest.is_empty());
    collected(pieces(), stream);
}

/// The collector hands out all messages up to one that it refuses, and keeps what is left.
fn collected<'a>(pieces: impl Iterator<Item = &'a [u8]>, stream: &[u8]) {
    let mut collector = Collector::default();
    let mut plain = messages(stream);
    let mut taken = 0;
    for piece in pieces {
        collector.push(piece);
        loop {
            match collector.is_ready() {
                Ok(true) => {
                    let message = collector.take();
                    assert_eq!(plain.next(), Some((message.tag, message.body)));
                    taken += HEADER + message.body.len();
                }
                Ok(false) => break,
                Err(error) => {
                    assert!(matches!(error, Error::Protocol(_)), "{error}");
                    return;
                }
            }
        }
    }
    assert_eq!(plain.next(), None);
    assert_eq!(collector.into_rest(), &stream[taken..]);
}

/// Errors and notices: what is kept has a bound, and is read again as it is.
pub fn server_error(body: &[u8]) {
    let error = ServerError::parse(body);
    // A byte that is no text becomes a character of three; message, detail and hint are joined.
    assert!(error.message.len() <= 5 * body.len());
    let ends = [&b"FATAL"[..], b"PANIC"];
    let severities = body.split(|&b| b == 0).filter_map(|field| match field {
        [b'V' | b'S', text @ ..] => Some(text),
        _ => None,
    });
    assert_eq!(
        error.fatal,
        severities.into_iter().any(|text| ends.contains(&text))
    );
    let severity = if error.fatal { "FATAL" } else { "ERROR" };
    let mut again = format!("V{severity}\0M{}\0", error.message).into_bytes();
    again.extend(
        error
            .position
            .map_or(String::new(), |p| format!("P{p}\0"))
            .bytes(),
    );
    again.extend([&b"C"[..], &error.sqlstate, b"\0\0"].concat());
    // Longer texts are cut.
    if error.message.len() <= 8 * 1024 {
        assert_eq!(ServerError::parse(&again), error);
    }
    let is_identity = error.sqlstate.starts_with(b"28");
    let connecting = error.clone().into_connect_error();
    assert_eq!(matches!(connecting, Error::Authentication { .. }), is_identity);
    let fatal = error.fatal;
    assert_eq!(matches!(error.into_session_error(), Error::Lost(_)), fatal);
}

/// Certificates: what is read lies within them, and nothing is read of one that is cut off.
pub fn certificate(der: &[u8]) {
    let name = x509::common_name(der);
    assert!(name.as_ref().is_none_or(|name| name.len() <= 3 * der.len()));
    let key = x509::public_key(der);
    assert!(key.is_none_or(|(kind, key)| kind.len() + key.len() < der.len()));
    let dates = x509::validity(der);
    // Years have at most four digits; hours, minutes and seconds two.
    let possible = -62_200_000_000..253_500_000_000;
    assert!(dates.is_none_or(|(from, until)| possible.contains(&from) && possible.contains(&until)));
    let hash = x509::end_point(der);
    assert!(
        hash.as_ref()
            .is_none_or(|hash| [28, 32, 48, 64].contains(&hash.len()))
    );
    let _ = x509::has_alternative_names(der);
    let cut = &der[..der.len().saturating_sub(1)];
    let more = [der, b"\0\0"].concat();
    if name.is_some() || key.is_some() || dates.is_some() {
        assert_eq!(x509::common_name(&more), name);
        assert_eq!(x509::public_key(&more), key);
        assert_eq!(x509::validity(&more), dates);
        // Without a byte that lies behind the certificate, it is the same one.
        let whole =
            x509::public_key(cut) == key && x509::validity(cut) == dates && x509::common_name(cut) == name;
        let none = x509::public_key(cut).is_none()
            && x509::validity(cut).is_none()
            && x509::common_name(cut).is_none();
        assert!(whole || none);
    }
}

#[cfg(test)]
#[path = "../../../../../../../fuzz/mutations.rs"]
mod mutations;

#[cfg(test)]
mod tests {
    use super::mutations::try_all;

    #[test]
    fn frames() {
        try_all("frames", 3000, super::frames);
    }

    #[test]
    fn call() {
        try_all("call", 1000, super::call);
    }

    #[test]
    fn startup() {
        try_all("startup", 3000, super::startup);
    }

    #[test]
    fn server_error() {
        try_all("server_error", 3000, super::server_error);
    }

    #[test]
    fn certificate() {
        try_all("certificate", 3000, super::certificate);
    }

    #[test]
    fn script() {
        try_all("script", 3000, super::script);
    }
}
