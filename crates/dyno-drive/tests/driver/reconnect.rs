//! Sessions that connect again: the driver waits on the new descriptor, and can cut it.

use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
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

/// A socket of this process, of no session, with that number where that is free; and its other end.
fn witness_at(number: RawFd) -> (UnixStream, UnixStream) {
    let (one, other) = UnixStream::pair().unwrap();
    if other.as_raw_fd() == number {
        (other, one)
    } else {
        (one, other)
    }
}

/// The first message; `None`: the load ended without one.
fn first<T, R>(coming: &mpsc::Receiver<T>, load: &std::thread::JoinHandle<R>) -> Option<T> {
    loop {
        let over = load.is_finished();
        match coming.recv_timeout(Duration::from_millis(10)) {
            Ok(found) => return Some(found),
            Err(_) if over => return None,
            Err(_) => {}
        }
    }
}

/// While a session connects again, its old number may be another socket's already.
#[test]
fn another_socket_with_the_old_number_is_neither_cut_nor_broken_off() {
    let mut reused = 0;
    for abort in [false, true].repeat(10) {
        let (ended, wait_for_end) = mpsc::channel::<()>();
        let (connected, wait_for_connection) = mpsc::channel();
        let wait_for_end = Mutex::new(wait_for_end);
        let mut peers = peers(1, |_, _| Answer::Never);
        peers.closed = Some(Arc::new(move |number| {
            connected.send((number, witness_at(number))).unwrap();
            let _ = wait_for_end.lock().unwrap().recv();
        }));
        let fleet = Fleet::park(peers.sessions(), &spec(1)).unwrap();
        let control = fleet.control().clone();
        let now = now_ns();
        let end = if abort { i64::MAX } else { now + 20 * MS };
        let running = std::thread::spawn(move || fleet.run(Schedule::new(now, now, end).unwrap()).unwrap());
        let Some((number, (witness, mut peer))) = first(&wait_for_connection, &running) else {
            continue; // the load began so late that its end came before any call
        };
        if abort {
            control.abort();
        } else {
            while control.cut_reason(0).is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // Cut and abort hold a lock until the last session is broken off.
        control.progress();
        reused += usize::from(witness.as_raw_fd() == number);
        peer.set_nonblocking(true).unwrap();
        let read = peer.read(&mut [0]).map_err(|e| e.kind());
        assert_eq!(
            read,
            Err(std::io::ErrorKind::WouldBlock),
            "the witness was shut down"
        );
        drop(ended);
        let outcome = running.join().unwrap();
        assert!(!outcome.records[0].end.is_usable());
    }
    assert!(reused > 0, "no number was used again");
}
