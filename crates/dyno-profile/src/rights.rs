//! Rights and kernel features that the profile needs, and the cure if one is missing.

use std::fs;
use std::io;

use dyno_bpf::rights::{CAP_PERFMON, CAP_SYS_ADMIN, capabilities};
use dyno_observe::{Refusal, Status};

/// Explains the kernel's refusal of an event.
pub fn refused(error: &io::Error) -> Refusal {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    judge(
        error,
        capabilities(),
        paranoid.and_then(|p| p.trim().parse().ok()),
    )
}

/// Explains a refusal, by effective capabilities and `kernel.perf_event_paranoid`, None if the kernel has no such
/// setting.
pub fn judge(error: &io::Error, capabilities: u64, paranoid: Option<i32>) -> Refusal {
    let Some(paranoid) = paranoid else {
        return Refusal::new(
            Status::NotSupported,
            format!("this kernel has no perf events (CONFIG_PERF_EVENTS): {error}"),
        );
    };
    let permitted = paranoid < 1 || capabilities & (CAP_PERFMON | CAP_SYS_ADMIN) != 0;
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if permitted => Refusal::new(
            Status::NotPermitted,
            "perf_event_open is forbidden by a seccomp filter or a security module: in a container, start it \
             with --cap-add=PERFMON (or --security-opt seccomp=unconfined)",
        ),
        Some(libc::EACCES | libc::EPERM) => Refusal::new(
            Status::NotPermitted,
            format!(
                "kernel.perf_event_paranoid is {paranoid}: sampling all CPUs needs CAP_PERFMON; run dbdyno as root, \
                 or as yourself with these rights: sudo -E setpriv --reuid=$(id -u) --regid=$(id -g) --init-groups \
                 --inh-caps={RIGHTS} --ambient-caps={RIGHTS} \"$(command -v dbdyno)\" ..."
            ),
        ),
        Some(libc::ENOSYS) => Refusal::new(
            Status::NotSupported,
            "perf_event_open does not exist here: a sandbox or a seccomp filter hides it",
        ),
        Some(libc::EMFILE) => Refusal::new(
            Status::NotPermitted,
            "the limit of open files is too low for a clock on each CPU: raise it (ulimit -n)",
        ),
        _ => Refusal::new(
            Status::NotSupported,
            format!("this kernel refuses a clock on each CPU: {error}"),
        ),
    }
}

/// Rights for a complete profile, with maps of other users' processes, the kernel's symbols and wait events.
const RIGHTS: &str = "+perfmon,+sys_ptrace,+syslog,+bpf";

/// Explains why a ring may not be mapped.
pub fn unmapped(error: &io::Error) -> Refusal {
    let status = Status::from_error(error);
    if status == Status::NotPermitted {
        return Refusal::new(
            status,
            "the memory for samples may not be locked: raise kernel.perf_event_mlock_kb (sysctl), or the limit \
             of locked memory (ulimit -l)",
        );
    }
    Refusal::new(status, format!("no memory for samples: {error}"))
}

/// Why the kernel's functions have no names.
pub const KERNEL_HIDDEN: &str = "the kernel's functions have no names: its addresses are hidden; give dbdyno \
    CAP_SYSLOG (and kernel.kptr_restrict must not be 2)";

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(errno: i32, capabilities: u64, paranoid: Option<i32>) -> (Status, String) {
        let refusal = judge(&io::Error::from_raw_os_error(errno), capabilities, paranoid);
        (refusal.status, refusal.detail)
    }

    #[test]
    fn without_the_right_the_cure_names_it() {
        for errno in [libc::EACCES, libc::EPERM] {
            let (status, detail) = judged(errno, 0, Some(2));
            assert_eq!(status, Status::NotPermitted);
            assert!(detail.contains("--ambient-caps=+perfmon"), "{detail}");
        }
    }

    #[test]
    fn with_the_right_something_else_forbids_it() {
        for (capabilities, paranoid) in [(CAP_PERFMON, 3), (CAP_SYS_ADMIN, 2), (0, 0), (0, -1)] {
            let (status, detail) = judged(libc::EACCES, capabilities, Some(paranoid));
            assert_eq!(status, Status::NotPermitted);
            assert!(detail.contains("seccomp"), "{detail}");
        }
    }

    #[test]
    fn what_the_kernel_has_not_is_not_supported() {
        assert_eq!(judged(libc::ENOSYS, 0, Some(2)).0, Status::NotSupported);
        assert_eq!(judged(libc::EPERM, 0, None).0, Status::NotSupported);
        assert_eq!(
            judged(libc::EOPNOTSUPP, CAP_PERFMON, Some(2)).0,
            Status::NotSupported
        );
    }
}
