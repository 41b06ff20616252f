//! Whole watches over real processes. What the server says is scripted here: a server that fails, hangs or
//! names a process that is gone cannot be had on demand; real servers are watched by the Python tests.

use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::sleep;
use std::time::Duration;

use dyno_model::{ActivityProbe, ActivityRow, Column, Error, Result, Table, now_ns};
use dyno_observe::{GroupSpec, Probe, Spec, TaskSpec, Watch};

const MS: i64 = 1_000_000;

fn spec() -> Spec {
    Spec {
        os: true,
        sample_hz: 50.0,
        sample_budget: 1.0,
        seed: 1,
        task_interval_ns: 50 * MS,
        host: true,
        ..Spec::default()
    }
}

struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> i64 {
        i64::from(self.0.id())
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks `script` for the rows of each sample.
struct Scripted<F>(F);

impl<F: FnMut(&mut Vec<ActivityRow>) -> Result<()> + Send> ActivityProbe for Scripted<F> {
    fn sample(&mut self, rows: &mut Vec<ActivityRow>) -> Result<()> {
        rows.clear();
        (self.0)(rows)
    }
}

#[allow(clippy::unnecessary_wraps)] // what a watch takes
fn scripted(
    script: impl FnMut(&mut Vec<ActivityRow>) -> Result<()> + Send + 'static,
) -> Result<Option<Probe>> {
    Ok(Some(Probe {
        ask: Box::new(Scripted(script)),
        backend_pid: None,
        break_off: Box::new(|| {}),
    }))
}

fn backend(pid: i64) -> ActivityRow {
    ActivityRow {
        pid,
        state: Some("active".to_owned()),
        ..ActivityRow::default()
    }
}

fn table(watch: &Watch, name: &str) -> Table {
    watch.tables().into_iter().find(|t| t.name == name).unwrap()
}

fn column<'t>(table: &'t Table, name: &str) -> &'t Column {
    &table.columns.iter().find(|(n, _)| *n == name).unwrap().1
}

fn numbers(table: &Table, name: &str) -> Vec<Option<i64>> {
    let Column::I64(values) = column(table, name) else {
        panic!("{name} is not i64")
    };
    values.clone()
}

fn texts(table: &Table, name: &str) -> Vec<String> {
    let Column::Str(values) = column(table, name) else {
        panic!("{name} is not str")
    };
    values.iter().map(|v| v.clone().unwrap_or_default()).collect()
}

/// Runs a watch over a window that begins soon, to its end.
fn run(spec: Spec, probe: Result<Option<Probe>>, window_ms: i64) -> (Watch, i64, i64) {
    let watch = Watch::new(spec, probe).unwrap();
    let t0 = now_ns() + 50 * MS;
    let t1 = t0 + window_ms * MS;
    watch.start(t0, t1).unwrap();
    sleep(Duration::from_nanos((t1 - now_ns()).max(0) as u64) + Duration::from_millis(30));
    watch.stop();
    (watch, t0, t1)
}

#[test]
fn every_task_is_read_before_t0_at_t0_at_t1_and_at_the_end() {
    let session = Sleeper::new();
    let spec = Spec {
        sessions: vec![(0, session.pid())],
        ..spec()
    };
    let (watch, t0, t1) = run(spec, Ok(None), 500);
    let tasks = table(&watch, "tasks");
    let (tids, before, after) = (
        numbers(&tasks, "tid"),
        numbers(&tasks, "before_ns"),
        numbers(&tasks, "after_ns"),
    );
    let mine: Vec<(i64, i64)> = (0..tids.len())
        .filter(|&i| tids[i] == Some(session.pid()))
        .map(|i| (before[i].unwrap(), after[i].unwrap()))
        .collect();
    assert!(mine.iter().all(|(before, after)| before <= after));
    assert!(mine.first().unwrap().1 < t0, "the first read is before t0");
    let reads_between = |from: i64, to: i64| mine.iter().filter(|(b, _)| (from..to).contains(b)).count();
    assert!(
        reads_between(t0, t1) >= 1 && reads_between(t1, i64::MAX) >= 1,
        "{mine:?} in {t0}..{t1}"
    );
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
        sessions: vec![(7, session.pid())],
        tasks: vec![driver],
        ..spec()
    };
    let (watch, _, _) = run(spec, probe, 150);
    assert_eq!(watch.latest(), [("Client:ClientRead".to_owned(), 1.0)]);
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
fn a_task_that_ends_is_told_once_and_is_unknown_from_then_on() {
    let mut session = Sleeper::new();
    let pid = session.pid();
    let watch = Watch::new(
        Spec {
            sessions: vec![(0, pid)],
            ..spec()
        },
        Ok(None),
    )
    .unwrap();
    let t0 = now_ns() + 20 * MS;
    watch.start(t0, t0 + 10_000 * MS).unwrap();
    session.end();
    sleep(Duration::from_millis(300));
    watch.stop();
    let tasks = table(&watch, "tasks");
    let pids = numbers(&tasks, "pid");
    let of: Vec<usize> = (0..pids.len()).filter(|&i| pids[i] == Some(pid)).collect();
    let (last, before) = of.split_last().unwrap();
    let statuses = texts(&tasks, "status");
    assert_eq!(statuses[*last], "vanished");
    assert!(before.iter().all(|&i| statuses[i] == "ok"));
    for name in ["run_ns", "runq_ns", "user_ns", "start_ticks", "cpu"] {
        assert_eq!(numbers(&tasks, name)[*last], None, "{name}");
    }
}

