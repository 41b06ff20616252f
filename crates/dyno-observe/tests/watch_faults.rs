//! Whole watches over what goes wrong: tasks that end, servers that fail, hang or are elsewhere.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use support::*;

#[test]
fn a_task_that_ends_is_told_once_and_is_unknown_from_then_on() {
    let mut session = Sleeper::new();
    let pid = session.pid();
    let watch = Watch::new(
        Spec {
            sessions: vec![(0, TaskId::main(pid))],
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
            sessions: vec![(0, TaskId::main(1))],
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
        backend: None,
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

/// A process whose parent is not the server's main process is a stranger, whatever number the server names.
#[test]
fn a_process_that_is_no_child_of_the_server_is_never_read() {
    let ours = Sleeper::new();
    let main = i64::from(std::process::id());
    let (child, strangers) = (ours.pid(), [1, i64::from(std::os::unix::process::parent_id())]);
    let probe = scripted(move |rows| {
        rows.extend([child, strangers[0], strangers[1]].map(backend));
        Ok(())
    });
    let spec = Spec {
        sessions: vec![(0, TaskId::main(strangers[0]))],
        main_pid: Some(main),
        adopt: true,
        ..spec()
    };
    let (watch, _, _) = run(spec, probe, 200);
    for name in ["tasks", "samples"] {
        let table = table(&watch, name);
        let (pids, statuses) = (numbers(&table, "pid"), texts(&table, "status"));
        assert!((0..pids.len()).any(|i| pids[i] == Some(child) && statuses[i] == "ok"));
        for i in (0..pids.len()).filter(|&i| strangers.contains(&pids[i].unwrap())) {
            assert_eq!(statuses[i], "vanished", "{name}");
            assert_eq!(numbers(&table, "start_ticks")[i], None, "{name}");
        }
    }
    assert!(texts(&table(&watch, "samples"), "status").contains(&"vanished".to_owned()));
}
