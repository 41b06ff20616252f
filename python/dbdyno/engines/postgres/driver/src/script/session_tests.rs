//! A session with scripts against a server played by hand: any split of any answer.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dyno_model::{CallEnd, Error, Progress, Result, Session, Start};
use proptest::prelude::*;
use serde_json::json;
use socket2::Socket;

use crate::client::Client;
use crate::messages::{error, message, ready};
use crate::script::plan::Plan;
use crate::script::session::ScriptSession;
use crate::wire::Wire;

/// A session in non-blocking mode, and the server's end.
fn session(text: &str, protocol: &str, max_tries: u64) -> (ScriptSession, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let scripts = json!({"files": [{"name": "t.sql", "text": text}], "max_tries": max_tries});
    let group = json!({"protocol": protocol});
    let plan = Plan::new(
        serde_json::from_value(scripts).unwrap(),
        serde_json::from_value(group).unwrap(),
    );
    let wire = Wire::Plain(Arc::new(Socket::from(OwnedFd::from(ours))));
    let mut session = ScriptSession::new(Client::new(wire), Arc::new(plan.unwrap()), 0, None);
    session.set_blocking(false).unwrap();
    (session, theirs)
}

/// One row of one column `x`.
fn row(value: &str) -> Vec<u8> {
    let described = [&b"\0\x01x\0"[..], &[0; 18]].concat();
    let length = (value.len() as u32).to_be_bytes();
    let data = [&b"\0\x01"[..], &length, value.as_bytes()].concat();
    [
        message(b'T', &described),
        message(b'D', &data),
        message(b'C', b"SELECT 1\0"),
    ]
    .concat()
}

fn sent(server: &mut UnixStream) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = server.read(&mut buffer) {
        all.extend_from_slice(&buffer[..n]);
    }
    all
}

fn contains(all: &[u8], part: &str) -> bool {
    all.windows(part.len()).any(|w| w == part.as_bytes())
}

/// Hands the session an answer in pieces of `size` bytes.
fn answer(
    session: &mut ScriptSession,
    server: &mut UnixStream,
    bytes: &[u8],
    size: usize,
) -> Result<Progress> {
    let mut progress = Ok(Progress::Read);
    for piece in bytes.chunks(size) {
        assert_eq!(progress, Ok(Progress::Read));
        server.write_all(piece).unwrap();
        progress = session.advance(&mut [0; 4096]);
    }
    progress
}

const GSET: &str = "select 1 as x \\gset p_\nselect :p_x;";

proptest! {
    #[test]
    fn a_row_in_any_split_is_set_and_sent(size in 1_usize..80, value in "[0-9]{1,12}") {
        let (mut session, mut server) = session(GSET, "simple", 1);
        prop_assert_eq!(session.begin(Start::default()), Ok(Progress::Read));
        let bytes = [row(&value), ready(b'I')].concat();
        prop_assert_eq!(answer(&mut session, &mut server, &bytes, size), Ok(Progress::Read));
        let text = format!("select {value}\0");
        prop_assert!(contains(&sent(&mut server), &text));
        prop_assert_eq!(answer(&mut session, &mut server, &ready(b'I'), size), Ok(Progress::Done(CallEnd::Ok)));
    }

    #[test]
    fn rows_of_any_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..40), size in 1_usize..50) {
        let (mut session, mut server) = session(GSET, "extended", 1);
        session.begin(Start::default()).unwrap();
        let bytes = [message(b'T', &body), message(b'D', &body), message(b'C', &body), ready(b'I')].concat();
        prop_assert!(answer(&mut session, &mut server, &bytes, size).is_ok());
    }
}

#[test]
fn gset_of_another_number_of_rows_fails_the_call_with_its_place() {
    let one = row("1");
    // The same row twice, then the end of the statement.
    let end = message(b'C', b"SELECT 1\0");
    let described_and_row = &one[..one.len() - end.len()];
    let two = [
        described_and_row,
        &described_and_row[described_and_row.len() - 12..],
        &end,
    ]
    .concat();
    for (bytes, count) in [(end.clone(), 0), (two, 2)] {
        let (mut session, mut server) = session("select 1 as x \\gset", "prepared", 1);
        session.begin(Start::default()).unwrap();
        let end = answer(&mut session, &mut server, &[bytes, ready(b'I')].concat(), 4096);
        let Ok(Progress::Done(CallEnd::Failed { code, message })) = end else {
            panic!("{end:?}")
        };
        assert_eq!(&code, b"-----");
        assert!(
            message.starts_with("t.sql:1:") && message.ends_with(&format!("returned {count}")),
            "{message}"
        );
    }
}

