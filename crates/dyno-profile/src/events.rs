//! A clock on each CPU that writes the task it comes upon, with its stack, into a ring.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use dyno_model::proc::cpu_list;
use dyno_observe::{Granted, Refusal, Status};
use perf_event_open_sys as sys;
use sys::bindings as perf;

use crate::registers;
use crate::rights;
use crate::ring::Ring;

/// Name of the clock, each CPU's own timer.
pub const CLOCK: &str = "cpu-clock";
/// Bytes copied of each user stack.
pub const STACK_BYTES: u32 = 16 << 10;
/// Seconds of samples that a ring has room for, as the thread that empties it may have to wait for a CPU.
const ROOM_S: f64 = 2.0;
/// Upper bound of all rings together.
const MOST_BYTES: usize = 64 << 20;
/// Lower bound of a ring: room for a few samples.
const FEWEST_BYTES: usize = 64 << 10;

/// Opens a clock on each CPU, not started yet, and maps its ring.
///
/// # Errors
/// The reason and the cure.
pub fn open(hz: f64) -> Granted<Vec<Ring>> {
    let mut events = Vec::new();
    for cpu in cpus() {
        match event(cpu, hz) {
            Ok(event) => events.push((cpu, event)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {} // gone offline
            Err(error) => return Err(rights::refused(&error)),
        }
    }
    if events.is_empty() {
        return Err(Refusal::new(Status::NotSupported, "no CPU is online"));
    }
    let size = room(hz, events.len());
    mapped(&events, size)
}

/// Starts the clocks.
pub fn start(rings: &[Ring]) {
    for ring in rings {
        // SAFETY: a descriptor of ours; the argument is not used.
        unsafe { sys::ioctls::ENABLE(ring.event().as_raw_fd(), 0) };
    }
}

/// Returns the bytes of a ring, a power of two.
fn room(hz: f64, cpus: usize) -> usize {
    let wanted = (hz * ROOM_S * f64::from(STACK_BYTES)) as usize;
    let most = (MOST_BYTES / cpus + 1).next_power_of_two() / 2;
    wanted.next_power_of_two().min(most).max(FEWEST_BYTES)
}

/// Maps rings of this size, or all of a smaller one if so much memory may not be locked.
fn mapped(events: &[(i32, OwnedFd)], size: usize) -> Granted<Vec<Ring>> {
    let one = |(cpu, event): &(i32, OwnedFd)| Ring::new(*cpu, event.try_clone()?, size);
    match events.iter().map(one).collect() {
        Ok(rings) => Ok(rings),
        Err(error) if size > FEWEST_BYTES && refuses(&error) => mapped(events, size / 2),
        Err(error) => Err(rights::unmapped(&error)),
    }
}

fn refuses(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM))
}

fn event(cpu: i32, hz: f64) -> io::Result<OwnedFd> {
    open_event(&mut attributes(hz), cpu)
}

/// Opens an event for all tasks of a CPU. It counts records that its ring had no room for if the kernel can (6.0).
///
/// # Errors
/// The error of `perf_event_open(2)`.
pub fn open_event(attributes: &mut perf::perf_event_attr, cpu: i32) -> io::Result<OwnedFd> {
    let flags = libc::c_ulong::from(perf::PERF_FLAG_FD_CLOEXEC);
    let mut open = |format: perf::perf_event_read_format| {
        attributes.read_format = u64::from(format);
        // SAFETY: valid attributes; all tasks of one CPU, no group.
        let fd = unsafe { sys::perf_event_open(&raw mut *attributes, -1, cpu, -1, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor of ours.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    match open(perf::PERF_FORMAT_LOST) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0),
        other => other,
    }
}

fn attributes(hz: f64) -> perf::perf_event_attr {
    let mut attributes = perf::perf_event_attr {
        type_: perf::PERF_TYPE_SOFTWARE,
        size: size_of::<perf::perf_event_attr>() as u32,
        config: u64::from(perf::PERF_COUNT_SW_CPU_CLOCK),
        sample_type: u64::from(
            perf::PERF_SAMPLE_TID
                | perf::PERF_SAMPLE_TIME
                | perf::PERF_SAMPLE_CPU
                | perf::PERF_SAMPLE_CALLCHAIN
                | perf::PERF_SAMPLE_REGS_USER
                | perf::PERF_SAMPLE_STACK_USER,
        ),
        sample_regs_user: registers::MASK,
        sample_stack_user: STACK_BYTES,
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_period = (1e9 / hz) as u64;
    attributes.set_disabled(1);
    attributes.set_exclude_idle(1);
    attributes.set_exclude_guest(1);
    attributes.set_use_clockid(1);
    attributes.set_task(1); // beginnings and ends of tasks
    attributes
}

/// Returns the numbers of the CPUs that are online.
fn cpus() -> Vec<i32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_else(|_| "0".to_owned());
    let cpus = cpu_list(&text).unwrap_or_default().into_iter();
    cpus.map(|cpu| cpu as i32).collect()
}
