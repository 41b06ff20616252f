//! Executable memory of a process: `proc_pid_maps(5)`. Pure: text to values.

/// What lies there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A file.
    File {
        /// Device numbers as the kernel prints them.
        device: String,
        /// Its inode.
        inode: u64,
        /// Its path in the process's own file system, without " (deleted)".
        path: String,
        /// The path is of another file by now, or of none.
        deleted: bool,
    },
    /// The kernel's page of functions.
    Vdso,
    /// Code that the program made.
    Made,
}

/// One mapping that may be executed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// After the last.
    pub end: u64,
    /// Of the first address in the file.
    pub offset: u64,
    /// What lies there.
    pub backing: Backing,
}

/// The executable mappings in `text`, by address. Lines that are none are passed over.
pub fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let device = words.next()?;
    let inode: u64 = words.next()?.parse().ok()?;
    let path = words.next().unwrap_or("").trim_start();
    let kept = path.strip_suffix(" (deleted)");
    let (path, deleted) = (kept.unwrap_or(path), kept.is_some());
    if permissions.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let backing = match path {
        "[vdso]" | "[vsyscall]" => Backing::Vdso,
        _ if inode == 0 || path.starts_with("/memfd:") || path.starts_with("/dev/zero") => Backing::Made,
        _ => Backing::File {
            device: device.to_owned(),
            inode,
            path: path.to_owned(),
            deleted,
        },
    };
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset,
        backing,
    })
}
