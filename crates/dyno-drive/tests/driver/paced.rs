//! Paced load on sessions of known behaviour. Counts are exact; times are bounded on the side that no machine's speed moves.

use std::time::Duration;

use crate::peer::{Answer, FakeSession, Peers};
use dyno_drive::{ArrivalKind, ArrivalSpec, Fleet, Outcome, Paced, Schedule, Spec, Think};
use dyno_model::now_ns;

const MS: i64 = 1_000_000;

fn paced(threads: usize, rate: f64) -> Spec {
    Spec {
        threads: Some(threads),
        arrivals: Some(ArrivalSpec {
            kind: ArrivalKind::Constant,
            rate: vec![(1.0, rate, rate)],
            seed: 1,
            latency_limit_us: None,
            part: None,
        }),
        ..Spec::default()
    }
}

fn limited(mut spec: Spec, latency_limit_us: u64) -> Spec {
    spec.arrivals.as_mut().unwrap().latency_limit_us = Some(latency_limit_us);
    spec
}

fn run(peers: &Peers, spec: &Spec, ms: i64) -> Outcome<FakeSession> {
    let fleet = Fleet::park(peers.sessions(), spec).unwrap();
    let start = now_ns() + 5 * MS;
    fleet
        .run(Schedule::new(start, start, start + ms * MS).unwrap())
        .unwrap()
}

/// arrivals = started + dropped + backlog, and what was started was served and counted.
fn check(peers: &Peers, outcome: &Outcome<FakeSession>) -> Paced {
    let paced = outcome.paced.clone().unwrap();
    let tally = &paced.tally;
    assert_eq!(
        paced.arrivals,
        tally.started + tally.dropped + paced.backlog.count,
        "{paced:?}"
    );
    let served: u64 = (0..outcome.records.len()).map(|i| peers.served(i)).sum();
    assert_eq!(tally.started, served);
    let calls: u64 = outcome.records.iter().map(|r| r.tally.calls).sum();
    assert_eq!((calls, paced.lag.count()), (served, served));
    let in_call: u64 = outcome.records.iter().map(|r| r.tally.in_call_ns).sum();
    let service: u64 = outcome.records.iter().map(|r| r.service.sum_ns).sum();
    assert_eq!(
        in_call,
        service + tally.lag.sum_ns,
        "latency = lag + service, to the nanosecond"
    );
    assert_eq!(paced.service.count(), calls);
    assert_eq!(paced.backlog_ages.count(), paced.backlog.count);
    assert!(tally.driver_lag.sum_ns <= tally.lag.sum_ns && tally.late_driver <= tally.late);
    paced
}

#[test]
fn every_arrival_is_counted_once_whatever_the_threads() {
    for (sessions, threads) in [(1, 1), (2, 2), (7, 1), (7, 3)] {
        let peers = Peers::new(sessions, |_, _| Answer::Well);
        let outcome = run(&peers, &paced(threads, 1000.0), 100);
        let paced = check(&peers, &outcome);
        assert_eq!(
            (paced.arrivals, paced.settle_arrivals),
            (100, 0),
            "1000/s for 100 ms"
        );
        assert_eq!(paced.tally.dropped, 0);
    }
}

#[test]
fn arrivals_of_a_stall_have_their_latencies_from_when_they_were_due() {
    // All sessions stall 150 ms in their first call: 1000/s x 150 ms arrive meanwhile, at k + 0.5 ms.
    for (sessions, threads) in [(1, 1), (4, 2)] {
        let peers = Peers::new(sessions, |_, n| match n {
            0 => Answer::After(Duration::from_millis(150)),
            _ => Answer::Well,
        });
        let outcome = run(&peers, &paced(threads, 1000.0), 400);
        let paced = check(&peers, &outcome);
        assert_eq!(paced.arrivals, 400);
        // The first call of a session cannot end before 150 ms, so none after the first ones starts before 150.5 ms.
        let waited: u64 = (sessions as u64..150).map(|k| 150_000 - 1000 * k).sum();
        // (On a machine so busy that some never start, they have waited even longer.)
        let never = paced.backlog.sum_ns;
        assert!(paced.tally.lag.sum_ns + never >= waited * 1000, "{paced:?}");
        let late = 148 - sessions as u64;
        assert!(paced.tally.late + paced.backlog.count >= late, "{paced:?}");
        assert!(paced.tally.backlog_max >= 149 - sessions as u64, "{paced:?}");
        // All sessions were busy: that part is not the driver's.
        let busy = paced.tally.lag.sum_ns - paced.tally.driver_lag.sum_ns;
        assert!(busy + never >= waited * 1000, "{paced:?}");
    }
}

#[test]
fn what_has_not_started_at_the_end_is_counted_with_its_age() {
    // 100 arrivals in 100 ms, and a session that answers none before the end: 99 wait, for 1 to 99 ms and a half.
    let peers = Peers::new(1, |_, _| Answer::After(Duration::from_millis(120)));
    let outcome = run(&peers, &paced(1, 1000.0), 100);
    let paced = check(&peers, &outcome);
    assert_eq!(
        (paced.arrivals, paced.tally.started, paced.backlog.count),
        (100, 1, 99)
    );
    let ages: u64 = (1..100).map(|k| 100_000_000 - (k * 1_000_000 + 500_000)).sum();
    assert_eq!(
        (paced.backlog.sum_ns, paced.backlog.max_ns),
        (ages, Some(98_500_000))
    );
    assert_eq!(paced.tally.backlog_max, 99);
}

