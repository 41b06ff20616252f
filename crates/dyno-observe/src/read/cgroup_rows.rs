//! Control groups: their files held open, and rows of the table `cgroup`.

use dyno_model::{Bracket, Table, raw};

use crate::read::cpu_stat::{self, Entry};
use crate::read::file::{self, Buffer, ProcFile};
use crate::read::membership::MetGroup;
use crate::read::parse::{Parsed, ns_per_tick};
use crate::spec::GroupSpec;
use crate::status::Status;

/// One file of a group, the keys it is read for, and how.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    keys: &'static [&'static str],
    parse: fn(&str) -> Parsed<Vec<Entry>>,
    /// Read only where the file named here is not there.
    instead_of: Option<&'static str>,
}

const V2: &[Kind] = &[Kind {
    name: "cpu.stat",
    keys: &[
        cpu_stat::USAGE,
        cpu_stat::USER,
        cpu_stat::SYSTEM,
        cpu_stat::PERIODS,
        cpu_stat::THROTTLED,
        cpu_stat::THROTTLED_NS,
    ],
    parse: cpu_stat::parse_v2,
    instead_of: None,
}];

/// Stands for the files of a group that cannot be read: a row says that its throttled time is unknown.
const UNREAD: Kind = Kind {
    name: "cpu.stat",
    keys: &[cpu_stat::THROTTLED_NS],
    parse: cpu_stat::parse_v2,
    instead_of: None,
};

/// Scope of a group that holds sessions alone.
const SESSIONS: &str = "sessions";
/// Scope of a group that others may be in, too: its throttled time may be theirs.
const SHARED: &str = "shared";

const V1: &[Kind] = &[
    Kind {
        name: "cpu.stat",
        keys: &[cpu_stat::PERIODS, cpu_stat::THROTTLED, cpu_stat::THROTTLED_NS],
        parse: cpu_stat::parse_v1,
        instead_of: None,
    },
    Kind {
        name: "cpuacct.usage",
        keys: &[cpu_stat::USAGE],
        parse: |t| one(cpu_stat::USAGE, t),
        instead_of: None,
    },
    Kind {
        name: "cpuacct.usage_user",
        keys: &[cpu_stat::USER],
        parse: |t| one(cpu_stat::USER, t),
        instead_of: None,
    },
    Kind {
        name: "cpuacct.usage_sys",
        keys: &[cpu_stat::SYSTEM],
        parse: |t| one(cpu_stat::SYSTEM, t),
        instead_of: None,
    },
    Kind {
        name: "cpuacct.stat",
        keys: &[cpu_stat::USER, cpu_stat::SYSTEM],
        parse: |t| cpu_stat::parse_cpuacct_stat(t, ns_per_tick()),
        instead_of: Some("cpuacct.usage_user"),
    },
];

fn one(key: &'static str, text: &str) -> Parsed<Vec<Entry>> {
    cpu_stat::parse_cpuacct_usage(text).map(|v| vec![(key, v)])
}

/// One group with its files.
#[derive(Debug)]
pub struct Group {
    spec: GroupSpec,
    files: Vec<(Kind, Result<ProcFile, Status>)>,
}

impl Group {
    /// Opens what is there. A v1 directory holds the files of its own hierarchy only; those of others are
    /// no business of this group.
    pub fn open(spec: GroupSpec) -> Self {
        let kinds = if spec.version == 1 { V1 } else { V2 };
        let path = |name: &str| format!("{}/{name}", spec.path);
        let exists = |name: &str| std::path::Path::new(&path(name)).exists();
        let wanted = |k: &&Kind| exists(k.name) && k.instead_of.is_none_or(|other| !exists(other));
        let mut kinds: Vec<Kind> = kinds.iter().filter(wanted).copied().collect();
        if kinds.is_empty() {
            // None of them: say so, in the place of the usage.
            kinds = vec![V2[0]];
        }
        let missing = if std::path::Path::new(&spec.path).exists() {
            Status::NotSupported
        } else {
            Status::Vanished
        };
        let open = |k: Kind| {
            let file = ProcFile::open(&path(k.name), true);
            (
                k,
                file.map_err(|e| {
                    if exists(k.name) {
                        Status::from_error(&e)
                    } else {
                        missing
                    }
                }),
            )
        };
        let files = kinds.into_iter().map(open).collect();
        Self { spec, files }
    }
}

