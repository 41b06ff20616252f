//! Rights and kernel features that BPF programs take, and the cure where they are missing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dyno_observe::Status;
use dyno_observe::status::Refusal;
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};

/// Types of the running kernel.
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Inode of the pid namespace the machine began with (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
const CAP_SYS_PTRACE: u64 = 1 << 19;
/// capabilities(7).
pub const CAP_SYS_ADMIN: u64 = 1 << 21;
/// capabilities(7).
pub const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

/// Rights and features of this process and kernel.
#[derive(Debug, Clone)]
struct Machine {
    /// Effective capabilities of this thread.
    capabilities: u64,
    /// Whether the kernel exposes its types.
    btf: bool,
    /// `/proc/self/ns/pid`.
    pid_namespace: String,
    /// Our user, and the server's if it is known.
    ours: u32,
    servers: Option<u32>,
}

impl Machine {
    /// Returns whether the server's user is another one, or unknown: then reading wait events from the server's memory
    /// takes a third right.
    fn is_of_another_user(&self) -> bool {
        self.servers != Some(self.ours)
    }
}

/// Checks whether BPF programs can be loaded. `main_pid` is the server's main process.
///
/// # Errors
/// Why, and the cure.
pub fn check(main_pid: Option<i64>) -> Result<(), Refusal> {
    judge(&Machine {
        capabilities: capabilities(),
        btf: Path::new(BTF).exists(),
        pid_namespace: fs::read_link("/proc/self/ns/pid")
            .map_or_else(|_| String::new(), |p| p.to_string_lossy().into_owned()),
        ours: geteuid().as_raw(),
        servers: main_pid.and_then(|pid| Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid())),
    })
}

/// Returns the refusal for a machine that lacks a right or a feature.
///
/// # Errors
/// Why, and the cure.
fn judge(machine: &Machine) -> Result<(), Refusal> {
    let unsupported = |detail: &str| Err(Refusal::new(Status::NotSupported, detail));
    if !machine.btf {
        return unsupported(
            "this kernel does not tell its types (no /sys/kernel/btf/vmlinux): it takes one \
             of 5.8 or later built with CONFIG_DEBUG_INFO_BTF",
        );
    }
    let has = |wanted: u64| machine.capabilities & wanted == wanted;
    if !has(CAP_SYS_ADMIN) && !has(CAP_BPF | CAP_PERFMON) {
        return Err(Refusal::new(Status::NotPermitted, cure(machine)));
    }
    if machine.pid_namespace != FIRST_PID_NAMESPACE {
        return unsupported(
            "dbdyno runs in a container, where tasks have other numbers than the kernel \
             knows them by: run it outside, or with the host's pid namespace (--pid=host)",
        );
    }
    Ok(())
}

/// Returns how to get the rights without being root.
fn cure(machine: &Machine) -> String {
    let third = machine.is_of_another_user() && machine.capabilities & CAP_SYS_PTRACE == 0;
    let (more, flags, docker) = if third {
        let more = ", and CAP_SYS_PTRACE for the wait events of a server of another user";
        (more, ",+sys_ptrace", " --cap-add=SYS_PTRACE")
    } else {
        ("", "", "")
    };
    if machine.ours == 0 {
        return format!(
            "needs CAP_BPF and CAP_PERFMON{more}, which this root does not have: in a container, start it \
             with --pid=host --cap-add=BPF --cap-add=PERFMON{docker}"
        );
    }
    format!(
        "needs CAP_BPF and CAP_PERFMON{more}: run dbdyno as root, or as yourself with these rights: \
         sudo -E setpriv --reuid=$(id -u) --regid=$(id -g) --init-groups --inh-caps=+bpf,+perfmon{flags} \
         --ambient-caps=+bpf,+perfmon{flags} \"$(command -v dbdyno)\" ..."
    )
}

/// Explains the kernel's refusal to load a program. `log` is the verifier's.
pub fn refused(what: &str, error: &io::Error, log: &str) -> Refusal {
    if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) && log.trim().is_empty() {
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        return Refusal::new(Status::NotPermitted, forbidden(what, error, &lockdown));
    }
    let last = log
        .lines()
        .rev()
        .find(|l| !l.trim().is_empty() && !l.starts_with("processed"));
    let words = last.map_or_else(String::new, |l| format!(" ({})", l.trim()));
    Refusal::new(
        Status::NotSupported,
        format!("this kernel refuses it: {what}: {error}{words}"),
    )
}

fn forbidden(what: &str, error: &io::Error, lockdown: &str) -> String {
    if lockdown.contains("[confidentiality]") {
        return "the kernel is locked down (confidentiality): BPF may not read memory; boot with \
            lockdown=integrity"
            .to_owned();
    }
    format!("{what}: {error}: a security module or a seccomp filter may forbid it")
}

/// Returns the effective capabilities of this thread.
pub fn capabilities() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    effective(&status).unwrap_or(0)
}

/// Returns `CapEff:` of `/proc/PID/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Raises `RLIMIT_MEMLOCK` on kernels before 5.11, which count BPF memory against it.
pub fn raise_memlock() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if !before_5_11(&release) {
        return;
    }
    let infinite = Rlimit {
        current: None,
        maximum: None,
    };
    let _ = setrlimit(Resource::Memlock, infinite); // where it is not permitted, loading says so
}

