//! Executable memory of a process: `proc_pid_maps(5)`. Pure: text to values.

use dyno_observe::maps;

/// Kind of memory at a mapping.
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
        /// Whether the path is of another file by now, or of none.
        deleted: bool,
    },
    /// The kernel's page of functions.
    Vdso,
    /// Code that the program generated.
    Made,
}

/// One mapping that may be executed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Offset of the first address in the file.
    pub offset: u64,
    /// The file or memory that is mapped.
    pub backing: Backing,
}

/// Returns the executable mappings in `text`, by address. Lines of another form are skipped.
pub fn parse(text: &str) -> Vec<Mapping> {
    maps::parse(text)
        .filter(|line| line.is_executable)
        .map(mapping)
        .collect()
}

fn mapping(line: maps::Mapping<'_>) -> Mapping {
    let kept = line.path.strip_suffix(" (deleted)");
    let (path, deleted) = (kept.unwrap_or(line.path), kept.is_some());
    let backing = match path {
        "[vdso]" | "[vsyscall]" => Backing::Vdso,
        _ if line.inode == 0 || path.starts_with("/memfd:") || path.starts_with("/dev/zero") => Backing::Made,
        _ => Backing::File {
            device: line.device.to_owned(),
            inode: line.inode,
            path: path.to_owned(),
            deleted,
        },
    };
    Mapping {
        start: line.start,
        end: line.end,
        offset: line.offset,
        backing,
    }
}
