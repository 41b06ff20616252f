//! Sessions of processes, known from the first process of an execution on.

use std::collections::{HashMap, VecDeque};

use dyno_model::EndedTask;

use crate::contain::SESSION;
use crate::proc;
use crate::taskstats::Exit;

/// Ends of tasks of parents that are not known yet: they may turn out to be ours when those end.
const MOST_WAITING: usize = 1 << 16;
/// A parent that lives longer after such an end is met by a sample. An end that has waited longer is of another
/// command.
const PATIENCE_NS: i64 = 10_000_000_000;

/// The processes met so far.
#[derive(Debug)]
pub struct Tree {
    main_pid: i64,
    /// Session by process; `None`: ours, not known which.
    known: HashMap<i64, Met>,
    /// Ends that wait, by parent.
    waiting: HashMap<i64, VecDeque<Exit>>,
    waits: usize,
    /// Parent and end of those that wait, and of some that no longer do, in the order of ends.
    order: VecDeque<(i64, i64)>,
    /// Ends that found no room, and may have been ours.
    forgotten: u64,
}

#[derive(Debug, Clone, Copy)]
struct Met {
    start_ticks: Option<i64>,
    session: Option<i64>,
}

impl Tree {
    /// A tree of which only the launcher is known.
    pub fn new(main_pid: i64) -> Self {
        Self {
            main_pid,
            known: HashMap::new(),
            waiting: HashMap::new(),
            waits: 0,
            order: VecDeque::new(),
            forgotten: 0,
        }
    }

    /// Status and reason if ends of tasks found no room.
    pub fn forgotten(&self) -> Option<(&'static str, String)> {
        (self.forgotten > 0).then(|| {
            let reason = format!(
                "{} tasks ended whose parents were not known, more than there is room for: other programs of this \
                 machine start very many",
                self.forgotten
            );
            ("limited", reason)
        })
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
                self.wait(exit);
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

    /// Keeps the end of a task whose parent is not known, in place of the oldest if there are too many.
    fn wait(&mut self, exit: Exit) {
        while self.waits >= MOST_WAITING || self.order.len() >= 2 * MOST_WAITING {
            let Some((parent, end_ns)) = self.order.pop_front() else {
                break;
            };
            let siblings = self.waiting.get_mut(&parent);
            let Some(siblings) = siblings.filter(|s| s.front().is_some_and(|e| e.end_ns == end_ns)) else {
                continue;
            };
            siblings.pop_front();
            self.waits -= 1;
            self.forgotten += u64::from(exit.end_ns - end_ns < PATIENCE_NS);
            if siblings.is_empty() {
                self.waiting.remove(&parent);
            }
        }
        self.order.push_back((exit.parent, exit.end_ns));
        self.waiting.entry(exit.parent).or_default().push_back(exit);
        self.waits += 1;
    }

    /// Returns what is known of the task's process. `None` if it belongs to no known one.
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
    fn ends_of_other_commands_make_room_and_recent_ones_are_counted() {
        let (mut tree, mut rows) = (tree(), Vec::new());
        let at = |n: i64, end_ns: i64, parent: i64| Exit {
            end_ns,
            ..exit(n, n, parent)
        };
        for n in 0..2 * MOST_WAITING as i64 {
            tree.end(at(1_000_000 + n, n * PATIENCE_NS / 1000, 1), &mut rows);
        }
        assert_eq!((tree.forgotten(), rows.len()), (None, 0));
        let now = 3 * MOST_WAITING as i64 * PATIENCE_NS / 1000;
        tree.end(at(400, now, 300), &mut rows);
        tree.end(at(300, now, 200), &mut rows);
        assert_eq!(rows.len(), 2, "a grandchild's end is kept");
        for n in 0..=MOST_WAITING as i64 {
            tree.end(at(9_000_000 + n, now + n, 1), &mut rows);
        }
        assert_eq!(tree.waits, MOST_WAITING);
        assert_eq!(tree.forgotten().unwrap().0, "limited");
        assert!(tree.forgotten().unwrap().1.starts_with("1 tasks"));
        assert!(tree.order.len() <= 2 * MOST_WAITING);
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
