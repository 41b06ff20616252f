//! A word of real processes: this very test program has a pointer variable as a server has, and is read
//! from outside like one. Real servers: `tests/db/test_watch_memory.py`.

mod support;

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use dyno_observe::word::{Right, cure, refusal};
use dyno_observe::{Status, Word, WordFinder, WordSpec};
use support::*;

const SYMBOL: &str = "dyno_observe_test_word_pointer";
const CHILD: &str = "DYNO_OBSERVE_TEST_CHILD";

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
#[used]
static dyno_observe_test_word_pointer: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

fn point_at(word: &'static AtomicU32) {
    dyno_observe_test_word_pointer.store(std::ptr::from_ref(word).cast_mut(), Ordering::SeqCst);
}

/// This program once more: it says where its variable is, and sets its word to what it reads.
struct Server(Child);

impl Server {
    fn new() -> (Self, u64) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "as_a_child_it_does_what_it_is_told", "--nocapture"])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.map_while(std::result::Result::ok).find_map(|line| {
            line.rsplit_once("variable at ")
                .map(|(_, at)| at.parse().unwrap())
        });
        (Self(child), address.unwrap())
    }

    fn pid(&self) -> i64 {
        i64::from(self.0.id())
    }

    fn set(&mut self, word: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{word}").unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn as_a_child_it_does_what_it_is_told() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    println!("variable at {}", &raw const dyno_observe_test_word_pointer as u64);
    for line in std::io::stdin().lines().map_while(std::result::Result::ok) {
        match line.parse() {
            Ok(word) => point_at(Box::leak(Box::new(AtomicU32::new(word)))),
            Err(_) => dyno_observe_test_word_pointer.store(8 as *mut AtomicU32, Ordering::SeqCst),
        }
    }
}

fn finder() -> WordFinder {
    WordFinder::new("word", SYMBOL)
}

/// Until the child has done it.
fn eventually<T>(mut what: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        if let Some(done) = what() {
            return done;
        }
        sleep(Duration::from_millis(5));
    }
    panic!("did not come about")
}

#[test]
fn the_variable_is_found_in_each_process_though_each_has_it_elsewhere() {
    let mut finder = finder();
    let own = i64::from(std::process::id());
    let here = &raw const dyno_observe_test_word_pointer as u64;
    let (one, two) = (Server::new(), Server::new());
    for (pid, address) in [
        (own, here),
        (one.0.pid(), one.1),
        (two.0.pid(), two.1),
        (own, here),
    ] {
        assert_eq!(finder.address(pid), Ok(address));
    }
}

#[test]
fn the_word_is_read_and_a_pointer_that_moves_is_followed() {
    let (mut server, address) = Server::new();
    let mut word = Word::new(server.pid(), address);
    assert_eq!(
        word.read().unwrap_err().kind(),
        ErrorKind::InvalidData,
        "a null pointer"
    );
    for value in [0x0600_0000_u32, 0, 7] {
        server.set(&value.to_string());
        assert_eq!(eventually(|| word.read().ok().filter(|&w| w == value)), value);
    }
    server.set("nowhere");
    eventually(|| {
        word.read()
            .is_err_and(|e| e.kind() == ErrorKind::InvalidData)
            .then_some(())
    });
    server.set("9");
    assert_eq!(eventually(|| word.read().ok()), 9);
    let pid = server.pid();
    drop(server);
    let error = word.read().unwrap_err();
    assert_eq!(refusal(pid, &error, Right::Read).status, Status::Vanished);
    assert_eq!(finder().address(pid).unwrap_err().status, Status::Vanished);
}

#[test]
fn a_program_without_the_symbol_is_named() {
    let sleeper = Sleeper::new();
    // until it is no longer a copy of this program
    let refusal = eventually(|| finder().address(sleeper.pid()).err());
    assert_eq!(refusal.status, Status::NotSupported);
    assert!(
        refusal.detail.contains("/sleep") || refusal.detail.contains("/coreutils"),
        "{}",
        refusal.detail
    );
    assert!(refusal.detail.contains(SYMBOL));
}

#[test]
fn the_cure_fits_the_cause() {
    for (right, theirs, scope, part) in [
        (
            Right::Look,
            Some(26),
            0,
            "as the server's user (uid 26; we are uid 1000)",
        ),
        (Right::Read, Some(26), 1, "as the server's user"),
        (
            Right::Read,
            Some(1000),
            1,
            "kernel.yama.ptrace_scope is 1: set it to 0 with sysctl, or give",
        ),
        (
            Right::Read,
            Some(1000),
            3,
            "kernel.yama.ptrace_scope is 3: set it to 0 with sysctl (3 stays",
        ),
        (Right::Read, Some(1000), 0, "not dumpable"),
        (Right::Look, Some(1000), 1, "CAP_SYS_PTRACE"), // Yama does not limit looking
        (Right::Look, None, 0, "run dbdyno as the server's user, or"),
    ] {
        let advice = cure(right, 1000, theirs, scope);
        assert!(advice.contains(part), "{advice}");
    }
}