#[test]
fn arrivals_that_have_waited_longer_than_the_limit_are_dropped() {
    let peers = Peers::new(2, |_, n| match n {
        0 => Answer::After(Duration::from_millis(100)),
        _ => Answer::Well,
    });
    let outcome = run(&peers, &limited(paced(1, 1000.0), 20_000), 200);
    let paced = check(&peers, &outcome);
    assert_eq!(paced.arrivals, 200);
    // Due at 2.5 ms to 79.5 ms, and not before 100 ms could any start.
    assert!(paced.tally.dropped >= 77, "{paced:?}");
    assert!(paced.tally.lag.max_ns <= Some(20_000_000));
    assert!(
        paced.tally.over_limit >= 2,
        "the two that stalled ended over the limit"
    );
}

#[test]
fn arrivals_of_a_lost_session_go_to_the_others_and_a_load_without_sessions_ends() {
    let peers = Peers::new(3, |s, n| {
        if (s, n) == (1, 2) {
            Answer::HangUp
        } else {
            Answer::Well
        }
    });
    let paced_by = |peers: &Peers, ms| run(peers, &paced(2, 1000.0), ms).paced.unwrap();
    let one_lost = paced_by(&peers, 100);
    let served: u64 = (0..3).map(|i| peers.served(i)).sum();
    assert_eq!(one_lost.tally.started, served + 1);
    assert_eq!(one_lost.arrivals, one_lost.tally.started + one_lost.backlog.count);
    let before = now_ns();
    let all_lost = paced_by(&Peers::new(2, |_, _| Answer::HangUp), 60_000);
    assert!(now_ns() - before < 50_000 * MS, "it does not wait for t1");
    assert_eq!(all_lost.arrivals, all_lost.tally.started + all_lost.backlog.count);
}

#[test]
fn calls_due_before_the_window_are_settling_also_when_they_start_in_it() {
    let peers = Peers::new(2, |_, n| match n {
        0 => Answer::After(Duration::from_millis(60)),
        _ => Answer::Well,
    });
    let fleet = Fleet::park(peers.sessions(), &paced(1, 1000.0)).unwrap();
    let start = now_ns() + 5 * MS;
    let schedule = Schedule::new(start, start + 50 * MS, start + 200 * MS).unwrap();
    let outcome = fleet.run(schedule).unwrap();
    let paced = outcome.paced.unwrap();
    assert_eq!((paced.settle_arrivals, paced.arrivals), (50, 150));
    let sum = |get: fn(&dyno_drive::Tally) -> u64| outcome.records.iter().map(|r| get(&r.tally)).sum::<u64>();
    assert_eq!(sum(|t| t.settle_calls), 50);
    assert!(
        sum(|t| t.straddle_in) <= 2,
        "only what was under way at t0 straddles it"
    );
    assert_eq!(sum(|t| t.calls), paced.tally.started);
}

#[test]
fn a_stop_ends_a_paced_load_that_waits_for_its_next_arrival() {
    for (sessions, threads) in [(1, 1), (3, 1)] {
        let peers = Peers::new(sessions, |_, _| Answer::Well);
        let fleet = Fleet::park(peers.sessions(), &paced(threads, 0.001)).unwrap();
        let control = fleet.control().clone();
        let now = now_ns();
        let running =
            std::thread::spawn(move || fleet.run(Schedule::new(now, now, i64::MAX).unwrap()).unwrap());
        control.stop();
        let outcome = running.join().unwrap();
        assert_eq!(outcome.paced.unwrap().arrivals, 0);
        assert!(outcome.records.iter().all(|r| r.tally.calls_total() == 0));
    }
}

#[test]
fn think_times_have_a_distribution() {
    let peers = Peers::new(4, |_, _| Answer::Well);
    let spec = Spec {
        threads: Some(2),
        think: Some(Think::Uniform {
            low_us: 2_000.0,
            high_us: 4_000.0,
        }),
        ..Spec::default()
    };
    let outcome = run(&peers, &spec, 80);
    for record in &outcome.records {
        let tally = &record.tally;
        let span = tally.last_end_ns.unwrap() - tally.first_start_ns.unwrap();
        let thought = span - tally.in_call_ns as i64;
        assert!(thought >= (tally.calls as i64 - 1) * 2 * MS, "{tally:?}");
    }
}

#[test]
fn arrivals_and_rounds_are_refused() {
    let peers = Peers::new(2, |_, _| Answer::Well);
    let spec = Spec {
        rounds: true,
        ..paced(1, 10.0)
    };
    let refused = Fleet::park(peers.sessions(), &spec).err().unwrap();
    assert!(refused.to_string().contains("leave out one of them"));
}
