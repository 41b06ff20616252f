//! Values of variables and expressions.

/// One value. A text (of `-D` or a result) is taken for a number, a boolean or NULL where an expression uses it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// NULL.
    #[default]
    Null,
    /// true, false.
    Bool(bool),
    /// 64 bits.
    Int(i64),
    /// Double precision.
    Double(f64),
    /// As it came.
    Text(Box<str>),
}
