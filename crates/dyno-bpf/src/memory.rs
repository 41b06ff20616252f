//! Memory of an array map, mapped: reading costs no system call.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::layout::Plain;

/// The elements of one array map. The program writes them at any time, on any CPU.
#[derive(Debug)]
pub struct MappedArray<T> {
    base: NonNull<T>,
    entries: usize,
    _elements: PhantomData<T>,
}

// SAFETY: it is no more than an address; all access is volatile or atomic.
unsafe impl<T: Plain> Send for MappedArray<T> {}

impl<T: Plain> MappedArray<T> {
    /// Maps all `entries` of a map that was made with `BPF_F_MMAPABLE`.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn new(map: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let entries = entries as usize;
        // SAFETY: a new mapping, anywhere; it stays until `drop`.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                entries * size_of::<T>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                map,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            base,
            entries,
            _elements: PhantomData,
        })
    }

    /// Returns the number of elements.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Returns the address of element `n`, for volatile or atomic access to its fields.
    ///
    /// # Panics
    /// If `n` is beyond the end, which is a defect of the caller.
    pub fn at(&self, n: usize) -> *mut T {
        assert!(n < self.entries, "element {n} of {}", self.entries);
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(n) }
    }

    /// Returns a copy of element `n`, which may be torn.
    pub fn read(&self, n: usize) -> T {
        let mut copy = T::zeroed();
        // SAFETY: mapped and aligned; any bytes are a value.
        unsafe { copy_words(self.at(n), &raw mut copy) };
        copy
    }

    /// Writes all of element `n`.
    pub fn write(&self, n: usize, value: T) {
        // SAFETY: mapped and aligned.
        unsafe { copy_words(&raw const value, self.at(n)) }
    }
}

/// Copies word by word with volatile accesses. For a volatile copy of a whole structure the compiler emits an
/// instruction for each element of its arrays, 300 kB of code for 18 kB.
///
/// # Safety
/// Both are valid and aligned; one may be written by others meanwhile.
unsafe fn copy_words<T: Plain>(from: *const T, to: *mut T) {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
    let (from, to) = (from.cast::<u64>(), to.cast::<u64>());
    for n in 0..size_of::<T>() / 8 {
        // SAFETY: inside both, by the caller's contract and the line above.
        unsafe { to.add(n).write_volatile(from.add(n).read_volatile()) };
    }
}

impl<T> Drop for MappedArray<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; nobody keeps an address of it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.entries * size_of::<T>()) };
    }
}
