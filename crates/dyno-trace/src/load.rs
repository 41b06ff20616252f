//! Loads the program into the kernel and attaches it.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use aya::maps::{Map, MapData, Queue, RingBuf};
use aya::programs::perf_event::{
    PerfEvent, PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::raw_trace_point::RawTracePoint;
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, Program, ProgramError, RawTracePointRunOptions, TestRun};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use dyno_observe::status::Refusal;
use dyno_observe::{Granted, Status};

use crate::book::{Book, Vacant};
use crate::layout::{Control, Plain, Slot, TIDS};
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
/// Of stacks: some 450.
const RING_BYTES: u32 = 8 << 20;
/// A page at least is needed.
const NO_RING: u32 = 4096;

/// Programs that are loaded and attached to nothing: the trace of the next window takes one of them, as loading
/// costs ten times what attaching does.
static IDLE: Mutex<Vec<(Wanted, Loaded)>> = Mutex::new(Vec::new());
/// A window may be opened before the one before it is closed.
const MOST_IDLE: usize = 2;

/// A program that runs in the kernel until it is dropped; then it is idle.
pub struct Lease(Wanted, Option<Loaded>);

impl Deref for Lease {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        self.1.as_ref().expect("taken only when it is dropped")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Loaded {
        self.1.as_mut().expect("taken only when it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut loaded) = self.1.take() else { return };
        loaded.detach();
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(wanted, _)| *wanted == self.0); // their memory is large
        if idle.len() < MOST_IDLE {
            idle.push((self.0.clone(), loaded));
        }
    }
}

/// A program, and its memory.
pub struct Loaded {
    programs: Ebpf,
    tracepoints: Vec<(&'static str, BtfTracePointLinkId)>,
    clocks: Vec<PerfEventLinkId>,
    /// Events that had been missed when it was attached.
    missed_before: u64,
    /// Its memory.
    pub book: Book,
    /// Whether this kernel tells throttled time.
    pub throttle_known: bool,
    /// Why no clock tells the labels of tasks on a CPU.
    pub clock: Granted<()>,
}

/// What the program is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub slots: u32,
    /// Count system calls, with the labels of waits for the client.
    pub calls: Option<Vec<u32>>,
    /// Take stacks of sleeps.
    pub stacks: bool,
    /// Whatever a watched task starts is watched, too.
    pub tree: bool,
}

/// Attaches an idle program, or one that it loads.
///
/// # Errors
/// Not permitted or not supported, with the kernel's words.
pub fn load(wanted: Wanted, main_pid: Option<i64>) -> Result<Lease, Refusal> {
    rights::check(main_pid)?;
    let idle = || {
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = idle.iter().position(|(other, _)| *other == wanted)?;
        Some(idle.swap_remove(place).1)
    };
    let mut loaded = match idle() {
        Some(mut loaded) => {
            loaded.book.clear();
            loaded.missed_before += loaded.missed();
            loaded
        }
        None => fresh(&wanted)?,
    };
    loaded.attach(wanted.calls.is_some())?;
    Ok(Lease(wanted, Some(loaded)))
}

fn fresh(wanted: &Wanted) -> Result<Loaded, Refusal> {
    let &Wanted {
        slots,
        ref calls,
        stacks,
        tree,
    } = wanted;
    rights::raise_memlock();
    let blocks = pid_max() / TIDS as u32 + 1;
    let (sized, client_waits) = (
        system_calls::sized(),
        system_calls::client_waits(calls.as_deref().unwrap_or_default()),
    );
    let places_of_calls = calls.as_ref().map_or(1, |_| slots);
    let btf = kernel_types()?;
    let mut programs = EbpfLoader::new()
        .btf(Some(btf))
        .map_max_entries("places", blocks)
        .map_max_entries("slots", slots)
        .map_max_entries("calls", places_of_calls)
        .override_global("sized", &sized[..], true)
        .override_global("client_waits", &client_waits[..], true)
        .override_global("stacks", &u32::from(stacks), true)
        .override_global("trees", &u32::from(tree), true)
        .map_max_entries("vacant", slots)
        .map_max_entries("ring", if stacks { RING_BYTES } else { NO_RING })
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
    for name in tracepoints(calls.is_some()) {
        let what = format!("loading {name}");
        tracepoint(&mut programs, name)?
            .load(name, btf)
            .map_err(|e| of_program(&what, &e))?;
    }
    let clock = clock(&mut programs).and_then(|c| c.load().map_err(|e| of_program("loading on_tick", &e)));
    let mut loaded = Loaded {
        programs,
        tracepoints: Vec::new(),
        clocks: Vec::new(),
        missed_before: 0,
        book,
        throttle_known: false,
        clock,
    };
    loaded.throttled_now_ns(0);
    loaded.throttle_known = loaded.book.control.read(0).throttle_known != 0;
    Ok(loaded)
}

