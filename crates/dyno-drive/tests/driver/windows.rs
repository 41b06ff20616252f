//! A measurement cut into windows: each call is in one of them, and what waits is carried into the next.

use std::time::Duration;

use crate::peer::{Answer, FakeSession, Peers};
use dyno_drive::{
    ArrivalKind, ArrivalSpec, End, Fleet, Outcome, Paced, Record, Schedule, SecondCounts, Spec,
};
use dyno_model::now_ns;

const MS: i64 = 1_000_000;

fn spec(threads: usize, rate: &[(f64, f64, f64)], windows_ms: &[i64]) -> Spec {
    Spec {
        threads: Some(threads),
        arrivals: Some(ArrivalSpec {
            kind: ArrivalKind::Constant,
            rate: rate.to_vec(),
            seed: 1,
            latency_limit_us: None,
            part: None,
        }),
        windows_ns: windows_ms.iter().map(|ms| ms * MS).collect(),
        ..Spec::default()
    }
}

fn run(peers: &Peers, spec: &Spec, settle_ms: i64) -> Outcome<FakeSession> {
    let fleet = Fleet::park(peers.sessions(), spec).unwrap();
    let start = now_ns() + 5 * MS;
    let t0 = start + settle_ms * MS;
    let t1 = t0 + spec.windows_ns.iter().sum::<i64>();
    fleet.run(Schedule::new(start, t0, t1).unwrap()).unwrap()
}

fn records(outcome: &Outcome<FakeSession>) -> Vec<&[Record]> {
    let later = outcome.later.iter().map(|o| &o.records[..]);
    [&outcome.records[..]].into_iter().chain(later).collect()
}

fn paced(outcome: &Outcome<FakeSession>) -> Vec<Paced> {
    let later = outcome.later.iter().map(|o| o.paced.clone().unwrap());
    [outcome.paced.clone().unwrap()]
        .into_iter()
        .chain(later)
        .collect()
}

fn calls(records: &[Record]) -> u64 {
    records.iter().map(|r| r.tally.calls).sum()
}

#[test]
fn calls_over_windows_are_those_of_the_whole_and_the_backlog_is_carried_over() {
    for (sessions, threads) in [(1, 1), (3, 2)] {
        // Each session's tenth call takes 80 ms: calls that become due meanwhile wait, beyond the end of a window.
        let peers = Peers::new(sessions, |_, n| match n {
            9 => Answer::After(Duration::from_millis(80)),
            _ => Answer::Well,
        });
        let rate = [(0.02, 500.0, 500.0), (0.05, 1000.0, 1000.0), (0.1, 200.0, 200.0)];
        let outcome = run(&peers, &spec(threads, &rate, &[50, 50, 50]), 20);
        let (windows, records) = (paced(&outcome), records(&outcome));
        assert_eq!(
            (windows.len(), windows[0].settle_arrivals),
            (3, 10),
            "500/s for 20 ms"
        );
        let due: Vec<_> = windows.iter().map(|w| w.arrivals).collect();
        assert_eq!(due, [50, 10, 10]);
        for window in &windows {
            let begin = window.backlog_begin.unwrap();
            let gone = window.tally.started + window.tally.dropped + window.backlog_end;
            assert_eq!(begin + window.arrivals, gone, "{window:?}");
        }
        for pair in windows.windows(2) {
            assert_eq!(Some(pair[0].backlog_end), pair[1].backlog_begin);
        }
        let last = windows.last().unwrap();
        assert_eq!(last.backlog_end, last.backlog.count);
        let settled: u64 = records[0].iter().map(|r| r.tally.settle_calls).sum();
        let all: u64 = settled + records.iter().map(|w| calls(w)).sum::<u64>();
        assert_eq!(all, (0..sessions).map(|i| peers.served(i)).sum::<u64>());
        let counted = |seconds: &SecondCounts| seconds.rows().map(|row| row[4] as u64).sum::<u64>();
        let later = outcome.later.iter().map(|o| &o.seconds);
        for (seconds, records) in [&outcome.seconds].into_iter().chain(later).zip(&records) {
            assert_eq!(counted(seconds), calls(records));
            assert!(
                seconds.rows().all(|row| row[0] == 0 && row[1] == 1),
                "windows of 50 ms"
            );
        }
        for (outcome, (paced, records)) in [outcome.latency.count()]
            .into_iter()
            .chain(outcome.later.iter().map(|o| o.latency.count()))
            .zip(windows.iter().zip(&records))
        {
            assert_eq!((outcome, paced.service.count()), (calls(records), calls(records)));
        }
        assert!(records.iter().all(|w| w.iter().all(|r| r.end == End::Deadline)));
    }
}

#[test]
fn what_a_stall_leaves_is_begun_in_the_next_window_with_its_whole_latency() {
    // The one session answers its first call after 70 ms: all others of the first 50 ms wait until then.
    let peers = Peers::new(1, |_, n| match n {
        0 => Answer::After(Duration::from_millis(70)),
        _ => Answer::Well,
    });
    let outcome = run(
        &peers,
        &spec(1, &[(0.05, 1000.0, 1000.0), (0.2, 10.0, 10.0)], &[50, 150]),
        0,
    );
    let windows = paced(&outcome);
    assert_eq!((windows[0].tally.started, windows[0].backlog_end), (1, 49));
    assert_eq!(windows[1].backlog_begin, Some(49));
    let (gone, last) = (windows[1].tally.idle_ns, windows[1].tally.lag.max_ns.unwrap());
    assert!(gone.is_some() && last >= 68_500_000, "{gone:?}, {last}");
    assert_eq!(calls(&outcome.records), 0, "the call ends in the second window");
    let longest = outcome.later[0].records[0].tally.max_ns.unwrap();
    assert!(longest >= 69_500_000, "from when it was due: {longest}");
}

#[test]
fn a_stop_ends_the_window_under_way_and_no_later_one_begins() {
    let peers = Peers::new(2, |_, _| Answer::Well);
    let spec = spec(1, &[(1.0, 1000.0, 1000.0)], &[30, 60_000, 60_000]);
    let fleet = Fleet::park(peers.sessions(), &spec).unwrap();
    let control = fleet.control().clone();
    let start = now_ns() + 5 * MS;
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(80));
        control.stop();
    });
    let outcome = fleet
        .run(Schedule::new(start, start, start + 120_030 * MS).unwrap())
        .unwrap();
    stopper.join().unwrap();
    let (windows, records) = (paced(&outcome), records(&outcome));
    let all: u64 = records.iter().map(|w| calls(w)).sum();
    assert_eq!(all, peers.served(0) + peers.served(1));
    assert_eq!((calls(records[2]), windows[2].arrivals), (0, 0));
    assert!(records[0].iter().all(|r| r.end == End::Deadline) && calls(records[1]) > 0);
    assert!(records[1].iter().all(|r| r.end == End::Stopped));
}

#[test]
fn sessions_that_are_not_paced_are_cut_into_windows_too() {
    let peers = Peers::new(2, |_, _| Answer::After(Duration::from_millis(2)));
    let cut = Spec {
        arrivals: None,
        ..spec(2, &[(1.0, 1.0, 1.0)], &[30, 30])
    };
    let outcome = run(&peers, &cut, 0);
    let records = records(&outcome);
    assert!(outcome.paced.is_none() && records.iter().all(|w| calls(w) > 0));
    assert_eq!(
        records.iter().map(|w| calls(w)).sum::<u64>(),
        peers.served(0) + peers.served(1)
    );
}
