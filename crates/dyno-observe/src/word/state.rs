//! Status of the data source "wait event word".

use crate::status::{Refusal, Status};

/// How many processes of the server had their wait event word read, and why the others had not.
#[derive(Debug, Default)]
pub struct WordState {
    read: usize,
    refused: usize,
    /// The first refusal of a process that had not ended.
    first: Option<Refusal>,
    /// The first pointer that led nowhere.
    lost: Option<Refusal>,
}

impl WordState {
    /// Counts a process whose word was read.
    pub fn count_read(&mut self) {
        self.read += 1;
    }

    /// Notes a pointer that led nowhere, which refuses no process: it may be about to start or end.
    pub fn note_lost(&mut self, refusal: Refusal) {
        self.lost.get_or_insert(refusal);
    }

    /// Counts a process that refused, unless it has ended.
    pub fn refuse(&mut self, refusal: Refusal) {
        if refusal.status == Status::Vanished {
            return;
        }
        self.refused += 1;
        self.first.get_or_insert(refusal);
    }

    /// Returns the current status and detail of the data source "wait event word".
    pub fn status(&self) -> (Status, String) {
        let first = self
            .first
            .as_ref()
            .or(self.lost.as_ref().filter(|_| self.read == 0));
        match first {
            None if self.read == 0 => (Status::Lost, "no process of the server was met yet".to_owned()),
            None => (Status::Ok, String::new()),
            Some(first) if self.read == 0 => (first.status, first.detail.clone()),
            Some(first) => {
                let (refused, all) = (self.refused, self.read + self.refused);
                let why = &first.detail;
                (Status::Ok, format!("{refused} of {all} processes refused: {why}"))
            }
        }
    }
}
