//! The host: `/proc/stat` and `/proc/pressure` held open, and rows of the table `host`.

use dyno_model::{Bracket, Table, raw};

use crate::read::file::{Buffer, ProcFile};
use crate::read::parse::ns_per_tick;
use crate::read::psi;
use crate::status::Status;

type Value = (&'static str, Option<i64>);

/// Files with the keys of `some` and `full`. `full` of cpu is left out: for the whole host it is 0 by
/// definition (psi.rst).
const PRESSURE: [(&str, &str, Option<&str>); 3] = [
    ("/proc/pressure/cpu", "psi.cpu.some_ns", None),
    ("/proc/pressure/io", "psi.io.some_ns", Some("psi.io.full_ns")),
    (
        "/proc/pressure/memory",
        "psi.memory.some_ns",
        Some("psi.memory.full_ns"),
    ),
];

#[derive(Debug)]
struct Row {
    bracket: Bracket,
    key: &'static str,
    value: Option<i64>,
    status: Status,
}

/// All reads of the host.
#[derive(Debug)]
pub struct HostRows {
    stat: Result<ProcFile, Status>,
    pressure: [Result<ProcFile, Status>; 3],
    ns_per_tick: i64,
    rows: Vec<Row>,
}

impl HostRows {
    pub fn new() -> Self {
        let open = |path: &str| {
            ProcFile::open(path, true).map_err(|e| match Status::from_error(&e) {
                Status::Vanished => Status::NotSupported, // never was there
                status => status,
            })
        };
        Self {
            stat: open("/proc/stat"),
            pressure: PRESSURE.map(|(path, ..)| open(path)),
            ns_per_tick: ns_per_tick(),
            rows: Vec::new(),
        }
    }

    /// Reads all of it.
    pub fn read(&mut self, buffer: &mut Buffer) {
        let (bracket, outcome) = Bracket::around(|| {
            self.stat
                .as_ref()
                .map_err(|s| *s)?
                .read(buffer)
                .map_err(|e| Status::from_error(&e))?;
            crate::read::host::parse(buffer.text(), self.ns_per_tick).map_err(|_| Status::Lost)
        });
        let (host, status) = outcome.map_or_else(|s| (None, s), |h| (Some(h), Status::Ok));
        let times = crate::read::host::TIMES
            .iter()
            .enumerate()
            .map(|(i, key)| (*key, host.and_then(|h| h.times_ns[i])));
        let others = [
            ("cpus", host.map(|h| h.cpus)),
            ("context_switches", host.and_then(|h| h.context_switches)),
            ("procs_running", host.and_then(|h| h.procs_running)),
            ("procs_blocked", host.and_then(|h| h.procs_blocked)),
        ];
        let values: Vec<Value> = times.chain(others).collect();
        push(&mut self.rows, bracket, status, values);
        self.read_pressure(buffer);
    }

    fn read_pressure(&mut self, buffer: &mut Buffer) {
        for (file, (_, some, full)) in self.pressure.iter().zip(PRESSURE) {
            let (bracket, outcome) = Bracket::around(|| {
                file.as_ref()
                    .map_err(|s| *s)?
                    .read(buffer)
                    .map_err(|e| Status::from_error(&e))?;
                psi::parse(buffer.text()).map_err(|_| Status::Lost)
            });
            let (pressure, status) = outcome.map_or_else(|s| (None, s), |p| (Some(p), Status::Ok));
            let full = full.map(|key| (key, pressure.and_then(|p| p.full_ns)));
            let values = [Some((some, pressure.and_then(|p| p.some_ns))), full];
            push(&mut self.rows, bracket, status, values.into_iter().flatten());
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
        let host = raw::Host {
            before_ns: rows().map(|r| r.bracket.before_ns).collect(),
            after_ns: rows().map(|r| r.bracket.after_ns).collect(),
            key: rows().map(|r| r.key).collect(),
            value: rows().map(|r| r.value).collect(),
            status: rows().map(|r| r.status.as_str()).collect(),
        };
        host.into()
    }
}

/// A key whose figure an otherwise good read does not hold is not supported by this kernel.
fn push(rows: &mut Vec<Row>, bracket: Bracket, status: Status, values: impl IntoIterator<Item = Value>) {
    rows.extend(values.into_iter().map(|(key, value)| {
        let status = if status == Status::Ok && value.is_none() {
            Status::NotSupported
        } else {
            status
        };
        Row {
            bracket,
            key,
            value,
            status,
        }
    }));
}
