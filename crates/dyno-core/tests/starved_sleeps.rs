//! Stacks of sleeps while their reader gets no CPU. Needs the rights of the trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use dyno_model::{Column, Table};
use dyno_observe::task::{Proof, Task, Who};
use dyno_observe::{Profiler, Status};
use dyno_profile::Sleeps;
use dyno_trace::{Options, open};

const THREADS: usize = 24;
const Z: f64 = 4.5;

fn whole(table: &Table, column: &str) -> Vec<Option<i64>> {
    match &table.columns.iter().find(|(n, _)| *n == column).unwrap().1 {
        Column::I64(values) => values.iter().collect(),
        other => panic!("{other:?}"),
    }
}

fn real(table: &Table, column: &str) -> Vec<f64> {
    match &table.columns.iter().find(|(n, _)| *n == column).unwrap().1 {
        Column::F64(values) => values.iter().flatten().collect(),
        other => panic!("{other:?}"),
    }
}

fn task(tid: i64) -> Arc<Task> {
    let who = Who {
        role: Arc::from("session"),
        session: Some(tid),
    };
    let pid = i64::from(std::process::id());
    Arc::new(Task::open(pid, tid, who, false, true, Proof::default()))
}

/// The ring has room for 450 stacks, and many more sleeps than that would be chosen.
#[test]
fn a_late_reader_gets_fewer_stacks_that_stand_for_all_sleep() {
    let options = Options {
        slots: 64,
        stacks: true,
        ..Options::default()
    };
    let (mut tracer, stacks) = match open(options) {
        (Ok(tracer), Some(Ok(stacks))) => (tracer, stacks),
        (Err(refusal), _) | (_, Some(Err(refusal))) => {
            assert!(
                matches!(refusal.status, Status::NotPermitted | Status::NotSupported),
                "{refusal:?}"
            );
            eprintln!("left out: {}", refusal.detail);
            return;
        }
        (Ok(_), None) => panic!("stacks were asked for"),
    };
    let mut sleeps = Sleeps::new(stacks, 199.0, None, None, false);
    let stop = AtomicBool::new(false);
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for n in 0..THREADS {
            let (stop, send) = (&stop, send.clone());
            scope.spawn(move || {
                send.send(i64::from(rustix::thread::gettid().as_raw_pid()))
                    .unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(200 + 100 * (n as u64 % 3)));
                }
            });
        }
        for tid in receive.iter().take(THREADS) {
            let task = task(tid);
            sleeps.watch(&task);
            tracer.watch(&task);
        }
        std::thread::sleep(Duration::from_secs(4)); // nobody takes stacks in
        tracer.read(true);
        stop.store(true, Ordering::Relaxed);
    });
    sleeps.drain();
    let tables = sleeps.tables();
    let (samples, losses) = (&tables[0], &tables[3]);
    assert_eq!((samples.name, losses.name), ("sleep_samples", "sleep_losses"));
    let slept = whole(samples, "slept_ns");
    assert!(slept.len() > 100, "{} stacks", slept.len());
    let lost: i64 = whole(losses, "lost").iter().flatten().sum();
    assert_eq!(
        (lost, sleeps.status().0.as_str()),
        (0, "ok"),
        "{}",
        sleeps.status().1
    );
    let chances = real(samples, "chance");
    let stand: Vec<f64> = slept
        .iter()
        .zip(&chances)
        .map(|(ns, c)| ns.unwrap_or(0) as f64 / c)
        .collect();
    let (sum, error) = (
        stand.iter().sum::<f64>(),
        stand.iter().map(|v| v * v).sum::<f64>().sqrt(),
    );
    let exactly = tracer.tables(i64::MIN);
    let sums = whole(&exactly[0], "sleep_ns");
    let exact: i64 = sums[sums.len() - THREADS..].iter().flatten().sum();
    let off = (sum - exact as f64).abs();
    assert!(
        off <= Z * error + 0.02 * exact as f64,
        "{} stacks stand for {sum:.3e} +- {error:.3e} ns of {exact}",
        slept.len()
    );
}
