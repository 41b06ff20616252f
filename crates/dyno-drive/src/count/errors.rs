//! Errors by SQLSTATE, with the first message of each.

/// SQLSTATE "connection failure": a session whose connection broke.
pub const LOST: [u8; 5] = *b"08006";

/// Number of errors by code, from the barrier on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorTally(Vec<Entry>);

/// Errors of one code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The server's code.
    pub code: [u8; 5],
    /// Number of errors.
    pub count: u64,
    /// Instant of the first.
    pub first_ns: i64,
    /// The server's words at the first.
    pub message: String,
}

impl Entry {
    /// The code as text.
    pub fn sqlstate(&self) -> String {
        String::from_utf8_lossy(&self.code).into_owned()
    }
}

impl ErrorTally {
    /// Counts an error; the message of a code's later ones is dropped.
    pub fn count(&mut self, code: [u8; 5], at_ns: i64, message: String) {
        self.add(&Entry {
            code,
            count: 1,
            first_ns: at_ns,
            message,
        });
    }

    /// Errors in the order of codes.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Adds what another session met.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        other.0.iter().for_each(|entry| self.add(entry));
        self
    }

    fn add(&mut self, new: &Entry) {
        match self.0.binary_search_by_key(&new.code, |e| e.code) {
            Err(place) => self.0.insert(place, new.clone()),
            Ok(place) => {
                let entry = &mut self.0[place];
                entry.count += new.count;
                if (new.first_ns, &new.message) < (entry.first_ns, &entry.message) {
                    entry.first_ns = new.first_ns;
                    entry.message.clone_from(&new.message);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tallies() -> impl Strategy<Value = ErrorTally> {
        prop::collection::vec((0_u8..4, 0_i64..100, "[a-c]"), 0..20).prop_map(|errors| {
            let mut tally = ErrorTally::default();
            for (code, at, message) in errors {
                tally.count([b'4', b'0', b'0', b'0', b'0' + code], at, message);
            }
            tally
        })
    }

    proptest! {
        #[test]
        fn merge_is_commutative_and_associative(a in tallies(), b in tallies(), c in tallies()) {
            prop_assert_eq!(a.clone().merge(&b), b.clone().merge(&a));
            prop_assert_eq!(a.clone().merge(&b).merge(&c), a.clone().merge(&b.clone().merge(&c)));
            prop_assert_eq!(ErrorTally::default().merge(&a), a);
        }

        #[test]
        fn no_error_is_lost_in_a_merge(a in tallies(), b in tallies()) {
            let sum = |t: &ErrorTally| t.entries().iter().map(|e| e.count).sum::<u64>();
            prop_assert_eq!(sum(&a.clone().merge(&b)), sum(&a) + sum(&b));
        }
    }

    #[test]
    fn the_first_message_of_a_code_is_kept() {
        let mut tally = ErrorTally::default();
        tally.count(*b"40001", 10, "first".into());
        tally.count(*b"40001", 20, "a later one".into());
        assert_eq!(tally.entries().len(), 1);
        assert_eq!(
            (tally.entries()[0].count, tally.entries()[0].message.as_str()),
            (2, "first")
        );
    }
}
