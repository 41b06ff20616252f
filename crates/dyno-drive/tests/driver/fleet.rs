//! The loops on sessions of known behaviour: what was counted is what the other end served.

use std::time::Duration;

use crate::peer::{Answer, FakeSession, Peers};
use dyno_drive::{End, Fleet, Outcome, Schedule, Spec};
use dyno_model::now_ns;

const MS: i64 = 1_000_000;

fn spec(threads: usize) -> Spec {
    Spec {
        threads: Some(threads),
        ..Spec::default()
    }
}

/// Starts in 5 ms, settles 20 ms, measures 60 ms.
fn soon() -> Schedule {
    let start = now_ns() + 5 * MS;
    Schedule::new(start, start + 20 * MS, start + 80 * MS).unwrap()
}

fn run(peers: &Peers, spec: &Spec) -> (Schedule, Outcome<FakeSession>) {
    let fleet = Fleet::park(peers.sessions(), spec).unwrap();
    let schedule = soon();
    (schedule, fleet.run(schedule).unwrap())
}

/// All calls = what was served; measured ones lie in the window.
fn check(peers: &Peers, schedule: &Schedule, outcome: &Outcome<FakeSession>) {
    let mut measured = 0;
    for (i, record) in outcome.records.iter().enumerate() {
        let tally = &record.tally;
        assert_eq!(
            tally.calls_total() + tally.errors_total(),
            peers.served(i),
            "session {i}"
        );
        measured += tally.calls;
        if let (Some(first), Some(last)) = (tally.first_start_ns, tally.last_end_ns) {
            assert!(schedule.measures(first) && first <= last);
            assert!(tally.in_call_ns as i64 <= last - first);
        }
    }
    assert_eq!(outcome.latency.count(), measured);
}

#[test]
fn one_session_blocks_and_counts_exactly() {
    let peers = Peers::new(1, |_, _| Answer::Well);
    let (schedule, outcome) = run(&peers, &spec(1));
    check(&peers, &schedule, &outcome);
    let record = &outcome.records[0];
    assert_eq!(record.end, End::Deadline);
    assert!(record.tally.calls > 0 && record.tally.settle_calls > 0);
    // A closed loop with one clock read a call: the sum of the calls is the span.
    let span = record.tally.last_end_ns.unwrap() - record.tally.first_start_ns.unwrap();
    assert_eq!(record.tally.in_call_ns as i64, span);
}

#[test]
fn more_sessions_than_threads_count_exactly() {
    let peers = Peers::new(23, |_, _| Answer::Well);
    let (schedule, outcome) = run(&peers, &spec(3));
    check(&peers, &schedule, &outcome);
    for (i, record) in outcome.records.iter().enumerate() {
        assert_eq!(record.end, End::Deadline, "session {i}");
        assert!(record.tally.calls > 0, "session {i}");
    }
}

#[test]
fn more_threads_than_sessions_are_not_started() {
    let peers = Peers::new(2, |_, _| Answer::Well);
    let fleet = Fleet::park(peers.sessions(), &spec(9)).unwrap();
    let mut tids = fleet.threads().to_vec();
    tids.dedup();
    assert_eq!(tids.len(), 2);
    for tid in tids {
        assert!(std::path::Path::new(&format!("/proc/self/task/{tid}")).exists());
    }
    assert_eq!(fleet.control().progress().live, 2);
    let schedule = soon();
    check(&peers, &schedule, &fleet.run(schedule).unwrap());
}

#[test]
fn a_lost_session_ends_alone() {
    for (sessions, threads) in [(1, 1), (5, 2)] {
        let peers = Peers::new(sessions, |s, n| {
            if s == 0 && n == 3 {
                Answer::HangUp
            } else {
                Answer::Well
            }
        });
        let (schedule, outcome) = run(&peers, &spec(threads));
        check(&peers, &schedule, &outcome);
        let lost = &outcome.records[0];
        assert_eq!(lost.end, End::Lost("hung up".into()));
        assert_eq!(lost.tally.calls_total(), 3);
        let entry = &lost.errors.entries()[0];
        assert_eq!(
            (entry.code, entry.count, entry.message.as_str()),
            (*b"08006", 1, "hung up")
        );
        for other in &outcome.records[1..] {
            assert_eq!(other.end, End::Deadline);
            assert!(other.errors.entries().is_empty());
        }
    }
}

#[test]
fn failed_calls_are_counted_apart_and_the_session_goes_on() {
    let peers = Peers::new(4, |s, n| {
        if s == 2 && n % 3 == 0 {
            Answer::Failed
        } else {
            Answer::Well
        }
    });
    let (schedule, outcome) = run(&peers, &spec(2));
    check(&peers, &schedule, &outcome);
    let tally = &outcome.records[2].tally;
    assert_eq!(tally.errors_total(), peers.served(2).div_ceil(3));
    let entry = &outcome.records[2].errors.entries()[0];
    assert_eq!((entry.code, entry.count), (*b"40001", tally.errors_total()));
    assert_eq!(outcome.records[2].end, End::Deadline);
}

