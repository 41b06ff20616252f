//! Parsers against bytes and texts as a kernel writes them.

use proptest::prelude::*;

use crate::book::Book;
use crate::kallsyms::{Kallsyms, KernelSymbol};
use crate::maps::{self, Backing, Mapping};
use crate::records::{self, Label, REGISTERS, Record, Sample};
use crate::ring;

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = (8 + body.len()) as u16;
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn two(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// A sample in kernel mode, with three frames of the kernel, two of the program, and 16 bytes of stack of which
/// 8 could be copied.
fn golden() -> Vec<u8> {
    let mut body = words(&[two(4711, 4712), 123_456_789, two(1, 0)]);
    let kernel = -128_i64 as u64;
    let user = -512_i64 as u64;
    body.extend(words(&[7, kernel, 0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020]));
    body.extend(words(&[0xffff_ffff_8100_0030, user, 0x40_1000, 0x40_2000]));
    body.extend(words(&[2]));
    body.extend(words(&(1..=REGISTERS as u64).collect::<Vec<_>>()));
    body.extend(words(&[16, 0x1122, 0, 8]));
    record(9, 1, &body)
}

#[test]
fn a_sample_has_its_task_its_chains_its_registers_and_its_stack() {
    let bytes = golden();
    let Some(Record::Sample(sample)) = records::parse(&bytes) else {
        panic!("no sample")
    };
    let registers: Vec<u64> = (1..=REGISTERS as u64).collect();
    let expected = Sample {
        kernel: true,
        pid: 4711,
        tid: 4712,
        t_ns: 123_456_789,
        cpu: 1,
        kernel_chain: vec![
            0xffff_ffff_8100_0010,
            0xffff_ffff_8100_0020,
            0xffff_ffff_8100_0030,
        ],
        user_chain: vec![0x40_1000, 0x40_2000],
        registers: registers.try_into().ok(),
        stack: &0x1122_u64.to_ne_bytes(),
    };
    assert_eq!(sample, expected);
}

/// As `bpf_perf_event_output()` writes it: the length of what follows, and bytes up to a multiple of eight.
#[test]
fn a_label_is_told_from_a_sample_and_may_be_unread() {
    let (tid, query) = (4712, 77);
    for (word, code) in [(0x0A00_0001, Some(0x0A00_0001)), (0, Some(0)), (u32::MAX, None)] {
        let bytes = record(9, 1, &words(&[two(20, tid), two(word, query), 0]));
        let query = u64::from(query);
        assert_eq!(
            records::parse(&bytes),
            Some(Record::Label(Label { tid, code, query }))
        );
    }
}

#[test]
fn a_task_without_user_space_has_no_registers_and_no_stack() {
    let body = words(&[two(2, 2), 5, 0, 0, 0, 0]);
    let bytes = record(9, 1, &body);
    let Some(Record::Sample(sample)) = records::parse(&bytes) else {
        panic!("no sample")
    };
    assert_eq!((sample.registers, sample.stack.len()), (None, 0));
    assert_eq!(
        records::parse(&record(9, 4, &body)),
        Some(Record::Other),
        "of a guest"
    );
}

#[test]
fn what_was_lost_and_held_back_is_counted_and_tasks_begin_and_end() {
    assert_eq!(
        records::parse(&record(2, 0, &words(&[1, 42]))),
        Some(Record::Lost(42))
    );
    assert_eq!(
        records::parse(&record(13, 0, &words(&[6]))),
        Some(Record::Lost(6))
    );
    for (kind, expected) in [(5, Record::Throttled(1)), (6, Record::Unthrottled(1))] {
        assert_eq!(
            records::parse(&record(kind, 0, &words(&[1, 2, 3]))),
            Some(expected)
        );
    }
    let task = words(&[two(10, 9), two(10, 9), 77]);
    let (pid, parent, tid) = (10, 9, 10);
    assert_eq!(
        records::parse(&record(7, 0, &task)),
        Some(Record::Fork { pid, parent, tid })
    );
    assert_eq!(
        records::parse(&record(4, 0, &task)),
        Some(Record::Exit { pid, tid })
    );
    assert_eq!(records::parse(&record(3, 0, &task)), Some(Record::Other));
}

#[test]
fn a_clock_is_held_back_until_it_goes_on_or_all_stop() {
    let mut book = Book::new(None, false);
    book.take(&Record::Throttled(5), 0, 1);
    book.take(&Record::Unthrottled(7), 0, 1);
    book.take(&Record::Throttled(10), 1, 1);
    assert_eq!(book.held_ns(20), 2 + 10);
    book.stop(25);
    assert_eq!(book.held_ns(1000), 2 + 15);
}

const RING: usize = 4096;

/// A ring with these bytes from position `at` on.
fn filled(at: u64, bytes: &[u8]) -> Vec<u8> {
    let mut data = vec![0xff_u8; RING];
    for (n, byte) in bytes.iter().enumerate() {
        data[(at as usize + n) % RING] = *byte;
    }
    data
}

/// Whether all of it is well-formed, and the records up to where it is not.
fn walked(data: &[u8], filled: std::ops::Range<u64>) -> (bool, Vec<Vec<u8>>) {
    let word = |at: usize| u64::from_ne_bytes(data[at..at + 8].try_into().unwrap());
    let (mut room, mut records) = (Vec::new(), Vec::new());
    let whole = ring::walk(
        word,
        data.len(),
        filled,
        &mut room,
        |_| true,
        |r| records.push(r.to_vec()),
    );
    (whole, records)
}

#[test]
fn a_record_over_the_end_of_the_ring_is_put_together() {
    let bytes = golden();
    let at = 3 * RING as u64 - 24;
    let end = at + bytes.len() as u64;
    assert_eq!(walked(&filled(at, &bytes), at..end), (true, vec![bytes]));
    assert_eq!(walked(&filled(at, &[]), at..at), (true, vec![]));
}

#[test]
fn a_record_of_an_impossible_size_ends_the_walk() {
    let first = record(3, 0, &words(&[1]));
    let at = 2 * RING as u64 - 8;
    for size in [0_u16, 4, 7, 12, 24, u16::MAX] {
        let mut bytes = first.clone();
        bytes.extend(record(3, 0, &words(&[2])));
        bytes[first.len() + 6..first.len() + 8].copy_from_slice(&size.to_ne_bytes());
        let end = at + bytes.len() as u64;
        let walk = walked(&filled(at, &bytes), at..end);
        assert_eq!(walk, (false, vec![first.clone()]), "size {size}");
    }
}

#[test]
fn positions_that_cannot_be_are_not_followed() {
    let data = filled(0, &record(3, 0, &words(&[1])));
    for (tail, head) in [(0, RING as u64 + 8), (16, 0), (4, 16), (0, 12), (u64::MAX, 0)] {
        assert_eq!(walked(&data, tail..head), (false, vec![]), "{tail} to {head}");
    }
    let whole = filled(0, &record(3, 0, &vec![0; RING - 8]));
    assert_eq!(walked(&whole, 0..RING as u64).1[0].len(), RING);
}

#[test]
fn only_records_of_a_wanted_type_are_copied() {
    let bytes = [record(3, 0, &words(&[1])), record(7, 0, &words(&[2]))].concat();
    let data = filled(0, &bytes);
    let word = |at: usize| u64::from_ne_bytes(data[at..at + 8].try_into().unwrap());
    let (mut room, mut kinds) = (Vec::new(), Vec::new());
    let each = |r: &[u8]| kinds.push(r[0]);
    assert!(ring::walk(
        word,
        RING,
        0..bytes.len() as u64,
        &mut room,
        |kind| kind == 7,
        each
    ));
    assert_eq!(kinds, [7]);
}

const MAPS: &str = "\
55e0c8a00000-55e0c8b00000 r--p 00000000 fe:00 1234    /usr/lib/postgresql/15/bin/postgres
55e0c8b00000-55e0c9000000 r-xp 00100000 fe:00 1234    /usr/lib/postgresql/15/bin/postgres
7f0000000000-7f0000001000 r-xp 00002000 00:2e 99      /opt/with space/lib.so.1 (deleted)
7f0000010000-7f0000020000 r-xp 00000000 00:00 0 
7f0000020000-7f0000030000 rwxp 00000000 00:01 55      /memfd:code (deleted)
7f0000030000-7f0000040000 rw-p 00000000 00:01 56      /dev/zero (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0       [stack]
7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0       [vdso]
nonsense
";

#[test]
fn maps_give_what_may_be_executed() {
    let mappings = maps::parse(MAPS);
    let backings: Vec<&Backing> = mappings.iter().map(|m| &m.backing).collect();
    let file = |device: &str, inode, path: &str, deleted| Backing::File {
        device: device.to_owned(),
        inode,
        path: path.to_owned(),
        deleted,
    };
    assert_eq!(
        backings,
        [
            &file("fe:00", 1234, "/usr/lib/postgresql/15/bin/postgres", false),
            &file("00:2e", 99, "/opt/with space/lib.so.1", true),
            &Backing::Made,
            &Backing::Made,
            &Backing::Vdso,
        ]
    );
    let Mapping {
        start, end, offset, ..
    } = mappings[0];
    assert_eq!(
        (start, end, offset),
        (0x55e0_c8b0_0000, 0x55e0_c900_0000, 0x10_0000)
    );
}

const KALLSYMS: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 T do_syscall_64
ffffffff81000200 t vfs_read
ffffffff82000000 D some_data
ffffffffc0001000 t ext4_file_read_iter\t[ext4]
";

#[test]
fn functions_of_the_kernel_have_their_module_and_no_absolute_address() {
    let symbols = Kallsyms::parse(KALLSYMS).expect("readable");
    let symbol = |address| {
        symbols
            .find(address)
            .map(|KernelSymbol { name, module, offset }| (name, module, offset))
    };
    assert_eq!(
        symbol(0xffff_ffff_8100_0150),
        Some(("do_syscall_64", None, 0x150))
    );
    assert_eq!(
        symbol(0xffff_ffff_c000_1020),
        Some(("ext4_file_read_iter", Some("ext4"), 0x20))
    );
    assert_eq!(symbol(0xffff_ffff_8000_0000), None);
}

#[test]
fn hidden_addresses_are_no_symbols() {
    assert!(Kallsyms::parse("0000000000000000 T _stext\n0000000000000000 T vfs_read\n").is_none());
    assert!(Kallsyms::parse("").is_none());
}

proptest! {
    #[test]
    fn no_bytes_break_the_parsers(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,80}") {
        let _ = records::parse(&bytes);
        let _ = maps::parse(&text);
        let _ = Kallsyms::parse(&text);
    }

    #[test]
    fn no_ring_breaks_the_walk(
        bytes in proptest::collection::vec(any::<u8>(), RING..=RING), tail in 0..3 * RING as u64, more in 0..2 * RING as u64
    ) {
        let (_, records) = walked(&bytes, tail..tail + more);
        prop_assert!(records.iter().map(Vec::len).sum::<usize>() <= RING);
    }

    #[test]
    fn a_record_cut_short_is_none(length in 8_usize..100) {
        let bytes = golden();
        prop_assume!(length < bytes.len());
        prop_assert!(records::parse(&bytes[..length]).is_none());
    }
}
