//! The ring that the kernel writes records of one CPU into: `perf_event_open(2)`, "MMAP layout".

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

use crate::records::HEADER;

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
    /// A record that goes over the end of the ring, in one piece.
    whole: Vec<u8>,
}

// SAFETY: an address and a descriptor; positions are read and written atomically.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `size` bytes, a power of two, of an event of this CPU.
    ///
    /// # Errors
    /// What mmap(2) says: `EPERM` if that much memory may not be locked.
    pub fn new(cpu: i32, event: OwnedFd, size: usize) -> io::Result<Self> {
        // SAFETY: a plain query.
        let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mapped = page_size + size;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, anywhere; it stays until `drop`.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                protection,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(page) = NonNull::new(base.cast()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        };
        Ok(Self {
            cpu,
            event,
            page,
            mapped,
            data: page_size,
            size,
            whole: Vec::new(),
        })
    }

    /// Gives `each` the records that were written since the last time, and makes room for new ones.
    pub fn drain(&mut self, each: impl FnMut(&[u8])) {
        let end = self.look(each);
        // SAFETY: the mapped page; the kernel only reads this position.
        let tail = unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_tail) };
        tail.store(end, Ordering::Release);
    }

    /// Gives `each` these records and keeps them; the position after the last.
    pub fn look(&mut self, mut each: impl FnMut(&[u8])) -> u64 {
        // SAFETY: the mapped page; the kernel writes the one position, we the other.
        let (head, tail) = unsafe {
            let page = self.page.as_ptr();
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        // SAFETY: the data lie behind the first page; between tail and head the kernel does not write.
        let data = unsafe {
            let first = self.page.as_ptr().cast::<u8>().add(self.data);
            std::slice::from_raw_parts(first, self.size)
        };
        while at < end {
            let taken = record(data, at, &mut self.whole);
            if taken.is_empty() {
                return end;
            }
            each(taken);
            at += taken.len() as u64;
        }
        at
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
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.mapped) };
    }
}

/// The record at position `at` of a ring; put together in `whole` if it goes over the end. Empty: none.
pub fn record<'r>(data: &'r [u8], at: u64, whole: &'r mut Vec<u8>) -> &'r [u8] {
    let start = (at % data.len() as u64) as usize;
    // records are multiples of 8 bytes, so a header is never divided
    let Some(size) = data.get(start + HEADER - 2..start + HEADER) else {
        return &[];
    };
    let size = usize::from(u16::from_ne_bytes([size[0], size[1]]));
    if !(HEADER..=data.len()).contains(&size) {
        return &[];
    }
    if let Some(piece) = data.get(start..start + size) {
        return piece;
    }
    whole.clear();
    whole.extend_from_slice(&data[start..]);
    whole.extend_from_slice(&data[..start + size - data.len()]);
    whole
}
