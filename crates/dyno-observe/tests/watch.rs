//! Whole watches over real processes. What the server says is scripted here: a server that fails, hangs or
//! names a process that is gone cannot be had on demand; real servers are watched by the Python tests.

mod support;

use dyno_observe::TaskSpec;
use support::*;

#[test]
fn every_task_is_read_before_t0_at_t0_at_t1_and_at_the_end() {
    let session = Sleeper::new();
    let spec = Spec {
        sessions: vec![(0, TaskId::main(session.pid()))],
        ..spec()
    };
    let (watch, t0, t1) = run(spec, Ok(None), 500);
    let tasks = table(&watch, "tasks");
    let (tids, before, after) = (
        numbers(&tasks, "tid"),
        numbers(&tasks, "before_ns"),
        numbers(&tasks, "after_ns"),
    );
    let brackets: Vec<(i64, i64)> = (0..tids.len())
        .filter(|&i| tids[i] == Some(session.pid()))
        .map(|i| (before[i].unwrap(), after[i].unwrap()))
        .collect();
    assert!(brackets.iter().all(|(before, after)| before <= after));
    assert!(brackets.first().unwrap().1 < t0, "the first read is before t0");
    let reads_between = |from: i64, to: i64| brackets.iter().filter(|(b, _)| (from..to).contains(b)).count();
    assert!(
        reads_between(t0, t1) >= 1 && reads_between(t1, i64::MAX) >= 1,
        "{brackets:?} in {t0}..{t1}"
    );
}

#[test]
fn a_task_that_is_ready_at_t0_is_read_again_once_its_figures_have_moved() {
    let (asleep, spinner) = (Sleeper::new(), Sleeper::spinning());
    let spec = Spec {
        sessions: vec![(0, TaskId::main(asleep.pid())), (1, TaskId::main(spinner.pid()))],
        task_interval_ns: 10_000 * MS,
        ..spec()
    };
    let (watch, t0, t1) = run(spec, Ok(None), 300);
    let tasks = table(&watch, "tasks");
    let (tids, before) = (numbers(&tasks, "tid"), numbers(&tasks, "before_ns"));
    let figures = ["run_ns", "runq_ns", "slices"].map(|name| numbers(&tasks, name));
    let inside = |pid: i64| -> Vec<[Option<i64>; 3]> {
        (0..tids.len())
            .filter(|&i| tids[i] == Some(pid) && (t0..t1).contains(&before[i].unwrap()))
            .map(|i| [0, 1, 2].map(|f: usize| figures[f][i]))
            .collect()
    };
    assert!(inside(asleep.pid()).len() <= 1, "asleep: its figures are booked");
    let reads = inside(spinner.pid());
    assert!(reads.len() <= 2, "{reads:?}");
    assert!(reads.windows(2).all(|two| two[0] != two[1]), "{reads:?}");
}

#[test]
fn roles_follow_sessions_helpers_and_others_and_all_are_read_as_tasks() {
    let (session, helper, other, main) = (Sleeper::new(), Sleeper::new(), Sleeper::new(), Sleeper::new());
    let named = [session.pid(), helper.pid(), other.pid()];
    let probe = scripted(move |rows| {
        rows.extend(named.map(backend));
        rows[1].helper = Some("checkpointer".to_owned());
        rows[0].wait_class = Some("Client".to_owned());
        rows[0].wait_event = Some("ClientRead".to_owned());
        Ok(())
    });
    let driver = TaskSpec {
        pid: main.pid(),
        tid: main.pid(),
        role: "driver".to_owned(),
    };
    let spec = Spec {
        sessions: vec![(7, TaskId::main(session.pid()))],
        tasks: vec![driver],
        ..spec()
    };
    let (watch, _, _) = run(spec, probe, 150);
    let latest = watch.latest();
    let waiting = latest.iter().find(|(name, _)| name == "Client:ClientRead");
    // on a busy machine the process may still be on its way to sleep in a sample
    assert!(waiting.is_some_and(|(_, share)| *share > 0.5), "{latest:?}");
    for (name, expected) in [
        (
            "samples",
            vec![
                (session.pid(), "session"),
                (helper.pid(), "helper:checkpointer"),
                (other.pid(), "other"),
            ],
        ),
        (
            "tasks",
            vec![
                (session.pid(), "session"),
                (helper.pid(), "helper:checkpointer"),
                (main.pid(), "driver"),
            ],
        ),
    ] {
        let table = table(&watch, name);
        let (pids, roles, statuses) = (
            numbers(&table, "pid"),
            texts(&table, "role"),
            texts(&table, "status"),
        );
        for (pid, role) in expected {
            let rows: Vec<usize> = (0..pids.len()).filter(|&i| pids[i] == Some(pid)).collect();
            assert!(!rows.is_empty(), "{name}: no row of {role}");
            assert!(
                rows.iter().all(|&i| roles[i] == role && statuses[i] == "ok"),
                "{name} {role}"
            );
        }
    }
    let tasks = table(&watch, "tasks");
    let ours = texts(&tasks, "role").iter().filter(|r| *r == "dbdyno").count();
    assert!(ours >= 2, "our own threads are read too");
    assert!(texts(&tasks, "comm").contains(&"dbdyno-read".to_owned()));
}

