//! Programs and libraries that samples fall into. Each is opened once, while a process that maps it exists.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object::{Object as _, ObjectSection, ObjectSegment, ReadCache};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::maps::{Backing, Mapping};
use crate::symbols::{Name, Names};

/// Bytes of a section, and where the object says that it lies.
#[derive(Debug, Clone)]
pub struct Section {
    /// Address in the object.
    pub address: u64,
    /// All bytes of the section.
    pub bytes: Arc<[u8]>,
}

/// Sections of an object that unwinding needs.
#[derive(Debug, Clone, Default)]
pub struct Sections {
    /// `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Option<Section>,
    /// Range of `.text`.
    pub text: Option<std::ops::Range<u64>>,
    /// Range of `.got`.
    pub got: Option<std::ops::Range<u64>>,
}

/// A program, a library, the vDSO, or generated code.
#[derive(Debug)]
pub struct Object {
    /// Its file's name, "vdso", "jit".
    pub module: String,
    /// Its path in the process's own file system.
    pub path: Option<String>,
    file: Option<File>,
    /// (offset, address, size) of each segment.
    segments: Vec<(u64, u64, u64)>,
    /// Sections for unwinding.
    pub sections: Sections,
    names: Names,
}

/// Device and inode of a file.
type Key = (String, u64);

/// Objects whose files are open, shared by all watches: one watch follows another, and all meet the objects of the
/// same server.
static OPEN: Mutex<Option<HashMap<Key, Arc<Object>>>> = Mutex::new(None);
/// The vDSO, and code that programs generated.
static VDSO: OnceLock<Arc<Object>> = OnceLock::new();
static JIT: OnceLock<Arc<Object>> = OnceLock::new();

impl Object {
    fn nameless(module: &str, path: Option<String>) -> Self {
        Self {
            module: module.to_owned(),
            path,
            file: None,
            segments: Vec::new(),
            sections: Sections::default(),
            names: Names::default(),
        }
    }

    fn read(mut self, file: File) -> Self {
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
        self
    }

    /// Returns the address in the object of `offset` in its file, or None if no segment holds it. A mapping begins at
    /// a page, so it may begin before its segment.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let page_start = |start: u64| start & !0xfff;
        let segments = self.segments.iter();
        let (start, address, _) = segments
            .filter(|(start, _, size)| (page_start(*start)..start + size).contains(&offset))
            .max_by_key(|(start, ..)| *start)?;
        Some(address.wrapping_add(offset).wrapping_sub(*start))
    }

    /// Returns the names at `addresses`, in their order.
    pub fn names(&self, addresses: &[u64]) -> Vec<Name> {
        self.names.at(self.file.as_ref(), addresses)
    }
}

/// First bytes of `.eh_frame_hdr` for a sorted table of pairs relative to its own address.
const SORTED: [u8; 4] = [1, 0x1b, 3, 0x3b];

impl Sections {
    /// Returns whether they cover the function at `address`; otherwise it is unwound by frame pointers.
    pub fn cover(&self, address: u64) -> bool {
        let (Some(frames), Some(header)) = (&self.eh_frame, &self.eh_frame_hdr) else {
            return self.eh_frame.is_some();
        };
        !header.bytes.starts_with(&SORTED) || covers(frames, header, address).unwrap_or(false)
    }
}

/// Returns whether an entry of the table covers `address`, or None if the sections are malformed. A pair is (first
/// address, address of the entry); an entry has, after its length and its parent, the first address and the length of
/// its function (Linux Standard Base, "Exception Frames").
fn covers(frames: &Section, header: &Section, address: u64) -> Option<bool> {
    let number = |s: &Section, at: usize| Some(i32::from_ne_bytes(s.bytes.get(at..at + 4)?.try_into().ok()?));
    let pointer = |at: usize| Some(header.address.wrapping_add_signed(i64::from(number(header, at)?)));
    let (mut low, mut high) = (0, number(header, 8)? as usize);
    while low < high {
        let middle = usize::midpoint(low, high);
        if pointer(12 + 8 * middle)? <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let pair = 12 + 8 * low.checked_sub(1)?;
    let entry = usize::try_from(pointer(pair + 4)?.checked_sub(frames.address)?).ok()?;
    let length = number(frames, entry + 12)? as u32;
    Some(address - pointer(pair)? < u64::from(length))
}

fn sections<'d>(elf: &impl object::Object<'d>) -> Sections {
    let section = |name: &str| {
        let section = elf.section_by_name(name)?;
        Some(Section {
            address: section.address(),
            bytes: Arc::from(section.data().ok()?),
        })
    };
    let range = |name: &str| {
        let section = elf.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    Sections {
        eh_frame: section(".eh_frame"),
        eh_frame_hdr: section(".eh_frame_hdr"),
        text: range(".text"),
        got: range(".got"),
    }
}

/// Objects that a watch has met.
#[derive(Debug, Default)]
pub struct Objects {
    all: Vec<Arc<Object>>,
    by_key: HashMap<Key, usize>,
}

impl Objects {
    /// Returns the number of the object at a mapping of process `pid`.
    pub fn number(&mut self, pid: u32, mapping: &Mapping) -> usize {
        let key = match &mapping.backing {
            Backing::File { device, inode, .. } => (device.clone(), *inode),
            Backing::Vdso => ("vdso".to_owned(), 0),
            Backing::Made => ("jit".to_owned(), 0),
        };
        let number = *self.by_key.entry(key.clone()).or_insert(self.all.len());
        if number == self.all.len() {
            self.all.push(object(pid, mapping, key));
        } else if self.all[number].file.is_none() && self.all[number].path.is_some() {
            self.all[number] = object(pid, mapping, key); // by way of this process it may be opened
        }
        number
    }

    /// Returns the object of a number.
    pub fn get(&self, number: usize) -> &Arc<Object> {
        &self.all[number]
    }

    /// Returns the modules whose files could not be opened.
    pub fn unopened(&self) -> Vec<&str> {
        let closed = self.all.iter().filter(|o| o.path.is_some() && o.file.is_none());
        closed.map(|o| o.module.as_str()).collect()
    }
}

/// Returns the object at a mapping, which is opened unless it is known.
fn object(pid: u32, mapping: &Mapping, key: Key) -> Arc<Object> {
    let Backing::File { path, .. } = &mapping.backing else {
        let vdso = || {
            let nameless = Object::nameless("vdso", None);
            match our_vdso() {
                Some(file) => Arc::new(nameless.read(file)),
                None => Arc::new(nameless),
            }
        };
        let jit = || Arc::new(Object::nameless("jit", None));
        return Arc::clone(match mapping.backing {
            Backing::Vdso => VDSO.get_or_init(vdso),
            _ => JIT.get_or_init(jit),
        });
    };
    let mut known = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(object) = known.get(&key) {
        return Arc::clone(object);
    }
    let nameless = Object::nameless(path.rsplit('/').next().unwrap_or(path), Some(path.clone()));
    let Some(file) = open(pid, mapping) else {
        return Arc::new(nameless);
    };
    let object = Arc::new(nameless.read(file));
    known.insert(key, Arc::clone(&object));
    object
}

/// Opens the mapped file itself if that is permitted (`CAP_CHECKPOINT_RESTORE`), else its path in the file system of
/// the process or in ours.
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

/// Returns the vDSO of this process, which all processes have, as a file.
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
    let mut file = File::from(memfd_create("vdso", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}