#[test]
fn a_limit_of_calls_is_kept_exactly() {
    let peers = Peers::new(5, |_, _| Answer::Well);
    let fleet = Fleet::park(
        peers.sessions(),
        &Spec {
            max_calls: Some(7),
            ..spec(2)
        },
    )
    .unwrap();
    let now = now_ns();
    let outcome = fleet
        .run(Schedule::new(now, now, now + 60_000 * MS).unwrap())
        .unwrap();
    for (i, record) in outcome.records.iter().enumerate() {
        assert_eq!((record.tally.calls, peers.served(i)), (7, 7));
        assert_eq!(record.end, End::Limit);
    }
}

#[test]
fn stop_lets_calls_end_and_starts_no_other() {
    for sessions in [1, 4] {
        let peers = Peers::new(sessions, |_, _| Answer::After(Duration::from_millis(30)));
        let fleet = Fleet::park(peers.sessions(), &spec(1)).unwrap();
        let control = fleet.control().clone();
        let start = now_ns();
        let running =
            std::thread::spawn(move || fleet.run(Schedule::new(start, start, start + 60_000 * MS).unwrap()));
        std::thread::sleep(Duration::from_millis(45));
        control.stop();
        let outcome = running.join().unwrap().unwrap();
        for (i, record) in outcome.records.iter().enumerate() {
            assert_eq!(record.end, End::Stopped);
            assert_eq!(record.tally.calls, peers.served(i));
            assert!(record.tally.calls >= 1 && record.tally.errors == 0);
        }
    }
}

#[test]
fn a_call_still_out_after_the_grace_loses_its_session_only() {
    for sessions in [1, 3] {
        let peers = Peers::new(sessions, |s, n| {
            if s == 0 && n == 2 {
                Answer::Never
            } else {
                Answer::Well
            }
        });
        let (schedule, outcome) = run(
            &peers,
            &Spec {
                grace_ms: 40,
                ..spec(1)
            },
        );
        check(&peers, &schedule, &outcome);
        let detail = outcome.records[0].end.detail().unwrap();
        assert!(detail.contains("no answer within 40 ms"), "{detail}");
        assert_eq!(outcome.records[0].end.reason(), "lost");
        assert!(outcome.records[1..].iter().all(|r| r.end == End::Deadline));
    }
}

#[test]
fn abort_ends_all_at_once_whatever_they_wait_for() {
    for (sessions, threads) in [(1, 1), (6, 2)] {
        let peers = Peers::new(sessions, |_, _| Answer::Never);
        let fleet = Fleet::park(peers.sessions(), &spec(threads)).unwrap();
        let control = fleet.control().clone();
        let start = now_ns();
        let running = std::thread::spawn(move || fleet.run(Schedule::new(start, start, i64::MAX).unwrap()));
        std::thread::sleep(Duration::from_millis(20));
        control.abort();
        let outcome = running.join().unwrap().unwrap();
        for record in &outcome.records {
            assert_eq!(record.end.reason(), "aborted");
            assert!(record.errors.entries().is_empty());
        }
    }
}

#[test]
fn sessions_share_calls_and_end_when_all_have_begun() {
    for (sessions, threads, calls) in [(1, 1, 7), (5, 2, 23), (9, 3, 4), (3, 1, 0)] {
        let mut shared = spec(threads);
        shared.shared_calls = Some(calls);
        let (_, outcome) = run(&Peers::new(sessions, |_, _| Answer::Well), &shared);
        let all = outcome.records.iter();
        assert!(all.clone().all(|r| r.end.reason() == "limit"));
        assert_eq!(all.map(|r| r.tally.calls_total()).sum::<u64>(), calls);
    }
}

#[test]
fn the_log_holds_each_call_and_no_more_than_its_limit() {
    let peers = Peers::new(3, |_, _| Answer::Well);
    let logged = Spec {
        log_calls: true,
        max_calls: Some(10),
        log_limit: 1000,
        ..spec(1)
    };
    let (schedule, outcome) = run(&peers, &logged);
    let log = outcome.log.unwrap();
    assert_eq!(log.calls().len(), 30);
    for call in log.calls() {
        assert!(call.ok && call.cpu == -1 && call.migrations == -1);
        assert_eq!(call.measured, schedule.measures(call.start_ns));
    }
    let short = Spec {
        log_limit: 12,
        ..logged
    };
    let (_, outcome) = run(&Peers::new(3, |_, _| Answer::Well), &short);
    assert_eq!(outcome.log.unwrap().calls().len(), 12);
}

/// Start and end of each call, by session, in the order of its calls.
fn calls_of(outcome: &Outcome<FakeSession>, session: u32) -> Vec<(i64, i64)> {
    let log = outcome.log.as_ref().unwrap().calls();
    let own = log.iter().filter(|c| c.session == session);
    own.map(|c| (c.start_ns, c.start_ns + c.duration_ns)).collect()
}

