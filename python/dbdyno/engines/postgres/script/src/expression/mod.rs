//! Expressions of `\set` and `\if`, compiled to a flat program on a small stack.

mod fold;
mod functions;
mod parse;
mod program;
mod scalar;
mod token;

pub(crate) use parse::compile;
pub use program::{EvalError, Program};
