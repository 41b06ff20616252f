//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit of open files before and after it was raised.
#[derive(Clone, Copy, Debug)]
pub struct OpenFiles {
    /// The limit as the user set it.
    pub before: Rlimit,
    /// Soft limit now; `u64::MAX` without one.
    pub soft: u64,
    /// Hard limit; `u64::MAX` without one.
    pub hard: u64,
}

/// Raises the soft limit of open files to `wanted`, or to the hard limit if that is lower. Never lowers it.
pub fn raise_open_files(wanted: u64) -> OpenFiles {
    let before = getrlimit(Resource::Nofile);
    let (old, hard) = (
        before.current.unwrap_or(u64::MAX),
        before.maximum.unwrap_or(u64::MAX),
    );
    let soft = wanted.min(hard).max(old);
    let raised = Rlimit {
        current: Some(soft).filter(|&soft| soft < u64::MAX),
        ..before
    };
    let is_raised = soft > old && setrlimit(Resource::Nofile, raised).is_ok();
    OpenFiles {
        before,
        soft: if is_raised { soft } else { old },
        hard,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_one_at_most_and_never_lowered() {
        let first = raise_open_files(0);
        assert_eq!(Some(first.soft), first.before.current);
        let all = raise_open_files(u64::MAX);
        assert_eq!((all.soft, all.hard), (first.hard, first.hard));
        assert_eq!(
            getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            first.hard
        );
        assert_eq!(raise_open_files(1).soft, first.hard);
    }
}
