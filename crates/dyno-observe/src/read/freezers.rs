//! Which processes stand still because their control group is frozen.
//!
//! A frozen task looks asleep (v2: S, v1: D), and the kernel function in which it waits does not always show it: the v1
//! freezer leaves a task in the sleep that it was in. `freezer.state` (v1) and `frozen` in `cgroup.events` (v2) show
//! it, also for a freeze of a group above, and every user may read them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::read::file::{self, Buffer, ProcFile};
use crate::read::groups;

/// State letter of a task whose group is frozen; the kernel has no such letter.
pub const FROZEN: char = 'F';

/// How many processes a sampler asks for their control group in one sample, which takes 0.2 ms.
pub const LOCATED_AT_ONCE: usize = 20;
/// Time after which a process is asked for its group again, as it may be moved to another one.
const MOVED_NS: i64 = 1_000_000_000;
/// Time after which a group is read again.
const STALE_NS: i64 = 10_000_000;
/// Time after which a process that no caller asked about is forgotten.
const FORGOTTEN_NS: i64 = 60_000_000_000;
const V1: &str = "freezer.state";
const V2: &str = "cgroup.events";

/// The groups of some processes that can be frozen.
#[derive(Debug)]
pub struct Freezers {
    /// By the text of `/proc/PID/cgroup`.
    groups: HashMap<Arc<str>, Vec<Freezer>>,
    places: HashMap<i64, Place>,
    buffer: Buffer,
    read_ns: i64,
    /// How many processes are asked for their group between two calls of [`Freezers::look`], and how many more.
    most: usize,
    left: usize,
}

#[derive(Debug)]
struct Freezer {
    file: ProcFile,
    frozen: bool,
}

#[derive(Debug)]
struct Place {
    /// None if it could not be read.
    groups: Option<Arc<str>>,
    asked_ns: i64,
    used_ns: i64,
}

impl Freezers {
    /// Returns no groups yet. `most` is as in the field.
    pub fn new(most: usize) -> Self {
        Self {
            groups: HashMap::new(),
            places: HashMap::new(),
            buffer: Buffer::default(),
            read_ns: i64::MIN,
            most,
            left: most,
        }
    }

    /// Reads which of the groups are frozen.
    pub fn look(&mut self, now_ns: i64) {
        self.left = self.most;
        if now_ns < self.read_ns.saturating_add(STALE_NS) {
            return;
        }
        self.read_ns = now_ns;
        let before = self.places.len();
        self.places
            .retain(|_, place| now_ns - place.used_ns < FORGOTTEN_NS);
        if self.places.len() < before {
            let used: Vec<_> = self.places.values().filter_map(|p| p.groups.clone()).collect();
            self.groups.retain(|text, _| used.contains(text));
        }
        for freezer in self.groups.values_mut().flatten() {
            freezer.read(&mut self.buffer);
        }
    }

    /// Returns `state` of a task of a process, or [`FROZEN`] if it looks asleep and is frozen.
    pub fn state(&mut self, pid: i64, state: char, now_ns: i64) -> char {
        if matches!(state, 'S' | 'D') && self.hold(pid, now_ns) {
            FROZEN
        } else {
            state
        }
    }

    /// Returns whether a process is in a group that was frozen at the last look.
    pub fn hold(&mut self, pid: i64, now_ns: i64) -> bool {
        let due = |place: &Place| now_ns - place.asked_ns >= MOVED_NS;
        if self.left > 0 && self.places.get(&pid).is_none_or(due) {
            self.left -= 1;
            let groups = self.locate(pid);
            let place = Place {
                groups,
                asked_ns: now_ns,
                used_ns: now_ns,
            };
            self.places.insert(pid, place);
        }
        let Some(place) = self.places.get_mut(&pid) else {
            return false;
        };
        place.used_ns = now_ns;
        let groups = place.groups.as_ref().and_then(|text| self.groups.get(text));
        groups.is_some_and(|groups| groups.iter().any(|f| f.frozen))
    }

    fn locate(&mut self, pid: i64) -> Option<Arc<str>> {
        file::read_once(&format!("/proc/{pid}/cgroup"), &mut self.buffer).ok()?;
        let text = self.buffer.text();
        if let Some((known, _)) = self.groups.get_key_value(text) {
            return Some(Arc::clone(known));
        }
        let text: Arc<str> = Arc::from(text);
        let groups = groups::find(Path::new("/"), Some(pid), &["freezer"], &[V1, V2]).ok()?;
        let innermost = [1, 2].map(|version| groups.iter().find(|group| group.version == version));
        let mut freezers: Vec<_> = innermost
            .into_iter()
            .flatten()
            .filter_map(|group| Freezer::open(&group.path, if group.version == 1 { V1 } else { V2 }))
            .collect();
        for freezer in &mut freezers {
            freezer.read(&mut self.buffer);
        }
        self.groups.insert(Arc::clone(&text), freezers);
        Some(text)
    }
}

impl Freezer {
    fn open(group: &str, file: &str) -> Option<Self> {
        let file = ProcFile::open(&format!("{group}/{file}"), true).ok()?;
        Some(Self { file, frozen: false })
    }

    fn read(&mut self, buffer: &mut Buffer) {
        self.frozen = self.file.read(buffer).is_ok() && stands_still(buffer.text());
    }
}

/// Returns whether the text of `freezer.state` or `cgroup.events` shows a frozen group.
fn stands_still(text: &str) -> bool {
    text.lines()
        .any(|line| matches!(line.trim(), "FROZEN" | "frozen 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_still_freezing_is_not_frozen() {
        assert!(stands_still("FROZEN\n"));
        assert!(stands_still("populated 1\nfrozen 1\n"));
        for text in [
            "FREEZING\n",
            "THAWED\n",
            "populated 1\nfrozen 0\n",
            "populated 1\n",
            "",
        ] {
            assert!(!stands_still(text), "{text}");
        }
    }

    #[test]
    fn nobody_who_runs_is_frozen_and_who_is_gone_neither() {
        let mut freezers = Freezers::new(1);
        let ourselves = i64::from(std::process::id());
        freezers.look(0);
        assert!(!freezers.hold(ourselves, 0));
        assert!(
            !freezers.hold(i64::from(i32::MAX), 0),
            "no more are asked at once"
        );
        assert_eq!(freezers.places.len(), 1);
        freezers.look(FORGOTTEN_NS);
        assert!(freezers.places.is_empty() && freezers.groups.is_empty());
        assert!(!freezers.hold(i64::from(i32::MAX), FORGOTTEN_NS));
    }
}
