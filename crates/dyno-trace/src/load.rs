//! Loads the program into the kernel and attaches it.

use std::os::fd::{AsFd, AsRawFd};

use aya::maps::{Map, MapData, Queue, RingBuf};
use aya::programs::perf_event::{
    PerfEvent, PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::raw_trace_point::RawTracePoint;
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, Program, ProgramError, RawTracePointRunOptions, TestRun};
use aya::{Ebpf, EbpfLoader};
use dyno_bpf::{
    MappedArray, Plain, defect, kernel_types, load_refusal, load_uninterrupted, program_refusal, rights,
    unsupported,
};
use dyno_observe::status::Refusal;
use dyno_observe::{Granted, Status};

use crate::book::{Book, Retired, Vacant};
use crate::layout::{Control, Slot, TIDS};
use crate::system_calls;

/// The compiled program, aligned as its parser requires.
#[cfg(any(target_arch = "x86_64", test))]
static STRONGLY_ORDERED: &[u8] = aya::include_bytes_aligned!("../bpf/sched.bpf.o");
/// The same for processors that reorder stores or loads.
#[cfg(any(not(target_arch = "x86_64"), test))]
static WEAKLY_ORDERED: &[u8] = aya::include_bytes_aligned!("../bpf/sched-weakly-ordered.bpf.o");
#[cfg(target_arch = "x86_64")]
static OBJECT: &[u8] = STRONGLY_ORDERED;
#[cfg(not(target_arch = "x86_64"))]
static OBJECT: &[u8] = WEAKLY_ORDERED;

const SWITCHES: [&str; 3] = ["sched_switch", "sched_wakeup", "sched_process_fork"];
const LOOK: &str = "look_throttled";
const TICK: &str = "on_tick";
/// 199 ticks a second, so as not to be in step with programs that do something every 10 ms.
const TICK_NS: u64 = 1_000_000_000 / 199;
/// Room for about 450 stacks.
const RING_BYTES: u32 = 8 << 20;
/// One page is the least that the kernel accepts.
const NO_RING: u32 = 4096;

/// A loaded program, and its memory.
pub struct Loaded {
    programs: Ebpf,
    tracepoints: Vec<(&'static str, BtfTracePointLinkId)>,
    clocks: Vec<PerfEventLinkId>,
    /// Number of events that had been missed when it was attached.
    pub missed_before: u64,
    /// The program's memory.
    pub book: Book,
    /// Whether this kernel reports throttled time.
    pub throttle_known: bool,
    /// Why no clock samples the labels of tasks on a CPU, if none does.
    pub clock: Granted<()>,
}

/// Features of the program to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub slots: u32,
    /// Labels of waits for the client if system calls are to be counted, else None.
    pub calls: Option<Vec<u32>>,
    /// Whether stacks of sleeps are to be taken.
    pub stacks: bool,
    /// Whether descendants of watched tasks are watched, too.
    pub tree: bool,
}

/// Loads the program.
///
/// # Errors
/// Not permitted or not supported, with the kernel's words.
pub fn fresh(wanted: &Wanted) -> Granted<Loaded> {
    loaded(wanted, OBJECT, if wanted.stacks { RING_BYTES } else { NO_RING })
}

