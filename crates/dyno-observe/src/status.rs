//! How a read went: the words of `Status` in `python/dbdyno/model/sources/source.py`.

use std::io;

/// Status of one read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It was read.
    Ok,
    /// The server's processes are not among those seen here: another host, another pid namespace.
    #[default]
    NotHere,
    /// A right is missing.
    NotPermitted,
    /// This kernel has no such thing.
    NotSupported,
    /// Switched off.
    Off,
    /// Read in part: some of it was lost, and the detail says how much.
    Limited,
    /// The source broke off, or its text is malformed.
    Lost,
    /// The task (or group) is gone.
    Vanished,
}

impl Status {
    /// Returns the word of the schema.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotHere => "not here",
            Self::NotPermitted => "not permitted",
            Self::NotSupported => "not supported",
            Self::Off => "off",
            Self::Limited => "limited",
            Self::Lost => "lost",
            Self::Vanished => "vanished",
        }
    }

    /// Returns the status for an error of open or read of a task or group that existed before.
    pub fn from_error(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH | libc::ENODEV) => Self::Vanished,
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted,
            Some(libc::ENOSYS) => Self::NotSupported,
            Some(libc::EOPNOTSUPP) => Self::Off, // psi=0 at boot
            _ => Self::Lost,
        }
    }
}

/// Why a data source cannot be read, and the cure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Kind of refusal.
    pub status: Status,
    /// The reason and the cure, in words.
    pub detail: String,
}

impl Refusal {
    /// Returns a refusal.
    pub fn new(status: Status, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
        }
    }

    /// Returns status and detail.
    pub fn status_and_detail(&self) -> (String, String) {
        (self.status.as_str().to_owned(), self.detail.clone())
    }
}

/// A value that a data source needs, or the refusal.
pub type Granted<T> = Result<T, Refusal>;