#[test]
fn a_serialization_failure_is_rolled_back_and_tried_again_with_the_same_numbers() {
    let text = "\\set x random(1, 1000000000)\nselect :x;";
    let (mut session, mut server) = session(text, "simple", 3);
    session.begin(Start::default()).unwrap();
    let first = sent(&mut server);
    for tries in 1..=3 {
        let bytes = [error("ERROR", "40001"), ready(b'E')].concat();
        assert_eq!(answer(&mut session, &mut server, &bytes, 7), Ok(Progress::Read));
        assert_eq!(sent(&mut server), b"Q\0\0\0\x0dROLLBACK\0");
        let end = answer(&mut session, &mut server, &ready(b'I'), 7);
        if tries < 3 {
            assert_eq!((end, sent(&mut server)), (Ok(Progress::Read), first.clone()));
        } else {
            assert!(matches!(end, Ok(Progress::Done(CallEnd::Failed { code, .. })) if &code == b"40001"));
            assert_eq!(session.retries(), 2);
        }
    }
}

#[test]
fn another_error_is_not_tried_again_and_what_is_open_at_the_end_is_rolled_back() {
    let (mut first, mut server) = session("select 1;", "simple", 0);
    first.begin(Start::default()).unwrap();
    let end = answer(
        &mut first,
        &mut server,
        &[error("ERROR", "23505"), ready(b'I')].concat(),
        4096,
    );
    assert!(matches!(end, Ok(Progress::Done(CallEnd::Failed { code, .. })) if &code == b"23505"));
    let (mut second, mut server) = session("begin;", "simple", 1);
    second.begin(Start::default()).unwrap();
    assert_eq!(
        answer(&mut second, &mut server, &ready(b'T'), 4096),
        Ok(Progress::Read)
    );
    assert!(contains(&sent(&mut server), "ROLLBACK"));
    let end = answer(&mut second, &mut server, &ready(b'I'), 4096);
    assert!(
        matches!(end, Ok(Progress::Done(CallEnd::Failed { message, .. })) if message.contains("open transaction"))
    );
}

#[test]
fn a_pipeline_is_sent_at_its_end_and_waits_for_each_sync() {
    let text = "\\startpipeline\nselect 1;\n\\syncpipeline\nselect 2;\n\\endpipeline";
    let (mut session, mut server) = session(text, "extended", 1);
    assert_eq!(session.begin(Start::default()), Ok(Progress::Read));
    let all = sent(&mut server);
    assert!(contains(&all, "select 1") && contains(&all, "select 2"));
    assert_eq!(session.round_trips(), Some(1));
    assert_eq!(
        answer(&mut session, &mut server, &ready(b'I'), 1),
        Ok(Progress::Read)
    );
    assert_eq!(
        answer(&mut session, &mut server, &ready(b'I'), 1),
        Ok(Progress::Done(CallEnd::Ok))
    );
}

#[test]
fn a_pipeline_longer_than_the_socket_reads_while_it_is_sent() {
    let statements = format!("select '{}';\n", "x".repeat(10_000)).repeat(100);
    let (mut session, mut server) = session(
        &format!("\\startpipeline\n{statements}\\endpipeline"),
        "extended",
        1,
    );
    assert_eq!(session.begin(Start::default()), Ok(Progress::Write));
    let (mut buffer, row) = (vec![0; 4096], row("1"));
    let mut progress = Ok(Progress::Write);
    while progress == Ok(Progress::Write) {
        server.write_all(&row).unwrap();
        let _ = server.read(&mut buffer);
        progress = session.advance(&mut [0; 4096]);
    }
    assert_eq!(progress, Ok(Progress::Read));
    sent(&mut server);
    assert_eq!(
        answer(&mut session, &mut server, &ready(b'I'), 9),
        Ok(Progress::Done(CallEnd::Ok))
    );
}

#[test]
fn a_mistake_while_running_has_file_line_and_command() {
    let (mut session, _server) = session("\\set x 1 / (:client_id * 0)\nselect :x;", "prepared", 1);
    let Ok(Progress::Done(CallEnd::Failed { code, message })) = session.begin(Start::default()) else {
        panic!("it went well")
    };
    assert_eq!(&code, b"-----");
    assert!(
        message.starts_with("t.sql:1: \\set x") && message.contains("zero"),
        "{message}"
    );
}

#[test]
fn a_server_that_leaves_during_a_sleep_loses_the_session() {
    let (mut session, server) = session("\\sleep 100 s", "prepared", 1);
    assert!(matches!(session.begin(Start::default()), Ok(Progress::Sleep(_))));
    drop(server);
    assert!(matches!(session.advance(&mut [0; 4096]), Err(Error::Lost(_))));
}
