//! Sessions that connect again: the driver waits on the new descriptor, and can cut it.

use std::time::Duration;

use crate::peer::{Answer, Peers};
use dyno_drive::{End, Fleet, Schedule, Spec};
use dyno_model::now_ns;

const MS: i64 = 1_000_000;

fn peers(sessions: usize, behaviour: impl Fn(usize, u64) -> Answer + Send + Sync + 'static) -> Peers {
    let mut peers = Peers::new(sessions, behaviour);
    peers.reconnect = true;
    peers
}

fn spec(threads: usize) -> Spec {
    Spec {
        threads: Some(threads),
        grace_ms: 40,
        ..Spec::default()
    }
}

#[test]
fn calls_over_new_connections_are_counted_exactly() {
    for (sessions, threads) in [(1, 1), (5, 2)] {
        let peers = peers(sessions, |_, _| Answer::After(Duration::from_micros(200)));
        let limited = Spec {
            max_calls: Some(9),
            grace_ms: 30_000,
            ..spec(threads)
        };
        let fleet = Fleet::park(peers.sessions(), &limited).unwrap();
        let now = now_ns();
        let outcome = fleet
            .run(Schedule::new(now, now, now + 60_000 * MS).unwrap())
            .unwrap();
        for (i, record) in outcome.records.iter().enumerate() {
            assert_eq!(
                (record.end.clone(), record.tally.calls, peers.served(i)),
                (End::Limit, 9, 9)
            );
        }
    }
}

#[test]
fn a_new_connection_is_the_one_that_is_cut_and_broken_off() {
    for (sessions, threads) in [(1, 1), (3, 1)] {
        for abort in [false, true] {
            let peers = peers(sessions, |_, n| if n < 2 { Answer::Well } else { Answer::Never });
            let fleet = Fleet::park(peers.sessions(), &spec(threads)).unwrap();
            let control = fleet.control().clone();
            let now = now_ns();
            let end = if abort { i64::MAX } else { now + 100 * MS };
            let running =
                std::thread::spawn(move || fleet.run(Schedule::new(now, now, end).unwrap()).unwrap());
            std::thread::sleep(Duration::from_millis(20));
            if abort {
                control.abort();
            }
            let reason = if abort { "aborted" } else { "lost" };
            let outcome = running.join().unwrap();
            assert!(outcome.records.iter().all(|r| r.end.reason() == reason));
        }
    }
}
