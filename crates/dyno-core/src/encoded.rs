//! A column as bytes: what Python gets, in the same process or from the agent (`CoreColumn` in `model/schema/tables.py`).

use std::collections::HashMap;

use dyno_model::{Coded, Column};

/// Values of a column, little-endian.
#[derive(Debug, PartialEq)]
pub struct Encoded<'a> {
    /// `i64`, `f64`, `bool` or `str`.
    pub kind: &'static str,
    /// 8 bytes a number, one a truth value; of texts 32-bit indices into `texts`, -1 for NULL.
    pub bytes: Vec<u8>,
    /// Of numbers: one byte a value, 1 where it is known; `None`: all are, or `bytes` says it.
    pub validity: Option<Vec<u8>>,
    /// Of a column of texts: each text once.
    pub texts: Option<Vec<&'a str>>,
}

/// `column` as bytes.
pub fn encoded(column: &Column) -> Encoded<'_> {
    match column {
        Column::I64(v) => numbers("i64", v, |x| x.unwrap_or_default().to_le_bytes()),
        Column::F64(v) => numbers("f64", v, |x| x.unwrap_or_default().to_le_bytes()),
        Column::Str(v) => texts(v),
        Column::Coded(v) => coded(v),
        Column::Bool(v) => Encoded {
            kind: "bool",
            bytes: v.iter().map(|&b| u8::from(b)).collect(),
            validity: None,
            texts: None,
        },
    }
}

fn numbers<T: Copy>(
    kind: &'static str,
    values: &[Option<T>],
    bytes: impl Fn(Option<T>) -> [u8; 8],
) -> Encoded<'static> {
    let known = || values.iter().map(|v| u8::from(v.is_some())).collect();
    Encoded {
        kind,
        bytes: values.iter().flat_map(|&v| bytes(v)).collect(),
        validity: values.iter().any(Option::is_none).then(known),
        texts: None,
    }
}

/// Columns of texts repeat themselves.
fn texts(values: &[Option<String>]) -> Encoded<'_> {
    let mut known: HashMap<&str, i32> = HashMap::new();
    let mut texts: Vec<&str> = Vec::new();
    let mut bytes: Vec<u8> = Vec::with_capacity(values.len() * 4);
    for value in values {
        let code = value.as_deref().map_or(-1, |text| {
            *known.entry(text).or_insert_with(|| {
                texts.push(text);
                texts.len() as i32 - 1
            })
        });
        bytes.extend(code.to_le_bytes());
    }
    of_texts(bytes, texts)
}

fn coded(column: &Coded) -> Encoded<'_> {
    let code = |code: &Option<u32>| code.map_or(-1, |c| c as i32).to_le_bytes();
    let bytes = column.codes.iter().flat_map(code).collect();
    of_texts(bytes, column.texts.iter().map(String::as_str).collect())
}

fn of_texts(bytes: Vec<u8>, texts: Vec<&str>) -> Encoded<'_> {
    Encoded {
        kind: "str",
        bytes,
        validity: None,
        texts: Some(texts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_which_are_unknown_only_where_one_is() {
        let whole = Column::known([1, -1]);
        assert_eq!(encoded(&whole).validity, None);
        assert_eq!(encoded(&whole).bytes[8..], [0xff; 8]);
        let holes = Column::F64(vec![None, Some(0.5)]);
        assert_eq!(encoded(&holes).validity, Some(vec![0, 1]));
    }

    #[test]
    fn texts_are_said_once() {
        let texts = Column::Str(["b", "a", "b"].map(|t| Some(t.to_owned())).to_vec());
        let made = encoded(&texts);
        assert_eq!(made.texts, Some(vec!["b", "a"]));
        assert_eq!(made.bytes, [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let unknown = Column::Str(vec![None]);
        assert_eq!(encoded(&unknown).bytes, [0xff; 4]);
    }
}
