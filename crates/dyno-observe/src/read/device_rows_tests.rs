//! Counters of devices, in the forms of three kernels.

use super::*;

fn devices(names: &[(&str, bool)]) -> Vec<Device> {
    let device = |&(name, counts_flushes): &(&str, bool)| Device {
        name: name.to_owned(),
        counts_flushes,
    };
    names.iter().map(device).collect()
}

fn read(text: &str, names: &[(&str, bool)]) -> Vec<(Counters, Status)> {
    let devices = devices(names);
    let mut rows: Vec<Row> = (0..devices.len())
        .map(|device| Row {
            bracket: Bracket {
                before_ns: 1,
                after_ns: 2,
            },
            device,
            counters: [None; WITH_FLUSHES],
            status: Status::Vanished,
        })
        .collect();
    take(text, &devices, &mut rows);
    rows.into_iter().map(|r| (r.counters, r.status)).collect()
}

/// Field n holds n, as iostats.rst numbers them.
fn line(name: &str, fields: usize) -> String {
    let numbers: Vec<String> = (1..=fields).map(|n| n.to_string()).collect();
    format!("   8       0 {name} {}\n", numbers.join(" "))
}

#[test]
fn fields_are_those_of_the_document() {
    let (counters, status) = read(&line("sda", 17), &[("sda", true)])[0];
    let (sector, ms) = (512, 1_000_000);
    let expected = [
        1,
        2,
        3 * sector,
        4 * ms,
        5,
        6,
        7 * sector,
        8 * ms,
        9,
        10 * ms,
        11 * ms,
        12,
        13,
        14 * sector,
        15 * ms,
        16,
        17 * ms,
    ];
    assert_eq!(counters, expected.map(Some));
    assert_eq!(status, Status::Ok);
}

#[test]
fn older_kernels_count_neither_discards_nor_flushes() {
    for (fields, known) in [(11, 11), (13, 11), (15, 15), (16, 15), (17, 17), (20, 17)] {
        let (counters, status) = read(&line("sda", fields), &[("sda", true)])[0];
        assert_eq!(counters.iter().flatten().count(), known, "{fields} fields");
        assert_eq!(status, Status::Ok);
    }
    assert_eq!(
        read(&line("sda", 4), &[("sda", true)])[0].1,
        Status::Lost,
        "2.4 and 2.6 of partitions"
    );
}

#[test]
fn flushes_of_partitions_are_unknown() {
    let (counters, _) = read(&line("sda1", 17), &[("sda1", false)])[0];
    assert_eq!(
        (counters[14], counters[15], counters[16]),
        (Some(15_000_000), None, None)
    );
}

#[test]
fn a_device_without_a_line_is_gone_and_others_go_on() {
    let text = line("sda10", 17) + &line("sdc", 17) + "\n 8\n8 0\n";
    let statuses: Vec<Status> = read(&text, &[("sda", true), ("sdc", true)])
        .into_iter()
        .map(|(_, s)| s)
        .collect();
    assert_eq!(statuses, [Status::Vanished, Status::Ok]);
}

#[test]
fn a_field_that_is_no_number_makes_that_device_unknown() {
    for word in ["-1", "x", "99999999999999999999"] {
        let text = line("sda", 17).replace(" 5 ", &format!(" {word} ")) + &line("sdb", 17);
        let read = read(&text, &[("sda", true), ("sdb", true)]);
        assert_eq!((read[0].1, read[1].1), (Status::Lost, Status::Ok), "{word}");
        assert_eq!(read[0].0, [None; WITH_FLUSHES]);
    }
}

#[test]
fn counters_of_64_bits_that_bytes_do_not_hold_are_unknown() {
    let text = line("sda", 17).replace(" 3 ", &format!(" {} ", i64::MAX));
    assert_eq!(read(&text, &[("sda", true)])[0].1, Status::Lost);
}

#[test]
fn the_kernel_of_this_machine() {
    let text = std::fs::read_to_string(NAME).unwrap();
    let Some(name) = text
        .lines()
        .next()
        .and_then(|l| l.split_ascii_whitespace().nth(2))
    else {
        return;
    };
    let mut rows = DeviceRows::new(vec![name.to_owned(), "no such device".to_owned()]);
    rows.read(&mut Buffer::default());
    rows.read(&mut Buffer::default());
    let statuses: Vec<Status> = rows.rows.iter().map(|r| r.status).collect();
    assert_eq!(
        statuses,
        [Status::Ok, Status::Vanished, Status::Ok, Status::Vanished]
    );
    assert_eq!(
        rows.take(rows.rows[2].bracket.after_ns).rows() + rows.table(0).rows(),
        4
    );
}
