//! The BPF program on the clocks, `bpf/label.bpf.c`. It drops samples of tasks that are not the server's, and labels
//! the others with their wait event and statement.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya::maps::{HashMap, Map, MapData};
use aya::programs::perf_event::PerfEvent;
use aya::{Ebpf, EbpfLoader, Pod};
use dyno_bpf::{
    Statement, Statements, defect, kernel_types, load_refusal, load_uninterrupted, program_refusal, rights,
};
use dyno_observe::{Granted, Names, Refusal, Status, WordFinder, WordSpec};
use perf_event_open_sys as sys;
use sys::bindings as perf;

use crate::events::open_event;
use crate::ring::{self, Ring};

/// The compiled program, aligned as its parser requires.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/label.bpf.o");
const CLOCK: &str = "on_clock";
/// Upper bound of the processes of a server; for a larger server no sample is dropped.
const ROOM: u32 = 16 << 10;
/// `NOBODY` in `bpf/label.bpf.c`.
const NOBODY: u32 = 0;

/// `struct process` in `bpf/label.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Process {
    word: u64,
    query: u64,
    query_at: u32,
    children: u32,
}
const _: () = assert!(size_of::<Process>() == 24);

// SAFETY: numbers without gaps.
unsafe impl Pod for Process {}

/// The program, attached until it is dropped.
struct Loaded {
    _programs: Ebpf,
    /// Events by which the program writes labels into the rings.
    outputs: Vec<OwnedFd>,
    processes: HashMap<MapData, u32, Process>,
}

/// Labels of samples, or why there are none.
pub struct Labels {
    loaded: Granted<Loaded>,
    finder: Option<WordFinder>,
    statements: Statements,
    main_pid: Option<i64>,
    /// Names of the codes.
    pub names: Names,
    /// Whether words can be read: in the main process, and so in its children.
    word: Granted<()>,
}

impl Labels {
    /// Attaches to the events of `rings`, which have not begun.
    /// In a `tree`, whose processes are not known by their parent, it drops nothing and reports nothing.
    pub fn new(rings: &[Ring], main_pid: Option<i64>, tree: bool, word: Option<&WordSpec>) -> Self {
        let unknown = || {
            let detail = "the wait events of this server version are not known";
            Err(Refusal::new(Status::NotSupported, detail))
        };
        let mut labels = Self {
            loaded: if tree {
                let detail = "a tree of processes has none";
                Err(Refusal::new(Status::NotSupported, detail))
            } else {
                load(rings, main_pid)
            },
            finder: word.map(|w| WordFinder::new(&w.program, &w.symbol)),
            statements: Statements::new(word),
            main_pid,
            names: word.map_or_else(Names::default, |w| Names::new(&w.names, &w.classes)),
            word: if word.is_some() { Ok(()) } else { unknown() },
        };
        if let Some(pid) = main_pid {
            labels.watch(pid);
        }
        labels
    }

    /// Registers a process of the server.
    pub fn watch(&mut self, pid: i64) {
        let main = self.main_pid == Some(pid);
        let word = self.finder.as_mut().map(|f| f.address(pid));
        if let (true, Some(Err(refusal))) = (main || self.main_pid.is_none(), &word) {
            self.word = Err(refusal.clone());
        }
        let statement = self.statements.locate(pid);
        let Ok(loaded) = &mut self.loaded else {
            return;
        };
        let Statement { variable, at, .. } = statement;
        let process = Process {
            word: word.and_then(Result::ok).unwrap_or(0),
            query: variable,
            query_at: at,
            children: u32::from(main),
        };
        if loaded.processes.insert(pid as u32, process, 0).is_err() {
            let everybody = Process {
                children: 1,
                ..Process::default()
            };
            let _ = loaded.processes.insert(NOBODY, everybody, 0);
        }
    }

    /// Removes a process that ended, as its number may be given to another one.
    pub fn end(&mut self, pid: u32) {
        if let Ok(loaded) = &mut self.loaded {
            let _ = loaded.processes.remove(&pid);
        }
    }

    /// Returns the number of labels, and so samples, that found no room in the ring `n`.
    pub fn lost(&self, n: usize) -> u64 {
        let output = self.loaded.as_ref().ok().and_then(|l| l.outputs.get(n));
        output.and_then(ring::lost).unwrap_or(0)
    }

