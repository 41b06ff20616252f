//! How much of files is in the page cache: `cachestat(2)` (6.5 and later), else `mincore(2)` on a mapping.
//!
//! To a user who neither owns a file nor may write to it, the first returns an error, the second wrong figures (mincore(2):
//! since 5.2 all pages count as resident then): such a file is not permitted, and has no figure.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;
use std::sync::LazyLock;

use dyno_model::now_ns;
use rustix::param::page_size;
use rustix::process::geteuid;

use crate::status::Status;

/// `__NR_cachestat`: the same number on all architectures.
const CACHESTAT: libc::c_long = 451;
/// Bytes of a file that are mapped at once.
const CHUNK_BYTES: u64 = 256 << 20;
/// A range costs `cachestat` 0.4 us, a page `mincore` 0.05 us: a file with fewer pages than that for each range is
/// looked at page by page.
const PAGES_A_RANGE: u64 = 8;
/// Larger files are not looked at page by page where `cachestat` answers: to the page is close enough, and a file of holes
/// may have any size.
const MOST_BY_PAGES: u64 = 64 << 30;

static PAGE_BYTES: LazyLock<u64> = LazyLock::new(|| page_size() as u64);

/// One file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cached {
    /// Its length; `None`: unknown.
    pub size_bytes: Option<u64>,
    /// Those in the page cache.
    pub cached_bytes: Option<u64>,
    /// Those in the ranges asked for.
    pub within_bytes: Option<u64>,
    /// How it went; `Lost`: there was no time for it.
    pub status: Status,
}

impl Cached {
    const fn unknown(size_bytes: Option<u64>, status: Status) -> Self {
        Self {
            size_bytes,
            cached_bytes: None,
            within_bytes: None,
            status,
        }
    }
}

/// A file, and the blocks whose share is requested.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Where it is.
    pub path: &'a Path,
    /// Numbers of blocks, big-endian, 64 bits each, in any order; those of other files are passed over.
    pub blocks: &'a [u8],
    /// The number of the file's first block.
    pub first: u64,
}

impl Wanted<'_> {
    /// Returns the block numbers within a file of `size` bytes, in ascending order.
    fn within(&self, block_bytes: NonZero<u64>, size: u64) -> Vec<u64> {
        let here = self.first..self.first.saturating_add(size.div_ceil(block_bytes.get()));
        let number = |b: &[u8]| b.iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
        let all = self.blocks.chunks_exact(size_of::<u64>()).map(number);
        let mut numbers: Vec<u64> = all.filter(|n| here.contains(n)).map(|n| n - self.first).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// Returns the files in their order. After `budget_ns` the rest is lost; the first is always read.
pub fn page_cache(files: &[Wanted<'_>], block_bytes: NonZero<u64>, budget_ns: i64) -> Vec<Cached> {
    let end_ns = now_ns().saturating_add(budget_ns);
    let read = |(n, wanted): (usize, &Wanted<'_>)| {
        if n > 0 && now_ns() >= end_ns {
            return Cached::unknown(None, Status::Lost);
        }
        one(wanted, block_bytes)
    };
    files.iter().enumerate().map(read).collect()
}

fn one(wanted: &Wanted<'_>, block_bytes: NonZero<u64>) -> Cached {
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(wanted.path);
    let (file, size) = match opened.and_then(|f| f.metadata().map(|m| (f, m.len()))) {
        Ok(opened) => opened,
        Err(error) => return Cached::unknown(None, file_status(&error)),
    };
    let asked = ranges(&wanted.within(block_bytes, size), block_bytes, size);
    match counted(&file, size, &asked) {
        Ok((cached, within)) => Cached {
            size_bytes: Some(size),
            cached_bytes: Some(cached.min(size)), // the last page of a file may be a part of one
            within_bytes: Some(within.min(size)),
            status: Status::Ok,
        },
        Err(error) if refused(&error) && may_look(&file, wanted.path) => by_pages(&file, size, &asked),
        Err(error) => Cached::unknown(Some(size), file_status(&error)),
    }
}

/// Returns both counts, in bytes.
fn counted(file: &File, size: u64, asked: &[(u64, u64)]) -> io::Result<(u64, u64)> {
    let cached = cachestat(file, 0, 0)?;
    if cached == 0 || asked.is_empty() {
        return Ok((cached, 0));
    }
    let whole_pages = asked.iter().all(|(from, _)| from % *PAGE_BYTES == 0);
    let many = asked.len() as u64 * PAGES_A_RANGE > size / *PAGE_BYTES;
    if size <= MOST_BY_PAGES
        && (many || !whole_pages)
        && let Some((_, within)) = pages(file, size, asked)
    {
        return Ok((cached, within));
    }
    let mut within = 0;
    for &(from, to) in asked {
        within += cachestat(file, from, to - from)?;
    }
    Ok((cached, within))
}

fn by_pages(file: &File, size: u64, asked: &[(u64, u64)]) -> Cached {
    match pages(file, size, asked) {
        Some((cached, within)) => Cached {
            size_bytes: Some(size),
            cached_bytes: Some(cached.min(size)),
            within_bytes: Some(within.min(size)),
            status: Status::Ok,
        },
        None => Cached::unknown(Some(size), Status::NotSupported),
    }
}

/// `ENOSYS`: an older kernel; `EPERM`: the file is not ours, or a container forbids the call.
fn refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)
    )
}