fn loaded(wanted: &Wanted, object: &[u8], ring_bytes: u32) -> Granted<Loaded> {
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
        .override_global("ring_bytes", &ring_bytes, true)
        .map_max_entries("vacant", slots)
        .map_max_entries("ring", ring_bytes)
        .load(object)
        .map_err(|e| load_refusal(&e))?;
    let book = Book {
        control: shared(&mut programs, "control", 1)?,
        places: shared(&mut programs, "places", blocks)?,
        slots: shared(&mut programs, "slots", slots)?,
        calls: shared(&mut programs, "calls", places_of_calls)?,
        vacant: vacant(&mut programs, slots)?,
        retired: Retired::default(),
    };
    load_look(&mut programs);
    for name in tracepoints(calls.is_some()) {
        let what = format!("loading {name}");
        let program = tracepoint(&mut programs, name)?;
        load_uninterrupted(|| program.load(name, btf)).map_err(|e| program_refusal(&what, &e))?;
    }
    let clock = clock(&mut programs)
        .and_then(|c| load_uninterrupted(|| c.load()).map_err(|e| program_refusal("loading on_tick", &e)));
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
    /// Returns the ring of stacks, and the parts of the program's memory that their reader needs.
    ///
    /// # Errors
    /// The program was loaded without a ring, or its memory may not be mapped.
    pub fn stacks(&mut self) -> Granted<(RingBuf<MapData>, MappedArray<Control>, MappedArray<Slot>)> {
        let control = shared(&mut self.programs, "control", 1)?;
        let slots = shared(&mut self.programs, "slots", self.book.slots.entries() as u32)?;
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

    /// Attaches the program, to the tracepoints of system calls only if `calls`.
    ///
    /// # Errors
    /// As those of loading it.
    pub fn attach(&mut self, calls: bool) -> Result<(), Refusal> {
        for name in tracepoints(calls) {
            let what = format!("attaching {name}");
            let link = tracepoint(&mut self.programs, name)?
                .attach()
                .map_err(|e| program_refusal(&what, &e))?;
            self.tracepoints.push((name, link));
        }
        if self.clock.is_ok() {
            self.clock = self.attach_clock();
        }
        Ok(())
    }

    /// Attaches a clock on each CPU. Without it only time on a CPU by label is unknown.
    fn attach_clock(&mut self) -> Granted<()> {
        let program = clock(&mut self.programs)?;
        let cpus = aya::util::online_cpus().map_err(|(what, e)| rights::refused(what, &e, ""))?;
        let config = PerfEventConfig::Software(SoftwareEvent::CpuClock);
        for cpu in cpus {
            let scope = PerfEventScope::AllProcessesOneCpu { cpu };
            let link = program
                .attach(config, scope, SamplePolicy::Period(TICK_NS), false)
                .map_err(|e| program_refusal("attaching a clock", &e))?;
            self.clocks.push(link);
        }
        Ok(())
    }

    /// Detaches the program. Links that cannot be detached are closed with the program.
    pub fn detach(&mut self) {
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

    /// Returns the throttled part of the current wait in the run queue of slot `number`, in nanoseconds, or None if
    /// the kernel does not support it (before 5.10).
    pub fn throttled_now_ns(&self, number: usize) -> Option<u64> {
        let Some(Program::RawTracePoint(look)) = self.programs.program(LOOK) else {
            return None;
        };
        let mut options = RawTracePointRunOptions::new();
        options.args[0] = number as u64;
        look.test_run(options).ok()?;
        Some(self.book.control.read(0).throttled_now_ns)
    }

    /// Returns the number of events that the kernel left out because the program was already running on that CPU
    /// (known since 5.12).
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

fn missed(fdinfo: &str) -> Option<u64> {
    fdinfo
        .lines()
        .find_map(|l| l.strip_prefix("recursion_misses:"))?
        .trim()
        .parse()
        .ok()
}

/// Loads the program that splits a current wait in the run queue at a read. Without it only that part is not split.
fn load_look(programs: &mut Ebpf) {
    if let Some(Program::RawTracePoint(look)) = programs.program_mut(LOOK) {
        let _: Result<(), ProgramError> = load_uninterrupted(|| RawTracePoint::load(look));
    }
}

/// Returns the tracepoints to which the program is attached.
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

fn shared<T: Plain>(programs: &mut Ebpf, name: &str, entries: u32) -> Result<MappedArray<T>, Refusal> {
    let Some(Map::Array(map)) = programs.map(name) else {
        return Err(defect(name));
    };
    let size = map.info().map_or(0, |i| i.value_size() as usize);
    if size != size_of::<T>() {
        return Err(defect(name));
    }
    MappedArray::new(map.fd().as_fd(), entries)
        .map_err(|e| rights::refused(&format!("mapping {name}"), &e, ""))
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

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