    /// Returns why there are no labels. If it is None, a sample without a label is one whose word could not be read.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.loaded.as_ref().err().or(self.word.as_ref().err())
    }

    /// Returns status and detail of ids of statements.
    pub fn statements(&self) -> (String, String) {
        match &self.loaded {
            Ok(_) => self.statements.status.clone(),
            Err(refusal) => refusal.clone().status_and_detail(),
        }
    }
}

fn refused(what: &str, error: &io::Error) -> Refusal {
    Refusal::new(Status::from_error(error), format!("{what}: {error}"))
}

fn load(rings: &[Ring], main_pid: Option<i64>) -> Granted<Loaded> {
    rights::check(main_pid)?;
    rights::raise_memlock();
    let cpus = rings.iter().map(Ring::cpu).max().unwrap_or(0) as u32 + 1;
    let mut programs = EbpfLoader::new()
        .btf(Some(kernel_types()?))
        .map_max_entries("processes", ROOM)
        .map_max_entries("rings", cpus)
        .load(OBJECT)
        .map_err(|e| load_refusal(&e))?;
    let processes = programs
        .take_map("processes")
        .ok_or_else(|| defect("processes"))?;
    let mut processes: HashMap<MapData, u32, Process> =
        processes.try_into().map_err(|_| defect("processes"))?;
    // a place that is sure to be there when there is no room
    let nobody = processes.insert(NOBODY, Process::default(), 0);
    nobody.map_err(|_| defect("processes"))?;
    let Some(Map::PerfEventArray(map)) = programs.map("rings") else {
        return Err(defect("rings"));
    };
    let refusal = |what: &'static str| move |e| refused(what, &e);
    let outputs: Vec<OwnedFd> = rings
        .iter()
        .map(|ring| output(ring, map.fd().as_fd()))
        .collect::<io::Result<_>>()
        .map_err(refusal("an event for labels"))?;
    let program = programs.program_mut(CLOCK).ok_or_else(|| defect(CLOCK))?;
    let program: &mut PerfEvent = program.try_into().map_err(|_| defect(CLOCK))?;
    load_uninterrupted(|| program.load()).map_err(|e| program_refusal("loading on_clock", &e))?;
    let fd = program
        .fd()
        .map_err(|e| program_refusal("loading on_clock", &e))?;
    let fd = fd.as_fd().as_raw_fd() as u32;
    for ring in rings {
        // SAFETY: descriptors of ours.
        let done = unsafe { sys::ioctls::SET_BPF(ring.event().as_raw_fd(), fd) };
        if done != 0 {
            return Err(refused("attaching on_clock", &io::Error::last_os_error()));
        }
    }
    Ok(Loaded {
        _programs: programs,
        outputs,
        processes,
    })
}

/// Opens an event on the ring's CPU by which the program writes into the ring, and enters it into the map.
fn output(ring: &Ring, map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attributes = perf::perf_event_attr {
        type_: perf::PERF_TYPE_SOFTWARE,
        size: size_of::<perf::perf_event_attr>() as u32,
        config: u64::from(perf::PERF_COUNT_SW_BPF_OUTPUT),
        sample_type: u64::from(perf::PERF_SAMPLE_RAW),
        clockid: libc::CLOCK_MONOTONIC, // events of one ring have one clock
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.set_use_clockid(1);
    let event = open_event(&mut attributes, ring.cpu())?;
    let fd = event.as_raw_fd();
    // SAFETY: descriptors of ours.
    if unsafe { sys::ioctls::SET_OUTPUT(fd, ring.event().as_raw_fd()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    enter(map, ring.cpu() as u32, fd as u32)?;
    Ok(event)
}

/// Calls `BPF_MAP_UPDATE_ELEM` of bpf(2), for a map that aya fills with its own events only.
fn enter(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    #[repr(C)]
    struct Update {
        map: u64,
        key: u64,
        value: u64,
        flags: u64,
    }
    const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
    let update = Update {
        map: map.as_raw_fd() as u64,
        key: &raw const key as u64,
        value: &raw const value as u64,
        flags: 0,
    };
    let bytes = size_of::<Update>();
    // SAFETY: the kernel reads `update`, and the two numbers that it points at.
    let done = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_UPDATE_ELEM, &raw const update, bytes) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
