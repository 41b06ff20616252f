//! Faults of a script, with their place.

/// Characters of a line of the script, and of a message, that are shown at most: either may be megabytes.
const SHOWN: usize = 100;

/// A script that cannot be run: where, why, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}\n{shown}\n{cure}")]
pub struct ScriptError {
    /// The script's name.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    /// The fault, in one line.
    pub message: String,
    /// The remedy, in one line.
    pub cure: String,
    /// The line of the script around the mistake, and below it a caret.
    pub shown: String,
}

/// An error at an offset of the text, before its line is known.
#[derive(Debug)]
pub(crate) struct Fault {
    at: usize,
    message: String,
    cure: String,
}

impl Fault {
    pub(crate) fn new(at: usize, message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
            cure: cure.into(),
        }
    }

    /// The error as its reader sees it.
    pub(crate) fn in_script(self, file: &str, text: &str) -> ScriptError {
        let at = (0..=self.at.min(text.len()))
            .rev()
            .find(|&at| text.is_char_boundary(at))
            .unwrap_or(0);
        let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let before = text[begin..at].chars().count();
        let hidden = before.saturating_sub(SHOWN / 2);
        let line = text[begin..].lines().next().unwrap_or("").replace('\t', " ");
        let line: String = line.chars().skip(hidden).take(SHOWN).collect();
        let indent = before - hidden;
        ScriptError {
            file: file.into(),
            line: line_of(text, at),
            column: before as u32 + 1,
            message: shortened(self.message),
            cure: shortened(self.cure),
            shown: format!("{line}\n{:indent$}^", ""),
        }
    }
}

/// A text up to five times [`SHOWN`] characters: names in it may be of any length.
fn shortened(text: String) -> String {
    match text.char_indices().nth(5 * SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The line of an offset, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> u32 {
    text[..at].matches('\n').count() as u32 + 1
}
