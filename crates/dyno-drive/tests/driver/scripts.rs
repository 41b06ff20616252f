//! Calls by script: sums over the scripts are the session's.

use crate::peer::{Answer, FakeEngine, Peers};
use dyno_drive::{Fleet, Load, Phases, Schedule, Spec, Tally};
use dyno_model::{Column, now_ns};
use std::time::Duration;

const MS: i64 = 1_000_000;

fn peers(scripts: usize) -> Peers {
    let mut peers = Peers::new(5, |s, n| match (s, n % 4) {
        (1, 2) => Answer::Failed,
        (2, _) if n == 9 => Answer::HangUp,
        _ => Answer::Well,
    });
    peers.scripts = scripts;
    peers
}

fn schedule() -> Schedule {
    let start = now_ns();
    Schedule::new(start, start + 10 * MS, start + 50 * MS).unwrap()
}

#[test]
fn sums_over_scripts_are_those_of_sessions_and_histograms() {
    let spec = Spec {
        threads: Some(2),
        ..Spec::default()
    };
    let fleet = Fleet::park(peers(3).sessions(), &spec).unwrap();
    let outcome = fleet.run(schedule()).unwrap();
    assert_eq!(outcome.scripts.len(), 3);
    let mut by_script = [0; 3];
    for record in &outcome.records {
        let sum = record
            .scripts
            .iter()
            .fold(Tally::default(), |all, s| all.merge(&s.tally));
        assert_eq!(sum, record.tally);
        for (i, script) in record.scripts.iter().enumerate() {
            by_script[i] += script.tally.calls;
            assert_eq!(script.retries, 2 * script.retried);
            // Every third call is of script 0: only those are tried again.
            let measured = script.tally.calls + script.tally.errors;
            assert_eq!(script.retried, if i == 0 { measured } else { 0 });
        }
    }
    for (script, calls) in outcome.scripts.iter().zip(by_script) {
        assert_eq!(script.latency.count(), calls);
    }
    let all = |script: &dyno_drive::ErrorTally| script.entries().iter().map(|e| e.count).sum::<u64>();
    let of_sessions: u64 = outcome.records.iter().map(|r| all(&r.errors)).sum();
    assert_eq!(
        outcome.scripts.iter().map(|s| all(&s.errors)).sum::<u64>(),
        of_sessions
    );
    assert!(of_sessions > 1, "failed calls and a lost session");
}

#[test]
fn tables_of_scripts_are_there_where_there_are_scripts() {
    for scripts in [0, 2] {
        let load = Load::new(FakeEngine::new(peers(scripts)), Spec::default());
        let wait = || assert!(load.wait(Duration::from_secs(60)).unwrap());
        load.connect().unwrap();
        wait();
        let at = schedule();
        load.start(at.start_ns, at.t0_ns, at.t1_ns).unwrap();
        wait();
        let tables = load.tables().unwrap();
        let found = tables.iter().find(|t| t.name == "scripts");
        assert_eq!(found.is_some(), scripts > 0);
        assert_eq!(tables.iter().any(|t| t.name == "script_histogram"), scripts > 0);
        assert_eq!(tables.iter().any(|t| t.name == "script_errors"), scripts > 0);
        if let Some(table) = found {
            let (_, names) = table.columns.iter().find(|c| c.0 == "name").unwrap();
            let Column::Str(names) = names else { panic!() };
            let names: Vec<_> = names.iter().collect();
            assert_eq!(names.len(), 5 * 2);
            assert_eq!(names[1], Some("script-1"));
        }
    }
}
