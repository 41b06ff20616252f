//! Programs that divide their own CPU time in known shares, by the clock of their CPU time: what the profile
//! says of them lies within the error of so many samples. Needs the rights of a profile: see `rights.rs`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dyno_model::{Column, Table};
use dyno_observe::task::{Proof, Task, Who};
use dyno_observe::{Profiler, Status};
use dyno_profile::{Options, open};

/// The one function or the other, whichever is behind its share; `%d` tenths are the first's.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
static char room[1 << 18];
static int zero;
static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}
/* Turns of all lengths: never in step with the clock that samples. */
static int long_as(uint64_t x)
{
	return 20000 + (x >> 40) % 400000;
}
__attribute__((noinline)) uint64_t first(uint64_t x)
{
	for (int i = long_as(x); i > 0; i--)
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	return x;
}
__attribute__((noinline)) uint64_t second(uint64_t x)
{
#ifdef IN_KERNEL
	for (int i = long_as(x) >> 14; i >= 0; i--)
		x = x * 6364136223846793005ull + read(zero, room, sizeof(room));
#else
	for (int i = long_as(x); i > 0; i--)
		x = x * 2862933555777941757ull + 3037000493ull;
#endif
	return x;
}
__attribute__((noinline)) uint64_t work(uint64_t x)
{
	uint64_t spent[2] = {0, 0};
	for (;;) {
		uint64_t begun = cpu_ns();
		int which = spent[0] * (10 - TENTHS) > spent[1] * TENTHS;
		x = which ? second(x) : first(x);
		spent[which] += cpu_ns() - begun;
		if (!x)
			return x;
	}
}
int main(void)
{
	zero = open("/dev/zero", O_RDONLY);
	return work(42) != 1;
}
"#;

const POINTERS: [&str; 3] = [
    "-O1",
    "-fno-omit-frame-pointer",
    "-fno-asynchronous-unwind-tables",
];
const TABLES: [&str; 3] = ["-O1", "-fomit-frame-pointer", "-fasynchronous-unwind-tables"];
const SAMPLES: usize = 600;
/// So many standard errors may a share be off, and a bit for the time between the program's own clock reads.
const Z: f64 = 4.5;
const BETWEEN: f64 = 0.015;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compiled(directory: &Path, flags: &[&str]) -> PathBuf {
    let (source, program) = (directory.join("shares.c"), directory.join("shares"));
    std::fs::write(&source, PROGRAM).expect("writable");
    let done = Command::new("cc")
        .args(flags)
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(done.expect("a C compiler").success());
    program
}

/// `None`: the profile is not permitted here.
fn profiler(hz: f64) -> Option<Box<dyn Profiler>> {
    let options = Options {
        hz,
        until_ns: None,
        main_pid: None,
        tree: false,
        word: None,
    };
    match open(options) {
        Ok(profiler) => Some(profiler),
        Err(refusal) if refusal.status == Status::NotPermitted => {
            eprintln!("left out: {}", refusal.detail);
            None
        }
        Err(refusal) => panic!("{refusal:?}"),
    }
}

fn watch(profiler: &mut dyn Profiler, running: &Running) {
    let pid = i64::from(running.0.id());
    let who = Who {
        role: Arc::from("session"),
        session: Some(7),
    };
    profiler.watch(&Arc::new(Task::open(pid, pid, who, true, true, Proof::default())));
}

fn rows(tables: &[Table]) -> usize {
    tables[0].columns[0].1.len()
}

/// Tables of a profile of such a program, with [`SAMPLES`] samples or more.
fn profiled(name: &str, flags: &[&str]) -> Option<(Vec<Table>, String)> {
    let mut profiler = profiler(499.0)?;
    let directory = std::env::temp_dir().join(format!("dyno-profile-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("writable");
    let running = Running(
        Command::new(compiled(&directory, flags))
            .spawn()
            .expect("started"),
    );
    watch(&mut *profiler, &running);
    let patience = Instant::now() + Duration::from_secs(120);
    while rows(&profiler.tables()) < SAMPLES && Instant::now() < patience {
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(20));
            profiler.drain();
        }
    }
    drop(running);
    profiler.drain();
    std::fs::remove_dir_all(&directory).expect("removable");
    let tables = profiler.tables();
    assert!(rows(&tables) >= SAMPLES, "{:?}", profiler.status());
    Some((tables, profiler.status().1))
}

fn numbers(table: &Table, column: &str) -> Vec<Option<i64>> {
    match &table.columns.iter().find(|(n, _)| *n == column).expect("there").1 {
        Column::I64(values) => values.iter().collect(),
        other => panic!("{other:?}"),
    }
}

fn texts<'t>(table: &'t Table, column: &str) -> Vec<Option<&'t str>> {
    match &table.columns.iter().find(|(n, _)| *n == column).expect("there").1 {
        Column::Str(values) => values.iter().collect(),
        other => panic!("{other:?}"),
    }
}

