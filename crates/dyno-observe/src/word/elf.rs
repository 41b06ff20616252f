//! Where a symbol of a program lies in a process: the program's ELF file (elf(5)) says where it was linked,
//! `/proc/PID/maps` (proc(5)) where it was loaded.

use object::{Object, ObjectSegment, ObjectSymbol, ReadRef};

use crate::read::maps::{self, Mapping};
use crate::read::parse::{Parsed, error};

const NAME: &str = "ELF";

/// A symbol as the linker placed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linked {
    /// Its address, before the program is moved anywhere.
    pub address: u64,
    /// The lowest segment that is loaded: its address,
    pub segment_address: u64,
    /// and where it begins in the file.
    pub segment_offset: u64,
}

/// Returns the symbol `name` in `.symtab`, or else in `.dynsym`, of an ELF file, or None if it has none of that name
/// (stripped).
///
/// # Errors
/// When it is no 64-bit ELF file, or a broken one.
pub fn symbol<'d>(data: impl ReadRef<'d>, name: &str) -> Parsed<Option<Linked>> {
    let file = object::File::parse(data).map_err(|e| error(NAME, e.to_string()))?;
    if !file.is_64() {
        return Err(error(NAME, "not of 64 bits"));
    }
    let Some(address) = file
        .symbols()
        .chain(file.dynamic_symbols())
        .find(|s| !s.is_undefined() && s.name() == Ok(name))
        .map(|s| s.address())
    else {
        return Ok(None);
    };
    let lowest = file.segments().min_by_key(ObjectSegment::address);
    let segment = lowest.ok_or_else(|| error(NAME, "nothing of it is loaded"))?;
    Ok(Some(Linked {
        address,
        segment_address: segment.address(),
        segment_offset: segment.file_range().0,
    }))
}

/// The first mapping of the file `path` (as the link `/proc/PID/exe` reads), in the text of
/// `/proc/PID/maps`. Where the path does not occur (it was moved), of the file with that inode.
pub fn first_mapping<'t>(maps: &'t str, path: &str, inode: u64) -> Option<Mapping<'t>> {
    let by_path = maps::parse(maps).find(|mapping| mapping.path == path);
    by_path.or_else(|| maps::parse(maps).find(|mapping| inode != 0 && mapping.inode == inode))
}

/// Address of the symbol in a process whose first mapping of the program is at `start`, from `offset` of the file on;
/// `None` where that is not the program's first segment.
pub fn loaded(linked: Linked, start: u64, offset: u64, page_bytes: u64) -> Option<u64> {
    let page = |address: u64| address - address % page_bytes;
    if offset != page(linked.segment_offset) {
        return None;
    }
    // 0 for a program that is not position-independent
    let bias = start.wrapping_sub(page(linked.segment_address));
    Some(linked.address.wrapping_add(bias))
}
