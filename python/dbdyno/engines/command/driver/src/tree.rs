//! Whose each process is: its session, known from the first process of an execution on.

use std::collections::HashMap;

use dyno_model::EndedTask;

use crate::contain::SESSION;
use crate::proc;
use crate::taskstats::Exit;

/// Ends of tasks of parents that are not known yet: they may turn out to be ours when those end. More are
/// of other commands.
const MOST_WAITING: usize = 1 << 16;

/// The processes met so far.
#[derive(Debug)]
pub struct Tree {
    main_pid: i64,
    /// Session by process; `None`: ours, not known which.
    known: HashMap<i64, Met>,
    /// By parent.
    waiting: HashMap<i64, Vec<Exit>>,
    waits: usize,
}

#[derive(Debug, Clone, Copy)]
struct Met {
    start_ticks: Option<i64>,
    session: Option<i64>,
}

impl Tree {
    /// Nobody is known but the launcher.
    pub fn new(main_pid: i64) -> Self {
        Self {
            main_pid,
            known: HashMap::new(),
            waiting: HashMap::new(),
            waits: 0,
        }
    }

    /// A process that was found as a child of `parent`; its session, where that is known. It has its parent's,
    /// whatever its environment says: a command may be a dbdyno itself.
    pub fn meet(&mut self, pid: i64, parent: i64) -> Option<i64> {
        let start_ticks = proc::stat(pid).map(|s| s.start_ticks);
        let before = self.known.get(&pid).filter(|met| met.start_ticks == start_ticks);
        if let Some(Met {
            session: Some(session),
            ..
        }) = before
        {
            return Some(*session);
        }
        let session = match self.known.get(&parent) {
            Some(met) if parent != self.main_pid => met.session,
            _ => proc::variable(pid, SESSION),
        };
        self.known.insert(pid, Met { start_ticks, session });
        session
    }

    /// A task of this machine has ended: it, and those that are known to be ours by it, into `rows`.
    pub fn end(&mut self, exit: Exit, rows: &mut Vec<EndedTask>) {
        let mut ours = vec![exit];
        while let Some(exit) = ours.pop() {
            let Some(Met { session, .. }) = self.whose(&exit) else {
                if self.waits < MOST_WAITING {
                    self.waits += 1;
                    self.waiting.entry(exit.parent).or_default().push(exit);
                }
                continue;
            };
            if exit.last {
                self.known.remove(&exit.pid);
            }
            let theirs = if exit.tid == exit.pid {
                self.waiting.remove(&exit.pid)
            } else {
                None
            };
            for child in theirs.into_iter().flatten() {
                self.waits -= 1;
                self.known.entry(child.pid).or_insert(Met {
                    start_ticks: None,
                    session,
                });
                ours.push(child);
            }
            rows.push(exit.task(session));
        }
    }

    /// `None`: nobody's that is known.
    fn whose(&self, exit: &Exit) -> Option<Met> {
        let met = self.known.get(&exit.pid).or_else(|| self.known.get(&exit.parent));
        let unmet = Met {
            start_ticks: None,
            session: None,
        };
        met.copied()
            .or_else(|| (exit.parent == self.main_pid).then_some(unmet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(pid: i64, tid: i64, parent: i64) -> Exit {
        Exit {
            pid,
            tid,
            parent,
            last: pid == tid,
            ..Exit::default()
        }
    }

    fn tree() -> Tree {
        let mut tree = Tree::new(100);
        tree.known.insert(
            200,
            Met {
                start_ticks: Some(1),
                session: Some(3),
            },
        );
        tree
    }

    fn ended(tree: &mut Tree, exits: &[Exit]) -> Vec<(i64, Option<i64>)> {
        let mut rows = Vec::new();
        for &exit in exits {
            tree.end(exit, &mut rows);
        }
        rows.iter().map(|row| (row.tid, row.session)).collect()
    }

    #[test]
    fn a_task_is_of_the_session_of_its_process_or_parent() {
        let rows = ended(
            &mut tree(),
            &[exit(200, 201, 100), exit(300, 300, 200), exit(9, 9, 1)],
        );
        assert_eq!(rows, [(201, Some(3)), (300, Some(3))]);
    }

    #[test]
    fn grandchildren_whose_parent_nobody_met_are_ours_once_that_has_ended() {
        let rows = ended(
            &mut tree(),
            &[exit(400, 400, 300), exit(400, 401, 300), exit(300, 300, 200)],
        );
        let mut tids: Vec<i64> = rows.iter().map(|r| r.0).collect();
        tids.sort_unstable();
        assert_eq!(tids, [300, 400, 401]);
        assert!(rows.iter().all(|r| r.1 == Some(3)));
    }

    #[test]
    fn a_child_of_the_launcher_that_nobody_met_is_ours_of_no_known_session() {
        assert_eq!(ended(&mut tree(), &[exit(500, 500, 100)]), [(500, None)]);
    }

    #[test]
    fn a_number_that_is_used_again_is_nobodys() {
        let mut tree = tree();
        assert_eq!(
            ended(&mut tree, &[exit(200, 200, 100), exit(200, 200, 1)]),
            [(200, Some(3))]
        );
    }
}
