//! Bytes that a session sends: constant parts and values, copied without a call of a function for each.

use dyno_script::Value;

/// Constant parts are copied whole, with what pads them.
const PART: usize = 32;
/// Most that a number takes with its length.
const NUMBER: usize = 4 + 20;
/// Numbers below this have at most eight digits.
const EIGHT_DIGITS: u64 = 100_000_000;

/// Constant bytes of a message, at most 32.
#[derive(Debug)]
pub(crate) struct Part {
    bytes: [u8; PART],
    len: usize,
}

impl Part {
    /// A part with these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let mut padded = [0; PART];
        padded[..bytes.len()].copy_from_slice(bytes);
        Self {
            bytes: padded,
            len: bytes.len(),
        }
    }

    /// Bytes of the part without the padding.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Writes them; what is left of the room behind them.
    #[inline]
    fn write<'a>(&self, room: &'a mut [u8]) -> Option<&'a mut [u8]> {
        *room.first_chunk_mut()? = self.bytes;
        room.get_mut(self.len..)
    }
}

/// Bytes to be sent, and behind them room that is kept.
#[derive(Debug, Default)]
pub(crate) struct Out {
    bytes: Vec<u8>,
    len: usize,
}

impl Out {
    /// Empties it.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Number of bytes to be sent.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes to be sent.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Makes room for `more` bytes.
    #[inline]
    pub fn reserve(&mut self, more: usize) {
        if self.bytes.len() - self.len < more {
            self.grow(more);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        self.bytes.resize(self.len + 2 * more + 4096, 0);
    }

    /// Adds any bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Adds what `write` writes.
    pub fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.truncate(self.len);
        write(&mut self.bytes);
        self.len = self.bytes.len();
    }

    /// Takes back the last bytes.
    #[inline]
    pub fn shorten(&mut self, by: usize) {
        self.len -= by;
    }

    /// A length that counts itself, from `at` to the end and `more` bytes to come.
    #[inline]
    pub fn fill_in_length(&mut self, at: usize, more: usize) {
        let length = ((self.len - at + more) as u32).to_be_bytes();
        self.bytes[at..at + 4].copy_from_slice(&length);
    }

    /// Makes it a message whose length counts itself: `begin`, these values as parameters, `end`, of which the first `inner`
    /// bytes belong to the message. False, and nothing is written: not all values are numbers of at most eight digits.
    #[inline]
    pub fn message<'a>(
        &mut self,
        begin: &Part,
        values: impl ExactSizeIterator<Item = Option<&'a Value>>,
        end: &Part,
        inner: usize,
    ) -> bool {
        self.reserve(2 * PART + NUMBER * values.len());
        let whole = self.room().len();
        let Some(mut room) = begin.write(self.room()) else {
            return false;
        };
        for value in values {
            let number = match value {
                Some(Value::Int(number)) => *number,
                _ => return false,
            };
            match short(number, room) {
                Some(rest) => room = rest,
                None => return false,
            }
        }
        let length = whole - room.len() - 1 + inner;
        let Some(left) = end.write(room).map(|left| left.len()) else {
            return false;
        };
        if let Some([_, place @ ..]) = self.room().first_chunk_mut::<5>() {
            *place = (length as u32).to_be_bytes();
        }
        self.len += whole - left;
        true
    }

    #[inline]
    fn room(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.len..).unwrap_or_default()
    }

    /// Adds a parameter, its length before it; one that is not set is NULL.
    pub fn parameter(&mut self, value: Option<&Value>) {
        let at = self.len;
        match value {
            None => return self.extend(&(-1_i32).to_be_bytes()),
            Some(Value::Int(number)) => {
                self.extend(&[0; 4]);
                self.extend(itoa::Buffer::new().format(*number).as_bytes());
            }
            Some(Value::Text(text)) => {
                self.extend(&[0; 4]);
                self.extend(text.as_bytes());
            }
            Some(value) => {
                self.extend(&[0; 4]);
                self.written(|bytes| value.sql_text(bytes));
            }
        }
        // The length of a parameter does not count itself.
        let length = ((self.len - at - 4) as u32).to_be_bytes();
        self.bytes[at..at + 4].copy_from_slice(&length);
    }
}