#[test]
fn a_server_elsewhere_leaves_task_columns_unknown_but_samples_and_our_own_tasks_known() {
    let probe = scripted(|rows| {
        rows.push(backend(1)); // a number that is somebody else's here
        rows[0].wait_class = Some("Lock".to_owned());
        rows[0].wait_event = Some("tuple".to_owned());
        Ok(())
    });
    let (watch, _, _) = run(
        Spec {
            sessions: vec![(0, 1)],
            os: false,
            ..spec()
        },
        probe,
        100,
    );
    let samples = table(&watch, "samples");
    assert!(!texts(&samples, "status").is_empty());
    assert!(texts(&samples, "status").iter().all(|s| s == "not here"));
    assert!(numbers(&samples, "task_ns").iter().all(Option::is_none));
    assert_eq!(watch.latest(), [("Lock:tuple".to_owned(), 1.0)]);
    let tasks = table(&watch, "tasks");
    let (roles, statuses, run) = (
        texts(&tasks, "role"),
        texts(&tasks, "status"),
        numbers(&tasks, "run_ns"),
    );
    assert!(roles.contains(&"session".to_owned()) && roles.contains(&"dbdyno".to_owned()));
    for i in 0..roles.len() {
        match roles[i].as_str() {
            "session" => assert_eq!((run[i], statuses[i].as_str()), (None, "not here")),
            // Threads of other tests come and go.
            ours => assert_eq!((run[i].is_some(), ours), (statuses[i] == "ok", "dbdyno")),
        }
    }
    assert!(statuses.contains(&"ok".to_owned()));
}

#[test]
fn a_server_that_fails_is_asked_no_more_but_the_system_is_read_on() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let probe = scripted(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err(Error::Lost("the server closed the connection".to_owned()))
    });
    let (watch, _, t1) = run(spec(), probe, 400);
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    assert_eq!(texts(&table(&watch, "sampler"), "status"), ["lost"; 3]);
    assert_eq!(
        watch.trouble(),
        Some("connection lost: the server closed the connection")
    );
    let last = numbers(&table(&watch, "host"), "before_ns")
        .into_iter()
        .flatten()
        .max()
        .unwrap();
    assert!(last > t1);
}

#[test]
fn a_server_that_cannot_be_reached_is_a_lost_sample_and_no_error() {
    let (watch, _, _) = run(spec(), Err(Error::Unreachable("refused".to_owned())), 50);
    assert_eq!(texts(&table(&watch, "sampler"), "status"), ["lost"]);
    assert_eq!(watch.trouble(), Some("cannot reach the server: refused"));
}

#[test]
fn without_an_engine_the_sampler_is_off() {
    let (watch, _, _) = run(spec(), Ok(None), 50);
    assert_eq!(texts(&table(&watch, "sampler"), "status"), ["off"]);
    assert_eq!(watch.trouble(), None);
}

#[test]
fn a_server_that_hangs_delays_neither_reads_nor_the_end() {
    let broken = Arc::new((Mutex::new(false), Condvar::new()));
    let (waits, breaks) = (Arc::clone(&broken), Arc::clone(&broken));
    let ask = Scripted(move |_: &mut Vec<ActivityRow>| {
        let mut off = waits.0.lock().unwrap();
        while !*off {
            off = waits.1.wait(off).unwrap();
        }
        Err(Error::Aborted)
    });
    let break_off = move || {
        *breaks.0.lock().unwrap() = true;
        breaks.1.notify_all();
    };
    let probe = Probe {
        ask: Box::new(ask),
        backend_pid: None,
        break_off: Box::new(break_off),
    };
    let (watch, t0, t1) = run(spec(), Ok(Some(probe)), 200);
    assert!(*broken.0.lock().unwrap(), "stop breaks the question off");
    let reads = numbers(&table(&watch, "host"), "before_ns");
    assert!(reads.iter().any(|r| (t0..t1).contains(&r.unwrap())));
    assert!(
        texts(&table(&watch, "sampler"), "status").is_empty(),
        "it never got an answer"
    );
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
fn a_group_that_is_not_there_says_so() {
    let group = GroupSpec {
        scope: "server".to_owned(),
        version: 2,
        path: "/sys/fs/cgroup/no-such-group".to_owned(),
    };
    let (watch, _, _) = run(
        Spec {
            cgroups: vec![group],
            ..spec()
        },
        Ok(None),
        50,
    );
    let cgroup = table(&watch, "cgroup");
    assert!(texts(&cgroup, "key").contains(&"throttled_ns".to_owned()));
    assert!(numbers(&cgroup, "value").iter().all(Option::is_none));
    assert!(texts(&cgroup, "status").iter().all(|s| s == "vanished"));
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
