use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dyno_bpf::Statement;
use dyno_model::now_ns;

use super::*;
use crate::book::NewTask;
use crate::layout::{Wait, doing};

fn wanted() -> Wanted {
    Wanted {
        slots: 16,
        calls: Some(vec![]),
        stacks: true,
        tree: true,
    }
}

/// `None`: not permitted here.
fn permitted(object: &[u8], ring_bytes: u32) -> Option<Loaded> {
    match rights::check(None).and_then(|()| loaded(&wanted(), object, ring_bytes)) {
        Ok(loaded) => Some(loaded),
        Err(refusal) if refusal.status == Status::NotPermitted => {
            eprintln!("left out: {}", refusal.detail);
            None
        }
        Err(refusal) => panic!("{refusal:?}"),
    }
}

fn new_task(tid: i32) -> NewTask {
    NewTask {
        tid: tid as u32,
        tgid: std::process::id(),
        word: 0,
        statement: Statement::default(),
        now_ns: now_ns() as u64,
    }
}

/// Runs `work` while a thread sleeps again and again, whose number it is given.
fn with_sleeper<R>(work: impl FnOnce(i32) -> R) -> R {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let stop = &stop;
        scope.spawn(move || {
            send.send(rustix::thread::gettid().as_raw_pid()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let done = work(receive.recv().unwrap());
        stop.store(true, Ordering::Relaxed);
        done
    })
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// The object of other processors, too: they and this one compile it to the same.
#[test]
fn both_objects_count_the_sleeps_of_a_thread_and_see_its_end() {
    for object in [STRONGLY_ORDERED, WEAKLY_ORDERED] {
        let Some(mut loaded) = permitted(object, RING_BYTES) else {
            return;
        };
        assert!(loaded.clock.is_ok(), "{:?}", loaded.clock);
        loaded.attach(true).unwrap();
        let number = with_sleeper(|tid| {
            let number = loaded.book.take(new_task(tid)).unwrap();
            let slot = || loaded.book.read(number);
            eventually("ten sleeps", || slot().is_some_and(|s| s.voluntary >= 10));
            assert_eq!(loaded.book.find(tid as u32), Some(number));
            number
        });
        let slot = || loaded.book.read(number);
        eventually("its end", || slot().is_some_and(|s| s.doing == doing::ENDED));
        let slot = slot().unwrap();
        assert!(slot.seq.is_multiple_of(2) && slot.seq > 20);
        assert_eq!(loaded.book.find(slot.tid), None, "its number is nobody's");
        assert_eq!(loaded.book.ended().collect::<Vec<_>>(), [number]);
    }
}

/// A timer that goes off every millisecond, and how often a thread has read it.
struct Timer {
    file: std::fs::File,
    reads: [AtomicU64; 2],
}

impl Timer {
    fn new() -> Self {
        let every = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        let times = libc::itimerspec {
            it_interval: every,
            it_value: every,
        };
        // SAFETY: plain calls; the descriptor is nobody else's.
        let file = unsafe {
            let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
            assert!(fd >= 0);
            libc::timerfd_settime(fd, 0, &raw const times, std::ptr::null_mut());
            std::fs::File::from_raw_fd(fd)
        };
        Self {
            file,
            reads: Default::default(),
        }
    }

    fn read_until(&self, stop: &AtomicBool, who: usize) {
        while !stop.load(Ordering::Relaxed) {
            (&self.file).read_exact(&mut [0; 8]).unwrap();
            self.reads[who].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Each time the timer goes off both threads are woken, one has its read and the other sleeps on in its own.
#[test]
fn sleeps_in_one_system_call_are_one_wait() {
    let Some(mut loaded) = permitted(STRONGLY_ORDERED, RING_BYTES) else {
        return;
    };
    loaded.attach(false).unwrap();
    let (timer, stop) = (Timer::new(), AtomicBool::new(false));
    let waits = std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        for who in 0..2 {
            let (timer, stop, send) = (&timer, &stop, send.clone());
            scope.spawn(move || {
                send.send(rustix::thread::gettid().as_raw_pid()).unwrap();
                timer.read_until(stop, who);
            });
        }
        let numbers: Vec<usize> = (0..2)
            .map(|_| loaded.book.take(new_task(receive.recv().unwrap())).unwrap())
            .collect();
        let sums = |part: fn(&Wait) -> u64| {
            let slots = numbers.iter().map(|&n| loaded.book.read(n));
            slots
                .flatten()
                .map(|s| s.waits.iter().map(part).sum::<u64>())
                .sum::<u64>()
        };
        // those before the kernel's flag is known are unclear
        eventually("a flag", || sums(|w| w.begun) > sums(|w| w.unclear) + 10);
        let (unclear, begun, sleeps) = (sums(|w| w.unclear), sums(|w| w.begun), sums(|w| w.sleeps));
        let reads = || timer.reads.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u64>();
        let before = reads();
        eventually("500 sleeps", || sums(|w| w.sleeps) > sleeps + 500);
        let more = (
            sums(|w| w.begun) - begun,
            sums(|w| w.sleeps) - sleeps,
            reads() - before,
        );
        assert_eq!(sums(|w| w.unclear), unclear);
        stop.store(true, Ordering::Relaxed);
        more
    });
    let (begun, sleeps, reads) = waits;
    assert!(begun <= reads + 4, "{waits:?}"); // those under way
    assert!(sleeps > begun + begun / 4, "{waits:?}");
}

#[test]
fn stacks_that_find_no_room_are_counted_with_what_they_stand_for() {
    let Some(mut loaded) = permitted(STRONGLY_ORDERED, 32 << 10) else {
        return;
    };
    loaded.attach(false).unwrap();
    let every_ns = 50_000;
    let control = loaded.book.control.at(0);
    // SAFETY: mapped and aligned.
    unsafe { (&raw mut (*control).every_ns).write_volatile(every_ns) };
    with_sleeper(|tid| {
        loaded.book.take(new_task(tid)).unwrap();
        let lost = || loaded.book.control.read(0);
        eventually("a loss", || lost().lost_stacks > 0); // there is room for one
        let lost = lost();
        assert!(lost.lost_asleep_ns >= (lost.lost_stacks - 1) * every_ns); // one may be half counted
        assert!(lost.lost_asleep_ns <= (lost.lost_stacks + 1) * (every_ns << 15));
    });
}

#[test]
fn a_retired_slot_is_given_to_another_task_only_after_a_while() {
    let Some(mut loaded) = permitted(STRONGLY_ORDERED, RING_BYTES) else {
        return;
    };
    let book = &mut loaded.book;
    let number = book.take(new_task(77)).unwrap();
    for tid in 100..114 {
        book.take(new_task(tid)).unwrap();
    }
    assert!(book.take(new_task(200)).is_none(), "all are taken");
    let now = now_ns() as u64;
    book.retire(number, now);
    assert_eq!(book.find(77), None);
    assert!(!book.used().any(|n| n == number));
    book.free_retired(now + 1);
    assert!(
        book.take(new_task(200)).is_none(),
        "a program may be writing it still"
    );
    book.free_retired(now + 2_000_000_000);
    assert_eq!(book.take(new_task(200)), Some(number));
    assert_eq!(book.read(number).unwrap().tid, 200);
}
