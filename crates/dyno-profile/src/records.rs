//! Records of a ring of samples: `perf_event_open(2)`, "MMAP layout". Pure: bytes to values.

/// Type of a record, and flags of its `misc`.
pub mod kind {
    pub const LOST: u32 = 2;
    pub const EXIT: u32 = 4;
    pub const THROTTLE: u32 = 5;
    pub const UNTHROTTLE: u32 = 6;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const LOST_SAMPLES: u32 = 13;
}
const CPU_MODE: u16 = 7;
const KERNEL_MODE: u16 = 1;
const USER_MODE: u16 = 2;

/// Entries of a call chain that are no addresses: what follows is of the kernel, or of the program.
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;
const CONTEXT_FIRST: u64 = -4095_i64 as u64;

/// Registers that are sampled.
pub const REGISTERS: usize = crate::registers::COUNT;
/// Bytes before a record's body: type, misc, size.
pub const HEADER: usize = 8;

/// One record.
#[derive(Debug, PartialEq, Eq)]
pub enum Record<'r> {
    /// A task on a CPU.
    Sample(Sample<'r>),
    /// Label of the task whose sample follows, if it found room.
    Label(Label),
    /// Number of records that found no room.
    Lost(u64),
    /// Time at which the kernel stopped the clock, `CLOCK_MONOTONIC` nanoseconds.
    Throttled(u64),
    /// Time at which the clock was started again.
    Unthrottled(u64),
    /// A task began.
    Fork {
        /// Its process.
        pid: u32,
        /// The process that made it.
        parent: u32,
        /// The task.
        tid: u32,
    },
    /// A task ended.
    Exit {
        /// Its process.
        pid: u32,
        /// The task.
        tid: u32,
    },
    /// A record that was not asked for.
    Other,
}

/// The wait of a task, and its statement: `struct label` in `bpf/label.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Label {
    /// Whose.
    pub tid: u32,
    /// Its wait event word; `None`: it could not be read.
    pub code: Option<u32>,
    /// Id of its statement; 0: none, or not read.
    pub query: u64,
}

/// Bytes of a record of a label, header included. A sample has more.
const LABEL: u32 = 32;
/// `UNREAD` in `bpf/label.bpf.c`.
const UNREAD: u32 = u32::MAX;

/// A task on a CPU at an instant.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Sample<'r> {
    /// In kernel mode, otherwise in user mode.
    pub kernel: bool,
    /// Process.
    pub pid: u32,
    /// Task.
    pub tid: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub t_ns: u64,
    /// On this CPU.
    pub cpu: u32,
    /// Kernel's part of the call chain, leaf first.
    pub kernel_chain: Vec<u64>,
    /// Program's part, by frame pointers, leaf first.
    pub user_chain: Vec<u64>,
    /// In the order of [`crate::registers`]; `None`: the task has no user space.
    pub registers: Option<[u64; REGISTERS]>,
    /// Memory from the stack pointer on.
    pub stack: &'r [u8],
}

/// Returns a record of a ring from its bytes, header included, or None if it is malformed.
pub fn parse(record: &[u8]) -> Option<Record<'_>> {
    let mut rest = Cursor(record);
    let kind = rest.u32()?;
    let word = rest.u32()?;
    let (misc, size) = ((word & 0xffff) as u16, word >> 16);
    Some(match kind {
        kind::SAMPLE if size == LABEL => Record::Label(label(rest)?),
        kind::SAMPLE if !matches!(misc & CPU_MODE, KERNEL_MODE | USER_MODE) => Record::Other, // a hypervisor or its guest
        kind::SAMPLE => Record::Sample(sample(misc, rest)?),
        kind::LOST => {
            rest.u64()?; // the event's number
            Record::Lost(rest.u64()?)
        }
        kind::LOST_SAMPLES => Record::Lost(rest.u64()?),
        kind::THROTTLE => Record::Throttled(rest.u64()?),
        kind::UNTHROTTLE => Record::Unthrottled(rest.u64()?),
        kind::FORK | kind::EXIT => {
            let (pid, parent, tid) = (rest.u32()?, rest.u32()?, rest.u32()?);
            if kind == kind::EXIT {
                Record::Exit { pid, tid }
            } else {
                Record::Fork { pid, parent, tid }
            }
        }
        _ => Record::Other,
    })
}

/// `PERF_SAMPLE_RAW`: its length, and what the program wrote.
fn label(mut rest: Cursor<'_>) -> Option<Label> {
    rest.u32()?;
    let (tid, code, query) = (rest.u32()?, rest.u32()?, rest.u64()?);
    let code = (code != UNREAD).then_some(code);
    Some(Label { tid, code, query })
}

/// Fields in the order of `PERF_SAMPLE_TID | TIME | CPU | CALLCHAIN | REGS_USER | STACK_USER`.
fn sample(misc: u16, mut rest: Cursor<'_>) -> Option<Sample<'_>> {
    let mut sample = Sample {
        kernel: misc & CPU_MODE == KERNEL_MODE,
        pid: rest.u32()?,
        tid: rest.u32()?,
        t_ns: rest.u64()?,
        cpu: (rest.u64()? & 0xffff_ffff) as u32,
        ..Sample::default()
    };
    let mut chain = None;
    for _ in 0..rest.u64()? {
        match rest.u64()? {
            CONTEXT_KERNEL => chain = Some(&mut sample.kernel_chain),
            CONTEXT_USER => chain = Some(&mut sample.user_chain),
            CONTEXT_FIRST.. => chain = None,
            address => chain.iter_mut().for_each(|c| c.push(address)),
        }
    }
    if rest.u64()? != 0 {
        let mut registers = [0; REGISTERS];
        for register in &mut registers {
            *register = rest.u64()?;
        }
        sample.registers = Some(registers);
    }
    let room = rest.u64()? as usize;
    if room > 0 {
        let copied = rest.bytes(room)?;
        let filled = rest.u64()? as usize;
        sample.stack = copied.get(..filled)?;
    }
    Some(sample)
}

/// Reads in the machine's byte order.
struct Cursor<'r>(&'r [u8]);

impl<'r> Cursor<'r> {
    fn bytes(&mut self, n: usize) -> Option<&'r [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }
}
