//! Layouts that a BPF program writes and more than one crate reads: `dyno-trace/bpf/shared.h` in Rust. The sizes are
//! asserted on both sides.

/// Statements that found no room.
pub const OTHERS: u64 = u64::MAX;
/// Upper bound of the frames of a chain.
pub const CHAIN: usize = 127;
/// Bytes of a part of a user stack, which is copied as a whole or not at all, and the number of parts.
pub const PAGE: usize = 4096;
pub const PAGES: usize = 4;
/// A label that could not be read.
pub const UNREAD: u32 = u32::MAX;

/// `struct asleep`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // the header has them
pub struct Asleep {
    pub began_ns: u64,
    pub chance: u64,
    pub query: u64,
    pub label: u32,
    pub own: u32,
    pub tid: u32,
    pub tgid: u32,
    pub cpu: u32,
    pub kernel_bytes: i32,
    pub user_bytes: i32,
    pub pages: u32,
    pub halved: u32,
    pub spare: u32,
    pub registers: [u64; 4],
    pub kernel: [u64; CHAIN],
    pub user: [u64; CHAIN],
    pub memory: [u8; PAGES * PAGE],
}

/// `struct woken`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // the header has them
pub struct Woken {
    pub began_ns: u64,
    pub slept_ns: u64,
    pub tid: u32,
    pub own: u32,
}

/// A type that may hold any bytes and is as large as the C type.
///
/// # Safety
/// `repr(C)`, integers only, no padding.
pub unsafe trait Plain: Copy {
    /// Returns a value of zeros.
    fn zeroed() -> Self {
        // SAFETY: integers only, by this trait's contract.
        unsafe { std::mem::zeroed() }
    }
}

// SAFETY: as their definitions show, and the sizes below say.
unsafe impl Plain for Asleep {}
// SAFETY: as above.
unsafe impl Plain for Woken {}

const _: () = {
    assert!(size_of::<Asleep>() == 96 + 2 * CHAIN * 8 + PAGES * PAGE);
    assert!(size_of::<Woken>() == 24);
};
