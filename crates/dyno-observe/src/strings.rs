//! Texts that come again and again (names, states, wait events), each stored once.

use std::collections::HashMap;

use dyno_model::Coded;

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

/// A column of texts that come again and again, while it grows.
#[derive(Debug, Default)]
pub struct Texts {
    strings: Strings,
    codes: Vec<Option<u32>>,
}

impl Texts {
    /// One row more.
    pub fn push(&mut self, text: Option<&str>) {
        let code = text.map(|t| self.strings.number(t));
        self.codes.push(code);
    }
}

impl<'t> FromIterator<Option<&'t str>> for Texts {
    fn from_iter<I: IntoIterator<Item = Option<&'t str>>>(rows: I) -> Self {
        let mut texts = Self::default();
        rows.into_iter().for_each(|row| texts.push(row));
        texts
    }
}

impl From<Texts> for Coded {
    fn from(texts: Texts) -> Self {
        Self {
            codes: texts.codes,
            texts: texts.strings.texts,
        }
    }
}
