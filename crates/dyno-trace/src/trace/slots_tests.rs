use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::Duration;

use dyno_model::{Column, Table};
use dyno_observe::Tracer;
use dyno_observe::task::{Proof, Who};

use super::*;
use crate::layout::doing;
use crate::trace::{Options, trace};

/// A trace of what this process starts; `None`: not permitted here.
fn opened(slots: u32) -> Option<Trace> {
    let options = Options {
        main_pid: Some(i64::from(std::process::id())),
        slots,
        tree: true,
        ..Options::default()
    };
    match trace(&options) {
        Ok(trace) => Some(trace),
        Err(refusal) if refusal.status == Status::NotPermitted => {
            eprintln!("left out: {}", refusal.detail);
            None
        }
        Err(refusal) => panic!("{refusal:?}"),
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sleeper() -> Running {
    Running(Command::new("sleep").arg("60").spawn().unwrap())
}

fn task(running: &Running) -> Arc<Task> {
    let pid = i64::from(running.0.id());
    let who = Who {
        role: Arc::from("session"),
        session: Some(1),
    };
    Arc::new(Task::open(pid, pid, who, true, true, Proof::default()))
}

fn column(tables: &[Table], name: &str) -> Vec<Option<i64>> {
    match &tables[0].columns.iter().find(|(n, _)| *n == name).unwrap().1 {
        Column::I64(values) => values.iter().collect(),
        other => panic!("{other:?}"),
    }
}

/// Rows of a process in `traced`: when it had started, and the time in its sums.
fn rows_of(trace: &Trace, pid: u32) -> Vec<(Option<i64>, i64)> {
    let tables = trace.tables(i64::MIN);
    let of = |name| column(&tables, name);
    let sums = ["run_ns", "runq_ns", "sleep_ns"].map(of);
    let rows = of("pid").into_iter().enumerate();
    rows.filter(|(_, p)| *p == Some(i64::from(pid)))
        .map(|(n, _)| (of("start_ticks")[n], sums.iter().map(|s| s[n].unwrap_or(0)).sum()))
        .collect()
}

/// Many more tasks come and go than there is room for at once.
#[test]
fn each_task_that_came_and_went_was_read_before_its_slot_was_given_away() {
    let Some(mut trace) = opened(64) else { return };
    let mut pids = Vec::new();
    for n in 0..300 {
        let mut child = Command::new("true").spawn().unwrap();
        pids.push(child.id());
        child.wait().unwrap();
        if n % 10 == 9 {
            trace.make_room();
        }
    }
    std::thread::sleep(Duration::from_millis(50));
    trace.read(true);
    assert_eq!(trace.status().0, "ok", "{}", trace.status().1);
    for pid in pids {
        let rows = rows_of(&trace, pid);
        assert!(rows.iter().any(|(_, ns)| *ns > 0), "process {pid}: {rows:?}");
    }
}

#[test]
fn tasks_without_room_make_it_limited_and_later_ones_have_room_again() {
    let Some(mut trace) = opened(8) else { return };
    let crowd: Vec<Running> = (0..20).map(|_| sleeper()).collect();
    trace.read(false);
    let (status, detail) = trace.status();
    assert_eq!(status, "limited", "{detail}");
    assert!(detail.contains("found no room among 7"), "{detail}");
    drop(crowd);
    std::thread::sleep(Duration::from_millis(50));
    trace.read(false); // ended ones give their slots back
    let late = sleeper();
    std::thread::sleep(Duration::from_millis(50));
    trace.read(true);
    assert!(!rows_of(&trace, late.0.id()).is_empty());
}

/// The slot under a task's number is of a task that had the number before, whose end the program did not see.
#[test]
fn a_number_that_is_used_again_leaves_the_sums_of_the_task_before() {
    let Some(mut trace) = opened(64) else { return };
    let running = sleeper();
    let pid = running.0.id();
    std::thread::sleep(Duration::from_millis(50));
    trace.read(true);
    let before = rows_of(&trace, pid);
    let number = trace.loaded.book.find(pid).unwrap();
    let slot = trace.loaded.book.slots.at(number);
    let old_ticks = 7;
    // SAFETY: mapped and aligned; the task sleeps, so the program does not write it.
    unsafe {
        (&raw mut (*slot).start_boottime_ns).write_volatile((old_ticks * trace.ns_per_tick) as u64);
    }
    trace.known[number] = None; // as if it had been born since the read
    trace.watch(&task(&running));
    let rows = rows_of(&trace, pid);
    let (_, last_ns) = *before.last().unwrap();
    let of_old: Vec<i64> = rows
        .iter()
        .filter(|(start, _)| *start == Some(old_ticks))
        .map(|r| r.1)
        .collect();
    assert_eq!(of_old.len(), 1, "{rows:?}");
    assert!(of_old[0] >= last_ns, "its time does not go back");
    let new = trace.loaded.book.find(pid).unwrap();
    assert_ne!(new, number, "the old slot is not given away at once");
    assert_eq!(trace.loaded.book.read(new).unwrap().run_ns, 0);
    assert!(!trace.loaded.book.used().any(|n| n == number));
}

/// It is gone from `/proc`, and the program has not seen it leave its CPU for good.
#[test]
fn a_slot_that_may_still_be_written_is_not_given_away() {
    let Some(mut trace) = opened(64) else { return };
    let running = sleeper();
    std::thread::sleep(Duration::from_millis(50));
    let watched = task(&running);
    trace.watch(&watched);
    trace.read(false);
    let number = trace.loaded.book.find(running.0.id()).unwrap();
    let tid = running.0.id();
    let place = |number: usize| {
        trace
            .loaded
            .book
            .place_of(tid)
            .store(number as u16, Ordering::Release);
    };
    place(0); // the program does not see its end
    drop(running);
    let mut buffer = dyno_observe::file::Buffer::default();
    for _ in 0..200 {
        if watched.gone() {
            break;
        }
        let _ = watched.read(&mut buffer, trace.ns_per_tick);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(watched.gone());
    place(number);
    assert_ne!(trace.loaded.book.read(number).unwrap().doing, doing::ENDED);
    trace.read(true);
    assert!(!trace.loaded.book.used().any(|n| n == number), "it was read");
    assert_eq!(trace.loaded.book.find(tid), None);
    let taken: Vec<usize> = (1..64)
        .map_while(|n| {
            let new_task = NewTask {
                tid: 20_000 + n,
                tgid: 20_000,
                word: 0,
                statement: dyno_bpf::Statement::default(),
                now_ns: 1,
            };
            trace.loaded.book.take(new_task)
        })
        .collect();
    assert!(!taken.contains(&number) && taken.len() < 63, "{taken:?}");
}
