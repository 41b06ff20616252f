//! Texts that recur (names, states, wait events), each stored once.

use std::collections::HashMap;

/// A number for each text.
#[derive(Debug, Clone, Default)]
pub struct Strings {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Strings {
    /// Returns the number of `text`. Allocates only if it is new.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(&n) = self.numbers.get(text) {
            return n;
        }
        let n = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), n);
        n
    }

    /// Returns the text of `number`.
    pub fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }
}

/// A finished column of texts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Coded {
    /// Index in `texts` of each row's text; -1: NULL.
    pub codes: Vec<i32>,
    /// The distinct texts.
    pub texts: Vec<String>,
}

impl Coded {
    /// The text of each row.
    pub fn iter(&self) -> impl Iterator<Item = Option<&str>> {
        let text = |&code: &i32| Some(self.texts[usize::try_from(code).ok()?].as_str());
        self.codes.iter().map(text)
    }
}

/// A growing column of texts of which some may be NULL.
#[derive(Debug, Clone, Default)]
pub struct NullableTexts {
    strings: Strings,
    codes: Vec<i32>,
}

impl NullableTexts {
    /// Adds a row.
    pub fn push(&mut self, text: Option<&str>) {
        let code = text.map_or(-1, |t| self.strings.number(t) as i32);
        self.codes.push(code);
    }
}

impl<S: AsRef<str>> FromIterator<Option<S>> for NullableTexts {
    fn from_iter<I: IntoIterator<Item = Option<S>>>(rows: I) -> Self {
        let mut texts = Self::default();
        for row in rows {
            texts.push(row.as_ref().map(AsRef::as_ref));
        }
        texts
    }
}

impl From<NullableTexts> for Coded {
    fn from(texts: NullableTexts) -> Self {
        Self {
            codes: texts.codes,
            texts: texts.strings.texts,
        }
    }
}

/// A growing column of texts that are all known.
#[derive(Debug, Clone, Default)]
pub struct Texts(NullableTexts);

impl Texts {
    /// Adds a row.
    pub fn push(&mut self, text: &str) {
        self.0.push(Some(text));
    }
}

impl<S: AsRef<str>> FromIterator<S> for Texts {
    fn from_iter<I: IntoIterator<Item = S>>(rows: I) -> Self {
        Self(rows.into_iter().map(Some).collect())
    }
}

impl From<Texts> for Coded {
    fn from(texts: Texts) -> Self {
        texts.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_stored_once() {
        let texts: Texts = ["b", "a", "b"].into_iter().collect();
        let coded = Coded::from(texts);
        assert_eq!(
            (coded.codes, coded.texts),
            (vec![0, 1, 0], vec!["b".to_owned(), "a".to_owned()])
        );
    }

    #[test]
    fn an_unknown_text_stays_unknown() {
        let rows = [None, Some("a"), None];
        let coded = Coded::from(rows.into_iter().collect::<NullableTexts>());
        assert_eq!(coded.iter().collect::<Vec<_>>(), rows);
    }
}
