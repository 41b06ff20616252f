//! Loading of BPF programs, and what refusals to load them mean.

use std::sync::OnceLock;

use aya::programs::ProgramError;
use aya::{Btf, EbpfError};
use dyno_observe::{Refusal, Status};

use crate::rights;

/// As often as libbpf tries (`PROG_LOAD_ATTEMPTS` in its bpf.c).
const LOAD_TRIES: usize = 5;

/// Returns the types of the running kernel, which are 5 MB and so read once a process.
///
/// # Errors
/// Not supported: this kernel has none.
pub fn kernel_types() -> Result<&'static Btf, Refusal> {
    static TYPES: OnceLock<Btf> = OnceLock::new();
    if let Some(types) = TYPES.get() {
        return Ok(types);
    }
    let read = Btf::from_sys_fs().map_err(|e| unsupported(&e))?;
    Ok(TYPES.get_or_init(|| read))
}

/// Loads a program, up to [`LOAD_TRIES`] times while signals interrupt the verifier.
///
/// # Errors
/// The error of `load`.
pub fn load_uninterrupted(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    for _ in 1..LOAD_TRIES {
        match load() {
            Err(error) if is_interrupted(&error) => {}
            done => return done,
        }
    }
    load()
}

/// Returns the refusal for an object that does not match its reader: `tools/build_bpf.sh` was not run.
pub fn defect(name: &str) -> Refusal {
    Refusal::new(
        Status::NotSupported,
        format!("defect of dbdyno: its BPF object has no {name} as expected"),
    )
}

/// Returns the refusal of a kernel that lacks a feature.
pub fn unsupported(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(
        Status::NotSupported,
        format!("this kernel refuses it: {}", chain(error)),
    )
}

/// Explains why a BPF object could not be loaded.
pub fn load_refusal(error: &EbpfError) -> Refusal {
    match error {
        EbpfError::ProgramError(e) => program_refusal("loading", e),
        other => match io_error(other) {
            Some(e) => rights::refused("making maps", e, ""),
            None => unsupported(other),
        },
    }
}

/// Explains why `what` could not be done with a BPF program.
pub fn program_refusal(what: &str, error: &ProgramError) -> Refusal {
    match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => rights::refused(what, io_error, &verifier_log.to_string()),
        other => match io_error(other) {
            Some(e) => rights::refused(what, e, ""),
            None => unsupported(other),
        },
    }
}

/// Returns whether the verifier gave up because a signal was pending (`do_check` in kernel/bpf/verifier.c).
fn is_interrupted(error: &ProgramError) -> bool {
    matches!(error, ProgramError::LoadError { io_error: e, .. } | ProgramError::IOError(e)
        if e.raw_os_error() == Some(libc::EAGAIN))
}

/// Returns the operating system's error among the causes of `error`, if there is one.
fn io_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e std::io::Error> {
    let mut next = Some(error);
    while let Some(e) = next {
        if let Some(io) = e.downcast_ref() {
            return Some(io);
        }
        next = e.source();
    }
    None
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(e) = next {
        words = format!("{words}: {e}");
        next = e.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_a_signal_interrupts_is_tried_again_and_no_other() {
        let failing = |times: usize, errno: i32| {
            let mut tries = 0;
            let result = load_uninterrupted(|| {
                tries += 1;
                if tries > times {
                    return Ok(());
                }
                Err(ProgramError::IOError(std::io::Error::from_raw_os_error(errno)))
            });
            (tries, result.is_ok())
        };
        assert_eq!(failing(2, libc::EAGAIN), (3, true));
        assert_eq!(failing(LOAD_TRIES, libc::EAGAIN), (LOAD_TRIES, false));
        assert_eq!(failing(1, libc::EINVAL), (1, false));
    }
}