fn word_spec() -> WordSpec {
    WordSpec {
        program: "word".to_owned(),
        symbol: SYMBOL.to_owned(),
        names: vec![(0x0600_0000, "Client".to_owned(), "ClientRead".to_owned())],
        classes: vec![(1, "LWLock".to_owned())],
        client: vec![0x0600_0000],
        statement: None,
    }
}

fn memory_spec() -> Spec {
    Spec {
        word: Some(word_spec()),
        memory_hz: 200.0,
        memory_budget: 1.0,
        ..spec()
    }
}

#[test]
fn a_watch_samples_the_words_of_sessions_helpers_and_others_and_says_what_they_mean() {
    let (mut session, mut helper, mut other) = (Server::new().0, Server::new().0, Server::new().0);
    session.set(&0x0600_0000.to_string());
    helper.set("0");
    other.set(&0x0100_0041.to_string());
    sleep(Duration::from_millis(100)); // all have done it
    let named = [helper.pid(), other.pid()];
    let probe = scripted(move |rows| {
        rows.extend(named.map(backend));
        rows[0].helper = Some("walwriter".to_owned());
        Ok(())
    });
    let spec = Spec {
        sessions: vec![(3, TaskId::main(session.pid()))],
        ..memory_spec()
    };
    let (watch, _, _) = run(spec, probe, 400);
    assert_eq!(
        watch.latest(),
        [("Client:ClientRead".to_owned(), 1.0)],
        "of sessions alone"
    );
    assert_eq!(
        watch.source_status()["wait event word"],
        ("ok".to_owned(), String::new())
    );
    let samples = table(&watch, "samples");
    let (pids, via) = (numbers(&samples, "pid"), texts(&samples, "via"));
    let (class, event, role) = (
        texts(&samples, "wait_class"),
        texts(&samples, "wait_event"),
        texts(&samples, "role"),
    );
    let (before, after, task) = (
        numbers(&samples, "sql_before_ns"),
        numbers(&samples, "sql_after_ns"),
        numbers(&samples, "task_ns"),
    );
    let (starts, states) = (numbers(&samples, "start_ticks"), texts(&samples, "task_state"));
    for (pid, expected) in [
        (session.pid(), ("Client", "ClientRead", "session")),
        (helper.pid(), ("", "", "helper:walwriter")),
        (other.pid(), ("LWLock", "#65", "other")),
    ] {
        let rows = || (0..pids.len()).filter(|&i| pids[i] == Some(pid) && via[i] == "memory");
        assert!(rows().count() > 20, "{} rows of {expected:?}", rows().count());
        for i in rows() {
            assert_eq!((class[i].as_str(), event[i].as_str(), role[i].as_str()), expected);
            assert!(before[i] <= after[i] && after[i] <= task[i] && starts[i].is_some());
            assert_eq!(states[i], "S");
        }
    }
    assert!(via.contains(&"sql".to_owned()), "the server is asked as before");
    let taken = table(&watch, "sampler");
    assert!(texts(&taken, "via").iter().filter(|v| *v == "memory").count() > 20);
}

#[test]
fn processes_without_the_word_leave_the_rest_as_it_is() {
    let (mut session, sleeper) = (Server::new().0, Sleeper::new());
    session.set("1");
    sleep(Duration::from_millis(100));
    let spec = Spec {
        sessions: vec![(0, TaskId::main(session.pid())), (1, TaskId::main(sleeper.pid()))],
        ..memory_spec()
    };
    let (watch, _, _) = run(spec, Ok(None), 200);
    let samples = table(&watch, "samples");
    assert!(!numbers(&samples, "pid").is_empty());
    assert!(numbers(&samples, "pid").iter().all(|p| *p == Some(session.pid())));
    let (status, detail) = watch.source_status().remove("wait event word").unwrap();
    assert_eq!(status, "ok");
    assert!(
        detail.contains("1 of 2 processes") && detail.contains(SYMBOL),
        "{detail}"
    );
}

#[test]
fn without_any_word_there_is_no_memory_sample_and_a_reason() {
    let sleeper = Sleeper::new();
    let sessions = vec![(0, TaskId::main(sleeper.pid()))];
    for (spec, status) in [
        (
            Spec {
                sessions: sessions.clone(),
                ..memory_spec()
            },
            "not supported",
        ),
        (
            Spec {
                sessions: sessions.clone(),
                os: false,
                ..memory_spec()
            },
            "not here",
        ),
        (
            Spec {
                sessions: sessions.clone(),
                memory_hz: 0.0,
                ..memory_spec()
            },
            "off",
        ),
        (memory_spec(), "lost"),
    ] {
        let (watch, _, _) = run(spec, Ok(None), 50);
        assert_eq!(watch.source_status()["wait event word"].0, status);
        assert!(texts(&table(&watch, "sampler"), "via").iter().all(|v| v == "sql"));
    }
    let (watch, _, _) = run(spec(), Ok(None), 50);
    assert!(
        !watch.source_status().contains_key("wait event word"),
        "nobody asked for it"
    );
}
