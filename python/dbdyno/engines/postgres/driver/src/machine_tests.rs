//! Whole calls without a socket: every answer in pieces, split at each byte.

use std::sync::Arc;

use dyno_model::{Breaker, CallEnd, Error, Result, Start};
use serde_json::json;

use crate::machine::{Machine, ROLLBACK, Step};
use crate::messages::{error, message, query, ready};
use crate::plan::Plan;
use crate::script;
use crate::script::session::ScriptCalls;
use crate::session::ConstantCalls;

const PREPARED: &str = "prepared";

fn constant(protocol: &str, call: &[&str]) -> ConstantCalls {
    let call: Vec<_> = call.iter().map(|sql| json!({"sql": sql})).collect();
    let spec = serde_json::from_value(json!({"protocol": protocol, "call": call})).unwrap();
    ConstantCalls::new(Arc::new(Plan::new(spec).unwrap()))
}

fn scripted(text: &str, protocol: &str) -> ScriptCalls {
    let scripts = json!({"files": [{"name": "t.sql", "text": text}], "max_tries": 2});
    let group = json!({"protocol": protocol});
    let plan = script::plan::Plan::new(
        serde_json::from_value(scripts).unwrap(),
        serde_json::from_value(group).unwrap(),
    );
    ScriptCalls::new(Arc::new(plan.unwrap()), 0, Breaker::default())
}

fn notice() -> Vec<u8> {
    message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mwords\0\0")
}

/// A bound statement, a row, the end of the statement, and that the server is ready.
fn row() -> Vec<u8> {
    let data = b"\0\x01\0\0\0\x017";
    let parts = [
        message(b'2', b""),
        message(b'D', data),
        message(b'C', b"SELECT 1\0"),
        ready(b'I'),
    ];
    parts.concat()
}

/// Takes the pending bytes in two parts.
fn take_pending(machine: &mut impl Machine) -> Vec<u8> {
    let all = machine.pending().to_vec();
    machine.sent(all.len() / 2);
    assert_eq!(machine.pending(), &all[all.len() / 2..]);
    machine.sent(all.len() - all.len() / 2);
    assert!(machine.pending().is_empty());
    all
}

/// Feeds an answer in two pieces; the first asks for more.
fn feed(machine: &mut impl Machine, answer: &[u8], at: usize) -> Result<Step> {
    if at > 0 {
        assert_eq!(machine.feed(&answer[..at]), Ok(Step::Read));
    }
    machine.feed(&answer[at..])
}

/// One call: each message that is sent, and the answer to it. Returns how the call ends.
fn call(machine: &mut impl Machine, exchanges: &[(&[u8], &[u8])], at: usize) -> Result<Step> {
    let mut step = machine.begin(Start::default());
    for (expected, answer) in exchanges {
        assert_eq!(step, Ok(Step::Send));
        let sent = take_pending(machine);
        assert!(sent.starts_with(expected), "{sent:?}");
        step = feed(machine, answer, at.min(answer.len() - 1));
    }
    step
}

/// The same call of both machines, its answers split at each byte, three times in a row on one connection.
fn assert_ends(text: &str, protocol: &str, exchanges: &[(&[u8], &[u8])], end: &CallEnd) {
    let longest = exchanges.iter().map(|(_, answer)| answer.len()).max().unwrap();
    for at in 0..longest {
        let mut constant = constant(protocol, &[text]);
        let mut scripted = scripted(&format!("{text};"), protocol);
        scripted.prepared(0);
        for trips in 1..=3 {
            let trips = trips * exchanges.len() as u64;
            assert_eq!(call(&mut constant, exchanges, at), Ok(Step::Done(end.clone())));
            assert_eq!(call(&mut scripted, exchanges, at), Ok(Step::Done(end.clone())));
            assert_eq!((constant.round_trips(), scripted.round_trips()), (trips, trips));
        }
    }
}

#[test]
fn a_prepared_call_whatever_the_split_of_its_answer() {
    assert_ends("select 7", PREPARED, &[(b"B", &row())], &CallEnd::Ok);
}

#[test]
fn a_simple_query_is_its_text() {
    let sent = query("select 7");
    assert_ends("select 7", "simple", &[(&sent, &row())], &CallEnd::Ok);
}

#[test]
fn an_error_fails_the_call_and_what_it_left_open_is_rolled_back() {
    let failed = CallEnd::Failed {
        code: *b"22012",
        message: "words".into(),
    };
    let answer = [error("ERROR", "22012"), ready(b'I')].concat();
    assert_ends("select 7", PREPARED, &[(b"B", &answer)], &failed);
    let open = [error("ERROR", "22012"), ready(b'E')].concat();
    let rolled_back = [message(b'C', b"ROLLBACK\0"), ready(b'I')].concat();
    let exchanges = [(&b"B"[..], &open[..]), (ROLLBACK, &rolled_back)];
    assert_ends("select 7", PREPARED, &exchanges, &failed);
}

#[test]
fn a_notice_in_between_is_counted_and_ends_nothing() {
    let answer = [notice(), notice(), row()].concat();
    assert_ends("select 7", PREPARED, &[(b"B", &answer)], &CallEnd::Ok);
    let mut machine = constant(PREPARED, &["select 7"]);
    machine.begin(Start::default()).unwrap();
    assert_eq!(machine.feed(&notice()), Ok(Step::Read));
    let remark = machine.incoming().remark().unwrap();
    assert!(remark.contains("1 notices"), "{remark}");
    assert_eq!(machine.feed(&row()), Ok(Step::Done(CallEnd::Ok)));
    machine.begin(Start::default()).unwrap();
    assert_eq!(machine.incoming().remark(), None);
}

#[test]
fn the_statements_of_a_call_are_sent_one_after_another() {
    let (row, first, second) = (row(), query("select 7"), query("select 8"));
    for at in 0..row.len() {
        let exchanges = [(&first[..], &row[..]), (&second, &row)];
        let mut machine = constant("simple", &["select 7", "select 8"]);
        assert_eq!(call(&mut machine, &exchanges, at), Ok(Step::Done(CallEnd::Ok)));
    }
}

#[test]
fn a_fatal_error_and_a_copy_lose_the_session_at_any_split() {
    for (answer, words) in [
        (error("FATAL", "57P01"), "words (57P01)"),
        (message(b'G', &[0; 3]), "COPY"),
    ] {
        for at in 0..answer.len() {
            for done in [
                call(&mut constant(PREPARED, &["select 7"]), &[(b"B", &answer)], at),
                call(&mut scripted("select 7;", "simple"), &[(b"Q", &answer)], at),
            ] {
                assert!(
                    matches!(&done, Err(Error::Lost(why)) if why.contains(words)),
                    "{done:?}"
                );
            }
        }
    }
}

#[test]
fn a_pause_is_a_step_and_what_follows_it_is_sent() {
    let mut machine = scripted("\\sleep 1 ms\nselect 7;", "simple");
    let step = machine.begin(Start::default()).unwrap();
    assert!(matches!(step, Step::Sleep(_)), "{step:?}");
    assert_eq!(machine.resume(), Ok(Step::Send));
    assert_eq!(take_pending(&mut machine), query("select 7"));
    assert_eq!(machine.feed(&row()), Ok(Step::Done(CallEnd::Ok)));
}

#[test]
fn an_answer_before_all_is_sent_is_not_the_whole_one() {
    let mut machine = scripted("select 7;", "simple");
    machine.begin(Start::default()).unwrap();
    machine.sent(3);
    assert_eq!(machine.feed(&notice()), Ok(Step::Read));
    assert_eq!(machine.feed(&row()), Ok(Step::Read));
}