fn before_5_11(release: &str) -> bool {
    version(release) < (5, 11)
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(['.', '-', '+'])
        .map_while(|w| w.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Checks whether the reader can know that a copy of a program's memory is consistent.
///
/// # Errors
/// The kernel is too old for this processor.
pub fn check_order() -> Result<(), Refusal> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    judge_order(cfg!(target_arch = "x86_64"), release.trim())
}

/// Returns the refusal for an old kernel. `strong` is whether the processor keeps the order of stores and of loads.
fn judge_order(strong: bool, release: &str) -> Result<(), Refusal> {
    if strong || version(release) >= (5, 18) {
        return Ok(());
    }
    Err(Refusal::new(
        Status::NotSupported,
        format!(
            "on this processor it takes Linux 5.18 or later, not {release}: BPF programs of older kernels cannot keep \
             their stores in order, so sums could be read half-written"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            capabilities: CAP_BPF | CAP_PERFMON,
            btf: true,
            pid_namespace: FIRST_PID_NAMESPACE.to_owned(),
            ours: 1000,
            servers: Some(1000),
        }
    }

    #[test]
    fn two_rights_suffice_and_so_does_the_old_one() {
        assert_eq!(judge(&machine()), Ok(()));
        let old = Machine {
            capabilities: CAP_SYS_ADMIN,
            ..machine()
        };
        assert_eq!(judge(&old), Ok(()));
    }

    #[test]
    fn one_right_alone_is_not_permitted_and_the_cure_is_said() {
        for capabilities in [0, CAP_BPF, CAP_PERFMON, !(CAP_BPF | CAP_SYS_ADMIN)] {
            let refusal = judge(&Machine {
                capabilities,
                ..machine()
            })
            .unwrap_err();
            assert_eq!(refusal.status, Status::NotPermitted);
            assert!(refusal.detail.contains("--ambient-caps"), "{}", refusal.detail);
        }
    }

    #[test]
    fn the_third_right_is_named_where_the_servers_user_is_another_or_unknown() {
        for (servers, capabilities, named) in [
            (Some(1000), 0, false),
            (Some(26), 0, true),
            (None, 0, true),
            (Some(26), CAP_SYS_PTRACE, false),
        ] {
            let machine = Machine {
                capabilities,
                servers,
                ..machine()
            };
            let detail = judge(&machine).unwrap_err().detail;
            assert_eq!(
                detail.contains("--ambient-caps=+bpf,+perfmon,+sys_ptrace "),
                named,
                "{detail}"
            );
            assert_eq!(detail.contains("CAP_SYS_PTRACE"), named, "{detail}");
        }
    }

    #[test]
    fn root_without_the_rights_is_not_told_to_become_root() {
        let machine = Machine {
            capabilities: 0,
            ours: 0,
            servers: Some(26),
            ..machine()
        };
        let detail = judge(&machine).unwrap_err().detail;
        assert!(!detail.contains("as root"), "{detail}");
        assert!(detail.contains("--cap-add=SYS_PTRACE"), "{detail}");
    }

    #[test]
    fn no_types_and_other_task_numbers_are_not_supported() {
        for machine in [
            Machine {
                btf: false,
                ..machine()
            },
            Machine {
                pid_namespace: "pid:[4026532254]".to_owned(),
                ..machine()
            },
        ] {
            assert_eq!(judge(&machine).unwrap_err().status, Status::NotSupported);
        }
    }

    #[test]
    fn capabilities_are_read_from_the_effective_line() {
        let status = "CapPrm:\t000001ffffffffff\nCapEff:\t000000c000000000\nCapBnd:\t0\n";
        assert_eq!(effective(status), Some(CAP_BPF | CAP_PERFMON));
        assert_eq!(effective("CapPrm:\t0\n"), None);
    }

    #[test]
    fn the_kernels_own_words_are_told() {
        let einval = io::Error::from_raw_os_error(libc::EINVAL);
        let refusal = refused(
            "loading sched_switch",
            &einval,
            "0: (85) call x#1\nunknown func x#1\nprocessed 1 insns\n",
        );
        assert_eq!(refusal.status, Status::NotSupported);
        assert!(refusal.detail.contains("unknown func x#1"), "{}", refusal.detail);
        let eperm = io::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(refused("making a map", &eperm, "").status, Status::NotPermitted);
        assert!(forbidden("x", &eperm, "none integrity [confidentiality]\n").contains("lockdown=integrity"));
    }

    #[test]
    fn a_processor_that_keeps_no_order_takes_a_kernel_that_can() {
        for (strong, release, granted) in [
            (true, "5.8.0", true),
            (false, "5.17.15-arm64", false),
            (false, "5.18.0", true),
            (false, "6.1.0-18-arm64", true),
        ] {
            let judged = judge_order(strong, release);
            assert_eq!(judged.is_ok(), granted, "{release}");
            if let Err(refusal) = judged {
                assert_eq!(refusal.status, Status::NotSupported);
                assert!(refusal.detail.contains(release));
            }
        }
    }

    #[test]
    fn memory_is_limited_before_5_11_only() {
        for (release, before) in [
            ("4.18.0-553.el8_10.x86_64", true),
            ("5.10.0-28-amd64", true),
            ("5.11.0", false),
            ("6.1.0-18-amd64", false),
            ("6.18.44+x", false),
        ] {
            assert_eq!(before_5_11(release), before, "{release}");
        }
    }
}
