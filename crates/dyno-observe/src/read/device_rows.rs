//! Counters of block devices: `/proc/diskstats` held open, and rows of the table `devices`.
//!
//! `Documentation/admin-guide/iostats.rst`: major, minor and name, then 11 fields; 4 of discards since Linux 4.18; 2 of
//! flushes since 5.5. Sectors have 512 bytes whatever the device's are, times are in milliseconds.

use dyno_model::{Bracket, Table, raw};

use crate::read::block::Devices;
use crate::read::file::{Buffer, ProcFile};
use crate::read::parse::{Parsed, error, number, scaled};
use crate::status::Status;

const NAME: &str = "/proc/diskstats";
const SECTOR_BYTES: i64 = 512;
const NS_PER_MS: i64 = 1_000_000;
/// Fields behind the name, by what the kernel counts.
const BASIC: usize = 11;
const WITH_DISCARDS: usize = 15;
const WITH_FLUSHES: usize = 17;
/// Units of these fields.
const UNITS: [i64; WITH_FLUSHES] = {
    let (one, sector, ms) = (1, SECTOR_BYTES, NS_PER_MS);
    [
        one, one, sector, ms, one, one, sector, ms, one, ms, ms, one, one, sector, ms, one, ms,
    ]
};

/// Counters of one device in the order of the fields, in bytes and ns. None: this kernel does not count it.
pub type Counters = [Option<i64>; WITH_FLUSHES];

/// Returns the counters behind a device's name.
///
/// # Errors
/// When there are fewer than the oldest kernel has, or one is no number.
pub fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Parsed<Counters> {
    let mut counters = [None; WITH_FLUSHES];
    let mut count = 0;
    for (place, (word, unit)) in counters.iter_mut().zip(words.zip(UNITS)) {
        *place = Some(scaled(
            NAME,
            "a field",
            number(NAME, "a field", Some(word))?,
            unit,
        )?);
        count += 1;
    }
    // a group of fields that is not whole is none
    let whole = [WITH_FLUSHES, WITH_DISCARDS, BASIC]
        .into_iter()
        .find(|&n| n <= count);
    let whole = whole.ok_or_else(|| error(NAME, format!("{count} fields")))?;
    counters[whole..].fill(None);
    Ok(counters)
}

#[derive(Debug)]
struct Device {
    name: String,
    counts_flushes: bool,
}

#[derive(Debug)]
struct Row {
    bracket: Bracket,
    device: usize,
    counters: Counters,
    status: Status,
}

/// All reads of some devices.
#[derive(Debug)]
pub struct DeviceRows {
    file: Result<ProcFile, Status>,
    devices: Vec<Device>,
    rows: Vec<Row>,
}

impl DeviceRows {
    /// Opens the file for devices by name.
    pub fn new(names: Vec<String>) -> Self {
        let sysfs = Devices::below("/");
        let devices = names.into_iter().map(|name| Device {
            counts_flushes: sysfs.counts_flushes(&name),
            name,
        });
        let file = ProcFile::open(NAME, true).map_err(|e| match Status::from_error(&e) {
            Status::Vanished => Status::NotSupported, // never was there
            status => status,
        });
        Self {
            file,
            devices: devices.collect(),
            rows: Vec::new(),
        }
    }

    /// Reads all devices at once.
    pub fn read(&mut self, buffer: &mut Buffer) {
        if self.devices.is_empty() {
            return;
        }
        let (bracket, outcome) = Bracket::around(|| {
            let file = self.file.as_ref().map_err(|s| *s)?;
            file.read(buffer).map_err(|e| Status::from_error(&e))
        });
        let first = self.rows.len();
        let missing = outcome.err().unwrap_or(Status::Vanished);
        self.rows.extend((0..self.devices.len()).map(|device| Row {
            bracket,
            device,
            counters: [None; WITH_FLUSHES],
            status: missing,
        }));
        if outcome.is_ok() {
            take(buffer.text(), &self.devices, &mut self.rows[first..]);
        }
    }

    /// Removes the reads that ended before `before_ns`, and returns their table.
    pub fn take(&mut self, before_ns: i64) -> Table {
        let first = self.rows.partition_point(|r| r.bracket.after_ns < before_ns);
        let later = self.rows.split_off(first);
        let table = self.table(i64::MIN);
        self.rows = later;
        table
    }

    /// Returns the table of reads that ended at or after `since_ns`.
    pub fn table(&self, since_ns: i64) -> Table {
        let first = self.rows.partition_point(|r| r.bracket.after_ns < since_ns);
        let rows = || self.rows[first..].iter();
        let field = |n: usize| rows().map(move |r| r.counters[n]).collect();
        raw::Devices {
            before_ns: rows().map(|r| r.bracket.before_ns).collect(),
            after_ns: rows().map(|r| r.bracket.after_ns).collect(),
            device: rows().map(|r| &self.devices[r.device].name).collect(),
            reads: field(0),
            reads_merged: field(1),
            read_bytes: field(2),
            read_ns: field(3),
            writes: field(4),
            writes_merged: field(5),
            written_bytes: field(6),
            write_ns: field(7),
            in_flight: field(8),
            io_ns: field(9),
            weighted_ns: field(10),
            discards: field(11),
            discarded_bytes: field(13),
            discard_ns: field(14),
            flushes: field(15),
            flush_ns: field(16),
            status: rows().map(|r| r.status.as_str()).collect(),
        }
        .into()
    }
}

/// Fills one row a device from the text; those of devices without a line stay as they are.
fn take(text: &str, devices: &[Device], rows: &mut [Row]) {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        let Some(name) = words.next() else { continue };
        let Some(n) = devices.iter().position(|d| d.name == name) else {
            continue;
        };
        (rows[n].counters, rows[n].status) = match parse(words) {
            Ok(mut counters) => {
                if !devices[n].counts_flushes {
                    counters[WITH_DISCARDS..].fill(None);
                }
                (counters, Status::Ok)
            }
            Err(_) => ([None; WITH_FLUSHES], Status::Lost),
        };
    }
}

#[cfg(test)]
#[path = "device_rows_tests.rs"]
mod tests;
