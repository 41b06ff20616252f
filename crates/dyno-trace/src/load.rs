//! Loads the program into the kernel and attaches it.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use aya::maps::{Map, MapData, Queue};
use aya::programs::perf_event::{PerfEvent, PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::raw_trace_point::RawTracePoint;
use aya::programs::{BtfTracePoint, Program, ProgramError, RawTracePointRunOptions, TestRun};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use dyno_observe::status::Refusal;
use dyno_observe::{Granted, Status};

use crate::book::{Book, Vacant};
use crate::layout::{Plain, TIDS};
use crate::memory::Shared;
use crate::rights;
use crate::system_calls;

/// The compiled program, at a place aligned as its parser wants it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/sched.bpf.o");

const SWITCHES: [&str; 3] = ["sched_switch", "sched_wakeup", "sched_process_fork"];
const LOOK: &str = "look_throttled";
const TICK: &str = "on_tick";
/// 199 ticks a second: not in step with what programs do every 10 ms.
const TICK_NS: u64 = 1_000_000_000 / 199;

/// A program that runs in the kernel until it is dropped.
pub struct Loaded {
    programs: Ebpf,
    /// Its memory.
    pub book: Book,
    /// Whether this kernel tells throttled time.
    pub throttle_known: bool,
    /// Why no clock tells the labels of tasks on a CPU.
    pub clock: Granted<()>,
}

/// Loads and attaches. `calls`: system calls, too; with the labels of waits for the client.
///
/// # Errors
/// Not permitted or not supported, with the kernel's words.
pub fn load(slots: u32, calls: Option<&[u32]>, main_pid: Option<i64>) -> Result<Loaded, Refusal> {
    rights::check(main_pid)?;
    rights::raise_memlock();
    let blocks = pid_max() / TIDS as u32 + 1;
    let (sized, client_waits) = (
        system_calls::sized(),
        system_calls::client_waits(calls.unwrap_or_default()),
    );
    let places_of_calls = calls.map_or(1, |_| slots);
    let btf = kernel_types()?;
    let mut programs = EbpfLoader::new()
        .btf(Some(btf))
        .map_max_entries("places", blocks)
        .map_max_entries("slots", slots)
        .map_max_entries("calls", places_of_calls)
        .override_global("sized", &sized[..], true)
        .override_global("client_waits", &client_waits[..], true)
        .map_max_entries("vacant", slots)
        .load(OBJECT)
        .map_err(|e| of_loading(&e))?;
    let book = Book {
        control: shared(&mut programs, "control", 1)?,
        places: shared(&mut programs, "places", blocks)?,
        slots: shared(&mut programs, "slots", slots)?,
        calls: shared(&mut programs, "calls", places_of_calls)?,
        vacant: vacant(&mut programs, slots)?,
    };
    load_look(&mut programs);
    for name in SWITCHES
        .iter()
        .chain(system_calls::TRACEPOINTS.iter().filter(|_| calls.is_some()))
    {
        attach(&mut programs, name, btf)?;
    }
    let clock = attach_clock(&mut programs);
    let mut loaded = Loaded {
        programs,
        book,
        throttle_known: false,
        clock,
    };
    loaded.throttled_now_ns(0);
    loaded.throttle_known = loaded.book.control.read(0).throttle_known != 0;
    Ok(loaded)
}

impl Loaded {
    /// How much of the wait in the queue that slot `number` is in was throttled up to now, nanoseconds.
    /// `None`: the kernel (before 5.10) does not let us ask.
    pub fn throttled_now_ns(&self, number: usize) -> Option<u64> {
        let Some(Program::RawTracePoint(look)) = self.programs.program(LOOK) else {
            return None;
        };
        let mut options = RawTracePointRunOptions::new();
        options.args[0] = number as u64;
        look.test_run(options).ok()?;
        Some(self.book.control.read(0).throttled_now_ns)
    }

    /// Events the kernel left out because the program was already running on that CPU (5.12 and later tell).
    pub fn missed(&self) -> u64 {
        let fds = self.programs.programs().filter_map(|(_, program)| match program {
            Program::BtfTracePoint(p) => Some(p.fd().ok()?.as_fd().as_raw_fd()),
            _ => None,
        });
        fds.filter_map(|fd| missed(&std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?))
            .sum()
    }
}

/// Types of the running kernel: 5 MB to be read, so once a process.
///
/// # Errors
/// Not supported.
pub fn kernel_types() -> Result<&'static Btf, Refusal> {
    static TYPES: OnceLock<Btf> = OnceLock::new();
    if let Some(types) = TYPES.get() {
        return Ok(types);
    }
    let read = Btf::from_sys_fs().map_err(|e| unsupported(&e))?;
    Ok(TYPES.get_or_init(|| read))
}

