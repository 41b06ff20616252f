//! The registers that unwinding begins with: `arch/*/include/uapi/asm/perf_regs.h`.

use framehop::UnwindRegsNative;

/// How many there are, in the order of their bits in [`MASK`].
#[cfg(target_arch = "x86_64")]
pub const COUNT: usize = 3;
#[cfg(target_arch = "aarch64")]
/// How many there are, in the order of their bits in [`MASK`].
pub const COUNT: usize = 4;

/// bp, sp, ip.
#[cfg(target_arch = "x86_64")]
pub const MASK: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// fp (x29), lr, sp, pc.
#[cfg(target_arch = "aarch64")]
pub const MASK: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// Instruction pointer, stack pointer, and what the unwinder begins with.
#[cfg(target_arch = "x86_64")]
pub fn start(values: [u64; COUNT]) -> (u64, u64, UnwindRegsNative) {
    let [bp, sp, ip] = values;
    (ip, sp, UnwindRegsNative::new(ip, sp, bp))
}

/// Instruction pointer, stack pointer, and what the unwinder begins with.
#[cfg(target_arch = "aarch64")]
pub fn start(values: [u64; COUNT]) -> (u64, u64, UnwindRegsNative) {
    let [fp, lr, sp, pc] = values;
    (pc, sp, UnwindRegsNative::new(lr, sp, fp))
}

/// In that order, of frame pointer, link register (there is none on x86), stack pointer, instruction pointer.
#[cfg(target_arch = "x86_64")]
pub fn registers(fp: u64, _lr: u64, sp: u64, pc: u64) -> [u64; COUNT] {
    [fp, sp, pc]
}

/// In that order, of frame pointer, link register, stack pointer, instruction pointer.
#[cfg(target_arch = "aarch64")]
pub fn registers(fp: u64, lr: u64, sp: u64, pc: u64) -> [u64; COUNT] {
    [fp, lr, sp, pc]
}
