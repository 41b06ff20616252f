//! Texts that come again and again (names, states, wait events), each stored once.

use std::collections::HashMap;

/// A number for each text.
#[derive(Debug, Default)]
pub struct Strings {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Strings {
    /// The number of `text`; allocates only when it is new.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(&n) = self.numbers.get(text) {
            return n;
        }
        let n = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), n);
        n
    }

    /// The text of `number`.
    pub fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }
}