fn file_status(error: &io::Error) -> Status {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => Status::Vanished,
        Some(libc::EACCES | libc::EPERM | libc::ENOSYS) => Status::NotPermitted,
        Some(libc::EOPNOTSUPP) => Status::NotSupported,
        _ => Status::Lost,
    }
}

/// Whether `mincore` tells the truth: the file is ours, or we may write to it (mm/mincore.c,
/// `can_do_mincore`).
fn may_look(file: &File, path: &Path) -> bool {
    let owner = file.metadata().map(|m| m.uid());
    if owner.is_ok_and(|uid| uid == geteuid().as_raw()) {
        return true;
    }
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the path ends with a zero byte.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

/// Ranges [from, to) in bytes of adjacent blocks, within the file.
fn ranges(blocks: &[u64], block_bytes: NonZero<u64>, size: u64) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for block in blocks {
        let from = block * block_bytes.get();
        let to = from.saturating_add(block_bytes.get()).min(size);
        match ranges.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ if from < to => ranges.push((from, to)),
            _ => {}
        }
    }
    ranges
}

#[repr(C)]
struct CachestatRange {
    off: u64,
    len: u64,
}

/// Bytes of a range in the page cache; `len` 0: up to the end (include/uapi/linux/mman.h).
fn cachestat(file: &File, off: u64, len: u64) -> io::Result<u64> {
    let range = CachestatRange { off, len };
    let mut counts = [0_u64; 5]; // cache, dirty, writeback, evicted, recently evicted
    // SAFETY: both structures live until the call is over, and are what it expects.
    let failed = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            counts.as_mut_ptr(),
            0,
        )
    };
    if failed == 0 {
        Ok(counts[0] * *PAGE_BYTES)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bytes in the page cache, in all and of the ranges, by a mapping of the file; `None`: it cannot be mapped.
fn pages(file: &File, size: u64, asked: &[(u64, u64)]) -> Option<(u64, u64)> {
    let (mut all, mut within, mut left) = (0, 0, asked);
    let mut flags: Vec<u8> = Vec::new();
    for start in (0..size).step_by(CHUNK_BYTES as usize) {
        let length = CHUNK_BYTES.min(size - start);
        resident(file, start, length, &mut flags)?;
        all += flags.iter().map(|f| u64::from(f & 1)).sum::<u64>() * *PAGE_BYTES;
        let end = start + length;
        while let Some(&(from, to)) = left.first().filter(|(from, _)| *from < end) {
            within += overlap(&flags, start, from.max(start), to.min(end));
            if to > end {
                break; // it goes on in the next chunk
            }
            left = &left[1..];
        }
    }
    Some((all, within))
}

/// Bytes from `from` to `to` that are on resident pages; `flags` begin at `start`. A page may be larger than a
/// block.
fn overlap(flags: &[u8], start: u64, from: u64, to: u64) -> u64 {
    let page = *PAGE_BYTES;
    let resident = |n: &u64| flags[((n * page - start) / page) as usize] & 1 == 1;
    (from / page..to.div_ceil(page))
        .filter(resident)
        .map(|n| to.min((n + 1) * page) - from.max(n * page))
        .sum()
}

/// One flag a page: bit 0 is set where it is resident.
fn resident(file: &File, start: u64, length: u64, flags: &mut Vec<u8>) -> Option<()> {
    flags.clear();
    flags.resize(length.div_ceil(*PAGE_BYTES) as usize, 0);
    // SAFETY: the mapping is not read, only asked about, and is given back before the function ends.
    unsafe {
        let mapped = libc::mmap(
            ptr::null_mut(),
            length as usize,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            start as libc::off_t,
        );
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let failed = libc::mincore(mapped, length as usize, flags.as_mut_ptr());
        libc::munmap(mapped, length as usize);
        (failed == 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Advice, fadvise};
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    const TEN: NonZero<u64> = NonZero::new(10).unwrap();
    const BLOCK: NonZero<u64> = NonZero::new(8192).unwrap();

    fn written(name: &str, pages: u64) -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("dyno-page-cache-{}-{name}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![1; (pages * *PAGE_BYTES) as usize]).unwrap();
        file.sync_all().unwrap();
        let file = File::open(&path).unwrap();
        (path, file)
    }

    #[test]
    fn adjacent_blocks_are_one_range_that_ends_with_the_file() {
        assert_eq!(ranges(&[0, 1, 3, 4, 9], TEN, 48), vec![(0, 20), (30, 48)]);
        assert_eq!(ranges(&[], TEN, 48), vec![]);
    }

    #[test]
    fn blocks_of_other_files_are_passed_over() {
        let sent: Vec<u8> = [12_u64, 10, 9, 13, 20]
            .iter()
            .flat_map(|n| n.to_be_bytes())
            .collect();
        let wanted = Wanted {
            path: Path::new("/"),
            blocks: &sent,
            first: 10,
        };
        assert_eq!(wanted.within(TEN, 35), vec![0, 2, 3]);
    }

    #[test]
    fn numbers_beyond_all_files_are_of_none() {
        let sent: Vec<u8> = [0, u64::MAX - 1, u64::MAX]
            .iter()
            .flat_map(|n| n.to_be_bytes())
            .collect();
        let wanted = Wanted {
            path: Path::new("/"),
            blocks: &sent,
            first: u64::MAX - 1,
        };
        assert_eq!(wanted.within(TEN, 35), vec![0]);
        assert_eq!(ranges(&[0], NonZero::<u64>::MAX, 48), vec![(0, 48)]);
    }

    #[test]
    fn both_ways_count_the_same_pages() {
        let (path, file) = written("both", 100);
        let page = *PAGE_BYTES;
        for advice in [Advice::DontNeed, Advice::Random] {
            fadvise(&file, 0, None, advice).unwrap(); // the second: no read-ahead
        }
        let mut byte = [0];
        for n in [3, 4, 50] {
            file.read_exact_at(&mut byte, n * page).unwrap();
        }
        let asked = [(0, 4 * page), (10 * page, 60 * page)];
        let by_mapping = pages(&file, 100 * page, &asked).unwrap();
        match cachestat(&file, 0, 0) {
            Ok(all) => assert_eq!((all, counted(&file, 100 * page, &asked).unwrap().1), by_mapping),
            Err(error) => assert!(refused(&error)),
        }
        if by_mapping.0 == 3 * page {
            assert_eq!(by_mapping.1, 2 * page); // a file system in memory drops nothing
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_first_file_is_read_without_time_and_the_rest_is_lost() {
        let (path, _file) = written("lost", 2);
        let wanted = [0, 1].map(|_| Wanted {
            path: &path,
            blocks: &[],
            first: 0,
        });
        let files = page_cache(&wanted, BLOCK, 0);
        assert_eq!(files[0].cached_bytes, Some(2 * *PAGE_BYTES));
        assert_eq!(files[1], Cached::unknown(None, Status::Lost));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_is_not_there_has_vanished() {
        let wanted = [Wanted {
            path: Path::new("/nowhere/1"),
            blocks: &[],
            first: 0,
        }];
        assert_eq!(
            page_cache(&wanted, BLOCK, 0),
            vec![Cached::unknown(None, Status::Vanished)]
        );
    }
}
