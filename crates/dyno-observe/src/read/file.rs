//! The one thin reader: a file of /proc, /sys or a control group, read whole into a buffer that is kept.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

use dyno_model::raise_open_files;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::{Errno, pread};

/// Where reads go; grows to the largest file and is used again.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            bytes: vec![0; 4096],
            filled: 0,
        }
    }
}

impl Buffer {
    /// Result of the last read. Where it is no UTF-8 (only a task's name may hold such bytes), each byte
    /// beyond ASCII becomes a question mark.
    pub fn text(&mut self) -> &str {
        let read = &mut self.bytes[..self.filled];
        if std::str::from_utf8(read).is_err() {
            read.iter_mut().filter(|b| !b.is_ascii()).for_each(|b| *b = b'?');
        }
        std::str::from_utf8(read).unwrap_or_default()
    }
}

/// A file to be read again and again.
#[derive(Debug)]
pub struct ProcFile {
    path: CString,
    kept: Option<OwnedFd>,
}

impl ProcFile {
    /// Opens it; with `keep` the descriptor stays open, else each read opens and closes.
    ///
    /// A kept descriptor of a task belongs to that task for ever: reads fail once it is gone, even if its
    /// number is given to another.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open(path: &str, keep: bool) -> io::Result<Self> {
        let path = CString::new(path)?;
        let fd = open(&path)?;
        Ok(Self {
            path,
            kept: keep.then_some(fd),
        })
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// The operating system's.
    pub fn read(&self, buffer: &mut Buffer) -> io::Result<()> {
        match &self.kept {
            Some(fd) => read_all(fd, buffer),
            None => read_all(&open(&self.path)?, buffer),
        }
    }
}

/// Reads the file `path` once.
///
/// # Errors
/// The operating system's.
pub fn read_once(path: &str, buffer: &mut Buffer) -> io::Result<()> {
    read_all(&open(&CString::new(path)?)?, buffer)
}

fn open(path: &CString) -> io::Result<OwnedFd> {
    Ok(fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// These files are rendered whole at a read, so a read that does not fill the buffer has brought all.
fn read_all(fd: &OwnedFd, buffer: &mut Buffer) -> io::Result<()> {
    buffer.filled = 0;
    loop {
        let free = &mut buffer.bytes[buffer.filled..];
        match pread(fd, free, buffer.filled as u64) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(n) => {
                buffer.filled += n;
                if n == 0 || buffer.filled < buffer.bytes.len() {
                    return Ok(());
                }
                buffer.bytes.resize(buffer.bytes.len() * 2, 0);
            }
        }
    }
}

/// The limit of open descriptors, the soft one raised to the hard one, and how many more may be kept open: half of
/// what is left, so that the driver, the store and Python keep room.
pub fn descriptor_budget() -> (u64, i64) {
    let limit = raise_open_files(u64::MAX).soft;
    let open_now = std::fs::read_dir("/proc/self/fd").map_or(usize::MAX, Iterator::count);
    let left = limit.saturating_sub(open_now as u64);
    (limit, i64::try_from(left / 2).unwrap_or(i64::MAX))
}
