//! Sessions that are not ours: adopted as they appear, identified by pid and start, reported to a tracer.

mod support;

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dyno_observe::task::Task;
use dyno_observe::{Refusal, Status, Tracer};
use support::*;

fn chosen(pid: i64, chosen: Option<bool>) -> ActivityRow {
    ActivityRow {
        chosen,
        ..backend(pid)
    }
}

/// (role, session) of the rows of one pid.
fn whose(table: &Table, pid: i64) -> HashSet<(String, Option<i64>)> {
    let (pids, roles, sessions) = (
        numbers(table, "pid"),
        texts(table, "role"),
        numbers(table, "session"),
    );
    (0..pids.len())
        .filter(|&i| pids[i] == Some(pid))
        .map(|i| (roles[i].clone(), sessions[i]))
        .collect()
}

fn one(role: &str, session: Option<i64>) -> HashSet<(String, Option<i64>)> {
    HashSet::from([(role.to_owned(), session)])
}

#[test]
fn chosen_backends_become_sessions_with_numbers_of_their_own_and_workers_stay_helpers() {
    let of: Vec<Sleeper> = (0..5).map(|_| Sleeper::new()).collect();
    let pids: Vec<i64> = of.iter().map(Sleeper::pid).collect();
    let [known, first, second, other, worker] = pids[..] else {
        unreachable!()
    };
    let probe = scripted(move |rows| {
        rows.extend([first, second].map(|p| chosen(p, Some(true))));
        rows.extend([chosen(known, Some(false)), chosen(other, Some(false))]);
        rows.push(ActivityRow {
            helper: Some("parallel worker".to_owned()),
            leader_pid: Some(first),
            ..chosen(worker, Some(true))
        });
        Ok(())
    });
    let spec = Spec {
        sessions: vec![(7, TaskId::main(known))],
        adopt: true,
        ..spec()
    };
    let (watch, _, _) = run(spec, probe, 200);
    for name in ["samples", "tasks"] {
        let table = table(&watch, name);
        assert_eq!(whose(&table, known), one("session", Some(7)));
        assert_eq!(whose(&table, first), one("session", Some(8)));
        assert_eq!(whose(&table, second), one("session", Some(9)));
        assert_eq!(whose(&table, other), one("other", None));
        assert_eq!(whose(&table, worker), one("helper:parallel worker", None));
    }
}

#[test]
fn without_a_choice_every_client_is_chosen_and_without_adoption_none() {
    let sleeper = Sleeper::new();
    let pid = sleeper.pid();
    for (adopt, expected) in [(true, one("session", Some(0))), (false, one("other", None))] {
        let probe = scripted(move |rows| {
            rows.push(chosen(pid, None));
            Ok(())
        });
        let (watch, _, _) = run(Spec { adopt, ..spec() }, probe, 100);
        assert_eq!(whose(&table(&watch, "samples"), pid), expected);
    }
}

#[test]
fn processes_in_turn_are_the_session_that_the_server_says() {
    let of: Vec<Sleeper> = (0..2).map(|_| Sleeper::new()).collect();
    let pids: Vec<i64> = of.iter().map(Sleeper::pid).collect();
    let [first, second] = pids[..] else { unreachable!() };
    let mut asked = 0;
    let probe = scripted(move |rows| {
        asked += 1;
        rows.push(ActivityRow {
            tid: Some(if asked < 4 { first } else { second }),
            session: Some(3),
            ..backend(if asked < 4 { first } else { second })
        });
        Ok(())
    });
    let (watch, _, _) = run(spec(), probe, 300);
    for name in ["samples", "tasks"] {
        let table = table(&watch, name);
        for pid in [first, second] {
            assert_eq!(whose(&table, pid), one("session", Some(3)));
        }
        assert!(
            numbers(&table, "tid")
                .iter()
                .filter(|t| **t == Some(second))
                .count()
                > 0
        );
    }
}

