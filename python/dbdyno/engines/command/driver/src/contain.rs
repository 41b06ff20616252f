//! Nothing that a command started outlives it: finding all processes of an execution or of the run, and ending them.
//!
//! The launcher is their subreaper (prctl(2)), so each is its descendant, whatever became of those between: an orphan
//! is its child. Control groups, where dbdyno could make some, are killed as a whole.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Deserialize;

use crate::proc::{self, Stat};

/// Environment variable of all commands: the run's token.
pub const RUN: &str = "DBDYNO_RUN";
/// Environment variable of all commands: their session's number.
pub const SESSION: &str = "DBDYNO_SESSION";
const PATIENCE: Duration = Duration::from_secs(5);
const ROUND: Duration = Duration::from_millis(5);

/// A control group that the launcher and all commands are in.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Directory of the group.
    pub path: PathBuf,
    /// Group that the launcher was in before.
    pub home: PathBuf,
}

/// Groups and limits that dbdyno arranged.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Containment {
    /// Value of [`RUN`].
    pub token: String,
    /// Groups; empty if none could be created.
    pub groups: Vec<Group>,
    /// Number of tasks that commands may have at once.
    pub tasks: Option<u64>,
    /// The launcher has to count them: no group limits them.
    pub counted: bool,
}

impl Containment {
    /// All processes that commands left: descendants, members of the groups, those with the token.
    pub fn left(&self) -> Vec<i32> {
        let me = me();
        let all = Processes::read();
        let mut pids = all.below(&[me]);
        pids.extend(self.groups.iter().flat_map(|g| members(&g.path)));
        if !self.token.is_empty() {
            let entry = format!("{RUN}={}", self.token);
            pids.extend(all.0.keys().filter(|pid| proc::has_entry(pid, &entry)));
        }
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|&pid| pid != me);
        pids
    }

    /// Kills every process of the run; how many there were. `groups`: those that the launcher is not in, for they are
    /// killed as a whole.
    fn kill_all(&self, groups: &[&Group]) -> usize {
        let mut seen = BTreeSet::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.left();
            if left.is_empty() || Instant::now() > deadline {
                return seen.len();
            }
            for group in groups {
                // of v2: at once; of v1: no new process is born
                let _ = fs::write(group.path.join("cgroup.kill"), "1")
                    .or_else(|_| fs::write(group.path.join("pids.max"), "0"));
            }
            // Whoever forks without end does so in a process group: that is killed at once.
            for group in left
                .iter()
                .filter_map(|&pid| group_of(pid))
                .collect::<BTreeSet<_>>()
            {
                proc::signal_group(group, Signal::KILL);
            }
            for &pid in &left {
                proc::signal(pid, Signal::KILL);
            }
            seen.extend(left);
            reap();
            std::thread::sleep(ROUND);
        }
    }

    /// Kills every process that commands started, and goes on; how many there were.
    pub fn kill(&self) -> usize {
        self.kill_all(&[])
    }

    /// At the launcher's end: kills every process of the run, and removes the groups; how many processes there were.
    pub fn end(&self) -> usize {
        let left: Vec<&Group> = self.groups.iter().filter(|g| leave(g)).collect();
        let ended = self.kill_all(&left);
        let deadline = Instant::now() + PATIENCE;
        while !self.groups.iter().all(|g| removed(&g.path)) && Instant::now() < deadline {
            std::thread::sleep(ROUND);
        }
        ended
    }

    /// True if commands wanted more tasks than they may have, since the call before.
    ///
    /// Where no group limits them they are counted, if the machine has so many more than at first.
    pub fn too_many(&self, watch: &mut Watch) -> bool {
        let refused: u64 = self.groups.iter().filter_map(|g| refusals(&g.path)).sum();
        let more = refused > std::mem::replace(&mut watch.refused, refused);
        let Some(limit) = self.tasks.filter(|_| self.counted) else {
            return more;
        };
        let machine = machine_tasks().unwrap_or(u64::MAX);
        let before = *watch.machine.get_or_insert(machine);
        if machine.saturating_sub(before) <= limit {
            return more;
        }
        let all = Processes::read();
        more || all
            .below(&[me()])
            .iter()
            .map(|pid| all.0[pid].threads)
            .sum::<u64>()
            > limit
    }
}

/// State of [`Containment::too_many`] between calls.
#[derive(Debug, Default)]
pub struct Watch {
    /// New tasks that groups refused.
    refused: u64,
    /// Tasks of the machine at first.
    machine: Option<u64>,
}

/// Number of tasks that a group's limit refused (`pids.events`).
fn refusals(group: &Path) -> Option<u64> {
    let text = fs::read_to_string(group.join("pids.events")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// A process and all below it, in sessions and groups of their own too.
pub fn with_descendants(pid: i32) -> Vec<i32> {
    let mut pids = Processes::read().below(&[pid]);
    pids.push(pid);
    pids
}

/// Tasks of the whole machine (`proc_loadavg(5)`).
pub fn machine_tasks() -> Option<u64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(3)?.split('/').nth(1)?.parse().ok()
}

fn me() -> i32 {
    std::process::id() as i32
}

/// Process group of a process, if that is in another session than ours: then it has only commands.
fn group_of(pid: i32) -> Option<i32> {
    // Not by rustix: a kernel's thread has group 0, which its type has no value for.
    // SAFETY: they take an integer.
    let (group, session, own) = unsafe { (libc::getpgid(pid), libc::getsid(pid), libc::getsid(0)) };
    (group > 1 && session > 0 && session != own).then_some(group)
}

/// Waits for orphans that have ended.
fn reap() {
    while proc::reap_one() {}
}

fn leave(group: &Group) -> bool {
    fs::write(group.home.join("cgroup.procs"), me().to_string()).is_ok()
}

fn members(group: &Path) -> Vec<i32> {
    let mut pids: Vec<i32> = fs::read_to_string(group.join("cgroup.procs"))
        .map(|text| {
            text.lines()
                .filter_map(|l| l.parse().ok())
                .filter(|&pid| pid > 0)
                .collect()
        })
        .unwrap_or_default();
    pids.extend(below(group).iter().flat_map(|g| members(g)));
    pids
}

fn below(group: &Path) -> Vec<PathBuf> {
    fs::read_dir(group)
        .map(|entries| {
            let directories = entries
                .flatten()
                .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
            directories.map(|e| e.path()).collect()
        })
        .unwrap_or_default()
}

fn removed(group: &Path) -> bool {
    for inner in below(group) {
        removed(&inner);
    }
    let _ = fs::remove_dir(group);
    !group.exists()
}

/// Children by parent, as read once; without zombies.
struct Processes(HashMap<i32, Stat>);

impl Processes {
    fn read() -> Self {
        let all = proc::processes().filter_map(|pid| Some((pid, proc::stat(pid)?)));
        Self(all.filter(|(_, stat)| stat.is_alive()).collect())
    }

    /// Descendants, without `roots` themselves.
    fn below(&self, roots: &[i32]) -> Vec<i32> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for (&pid, stat) in &self.0 {
            children.entry(stat.parent).or_default().push(pid);
        }
        let (mut pids, mut next) = (Vec::new(), roots.to_vec());
        while let Some(pid) = next.pop() {
            if let Some(more) = children.remove(&pid) {
                pids.extend(&more);
                next.extend(more);
            }
        }
        pids
    }
}
