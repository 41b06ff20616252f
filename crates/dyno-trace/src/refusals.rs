//! What refusals to load BPF programs mean.

use aya::EbpfError;
use aya::programs::ProgramError;
use dyno_observe::{Refusal, Status};

use crate::rights;

/// The object in the tree does not match its reader: `tools/build_bpf.sh` was not run.
pub fn defect(name: &str) -> Refusal {
    Refusal::new(
        Status::NotSupported,
        format!("defect of dbdyno: its BPF object has no {name} as expected"),
    )
}

/// The kernel cannot do it.
pub fn unsupported(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(
        Status::NotSupported,
        format!("this kernel refuses it: {}", chain(error)),
    )
}

/// What a refusal to load a BPF object means.
pub fn of_loading(error: &EbpfError) -> Refusal {
    match error {
        EbpfError::ProgramError(e) => of_program("loading", e),
        other => match io_error(other) {
            Some(e) => rights::refused("making maps", e, ""),
            None => unsupported(other),
        },
    }
}

/// What a refusal to do `what` with a BPF program means.
pub fn of_program(what: &str, error: &ProgramError) -> Refusal {
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
pub fn is_interrupted(error: &ProgramError) -> bool {
    matches!(error, ProgramError::LoadError { io_error: e, .. } | ProgramError::IOError(e)
        if e.raw_os_error() == Some(libc::EAGAIN))
}

/// The system's error at the bottom, where there is one.
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
