//! A column as bytes: what Python gets, in the same process or from the agent (`CoreColumn` in `model/schema/tables.py`).

use dyno_model::{Coded, Column, Nullable};

/// Values of a column, little-endian.
#[derive(Debug, PartialEq)]
pub struct Encoded<'a> {
    /// `i64`, `f64`, `bool` or `str`.
    pub kind: &'static str,
    /// 8 bytes a number, one a truth value; of texts 32-bit indices into `texts`, -1 for NULL.
    pub bytes: Vec<u8>,
    /// For numbers one byte a value, 1 if it is known. None if all are, or `bytes` shows it.
    pub validity: Option<Vec<u8>>,
    /// Distinct texts of a column of texts.
    pub texts: Option<Vec<&'a str>>,
}

/// `column` as bytes.
pub fn encoded(column: &Column) -> Encoded<'_> {
    match column {
        Column::I64(v) => numbers("i64", v, i64::to_le_bytes),
        Column::F64(v) => numbers("f64", v, f64::to_le_bytes),
        Column::Str(v) => texts(v),
        Column::Bool(v) => Encoded {
            kind: "bool",
            bytes: truths(v),
            validity: None,
            texts: None,
        },
    }
}

fn numbers<T: Copy>(
    kind: &'static str,
    numbers: &Nullable<T>,
    bytes: impl Fn(T) -> [u8; 8],
) -> Encoded<'static> {
    Encoded {
        kind,
        bytes: little_endian(numbers.values(), bytes),
        validity: numbers.known().map(truths),
        texts: None,
    }
}

fn texts(column: &Coded) -> Encoded<'_> {
    Encoded {
        kind: "str",
        bytes: little_endian(&column.codes, i32::to_le_bytes),
        validity: None,
        texts: Some(column.texts.iter().map(String::as_str).collect()),
    }
}

fn truths(values: &[bool]) -> Vec<u8> {
    values.iter().map(|&value| u8::from(value)).collect()
}

/// Into a vector of the right size, which the compiler makes one copy of memory: `flat_map` goes byte by byte.
fn little_endian<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    let mut all = vec![0; values.len() * N];
    for (place, &value) in all.chunks_exact_mut(N).zip(values) {
        place.copy_from_slice(&bytes(value));
    }
    all
}

#[cfg(test)]
mod tests {
    use dyno_model::Texts;

    use super::*;

    #[test]
    fn numbers_say_which_are_unknown_only_where_one_is() {
        let whole = Column::known([1, -1]);
        assert_eq!(encoded(&whole).validity, None);
        assert_eq!(encoded(&whole).bytes[8..], [0xff; 8]);
        let holes = Column::from([None, Some(0.5)].into_iter().collect::<Nullable<f64>>());
        assert_eq!(encoded(&holes).validity, Some(vec![0, 1]));
        assert_eq!(encoded(&holes).bytes[..8], [0; 8]);
    }

    #[test]
    fn texts_are_said_once() {
        let texts = Column::from(["b", "a", "b"].into_iter().collect::<Texts>());
        let column = encoded(&texts);
        assert_eq!(column.texts, Some(vec!["b", "a"]));
        assert_eq!(column.bytes, [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let unknown = Column::Str(Coded {
            codes: vec![-1],
            texts: Vec::new(),
        });
        assert_eq!(encoded(&unknown).bytes, [0xff; 4]);
    }
}
