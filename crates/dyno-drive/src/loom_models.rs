//! Models for loom: each is run in all orders that the steps of its threads can have, and in each that values of relaxed atomics
//! can be seen. A wait with a time limit has none there, so a wake-up that is lost is a deadlock, which loom reports.

use std::sync::{Arc, Mutex};

use dyno_model::Breaker;
use loom::thread;

use crate::pace::arrivals::{ArrivalKind, ArrivalSpec};
use crate::pace::queue::{Line, Queue};
use crate::run::control::Control;
use crate::{Schedule, Spec};

const SECOND: i64 = 1_000_000_000;
/// A century from the start of the clock.
const NEVER: i64 = 100 * 365 * 86_400 * SECOND;

/// All orders with at most this many preemptions: enough for most faults (Musuvathi and Qadeer 2007), in seconds.
const MOST_PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(MOST_PREEMPTIONS);
    builder.check(model);
}

fn control(sessions: usize, threads: usize, grace_ms: u64, shared_calls: Option<u64>) -> Arc<Control> {
    let spec = Spec {
        grace_ms,
        shared_calls,
        ..Spec::default()
    };
    let breakers = (0..sessions).map(|_| Breaker::default()).collect();
    Arc::new(Control::new(breakers, threads, &spec))
}

/// Ends at once, or never.
fn schedule(t1_ns: i64) -> Schedule {
    Schedule::new(0, 0, t1_ns).expect("in order")
}

/// One arrival a second.
fn arrivals() -> ArrivalSpec {
    ArrivalSpec {
        kind: ArrivalKind::Constant,
        rate: vec![(1.0, 1.0, 1.0)],
        seed: 0,
        latency_limit_us: None,
        part: None,
    }
}

#[test]
fn each_arrival_is_taken_once_or_left() {
    check(|| {
        let queue = Arc::new(Queue::default());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (queue, calls) = (queue.clone(), calls.clone());
                thread::spawn(move || {
                    let mut line = Line::new(&arrivals(), 0);
                    let waits = line.take(&queue);
                    let call = line.take(&queue);
                    queue.give_back(waits);
                    let again = line.take(&queue);
                    calls.lock().unwrap().extend([call.due_ns, again.due_ns]);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut all = calls.lock().unwrap().clone();
        queue.left(&arrivals(), 0, 8 * SECOND, |due_ns| all.push(due_ns));
        all.sort_unstable();
        let due: Vec<_> = (0..8).map(|second| second * SECOND + SECOND / 2).collect();
        assert_eq!(all, due);
    });
}

#[test]
fn all_threads_pass_the_barrier_and_their_end_is_seen() {
    check(|| {
        let control = control(2, 2, 0, None);
        let threads: Vec<_> = (0..2)
            .map(|session| {
                let control = control.clone();
                thread::spawn(move || {
                    assert_eq!(control.wait_for_start(), schedule(NEVER));
                    assert_eq!(control.deadline_ns(), NEVER);
                    control.session_ended(session);
                    control.thread_done();
                })
            })
            .collect();
        control.start(schedule(NEVER));
        control.supervise();
        assert!((0..2).all(|session| control.cut_reason(session).is_none()));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn who_sleeps_before_the_end_sees_a_stop() {
    check(|| {
        let control = control(1, 1, 0, None);
        let thread = {
            let control = control.clone();
            thread::spawn(move || {
                control.sleep_until(i64::MAX);
                assert!(control.deadline_ns() < NEVER && !control.is_aborted());
            })
        };
        control.start(schedule(NEVER));
        control.stop();
        thread.join().unwrap();
    });
}

#[test]
fn who_pauses_beyond_the_end_sees_an_abort() {
    check(|| {
        let control = control(1, 1, u64::MAX, None);
        let thread = {
            let control = control.clone();
            thread::spawn(move || {
                control.pause_until(i64::MAX);
                assert!(control.is_aborted() && control.deadline_ns() < NEVER);
            })
        };
        control.stop();
        control.abort();
        thread.join().unwrap();
    });
}

#[test]
fn a_session_that_does_not_end_within_the_grace_is_cut_and_its_end_awaited() {
    check(|| {
        let control = control(2, 1, 0, None);
        let thread = {
            let control = control.clone();
            thread::spawn(move || {
                control.wait_for_start();
                control.session_ended(0);
                control.thread_done();
            })
        };
        control.start(schedule(0));
        control.supervise();
        thread.join().unwrap();
        // Either the thread was done at once, or the session that had not ended was cut.
        assert!(control.cut_reason(0).is_none() || control.cut_reason(1).is_some());
    });
}

#[test]
fn shared_calls_are_all_taken_and_none_twice() {
    check(|| {
        let control = control(2, 2, 0, Some(3));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let control = control.clone();
                thread::spawn(move || (0..2).filter(|_| control.take_call()).count())
            })
            .collect();
        let taken: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(taken, 3);
        assert!(control.calls_are_spent() && !control.take_call());
    });
}