#[test]
fn threads_of_one_process_are_sessions_of_their_own() {
    let pid = i64::from(std::process::id());
    let (sender, receiver) = std::sync::mpsc::channel();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let own = fs::read_link("/proc/thread-self").unwrap();
                let tid = own.file_name().unwrap().to_str().unwrap().parse::<i64>();
                sender.send(tid.unwrap()).unwrap();
                sleep(Duration::from_millis(500));
            })
        })
        .collect();
    let tids: Vec<i64> = receiver.iter().take(2).collect();
    let spec = Spec {
        sessions: tids
            .iter()
            .zip([4, 9])
            .map(|(&tid, session)| (session, TaskId { pid, tid }))
            .collect(),
        ..spec()
    };
    let (watch, _, _) = run(spec, Ok(None), 200);
    for thread in threads {
        thread.join().unwrap();
    }
    let tasks = table(&watch, "tasks");
    let (found, sessions) = (numbers(&tasks, "tid"), numbers(&tasks, "session"));
    for (tid, session) in tids.into_iter().zip([4, 9]) {
        let of: HashSet<_> = (0..found.len())
            .filter(|&i| found[i] == Some(tid))
            .map(|i| sessions[i])
            .collect();
        assert_eq!(of, HashSet::from([Some(session)]));
    }
}

/// A process with a pid that has just been used, where the kernel lets us have that.
fn again(pid: i64) -> Option<Sleeper> {
    for _ in 0..200 {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let sleeper = Sleeper::new();
        if sleeper.pid() == pid {
            return Some(sleeper);
        }
    }
    None
}

#[test]
fn a_pid_that_is_used_again_is_another_session() {
    let mut first = Sleeper::new();
    let pid = first.pid();
    let probe = scripted(move |rows| {
        if fs::metadata(format!("/proc/{pid}")).is_ok() {
            rows.push(chosen(pid, Some(true)));
        }
        Ok(())
    });
    let spec = Spec {
        sessions: vec![(0, TaskId::main(pid))],
        adopt: true,
        ..spec()
    };
    let watch = Watch::new(spec, probe).unwrap();
    watch.start(now_ns(), now_ns() + 10_000 * MS).unwrap();
    sleep(Duration::from_millis(150));
    first.end();
    let Some(_second) = again(pid) else {
        eprintln!("skipped: no right to write /proc/sys/kernel/ns_last_pid, or too much comes and goes here");
        return;
    };
    sleep(Duration::from_millis(150));
    watch.stop();
    let samples = table(&watch, "samples");
    let expected = HashSet::from([("session".to_owned(), Some(0)), ("session".to_owned(), Some(1))]);
    assert_eq!(whose(&samples, pid), expected);
    let (sessions, statuses) = (numbers(&samples, "session"), texts(&samples, "status"));
    assert!(
        statuses.iter().all(|s| s == "ok"),
        "no row of the one by the other's task"
    );
    let starts = numbers(&samples, "start_ticks");
    let keys: HashSet<_> = sessions.iter().zip(&starts).collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(sessions.is_sorted(), "once it is gone it does not come back");
}

#[derive(Default)]
struct RecordingTracer {
    tasks: Mutex<Vec<(i64, String)>>,
    reads: AtomicUsize,
}

struct Listener(Arc<RecordingTracer>);

impl Tracer for Listener {
    fn watch(&mut self, task: &Arc<Task>) {
        let mut tasks = self.0.tasks.lock().unwrap();
        tasks.push((task.tid, task.who.role.to_string()));
    }