impl Loaded {
    /// The ring that stacks come in, and what their reader sees of the program's memory.
    ///
    /// # Errors
    /// It was loaded without, or memory may not be mapped.
    pub fn stacks(&mut self) -> Granted<(RingBuf<MapData>, Shared<Control>, Shared<Slot>)> {
        let control = shared(&mut self.programs, "control", 1)?;
        let slots = shared(&mut self.programs, "slots", self.book.slots.len() as u32)?;
        let Some(Map::RingBuf(ring)) = self.programs.map("ring") else {
            return Err(defect("ring"));
        };
        let again = ring.fd().as_fd().try_clone_to_owned();
        let again = again.map_err(|e| rights::refused("mapping ring", &e, ""))?;
        let map = MapData::from_fd(again).map_err(|e| unsupported(&e))?;
        let mut ring = RingBuf::try_from(Map::RingBuf(map)).map_err(|e| unsupported(&e))?;
        while ring.next().is_some() {} // of the window before
        Ok((ring, control, slots))
    }

    fn attach(&mut self, calls: bool) -> Result<(), Refusal> {
        for name in tracepoints(calls) {
            let what = format!("attaching {name}");
            let link = tracepoint(&mut self.programs, name)?
                .attach()
                .map_err(|e| of_program(&what, &e))?;
            self.tracepoints.push((name, link));
        }
        if self.clock.is_ok() {
            self.clock = self.attach_clock();
        }
        Ok(())
    }

    /// A clock on each CPU. Without it only time on a CPU is not known by label.
    fn attach_clock(&mut self) -> Granted<()> {
        let program = clock(&mut self.programs)?;
        let cpus = aya::util::online_cpus().map_err(|(what, e)| rights::refused(what, &e, ""))?;
        let config = PerfEventConfig::Software(SoftwareEvent::CpuClock);
        for cpu in cpus {
            let scope = PerfEventScope::AllProcessesOneCpu { cpu };
            let link = program
                .attach(config, scope, SamplePolicy::Period(TICK_NS), false)
                .map_err(|e| of_program("attaching a clock", &e))?;
            self.clocks.push(link);
        }
        Ok(())
    }

    /// It runs no more. What cannot be detached is closed with the program.
    fn detach(&mut self) {
        for (name, link) in self.tracepoints.drain(..) {
            if let Ok(program) = tracepoint(&mut self.programs, name) {
                let _: Result<(), ProgramError> = program.detach(link);
            }
        }
        if let Ok(program) = clock(&mut self.programs) {
            for link in self.clocks.drain(..) {
                let _: Result<(), ProgramError> = program.detach(link);
            }
        }
    }

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
            .sum::<u64>()
            .saturating_sub(self.missed_before)
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

/// Those that the program is attached to.
fn tracepoints(calls: bool) -> impl Iterator<Item = &'static str> {
    let more = system_calls::TRACEPOINTS.into_iter().filter(move |_| calls);
    SWITCHES.into_iter().chain(more)
}

fn tracepoint<'p>(programs: &'p mut Ebpf, name: &str) -> Result<&'p mut BtfTracePoint, Refusal> {
    let program = programs.program_mut(name).ok_or_else(|| defect(name))?;
    program.try_into().map_err(|_| defect(name))
}

fn clock(programs: &mut Ebpf) -> Result<&mut PerfEvent, Refusal> {
    let program = programs.program_mut(TICK).ok_or_else(|| defect(TICK))?;
    program.try_into().map_err(|_| defect(TICK))
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
