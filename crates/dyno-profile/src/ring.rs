//! The ring that the kernel writes records of one CPU into: `perf_event_open(2)`, "MMAP layout".

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use crate::records::HEADER;

/// Positions and sizes of records are multiples of it.
const WORD: usize = size_of::<u64>();

/// A mapped ring. Its event ends when it is dropped.
#[derive(Debug)]
pub struct Ring {
    cpu: i32,
    event: OwnedFd,
    page: NonNull<perf_event_mmap_page>,
    mapped: usize,
    /// Where the data begin in the mapping, and how many bytes they are: a power of two.
    data: usize,
    size: usize,
    /// A copy of the record that is read.
    record: Vec<u8>,
}

// SAFETY: an address and a descriptor; all memory behind the address is read and written atomically.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `size` bytes, a power of two, of an event of this CPU.
    ///
    /// # Errors
    /// The error of mmap(2): `EPERM` if that much memory may not be locked.
    pub fn new(cpu: i32, event: OwnedFd, size: usize) -> io::Result<Self> {
        let page_size = page_size();
        let mapped = page_size + size;
        // SAFETY: a new mapping, anywhere; it stays until `drop`.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &event,
                0,
            )?
        };
        let page = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            cpu,
            event,
            page,
            mapped,
            data: page_size,
            size,
            record: Vec::new(),
        })
    }

    /// Gives `each` the records that were written since the last time, and makes room for new ones. Returns whether all
    /// were well-formed: behind one that is not there is nothing to go by, so the rest is skipped.
    pub fn drain(&mut self, each: impl FnMut(&[u8])) -> bool {
        let filled = self.filled();
        let end = filled.end;
        let whole = self.read(filled, |_| true, each);
        self.tail().store(end, Ordering::Release);
        whole
    }

    /// Gives `each` the records of this type among them and keeps them all.
    pub fn look(&mut self, kind: u32, each: impl FnMut(&[u8])) {
        let filled = self.filled();
        self.read(filled, |other| other == kind, each);
    }

    fn read(&mut self, filled: Range<u64>, wanted: impl Fn(u32) -> bool, each: impl FnMut(&[u8])) -> bool {
        let mut record = std::mem::take(&mut self.record);
        let whole = walk(|at| self.word(at), self.size, filled, &mut record, wanted, each);
        self.record = record;
        whole
    }

    /// Positions from the first byte not read yet to the first not written yet.
    fn filled(&self) -> Range<u64> {
        // SAFETY: the mapped page.
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_head) };
        self.tail().load(Ordering::Relaxed)..head.load(Ordering::Acquire)
    }

    /// The position that the kernel writes up to, a ring further.
    fn tail(&self) -> &AtomicU64 {
        // SAFETY: the mapped page; the kernel only reads this position.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_tail) }
    }

    /// The word at this offset of the data. Atomic, as the kernel may write it whatever the positions are.
    fn word(&self, at: usize) -> u64 {
        assert!(at + WORD <= self.size && at.is_multiple_of(WORD));
        // SAFETY: inside the mapping and aligned, as just checked; the data lie behind the first page.
        let word = unsafe { AtomicU64::from_ptr(self.page.as_ptr().byte_add(self.data + at).cast()) };
        word.load(Ordering::Relaxed)
    }

    /// Returns the number of records that the kernel had no room for since the event was opened, or None before 6.0.
    pub fn lost(&self) -> Option<u64> {
        lost(&self.event)
    }

    /// The CPU.
    pub fn cpu(&self) -> i32 {
        self.cpu
    }

    /// The event whose records these are.
    pub fn event(&self) -> &OwnedFd {
        &self.event
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; nobody keeps an address of it.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), self.mapped) };
    }
}

/// Returns [`Ring::lost`] of an event that was opened with `PERF_FORMAT_LOST` alone.
pub fn lost(event: &OwnedFd) -> Option<u64> {
    let mut answer = [0; 16]; // value, lost
    let bytes = rustix::io::read(event, &mut answer).ok()?;
    let lost = answer.last_chunk().copied().map(u64::from_ne_bytes);
    lost.filter(|_| bytes == answer.len())
}

/// Gives `each` copies of the records of wanted types in the filled part of a ring of `size` bytes. `word`: the word at
/// an offset. Returns false at a record that is malformed, and if the positions are.
pub fn walk(
    word: impl Fn(usize) -> u64,
    size: usize,
    filled: Range<u64>,
    record: &mut Vec<u8>,
    wanted: impl Fn(u32) -> bool,
    mut each: impl FnMut(&[u8]),
) -> bool {
    let mut at = filled.start;
    let mut left = filled.end.wrapping_sub(at);
    let words = |n: u64| n.is_multiple_of(WORD as u64);
    if left > size as u64 || !words(at) || !words(left) {
        return false;
    }
    while left > 0 {
        let header = word((at % size as u64) as usize).to_ne_bytes();
        let (kind, rest) = (&header[..4], &header[6..]);
        let kind = u32::from_ne_bytes([kind[0], kind[1], kind[2], kind[3]]);
        let bytes = u64::from(u16::from_ne_bytes([rest[0], rest[1]]));
        if bytes < HEADER as u64 || bytes > left || !words(bytes) {
            return false;
        }
        if wanted(kind) {
            record.clear();
            record.extend_from_slice(&header);
            for next in (HEADER as u64..bytes).step_by(WORD) {
                record.extend_from_slice(&word((at.wrapping_add(next) % size as u64) as usize).to_ne_bytes());
            }
            each(record);
        }
        at = at.wrapping_add(bytes);
        left -= bytes;
    }
    true
}
