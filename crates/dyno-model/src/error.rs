//! The one error tree of the Rust side; `dyno-py` maps it in one file.

/// What went wrong. Messages say the cure where there is one; none holds a password.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The specification handed to the core is wrong: a defect of the caller.
    #[error("specification: {0}")]
    Spec(String),
    /// No connection could be made.
    #[error("cannot reach the server: {0}")]
    Unreachable(String),
    /// The server refused who we say we are.
    #[error("authentication failed: {message}")]
    Authentication {
        /// The server's SQLSTATE, where it gave one.
        sqlstate: Option<String>,
        /// The server's words.
        message: String,
    },
    /// The server answered with an error.
    #[error("{message} ({sqlstate})")]
    Server {
        /// SQLSTATE.
        sqlstate: String,
        /// The server's words, detail and hint included.
        message: String,
        /// 1-based character position in the statement, where the server gave one.
        position: Option<u32>,
    },
    /// The connection broke.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The server said something we do not understand.
    #[error("protocol: {0}")]
    Protocol(String),
    /// TLS could not be agreed on.
    #[error("TLS: {0}")]
    Tls(String),
    /// We were told to break off.
    #[error("aborted")]
    Aborted,
    /// The operating system refused something else.
    #[error("{0}")]
    Io(String),
}

impl Error {
    /// Kind, as Python sees it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Spec(_) => "spec",
            Self::Unreachable(_) => "unreachable",
            Self::Authentication { .. } => "authentication",
            Self::Server { .. } => "server",
            Self::Lost(_) => "lost",
            Self::Protocol(_) => "protocol",
            Self::Tls(_) => "tls",
            Self::Aborted => "aborted",
            Self::Io(_) => "io",
        }
    }

    /// The server's code, where there is one.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Server { sqlstate, .. } => Some(sqlstate),
            Self::Authentication { sqlstate, .. } => sqlstate.as_deref(),
            _ => None,
        }
    }
}

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