/// Functions of each sample's stack, leaf first.
fn stacks(tables: &[Table]) -> Vec<Vec<String>> {
    let functions = texts(&tables[2], "function");
    let mut by_stack: HashMap<i64, Vec<String>> = HashMap::new();
    for (stack, frame) in numbers(&tables[1], "stack")
        .iter()
        .zip(numbers(&tables[1], "frame"))
    {
        let name = functions[frame.expect("known") as usize].unwrap_or("?");
        by_stack
            .entry(stack.expect("known"))
            .or_default()
            .push(name.to_owned());
    }
    let samples = numbers(&tables[0], "stack").into_iter();
    samples
        .map(|s| by_stack.get(&s.expect("known")).cloned().unwrap_or_default())
        .collect()
}

fn held(what: &str, hits: usize, of: usize, share: f64) {
    let found = hits as f64 / of as f64;
    let error = Z * (share * (1.0 - share) / of as f64).sqrt() + BETWEEN;
    assert!(
        (found - share).abs() <= error,
        "{what}: {found:.3} of {of}, not {share} +- {error:.3}"
    );
}

/// The number before ` words` in the profile's detail.
fn count_before(detail: &str, words: &str) -> usize {
    let before = detail.split(words).next().expect("there");
    let digits = before.trim_end().rsplit(' ').next().expect("a number");
    digits.parse().unwrap_or_else(|_| panic!("{words} in {detail}"))
}

/// `other`: the way of unwinding that next to no stack went; a few are those of the program's start.
fn functions_have_their_shares(name: &str, flags: &[&str], other: &str) {
    let Some((tables, detail)) = profiled(name, &[flags, &["-DTENTHS=7"]].concat()) else {
        return;
    };
    let stacks = stacks(&tables);
    let of = |name: &str| stacks.iter().filter(|s| s.iter().any(|f| f == name)).count();
    assert!(count_before(&detail, other) * 20 <= rows(&tables), "{detail}");
    held("first", of("first"), of("first") + of("second"), 0.7);
    let inside = stacks
        .iter()
        .filter(|s| s.iter().any(|f| f == "first" || f == "second"));
    let whole = inside.clone().filter(|s| {
        let own: Vec<&str> = s
            .iter()
            .map(String::as_str)
            .filter(|f| ["work", "main"].contains(f))
            .collect();
        own == ["work", "main"]
    });
    let (whole, inside) = (whole.count(), inside.count());
    assert!(
        whole * 20 >= inside * 19,
        "{whole} of {inside} stacks go through work to main"
    );
    assert!(texts(&tables[0], "role").iter().all(|r| *r == Some("session")));
    assert!(numbers(&tables[0], "session").iter().all(|s| *s == Some(7)));
}

#[test]
fn two_functions_with_frame_pointers() {
    functions_have_their_shares("pointers", &POINTERS, " by DWARF");
}

#[test]
fn two_functions_with_unwind_tables_alone() {
    functions_have_their_shares("tables", &TABLES, " with frame pointers");
}

#[test]
fn user_and_kernel() {
    let Some((tables, _)) = profiled("kernel", &[&TABLES[..], &["-DTENTHS=6", "-DIN_KERNEL"]].concat())
    else {
        return;
    };
    let modes = texts(&tables[0], "mode");
    let user = modes.iter().filter(|m| **m == Some("user")).count();
    held("user", user, modes.len(), 0.6);
    let stacks = stacks(&tables);
    let kernel: Vec<_> = stacks
        .iter()
        .zip(&modes)
        .filter(|(_, m)| **m == Some("kernel"))
        .collect();
    let through = kernel
        .iter()
        .filter(|(s, _)| s.iter().any(|f| f == "second"))
        .count();
    assert!(
        through * 10 >= kernel.len() * 9,
        "{through} of {} stacks in the kernel are of second",
        kernel.len()
    );
}

/// Whoever empties the rings gets no CPU for longer than they have room for.
#[test]
fn samples_without_room_are_counted_and_the_profile_is_limited() {
    let Some(mut profiler) = profiler(999.0) else {
        return;
    };
    let running = Running(
        Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("started"),
    );
    watch(&mut *profiler, &running);
    let patience = Instant::now() + Duration::from_secs(120);
    let lost = |tables: &[Table]| -> i64 { numbers(&tables[3], "lost").iter().flatten().sum() };
    // on a busy machine the process has a part of a CPU, and fills its ring later
    let mut pause = Duration::from_secs(4);
    while lost(&profiler.tables()) == 0 && Instant::now() < patience {
        std::thread::sleep(pause);
        profiler.drain();
        pause *= 2;
    }
    let tables = profiler.tables();
    let (status, detail) = profiler.status();
    assert_eq!(tables[3].name, "profile_losses");
    assert!(lost(&tables) > 0 && rows(&tables) > 0);
    assert_eq!(status, "limited", "{detail}");
    assert!(count_before(&detail, " lost") as i64 >= lost(&tables), "{detail}");
    let times = numbers(&tables[3], "start_ns")
        .into_iter()
        .zip(numbers(&tables[3], "end_ns"));
    assert!(times.into_iter().all(|(from, to)| from < to));
}
