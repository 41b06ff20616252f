//! Memory of an array map, mapped: reading costs no system call.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::layout::Plain;

/// The elements of one map. The program writes them at any time, on any CPU.
#[derive(Debug)]
pub struct Shared<T> {
    base: NonNull<T>,
    entries: usize,
    _elements: PhantomData<T>,
}

// SAFETY: it is no more than an address; all access is volatile or atomic.
unsafe impl<T: Plain> Send for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// Maps all `entries` of a map that was made with `BPF_F_MMAPABLE`.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn new(map: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let (entries, fd) = (entries as usize, map.as_raw_fd());
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, anywhere; it stays until `drop`.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                entries * size_of::<T>(),
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        match NonNull::new(base.cast::<T>()) {
            Some(base) if base.as_ptr().cast::<libc::c_void>() != libc::MAP_FAILED => Ok(Self {
                base,
                entries,
                _elements: PhantomData,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Address of element `n`, for volatile or atomic access to its fields.
    ///
    /// # Panics
    /// Beyond the end: a defect of the caller.
    pub fn at(&self, n: usize) -> *mut T {
        assert!(n < self.entries, "element {n} of {}", self.entries);
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(n) }
    }

    /// A copy of element `n`, which may be torn.
    pub fn read(&self, n: usize) -> T {
        // SAFETY: mapped and aligned; any bytes are a value.
        unsafe { self.at(n).read_volatile() }
    }

    /// Writes all of element `n`.
    pub fn write(&self, n: usize, value: T) {
        // SAFETY: mapped and aligned.
        unsafe { self.at(n).write_volatile(value) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; nobody keeps an address of it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.entries * size_of::<T>()) };
    }
}
