//! `bpf/shared.h` in Rust: memory that the program writes and this crate reads. The sizes are asserted on both sides.

use dyno_bpf::Plain;

/// Pairs of label and statement a task may have.
pub const WAITS: usize = 128;
/// Cells of a task's histograms.
pub const CELLS: usize = 1024;
/// System calls a task may use.
pub const CALLS: usize = 64;
/// System calls that transfer data and whose sizes are counted.
pub const SIZED: usize = 8;
/// Buckets of sizes: 0, 1, 2, 4, ... bytes.
pub const SIZES: usize = 24;
/// Upper bound of the numbers of system calls.
pub const NUMBERS: usize = 512;
/// Labels of waits for the client.
pub const CLIENT_WAITS: usize = 16;
/// Tids of one block of places.
pub const TIDS: usize = 4;
/// States of a task: `enum doing`.
pub mod doing {
    pub const UNKNOWN: u32 = 0;
    pub const RUNNING: u32 = 1;
    pub const QUEUED: u32 = 2;
    pub const ASLEEP: u32 = 3;
    pub const WOKEN: u32 = 4;
    pub const ENDED: u32 = 5;
}

/// `struct wait`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wait {
    pub label: u32,
    pub used: u32,
    pub query: u64,
    pub sleep_ns: u64,
    pub runq_ns: u64,
    pub throttled_ns: u64,
    pub sleeps: u64,
    pub preempted: u64,
    pub run_samples: u64,
    pub run_ns: u64,
    pub came_ns: u64,
    pub left_ns: u64,
    pub squares: u64,
    pub begun: u64,
    pub unclear: u64,
}

/// `struct slot`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    pub seq: u32,
    pub tid: u32,
    pub tgid: u32,
    pub doing: u32,
    pub since_ns: u64,
    pub woken_ns: u64,
    pub word: u64,
    pub queue: u64,
    pub queue_clock_ns: u64,
    pub wait: u32,
    pub blocked: u32,
    pub run_ns: u64,
    pub runq_ns: u64,
    pub sleep_ns: u64,
    pub blocked_ns: u64,
    pub voluntary: u64,
    pub involuntary: u64,
    pub exec_ns: u64,
    pub delay_ns: u64,
    pub query: u64,
    pub query_at: u32,
    pub idle: u32,
    pub owed_ns: u64,
    pub owed_throttled_ns: u64,
    pub owes: u32,
    pub seeded: u32,
    pub taken: u32,
    pub unplaced: u32,
    pub own: u32,
    pub in_call: u32,
    pub sampled_ns: u64,
    pub first_ns: u64,
    pub start_boottime_ns: u64,
    pub throttled_ns: u64,
    pub lost: u64,
    pub mended: u64,
    pub seed_label: u32,
    pub seed_blocked: u32,
    pub seed_query: u64,
    pub stands_ns: u64,
    pub waits: [Wait; WAITS],
    pub cells: [u16; CELLS],
    pub counts: [u32; CELLS],
}

/// `struct call`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Call {
    pub number: u32,
    pub used: u32,
    pub calls: u64,
    pub errors: u64,
    pub time_ns: u64,
    pub run_ns: u64,
    pub runq_ns: u64,
    pub client_ns: u64,
    pub bytes: u64,
    pub unclear: u64,
}

/// `struct calls`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    pub seq: u32,
    pub under_way: u32,
    pub since_ns: u64,
    pub since_run_ns: u64,
    pub since_runq_ns: u64,
    pub since_switches: u64,
    pub lost: u64,
    pub each: [Call; CALLS],
    pub sizes: [[u64; SIZES]; SIZED],
}

/// `struct places`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Places {
    pub slot: [u16; TIDS],
}

/// `struct control`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Control {
    pub main_tgid: u32,
    pub throttle_known: u32,
    pub word: u64,
    pub query: u64,
    pub query_at: u32,
    pub idle: u32,
    pub lost: u64,
    pub throttled_now_ns: u64,
    pub every: u64,
    pub every_ns: u64,
    pub lost_stacks: u64,
    pub lost_asleep_ns: u64,
    pub born: u64,
    pub cleared: u32,
    pub missing: u32,
}

// SAFETY: as their definitions show, and the sizes below say.
unsafe impl Plain for Slot {}
// SAFETY: as above.
unsafe impl Plain for Calls {}
// SAFETY: as above.
unsafe impl Plain for Places {}
// SAFETY: as above.
unsafe impl Plain for Control {}

const _: () = {
    assert!(size_of::<Wait>() == 112);
    assert!(size_of::<Slot>() == 256 + WAITS * 112 + CELLS * 6);
    assert!(size_of::<Calls>() == 48 + CALLS * 72 + SIZED * SIZES * 8);
    assert!(size_of::<Control>() == 96);
    assert!(size_of::<Places>() == 8);
};

/// Returns where the search for the sums of a label without a statement begins, as `place_of` in the program.
pub fn first_index(label: u32) -> usize {
    (label.wrapping_mul(0x9e37_79b1) >> 25) as usize
}