#[derive(Debug)]
struct Row {
    bracket: Bracket,
    group: usize,
    key: &'static str,
    value: Option<i64>,
    status: Status,
}

/// All groups, and all reads of them.
#[derive(Debug)]
pub struct GroupRows {
    groups: Vec<Group>,
    rows: Vec<Row>,
}

impl GroupRows {
    pub fn new(specs: &[GroupSpec]) -> Self {
        Self {
            groups: specs.iter().cloned().map(Group::open).collect(),
            rows: Vec::new(),
        }
    }

    /// Returns whether any of them may hold sessions.
    pub fn has_server_groups(&self) -> bool {
        self.groups.iter().any(|group| group.spec.scope != "driver")
    }

    /// Adds groups in which sessions were met; those that are read already, by their directory, stay as they are.
    pub fn add(&mut self, met: impl IntoIterator<Item = MetGroup>) {
        for MetGroup { group, status } in met {
            if self.groups.iter().any(|known| known.spec.path == group.path) {
                continue;
            }
            let spec = GroupSpec {
                scope: SHARED.to_owned(),
                version: group.version,
                path: group.path,
            };
            self.groups.push(match status {
                Status::Ok => Group::open(spec),
                unread => Group {
                    spec,
                    files: vec![(UNREAD, Err(unread))],
                },
            });
        }
    }

    /// Marks groups of sessions that other processes have joined as shared. `ours` returns whether a process is a
    /// session's.
    pub fn find_strangers(&mut self, ours: impl Fn(i64) -> bool, buffer: &mut Buffer) {
        for group in self.groups.iter_mut().filter(|g| g.spec.scope == SESSIONS) {
            let read = file::read_once(&format!("{}/cgroup.procs", group.spec.path), buffer);
            let alone = match read {
                Ok(()) => buffer.text().lines().all(|pid| pid.parse().is_ok_and(&ours)),
                Err(e) => Status::from_error(&e) == Status::Vanished, // nobody is left
            };
            if !alone {
                SHARED.clone_into(&mut group.spec.scope);
            }
        }
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Reads all groups from the one with number `first` on.
    pub fn read(&mut self, first: usize, buffer: &mut Buffer) {
        for (number, group) in self.groups.iter().enumerate().skip(first) {
            for (kind, file) in &group.files {
                let (bracket, outcome) = Bracket::around(|| entries(kind, file, buffer));
                for &key in kind.keys {
                    let (value, status) = match &outcome {
                        Err(status) => (None, *status),
                        Ok(entries) => match entries.iter().find(|(k, _)| *k == key) {
                            Some(&(_, value)) => (Some(value), Status::Ok),
                            None => (None, Status::NotSupported),
                        },
                    };
                    self.rows.push(Row {
                        bracket,
                        group: number,
                        key,
                        value,
                        status,
                    });
                }
            }
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
        let spec = |r: &Row| &self.groups[r.group].spec;
        let rows = || self.rows[first..].iter();
        let cgroup = raw::Cgroup {
            before_ns: rows().map(|r| r.bracket.before_ns).collect(),
            after_ns: rows().map(|r| r.bracket.after_ns).collect(),
            scope: rows().map(|r| &spec(r).scope).collect(),
            version: rows().map(|r| spec(r).version).collect(),
            path: rows().map(|r| &spec(r).path).collect(),
            key: rows().map(|r| r.key).collect(),
            value: rows().map(|r| r.value).collect(),
            status: rows().map(|r| r.status.as_str()).collect(),
        };
        cgroup.into()
    }
}

fn entries(kind: &Kind, file: &Result<ProcFile, Status>, buffer: &mut Buffer) -> Result<Vec<Entry>, Status> {
    file.as_ref()
        .map_err(|s| *s)?
        .read(buffer)
        .map_err(|e| Status::from_error(&e))?;
    (kind.parse)(buffer.text()).map_err(|_| Status::Lost)
}
