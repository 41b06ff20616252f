//! Looks at the control groups of sessions again and again, as somebody may move them while they are watched.
//!
//! A group that nobody read cannot be taken for one that was not throttled, so every group in which a session is met
//! is read from then on, and one that cannot be read has rows that say so. A session that was moved and moved back
//! between two looks is not noticed.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use crate::read::file::{self, Buffer};
use crate::read::groups::{self, Group};
use crate::read::task::{self, Task};
use crate::status::Status;

/// Number of sessions that are asked for their groups at a read between those from which differences are taken. Each
/// takes 5 to 10 us.
const AT_ONCE: usize = 256;

/// A group in which a session was met, and whether it can be read.
#[derive(Debug, PartialEq, Eq)]
pub struct MetGroup {
    pub group: Group,
    pub status: Status,
}

/// The groups in which sessions were met so far.
#[derive(Debug, Default)]
pub struct Memberships {
    /// Texts of `/proc/PID/task/TID/cgroup` that were met.
    texts: HashSet<String>,
    /// The session that is asked first at the next look.
    next: usize,
}

impl Memberships {
    /// Returns groups of sessions among `tasks` that no earlier look has met. If `all`, every session is asked, else
    /// some of them in turn.
    pub fn look(&mut self, tasks: &[Arc<Task>], all: bool, buffer: &mut Buffer) -> Vec<MetGroup> {
        let sessions: Vec<_> = tasks
            .iter()
            .filter(|task| task.who.session.is_some() && !task.gone())
            .collect();
        let most = if all {
            sessions.len()
        } else {
            AT_ONCE.min(sessions.len())
        };
        let asked = sessions.iter().cycle().skip(self.next % sessions.len().max(1));
        let met = asked.take(most).flat_map(|task| self.ask(task, buffer)).collect();
        self.next = if all { 0 } else { self.next + most };
        met
    }

    fn ask(&mut self, task: &Task, buffer: &mut Buffer) -> Vec<MetGroup> {
        let path = format!("/proc/{}/task/{}/cgroup", task.pid, task.tid);
        if let Err(error) = file::read_once(&path, buffer) {
            return match Status::from_error(&error) {
                Status::Vanished if !task::hidden(task.tid) => Vec::new(), // it has ended
                Status::Vanished => vec![unread("hidden", Status::NotPermitted)],
                status => vec![unread("unreadable", status)],
            };
        }
        let text = buffer.text();
        if self.texts.contains(text) {
            return Vec::new();
        }
        self.texts.insert(text.to_owned());
        let throttling = groups::read_text(Path::new("/proc/self/mountinfo"))
            .map(|mounts| groups::throttling(text, &mounts));
        match throttling {
            Ok(throttling) if !throttling.is_empty() => throttling.into_iter().map(readable).collect(),
            // the process is in no group of those that are mounted here
            Ok(_) => vec![unread("not mounted here", Status::NotHere)],
            Err(error) => vec![unread("unreadable", Status::from_error(&error))],
        }
    }
}

fn readable(group: Group) -> MetGroup {
    MetGroup {
        group,
        status: Status::Ok,
    }
}

/// Returns a group without a directory to read, under a name.
fn unread(name: &str, status: Status) -> MetGroup {
    let group = Group {
        version: 2,
        path: name.to_owned(),
    };
    MetGroup { group, status }
}