fn missed(fdinfo: &str) -> Option<u64> {
    fdinfo
        .lines()
        .find_map(|l| l.strip_prefix("recursion_misses:"))?
        .trim()
        .parse()
        .ok()
}

/// Without it only what is under way in the queue at a read is not split.
fn load_look(programs: &mut Ebpf) {
    if let Some(Program::RawTracePoint(look)) = programs.program_mut(LOOK) {
        let _: Result<(), ProgramError> = RawTracePoint::load(look);
    }
}

fn attach(programs: &mut Ebpf, name: &str, btf: &Btf) -> Result<(), Refusal> {
    let program = programs.program_mut(name).ok_or_else(|| defect(name))?;
    let program: &mut BtfTracePoint = program.try_into().map_err(|_| defect(name))?;
    let what = format!("loading {name}");
    program.load(name, btf).map_err(|e| of_program(&what, &e))?;
    program
        .attach()
        .map_err(|e| of_program(&format!("attaching {name}"), &e))?;
    Ok(())
}

/// A clock on each CPU. Without it only time on a CPU is not known by label.
fn attach_clock(programs: &mut Ebpf) -> Granted<()> {
    let program = programs.program_mut(TICK).ok_or_else(|| defect(TICK))?;
    let program: &mut PerfEvent = program.try_into().map_err(|_| defect(TICK))?;
    program.load().map_err(|e| of_program("loading on_tick", &e))?;
    let cpus = aya::util::online_cpus().map_err(|(what, e)| rights::refused(what, &e, ""))?;
    let clock = PerfEventConfig::Software(SoftwareEvent::CpuClock);
    for cpu in cpus {
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        program
            .attach(clock, scope, SamplePolicy::Period(TICK_NS), false)
            .map_err(|e| of_program("attaching a clock", &e))?;
    }
    Ok(())
}

fn shared<T: Plain>(programs: &mut Ebpf, name: &str, entries: u32) -> Result<Shared<T>, Refusal> {
    let Some(Map::Array(map)) = programs.map(name) else {
        return Err(defect(name));
    };
    let size = map.info().map_or(0, |i| i.value_size() as usize);
    if size != size_of::<T>() {
        return Err(defect(name));
    }
    Shared::new(map.fd().as_fd(), entries).map_err(|e| rights::refused(&format!("mapping {name}"), &e, ""))
}

fn vacant(programs: &mut Ebpf, slots: u32) -> Result<Vacant, Refusal> {
    let map = programs.take_map("vacant").ok_or_else(|| defect("vacant"))?;
    let queue: Queue<MapData, u32> = map.try_into().map_err(|_| defect("vacant"))?;
    Vacant::new(queue, slots).map_err(|e| Refusal::new(Status::NotSupported, e))
}

fn pid_max() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    text.trim().parse().unwrap_or(1 << 22) // the most there can be: PID_MAX_LIMIT
}

/// The object in the tree does not match its reader: `tools/build_bpf.sh` was not run.
fn defect(name: &str) -> Refusal {
    Refusal::new(
        Status::NotSupported,
        format!("defect of dbdyno: its BPF object has no {name} as expected"),
    )
}

fn unsupported(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(
        Status::NotSupported,
        format!("this kernel refuses it: {}", chain(error)),
    )
}

/// What a refusal to load a BPF object means.
pub fn of_loading(error: &EbpfError) -> Refusal {
    match error {
        EbpfError::ProgramError(e) => of_program("loading", e),
        other => match io_error(other) {
            Some(e) => rights::refused("making maps", e, ""),
            None => unsupported(other),
        },
    }
}

/// What a refusal to do `what` with a BPF program means.
pub fn of_program(what: &str, error: &ProgramError) -> Refusal {
    match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => rights::refused(what, io_error, &verifier_log.to_string()),
        other => match io_error(other) {
            Some(e) => rights::refused(what, e, ""),
            None => unsupported(other),
        },
    }
}

/// The system's error at the bottom, where there is one.
fn io_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e std::io::Error> {
    let mut next = Some(error);
    while let Some(e) = next {
        if let Some(io) = e.downcast_ref() {
            return Some(io);
        }
        next = e.source();
    }
    None
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(e) = next {
        words = format!("{words}: {e}");
        next = e.source();
    }
    words
}
