//! The one error tree of the Rust side; `dyno-py` maps it in one file.

/// An error of the core. Its message has the cure if there is one, and never a password.
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
        /// The server's code, if it gave one.
        code: Option<String>,
        /// The server's words.
        message: String,
    },
    /// The server answered with an error.
    #[error("{message} ({code})")]
    Server {
        /// The server's code.
        code: String,
        /// Meaning of that code.
        refusal: Refusal,
        /// The server's words, detail and hint included.
        message: String,
        /// 1-based character position in the statement, if the server gave one.
        position: Option<u32>,
    },
    /// The connection broke.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The server sent something we do not understand.
    #[error("protocol: {0}")]
    Protocol(String),
    /// TLS could not be agreed on.
    #[error("TLS: {0}")]
    Tls(String),
    /// The load or the watch was aborted.
    #[error("aborted")]
    Aborted,
    /// The operating system refused something else.
    #[error("{0}")]
    Io(String),
}

/// Meaning of a server's error; each engine classifies its own codes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Refusal {
    /// Anything else.
    #[default]
    Other,
    /// It takes no further session.
    Full,
    /// The user may not do that.
    Forbidden,
    /// It ends, or ended the session.
    ShutDown,
    /// It is not ready yet.
    Starting,
    /// The call itself is wrong.
    Statement,
}

impl Refusal {
    /// Returns the name that Python has for it.
    fn kind(self) -> &'static str {
        match self {
            Self::Other => "server",
            Self::Full => "full",
            Self::Forbidden => "forbidden",
            Self::ShutDown => "shut down",
            Self::Starting => "starting",
            Self::Statement => "statement",
        }
    }
}

impl Error {
    /// Returns the kind, by the name that Python has for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Spec(_) => "spec",
            Self::Unreachable(_) => "unreachable",
            Self::Authentication { .. } => "authentication",
            Self::Server { refusal, .. } => refusal.kind(),
            Self::Lost(_) => "lost",
            Self::Protocol(_) => "protocol",
            Self::Tls(_) => "tls",
            Self::Aborted => "aborted",
            Self::Io(_) => "io",
        }
    }

    /// Returns the server's code, if there is one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Server { code, .. } => Some(code),
            Self::Authentication { code, .. } => code.as_deref(),
            _ => None,
        }
    }
}

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
