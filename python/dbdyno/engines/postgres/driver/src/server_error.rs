//! ErrorResponse and NoticeResponse bodies (PostgreSQL documentation, "Error and Notice Message Fields").

use dyno_model::{Error, Refusal};

/// An error or notice of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// FATAL or PANIC: the server ends the session.
    pub fatal: bool,
    /// Five characters; `XX000` where the server gave none.
    pub sqlstate: [u8; 5],
    /// Message, detail and hint.
    pub message: String,
    /// 1-based character position in the statement.
    pub position: Option<u32>,
}

/// Bytes kept of a field's text: a server may send what it likes.
const LONGEST_TEXT_BYTES: usize = 8 * 1024;

impl ServerError {
    /// Parses a message's body: a byte for the field, its text, a zero; a zero ends all.
    pub fn parse(body: &[u8]) -> Self {
        let mut error = Self {
            fatal: false,
            sqlstate: *b"XX000",
            message: String::new(),
            position: None,
        };
        for field in body.split(|&b| b == 0).filter(|f| !f.is_empty()) {
            let text = &field[1..];
            let text = String::from_utf8_lossy(&text[..text.len().min(LONGEST_TEXT_BYTES)]);
            match field[0] {
                // V is never translated; S may be, and is all that servers before 9.6 (and some poolers) send.
                b'V' | b'S' => error.fatal |= text == "FATAL" || text == "PANIC",
                b'C' => error.sqlstate = field[1..].try_into().unwrap_or(*b"XX000"),
                b'M' => error.message = text.into_owned(),
                b'D' | b'H' if error.message.len() < 2 * LONGEST_TEXT_BYTES => {
                    error.message.push_str("; ");
                    error.message.push_str(&text);
                }
                b'P' => error.position = text.parse().ok(),
                _ => {}
            }
        }
        error
    }

    /// SQLSTATE as text.
    pub fn code(&self) -> String {
        String::from_utf8_lossy(&self.sqlstate).into_owned()
    }

    /// The error of an established session, which a fatal error ends.
    pub fn into_session_error(self) -> Error {
        if self.fatal {
            Error::Lost(format!("{} ({})", self.message, self.code()))
        } else {
            self.into_error()
        }
    }

    /// While connecting, where all errors are fatal: class 28 is who we say we are.
    pub fn into_connect_error(self) -> Error {
        if self.sqlstate.starts_with(b"28") {
            return Error::Authentication {
                code: Some(self.code()),
                message: self.message,
            };
        }
        self.into_error()
    }

    fn into_error(self) -> Error {
        Error::Server {
            code: self.code(),
            refusal: refusal(self.sqlstate),
            message: self.message,
            position: self.position,
        }
    }
}

/// The kind of refusal of a SQLSTATE (PostgreSQL documentation, appendix A).
pub fn refusal(sqlstate: [u8; 5]) -> Refusal {
    match &sqlstate {
        b"53300" => Refusal::Full,
        b"42501" => Refusal::Forbidden,
        b"57P01" => Refusal::ShutDown,
        b"57P03" => Refusal::Starting,
        [b'4', b'2', ..] => Refusal::Statement,
        _ => Refusal::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_by_what_they_are_for() {
        assert_eq!(refusal(*b"53300"), Refusal::Full);
        assert_eq!(refusal(*b"42501"), Refusal::Forbidden);
        assert_eq!(refusal(*b"42P01"), Refusal::Statement);
        assert_eq!(refusal(*b"57P03"), Refusal::Starting);
        assert_eq!(refusal(*b"XX000"), Refusal::Other);
    }

    #[test]
    fn fields_are_read_and_detail_and_hint_kept() {
        let body =
            b"SFEHLER\0VERROR\0C42601\0Msyntax error\0Htry again\0P8\0Fscan.l\0L1244\0Rscanner_yyerror\0\0";
        let error = ServerError::parse(body);
        assert_eq!(
            (error.fatal, &error.sqlstate, error.position),
            (false, b"42601", Some(8))
        );
        assert_eq!(error.message, "syntax error; try again");
    }

    #[test]
    fn fatal_ends_the_session_and_class_28_is_authentication() {
        let terminated = ServerError::parse(b"VFATAL\0C57P01\0Mterminating connection\0\0");
        assert_eq!(
            terminated.into_session_error(),
            Error::Lost("terminating connection (57P01)".into())
        );
        let refused = ServerError::parse(b"VFATAL\0C28P01\0Mpassword authentication failed\0\0");
        assert_eq!(refused.into_connect_error().kind(), "authentication");
    }
}