#[test]
fn without_an_engine_the_sampler_is_off() {
    let (watch, _, _) = run(spec(), Ok(None), 50);
    assert_eq!(texts(&table(&watch, "sampler"), "status"), ["off"]);
    assert_eq!(watch.trouble(), None);
}

#[test]
fn samples_are_numbered_by_interval_and_each_is_due_in_its_own() {
    let (watch, _, _) = run(spec(), scripted(|_| Ok(())), 400);
    let sampler = table(&watch, "sampler");
    let (number, due) = (numbers(&sampler, "sample"), numbers(&sampler, "due_ns"));
    let (start, end) = (numbers(&sampler, "start_ns"), numbers(&sampler, "end_ns"));
    let base = due[0].unwrap();
    let interval = 20 * MS;
    assert!(number.len() > 5);
    for i in 1..number.len() {
        assert_eq!(number[i], Some(i as i64));
        let into = due[i].unwrap() - base - i as i64 * interval;
        assert!(
            (0..interval).contains(&into),
            "sample {i} is due {into} ns into its interval"
        );
        assert!(due[i] <= start[i] && start[i] <= end[i]);
    }
}

#[test]
fn a_watch_is_started_once_and_may_be_dropped_at_any_time() {
    drop(Watch::new(spec(), Ok(None)).unwrap());
    let watch = Watch::new(spec(), scripted(|_| Ok(()))).unwrap();
    watch.start(now_ns(), now_ns() + 1000 * MS).unwrap();
    assert!(matches!(watch.start(0, 1), Err(Error::Spec(_))));
    drop(watch);
    let watch = Watch::new(spec(), Ok(None)).unwrap();
    watch.stop();
    watch.stop();
}

#[test]
fn figures_out_of_range_are_refused() {
    for wrong in [
        Spec {
            sample_hz: 0.0,
            ..spec()
        },
        Spec {
            sample_hz: f64::NAN,
            ..spec()
        },
        Spec {
            task_interval_ns: 0,
            ..spec()
        },
        Spec {
            cgroups: vec![GroupSpec {
                scope: "server".into(),
                version: 3,
                path: "/".into(),
            }],
            ..spec()
        },
    ] {
        assert!(matches!(Watch::new(wrong, Ok(None)), Err(Error::Spec(_))));
    }
}

#[test]
fn rows_that_are_taken_are_gone_and_together_with_the_others_are_all() {
    let session = Sleeper::new();
    let pid = session.pid();
    let spec = Spec {
        sessions: vec![(0, TaskId::main(pid))],
        host: true,
        ..spec()
    };
    let probe = scripted(move |rows| {
        rows.push(backend(pid));
        Ok(())
    });
    let (watch, t0, t1) = run(spec, probe, 500);
    let middle = i64::midpoint(t0, t1);
    let rows = |tables: &[Table], name: &str| -> Vec<Option<i64>> {
        let found = tables.iter().filter(|t| t.name == name);
        let at = if name == "samples" {
            "sql_after_ns"
        } else {
            "after_ns"
        };
        found.flat_map(|t| numbers(t, at)).collect()
    };
    let whole = watch.tables();
    let taken = watch.take(middle);
    let left = watch.tables();
    for name in ["tasks", "host", "samples"] {
        let (first, second) = (rows(&taken, name), rows(&left, name));
        assert!(!first.is_empty() && !second.is_empty(), "{name}");
        assert!(first.iter().all(|at| *at < Some(middle)), "{name}");
        assert!(second.iter().all(|at| *at >= Some(middle)), "{name}");
        assert_eq!([first, second].concat(), rows(&whole, name), "{name}");
    }
    assert!(
        watch.take(i64::MIN).is_empty(),
        "tables without rows are left out"
    );
}
