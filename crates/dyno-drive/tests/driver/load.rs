//! The phases of a load: in order, waited for, with their failures.

use std::time::Duration;

use crate::peer::{Answer, FakeEngine, Peers};
use dyno_drive::{Load, Phases, Spec};
use dyno_model::{Column, Table, TaskId, now_ns};

const LONG: Duration = Duration::from_secs(60);
const MS: i64 = 1_000_000;

fn load(
    sessions: usize,
    behaviour: impl Fn(usize, u64) -> Answer + Send + Sync + 'static,
) -> (Peers, Load<FakeEngine>) {
    let peers = Peers::new(sessions, behaviour);
    (peers.clone(), Load::new(FakeEngine::new(peers), Spec::default()))
}

fn run(load: &Load<FakeEngine>, ms: i64) {
    load.connect().unwrap();
    assert!(load.wait(LONG).unwrap());
    let now = now_ns();
    load.start(now, now, now + ms * MS).unwrap();
    assert!(load.wait(LONG).unwrap());
    load.finish().unwrap();
    assert!(load.wait(LONG).unwrap());
}

fn column<'a>(tables: &'a [Table], table: &str, column: &str) -> &'a Column {
    let table = tables.iter().find(|t| t.name == table).unwrap();
    &table.columns.iter().find(|c| c.0 == column).unwrap().1
}

#[test]
fn probes_around_a_load_say_what_was_served() {
    let (peers, load) = load(3, |_, _| Answer::Well);
    run(&load, 30);
    let tables = load.tables().unwrap();
    let Column::F64(values) = column(&tables, "counters", "value") else {
        panic!()
    };
    let Column::Str(phases) = column(&tables, "counters", "phase") else {
        panic!()
    };
    assert_eq!(values.iter().count(), 3 * 4);
    let last: f64 = values
        .iter()
        .zip(phases.iter())
        .filter(|(_, p)| *p == Some("after2"))
        .map(|(v, _)| v.unwrap())
        .sum();
    assert_eq!(last as u64, (0..3).map(|i| peers.served(i)).sum::<u64>());
    assert_eq!(
        load.backends(),
        [0, 1, 2].map(|n| (n, TaskId::main(1000 + n as i64)))
    );
}

#[test]
fn counters_of_a_lost_session_are_unknown() {
    let (_, load) = load(2, |s, n| {
        if s == 1 && n == 1 {
            Answer::HangUp
        } else {
            Answer::Well
        }
    });
    run(&load, 20);
    let tables = load.tables().unwrap();
    let Column::F64(values) = column(&tables, "counters", "value") else {
        panic!()
    };
    let Column::Str(status) = column(&tables, "counters", "status") else {
        panic!()
    };
    let rows = values.iter().zip(status.iter());
    let unknown: Vec<_> = rows.filter(|(v, _)| v.is_none()).collect();
    assert_eq!(unknown.len(), 2);
    assert!(unknown.iter().all(|(_, s)| *s == Some("lost")));
}

#[test]
fn one_session_that_cannot_connect_fails_all_and_says_which() {
    let mut engine = FakeEngine::new(Peers::new(5, |_, _| Answer::Well));
    engine.refuse = Some(3);
    let load = Load::new(engine, Spec::default());
    load.connect().unwrap();
    let failure = load.wait(LONG).unwrap_err();
    assert_eq!((failure.error.kind(), failure.session), ("unreachable", Some(3)));
    assert!(load.start(0, 0, 0).is_err() && load.tables().is_err());
}

#[test]
fn phases_out_of_order_are_refused() {
    let (_, load) = load(1, |_, _| Answer::Well);
    assert!(
        load.start(0, 0, 1)
            .unwrap_err()
            .to_string()
            .contains("not connected")
    );
    assert!(load.finish().is_err() && load.tables().is_err());
    load.connect().unwrap();
    load.wait(LONG).unwrap();
    assert!(load.connect().unwrap_err().to_string().contains("parked"));
    assert!(
        load.start(5, 4, 6)
            .unwrap_err()
            .to_string()
            .contains("does not hold")
    );
}

#[test]
fn wait_says_no_while_a_phase_is_under_way() {
    let (_, load) = load(1, |_, _| Answer::After(Duration::from_millis(60)));
    load.connect().unwrap();
    load.wait(LONG).unwrap();
    let now = now_ns();
    load.start(now, now, now + 1).unwrap();
    assert!(!load.wait(Duration::ZERO).unwrap());
    assert!(load.tables().is_err());
    assert!(load.wait(LONG).unwrap());
    assert!(load.tables().is_ok());
}

#[test]
fn a_load_that_never_started_can_be_finished_or_dropped() {
    let (peers, parked) = load(3, |_, _| Answer::Well);
    parked.connect().unwrap();
    parked.wait(LONG).unwrap();
    parked.finish().unwrap();
    assert!(parked.wait(LONG).unwrap());
    assert_eq!((0..3).map(|i| peers.served(i)).sum::<u64>(), 0);
    let (_, dropped) = load(3, |_, _| Answer::Well);
    dropped.connect().unwrap();
    dropped.wait(LONG).unwrap();
    drop(dropped);
}

#[test]
fn dropping_a_running_load_ends_it() {
    let (_, load) = load(3, |_, _| Answer::Never);
    load.connect().unwrap();
    load.wait(LONG).unwrap();
    let now = now_ns();
    load.start(now, now, i64::MAX).unwrap();
    drop(load);
}