/// Writes a number of at most eight digits with its length, all digits at once: pairs of numbers of four digits, of two, of one
/// are side by side in one word. What is left of the room; `None`: it has more digits.
#[inline]
fn short(number: i64, room: &mut [u8]) -> Option<&mut [u8]> {
    let magnitude = number.unsigned_abs();
    if magnitude >= EIGHT_DIGITS {
        return None;
    }
    let fours = (magnitude / 10_000) | ((magnitude % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | ((fours - 100 * hundreds) << 16);
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    let ones = tens | ((twos - 10 * tens) << 8);
    // The first digit is the lowest byte; the last one stays, also of 0.
    let zeros = (ones | (1 << 63)).trailing_zeros() & !7;
    let digits = (ones + 0x3030_3030_3030_3030) >> zeros;
    let sign = usize::from(number < 0);
    let len = sign + 8 - (zeros / 8) as usize;
    let place = room.first_chunk_mut::<13>()?;
    // The first digit takes the place of a sign that is not there.
    let head = [0, 0, 0, len as u8, b'-'];
    place[..5].copy_from_slice(&head);
    place[4 + sign..12 + sign].copy_from_slice(&digits.to_le_bytes());
    room.get_mut(4 + len..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parameter(value: Option<&Value>) -> Vec<u8> {
        let mut out = Out::default();
        out.parameter(value);
        out.bytes().to_vec()
    }

    fn texts() -> impl Strategy<Value = Value> {
        let double = any::<f64>().prop_map(Value::Double);
        prop_oneof![
            double,
            ".{0,90}".prop_map(|text| Value::Text(text.into())),
            Just(Value::Null)
        ]
    }

    proptest! {
        #[test]
        fn a_number_is_its_text(number in prop_oneof![0..20_i64, 0..200_000_000_i64, any::<i64>()]) {
            let text = number.to_string();
            let expected = [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
            prop_assert_eq!(parameter(Some(&Value::Int(number))), expected);
        }

        #[test]
        fn a_value_is_its_text_with_the_length_before_it(value in texts()) {
            let mut text = Vec::new();
            value.sql_text(&mut text);
            let expected = [&(text.len() as u32).to_be_bytes()[..], &text].concat();
            prop_assert_eq!(parameter(Some(&value)), expected);
        }

        #[test]
        fn a_message_at_once_is_the_one_of_its_parts(
            before in ".{0,9}", name in "[a-z]{0,9}", numbers in prop::collection::vec(-110_000_000..110_000_000_i64, 0..12),
        ) {
            let (begin, end) = (Part::new(&[b"B\0\0\0\0", name.as_bytes()].concat()), Part::new(b"\0\0E\0\0"));
            let values: Vec<Value> = numbers.iter().map(|&n| Value::Int(n)).collect();
            let (mut out, mut expected) = (Out::default(), Out::default());
            out.extend(before.as_bytes());
            expected.extend(before.as_bytes());
            let at = expected.len();
            let written = out.message(&begin, values.iter().map(Some), &end, 2);
            prop_assert_eq!(written, numbers.iter().all(|&n| n.unsigned_abs() < EIGHT_DIGITS));
            if written {
                expected.extend(begin.bytes());
                for value in &values {
                    expected.parameter(Some(value));
                }
                expected.fill_in_length(at + 1, 2);
                expected.extend(end.bytes());
            }
            prop_assert_eq!(out.bytes(), expected.bytes());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "twenty thousand numbers")]
    fn every_number_of_up_to_four_digits_and_both_ends_of_eight() {
        let mut room = [0; NUMBER];
        for number in (0..10_000)
            .chain([9_999_999, 10_000_000, EIGHT_DIGITS as i64 - 1])
            .flat_map(|n| [n, -n])
        {
            let text = number.to_string();
            let left = short(number, &mut room).unwrap().len();
            assert_eq!(
                (left, &room[3..4 + text.len()]),
                (
                    NUMBER - 4 - text.len(),
                    &[&[text.len() as u8], text.as_bytes()].concat()[..]
                )
            );
        }
        assert!(short(EIGHT_DIGITS as i64, &mut room).is_none() && short(i64::MIN, &mut room).is_none());
    }

    #[test]
    fn what_is_not_set_is_null() {
        assert_eq!(parameter(None), (-1_i32).to_be_bytes());
    }
}
