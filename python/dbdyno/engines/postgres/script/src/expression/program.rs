//! A compiled expression, and how it is evaluated.

use super::functions::Function;
use super::scalar::Scalar::{self, Null};
use crate::{Frame, Names, Slot, Value};

/// Deeper stacks than this are allocated.
const SMALL: usize = 16;

/// An expression as a flat program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(super) steps: Vec<Step>,
    /// Of each step: its offset in the script's text.
    pub(super) places: Vec<u32>,
    /// Values on the stack, at most.
    pub(super) depth: usize,
}

/// One step. `u32`: the number of a step to go on with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Push(Scalar),
    Load(Slot),
    Apply(Function, u16),
    /// Takes the condition of CASE: goes on elsewhere where it does not hold.
    Unless(u32),
    Jump(u32),
    /// Left of AND (false) or OR (true): is the result, and goes on elsewhere, where it has this value or is NULL;
    /// otherwise the right side is. Unlike in SQL, NULL AND FALSE is NULL: so it is in pgbench.
    Decided(bool, u32),
    /// Right of AND or OR: a boolean or NULL.
    Boolean,
}

/// An expression that has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvalError {
    /// In one line.
    pub message: String,
    /// Where in the script's text, in bytes.
    pub offset: usize,
}

impl Program {
    /// The value of the expression.
    ///
    /// # Errors
    /// Overflow, division by zero, a wrong type or parameter, a variable that is not set or not a number.
    pub fn eval(&self, frame: &mut Frame, names: &Names) -> Result<Value, EvalError> {
        self.scalar(frame, names).map(Value::from)
    }

    /// Whether the expression holds as a condition: true, or a number other than 0.
    ///
    /// # Errors
    /// As [`Program::eval`].
    pub fn holds(&self, frame: &mut Frame, names: &Names) -> Result<bool, EvalError> {
        self.scalar(frame, names).map(Scalar::holds)
    }

    fn scalar(&self, frame: &mut Frame, names: &Names) -> Result<Scalar, EvalError> {
        if self.depth <= SMALL {
            self.run(&mut [Null; SMALL], frame, names)
        } else {
            self.run(&mut vec![Null; self.depth], frame, names)
        }
    }

    fn run(&self, stack: &mut [Scalar], frame: &mut Frame, names: &Names) -> Result<Scalar, EvalError> {
        let (mut top, mut next) = (0, 0);
        while let Some(step) = self.steps.get(next) {
            let at = next;
            next += 1;
            let done = match *step {
                Step::Push(value) => Ok(value),
                Step::Load(slot) => load(slot, frame, names),
                Step::Apply(function, count) => {
                    top -= usize::from(count);
                    let values = &stack[top..top + usize::from(count)];
                    note(function, values, frame);
                    function.apply(values, &mut frame.rng)
                }
                Step::Unless(target) => {
                    top -= 1;
                    next = if stack[top].holds() { next } else { target as usize };
                    continue;
                }
                Step::Jump(target) => {
                    next = target as usize;
                    continue;
                }
                Step::Decided(or, target) => {
                    top -= 1;
                    let left = stack[top].truth();
                    if left == Ok(Some(!or)) {
                        continue;
                    }
                    next = target as usize;
                    left.map(|_| stack[top])
                }
                Step::Boolean => {
                    top -= 1;
                    stack[top].truth().map(|_| stack[top])
                }
            };
            stack[top] = done.map_err(|message| EvalError {
                message,
                offset: self.places[at] as usize,
            })?;
            top += 1;
        }
        Ok(stack[top - 1])
    }
}

#[inline]
fn load(slot: Slot, frame: &Frame, names: &Names) -> Result<Scalar, String> {
    match frame.get(slot) {
        Some(Value::Int(value)) => Ok(Scalar::Int(*value)),
        Some(value) => Scalar::of(value).map_err(|why| format!("variable :{}: {why}", names.name(slot))),
        None => Err(format!(
            "variable :{} is not set: set it with \\set or -D",
            names.name(slot)
        )),
    }
}

/// Keeps what `debug()` shows.
#[inline]
fn note(function: Function, values: &[Scalar], frame: &mut Frame) {
    if function == Function::Debug && frame.notes.len() < 100 {
        let mut text = Vec::new();
        Value::from(values[0]).sql_text(&mut text);
        frame.notes.push(String::from_utf8_lossy(&text).into_owned());
    }
}