    fn read(&mut self, _ends: bool) {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn tables(&self, since_ns: i64) -> Vec<Table> {
        let reads = self.0.reads.load(Ordering::Relaxed) as i64;
        let rows = if since_ns == i64::MIN { reads } else { 1 };
        vec![Table::new("traced", vec![("before_ns", Column::known(0..rows))])]
    }

    fn take_tables(&mut self, _before_ns: i64) -> Vec<Table> {
        Vec::new()
    }

    fn status(&self) -> (String, String) {
        ("ok".to_owned(), "listening".to_owned())
    }

    fn labels(&self) -> (String, String) {
        ("not permitted".to_owned(), "as another user".to_owned())
    }

    fn statements(&self) -> (String, String) {
        ("off".to_owned(), "no ids".to_owned())
    }
}

#[test]
fn a_tracer_is_told_of_every_task_of_the_server_and_read_as_often_as_tasks() {
    let (session, met, late) = (Sleeper::new(), Sleeper::new(), Sleeper::new());
    let (session_pid, met_pid, late_pid) = (session.pid(), met.pid(), late.pid());
    let mut asked = 0;
    let probe = scripted(move |rows| {
        asked += 1;
        rows.extend([session_pid, met_pid].map(|p| chosen(p, Some(false))));
        rows.push(chosen(late_pid, Some(asked > 3)));
        Ok(())
    });
    let spec = Spec {
        sessions: vec![(0, TaskId::main(session_pid))],
        adopt: true,
        ..spec()
    };
    let recorder = Arc::new(RecordingTracer::default());
    let watch = Watch::new(spec, probe).unwrap();
    watch.trace(Ok(Box::new(Listener(Arc::clone(&recorder)))));
    let t0 = now_ns() + 50 * MS;
    watch.start(t0, t0 + 200 * MS).unwrap();
    sleep(Duration::from_millis(300));
    watch.stop();
    let mut tasks = recorder.tasks.lock().unwrap().clone();
    tasks.sort();
    let mut expected = vec![
        (session_pid, "session".to_owned()),
        (met_pid, "other".to_owned()),
        (late_pid, "other".to_owned()),
        (late_pid, "session".to_owned()),
    ];
    expected.sort();
    assert_eq!(tasks, expected, "each once, the adopted one again");
    let reads = recorder.reads.load(Ordering::Relaxed);
    let of_host = texts(&table(&watch, "host"), "key");
    assert_eq!(reads, of_host.iter().filter(|key| *key == "cpus").count());
    assert_eq!(table(&watch, "traced").columns[0].1.len(), reads);
    let recent = watch.recent(now_ns());
    let traced = recent.iter().find(|t| t.name == "traced").unwrap();
    assert_eq!(traced.columns[0].1.len(), 1);
    assert_eq!(watch.source_status()["scheduler trace"].1, "listening");
}

#[test]
fn a_trace_that_is_refused_says_why() {
    let watch = Watch::new(spec(), Ok(None)).unwrap();
    assert!(!watch.source_status().contains_key("scheduler trace"));
    let refusal = Refusal::new(Status::NotPermitted, "CAP_BPF and CAP_PERFMON are missing");
    watch.trace(Err(refusal.clone()));
    assert_eq!(
        watch.source_status()["scheduler trace"],
        refusal.status_and_detail()
    );
}

#[test]
fn recent_rows_are_those_read_since_and_all_of_them() {
    let session = Sleeper::new();
    let pid = session.pid();
    let probe = scripted(move |rows| {
        rows.push(backend(pid));
        Ok(())
    });
    let spec = Spec {
        sessions: vec![(0, TaskId::main(pid))],
        ..spec()
    };
    let (watch, t0, _) = run(spec, probe, 300);
    let since = t0 + 150 * MS;
    for recent in watch.recent(since) {
        let all = table(&watch, recent.name);
        let done = match recent.name {
            "samples" => "sql_after_ns",
            "sampler" => "end_ns",
            _ => "after_ns",
        };
        let later = numbers(&all, done)
            .iter()
            .filter(|&&at| at >= Some(since))
            .count();
        assert_eq!(numbers(&recent, done).len(), later, "{}", recent.name);
        assert_eq!(recent.columns.len(), all.columns.len());
        if !["cgroup", "blocked"].contains(&recent.name) {
            // neither groups nor waits for locks here
            assert!(0 < later && later < numbers(&all, done).len(), "{}", recent.name);
        }
    }
}
