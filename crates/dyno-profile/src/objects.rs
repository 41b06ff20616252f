//! Programs and libraries that samples fall into, each opened once, while a process that has it is there.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use object::{Object as _, ObjectSection, ObjectSegment, ReadCache};

use crate::maps::{Backing, Mapping};

/// Bytes of a section, and where the object says that it lies.
#[derive(Debug, Clone)]
pub struct Section {
    /// As the object says.
    pub address: u64,
    /// All of it.
    pub bytes: Arc<[u8]>,
}

/// What unwinding needs of an object.
#[derive(Debug, Clone, Default)]
pub struct Sections {
    /// `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Option<Section>,
    /// Range of `.text` and of `.got`.
    pub text: Option<std::ops::Range<u64>>,
    /// The latter.
    pub got: Option<std::ops::Range<u64>>,
}

/// One program, library, or the like.
#[derive(Debug)]
pub struct Object {
    /// Its file's name, "vdso", "jit".
    pub module: String,
    /// Its path in the process's own file system.
    pub path: Option<String>,
    file: Option<File>,
    /// (offset, address, size) of what is loaded.
    segments: Vec<(u64, u64, u64)>,
    /// For unwinding.
    pub sections: Sections,
}

impl Object {
    fn nameless(module: &str, path: Option<String>) -> Self {
        Self {
            module: module.to_owned(),
            path,
            file: None,
            segments: Vec::new(),
            sections: Sections::default(),
        }
    }

    fn read(&mut self, file: File) {
        let cache = ReadCache::new(&file);
        if let Ok(elf) = object::File::parse(&cache) {
            self.segments = elf
                .segments()
                .map(|s| (s.file_range().0, s.address(), s.file_range().1))
                .collect();
            self.sections = sections(&elf);
        }
        drop(cache);
        self.file = Some(file);
    }

    /// Address, as the object says, of what is at `offset` in its file. A mapping begins at a page, so maybe a
    /// bit before the segment.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let of_page = |start: u64| start & !0xfff;
        let segments = self.segments.iter();
        let (start, address, _) = segments
            .filter(|(start, _, size)| (of_page(*start)..start + size).contains(&offset))
            .max_by_key(|(start, ..)| *start)?;
        Some(address.wrapping_add(offset).wrapping_sub(*start))
    }

    /// A path by which this process reads it, for as long as it is here.
    pub fn readable(&self) -> Option<PathBuf> {
        let fd = self.file.as_ref()?.as_raw_fd();
        Some(PathBuf::from(format!("/proc/self/fd/{fd}")))
    }

    /// Its file, if it could be opened.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }
}

fn sections<'d>(elf: &impl object::Object<'d>) -> Sections {
    let section = |name: &str| {
        let found = elf.section_by_name(name)?;
        Some(Section {
            address: found.address(),
            bytes: Arc::from(found.data().ok()?),
        })
    };
    let range = |name: &str| {
        let found = elf.section_by_name(name)?;
        Some(found.address()..found.address() + found.size())
    };
    Sections {
        eh_frame: section(".eh_frame"),
        eh_frame_hdr: section(".eh_frame_hdr"),
        text: range(".text"),
        got: range(".got"),
    }
}

/// All objects met.
#[derive(Debug, Default)]
pub struct Objects {
    all: Vec<Object>,
    by_file: HashMap<(String, u64), usize>,
    vdso: Option<usize>,
    made: Option<usize>,
}

impl Objects {
    /// The number of the object that is mapped there in process `pid`.
    pub fn of(&mut self, pid: u32, mapping: &Mapping) -> usize {
        match &mapping.backing {
            Backing::File {
                device, inode, path, ..
            } => {
                let key = (device.clone(), *inode);
                let number = self.by_file.get(&key).copied().unwrap_or_else(|| {
                    let module = path.rsplit('/').next().unwrap_or(path);
                    self.all.push(Object::nameless(module, Some(path.clone())));
                    self.all.len() - 1
                });
                self.by_file.insert(key, number);
                let object = &mut self.all[number];
                if object.file.is_none()
                    && let Some(file) = open(pid, mapping)
                {
                    object.read(file);
                }
                number
            }
            Backing::Vdso => *self.vdso.get_or_insert_with(|| {
                let mut vdso = Object::nameless("vdso", None);
                if let Some(file) = our_vdso() {
                    vdso.read(file);
                }
                self.all.push(vdso);
                self.all.len() - 1
            }),
            Backing::Made => *self.made.get_or_insert_with(|| {
                self.all.push(Object::nameless("jit", None));
                self.all.len() - 1
            }),
        }
    }

    /// By number.
    pub fn get(&self, number: usize) -> &Object {
        &self.all[number]
    }

    /// Modules of files that could not be opened.
    pub fn unopened(&self) -> Vec<&str> {
        let closed = self.all.iter().filter(|o| o.path.is_some() && o.file.is_none());
        closed.map(|o| o.module.as_str()).collect()
    }
}

/// The very file where that is permitted (`CAP_CHECKPOINT_RESTORE`); otherwise what its path leads to as the process
/// sees it, or as we do.
fn open(pid: u32, mapping: &Mapping) -> Option<File> {
    let Backing::File {
        inode, path, deleted, ..
    } = &mapping.backing
    else {
        return None;
    };
    let (start, end) = (mapping.start, mapping.end);
    if let Ok(file) = File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}")) {
        return Some(file);
    }
    // numbers of files differ between layered file systems: they are asked for only where the path is old
    let same = |file: &File| !deleted || file.metadata().is_ok_and(|m| m.ino() == *inode);
    let paths = [format!("/proc/{pid}/root{path}"), path.clone()];
    paths.iter().filter_map(|p| File::open(p).ok()).find(same)
}

/// The vDSO of this process, which is that of all, as a file.
fn our_vdso() -> Option<File> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
    let mapping = crate::maps::parse(line).pop()?;
    // SAFETY: mapped for reading as long as this process is there.
    let bytes = unsafe {
        std::slice::from_raw_parts(mapping.start as *const u8, (mapping.end - mapping.start) as usize)
    };
    in_memory(bytes).ok()
}

fn in_memory(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: a valid name.
    let fd = unsafe { libc::memfd_create(c"vdso".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor of ours.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    Ok(file)
}
