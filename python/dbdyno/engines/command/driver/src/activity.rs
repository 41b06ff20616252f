//! Activity below the launcher: one row for each thread of each process.
//!
//! The launcher is the subreaper of all that it starts, so a process that outlives its parents is its child.

use std::collections::HashMap;
use std::fs;

use dyno_model::{ActivityProbe, ActivityRow, EndedTask, Result};
use serde::Deserialize;

use crate::proc::{self, Stat};
use crate::taskstats::Listener;
use crate::tree::Tree;
use crate::wchan;

/// Specification of the probe.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivitySpec {
    /// Process id of the launcher.
    pub main_pid: i64,
}

impl ActivitySpec {
    /// The probe; nothing is connected to.
    pub fn probe(self) -> Activity {
        Activity {
            main_pid: self.main_pid,
            tree: Tree::new(self.main_pid),
            listener: None,
        }
    }
}

/// Lists tasks.
#[derive(Debug)]
pub struct Activity {
    main_pid: i64,
    tree: Tree,
    listener: Option<Listener>,
}

impl Activity {
    /// The rows of one process. A process whose session is not known yet (it is the launcher's copy still, before
    /// its program is loaded) has none.
    fn list(&mut self, pid: i64, parent: i64, rows: &mut Vec<ActivityRow>, todo: &mut Vec<(i64, i64)>) {
        let session = self.tree.meet(pid, parent);
        for tid in proc::tasks(pid) {
            todo.extend(proc::children(pid, tid).into_iter().map(|child| (child, pid)));
            let Some(stat) = proc::stat(format_args!("{pid}/task/{tid}")) else {
                continue;
            };
            if let (Some(session), true) = (session, stat.is_alive()) {
                rows.push(row(pid, tid, session, stat));
            }
        }
    }
}

fn row(pid: i64, tid: i64, session: i64, stat: Stat) -> ActivityRow {
    let wait_class = match stat.state {
        'S' => Some("Sleep"),
        'D' => Some("Disk"),
        'T' | 't' => Some("Stopped"),
        _ => None,
    };
    let place = || fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan")).ok();
    let event = wait_class.and_then(|_| wchan::family(place()?.trim()));
    ActivityRow {
        pid,
        tid: Some(tid),
        session: Some(session),
        state: Some("active".to_owned()),
        wait_class: wait_class.map(str::to_owned),
        wait_event: event.map(str::to_owned),
        chosen: Some(true),
        ..ActivityRow::default()
    }
}

impl ActivityProbe for Activity {
    fn sample(&mut self, rows: &mut Vec<ActivityRow>) -> Result<()> {
        rows.clear();
        let main = self.main_pid;
        let mut todo: Vec<(i64, i64)> = proc::tasks(main)
            .flat_map(|tid| proc::children(main, tid))
            .map(|child| (child, main))
            .collect();
        let mut listed: HashMap<i64, ()> = HashMap::new();
        while let Some((pid, parent)) = todo.pop() {
            if listed.insert(pid, ()).is_none() {
                self.list(pid, parent, rows, &mut todo);
            }
        }
        Ok(())
    }

    fn follow_ends(&mut self) -> Option<std::result::Result<(), (&'static str, String)>> {
        let opened = Listener::open();
        Some(opened.map(|listener| self.listener = Some(listener)))
    }

    fn ended(&mut self, rows: &mut Vec<EndedTask>) {
        rows.clear();
        if let Some(listener) = &self.listener {
            for exit in listener.take() {
                self.tree.end(exit, rows);
            }
        }
    }

    fn ends_lost(&self) -> Option<(&'static str, String)> {
        let listener = self.listener.as_ref()?;
        listener.losses().state().or_else(|| self.tree.forgotten())
    }
}