#[test]
fn in_rounds_no_call_begins_before_all_of_the_round_before_have_ended() {
    // Session 2 takes longest; the others wait for it. Without and with time to think.
    for think_us in [0, 3_000] {
        let peers = Peers::new(5, |s, _| match s {
            2 => Answer::After(Duration::from_millis(4)),
            _ => Answer::Well,
        });
        let rounds = Spec {
            log_calls: true,
            rounds: true,
            max_calls: Some(8),
            think_us,
            ..spec(3)
        };
        let fleet = Fleet::park(peers.sessions(), &rounds).unwrap();
        assert_eq!(fleet.threads().len(), 1, "one thread keeps the rounds");
        let start = now_ns() + 5 * MS; // there is time for all rounds on a busy machine, too
        let schedule = Schedule::new(start, start + 20 * MS, start + 20_000 * MS).unwrap();
        let outcome = fleet.run(schedule).unwrap();
        check(&peers, &schedule, &outcome);
        let calls: Vec<_> = (0..5).map(|s| calls_of(&outcome, s)).collect();
        assert!(calls.iter().all(|c| c.len() == 8));
        for round in 1..8 {
            let ended = calls.iter().map(|c| c[round - 1].1).max().unwrap();
            let begun = calls.iter().map(|c| c[round].0).min().unwrap();
            assert!(begun >= ended + 1000 * think_us as i64, "round {round}");
        }
    }
}

#[test]
fn a_round_does_not_wait_for_a_session_that_is_lost_nor_for_one_that_failed() {
    let peers = Peers::new(4, |s, n| match (s, n) {
        (1, 2) => Answer::HangUp,
        (3, _) => Answer::Failed,
        _ => Answer::Well,
    });
    let rounds = Spec {
        log_calls: true,
        rounds: true,
        max_calls: Some(6),
        ..spec(1)
    };
    let (_, outcome) = run(&peers, &rounds);
    let made: Vec<_> = (0..4).map(|s| calls_of(&outcome, s).len()).collect();
    assert_eq!(made, [6, 2, 6, 6]);
    assert_eq!(outcome.records[1].end.reason(), "lost");
    assert_eq!(outcome.records[3].end, End::Limit);
}

#[test]
fn live_figures_are_those_of_the_records() {
    let peers = Peers::new(4, |s, n| {
        if s == 1 && n % 2 == 0 {
            Answer::Failed
        } else {
            Answer::Well
        }
    });
    let fleet = Fleet::park(peers.sessions(), &spec(2)).unwrap();
    let control = fleet.control().clone();
    let outcome = fleet.run(soon()).unwrap();
    let progress = control.progress();
    assert_eq!(
        progress.calls,
        outcome.records.iter().map(|r| r.tally.calls_total()).sum::<u64>()
    );
    assert_eq!(
        progress.errors,
        outcome
            .records
            .iter()
            .map(|r| r.tally.errors_total())
            .sum::<u64>()
    );
    assert_eq!(progress.live, 0);
}

#[test]
fn sessions_think_between_calls_and_the_time_in_calls_leaves_it_out() {
    for (sessions, threads) in [(1, 1), (5, 2)] {
        let peers = Peers::new(sessions, |_, _| Answer::Well);
        let spec = Spec {
            think_us: 5_000,
            ..spec(threads)
        };
        let (schedule, outcome) = run(&peers, &spec);
        check(&peers, &schedule, &outcome);
        for record in &outcome.records {
            assert_eq!(record.end, End::Deadline);
            let tally = &record.tally;
            let span = tally.last_end_ns.unwrap() - tally.first_start_ns.unwrap();
            let thought = span - tally.in_call_ns as i64;
            assert!(thought >= (tally.calls as i64 - 1) * 5 * MS, "{tally:?}");
            assert!(
                tally.calls <= 17,
                "80 ms hold at most 16 pauses of 5 ms: {tally:?}"
            );
        }
    }
}

#[test]
fn a_session_that_thinks_long_ends_at_the_deadline() {
    let peers = Peers::new(3, |_, _| Answer::Well);
    let spec = Spec {
        think_us: 3_600_000_000,
        ..spec(1)
    };
    let (_, outcome) = run(&peers, &spec);
    for record in &outcome.records {
        assert_eq!(
            (record.end.clone(), record.tally.calls_total()),
            (End::Deadline, 1)
        );
    }
}

#[test]
fn threads_outlive_the_deadline_so_that_they_can_be_read_then() {
    let peers = Peers::new(3, |_, _| Answer::Well);
    let fleet = Fleet::park(peers.sessions(), &spec(2)).unwrap();
    let tids = fleet.threads().to_vec();
    let schedule = soon();
    let watcher = std::thread::spawn(move || {
        while now_ns() < schedule.t1_ns {
            std::thread::sleep(Duration::from_millis(1));
        }
        let there = |tid: &i64| std::path::Path::new(&format!("/proc/self/task/{tid}")).exists();
        (tids.iter().all(there), now_ns())
    });
    fleet.run(schedule).unwrap();
    let (there, looked_ns) = watcher.join().unwrap();
    // A machine that is so busy that the look came late proves nothing.
    assert!(there || looked_ns > schedule.t1_ns + 40 * MS);
}
