//! A compiled expression, and how it is evaluated.

use super::functions::Function;
use super::scalar::Scalar::{self, Null};
use crate::{Frame, Names, Slot, Value};

/// Deeper stacks than this are allocated.
const SMALL: usize = 8;

/// An expression as a flat program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(super) steps: Vec<Step>,
    /// Each step's offset in the script's text.
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
    /// An integer from the first on, at most so far from it.
    Draw(i64, u64),
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
    #[inline]
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

    #[inline]
    fn scalar(&self, frame: &mut Frame, names: &Names) -> Result<Scalar, EvalError> {
        // Most expressions of benchmarks are this one step; others are evaluated on a stack.
        if let [Step::Draw(low, most)] = self.steps[..] {
            return Ok(draw(low, most, frame));
        }
        self.on_stack(frame, names)
    }

    fn on_stack(&self, frame: &mut Frame, names: &Names) -> Result<Scalar, EvalError> {
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
            let failed = |message| self.failed(at, message);
            next += 1;
            match *step {
                Step::Push(value) => {
                    stack[top] = value;
                    top += 1;
                }
                Step::Load(slot) => {
                    stack[top] = load(slot, frame, names).map_err(failed)?;
                    top += 1;
                }
                Step::Apply(function, count) => {
                    let first = top - usize::from(count);
                    let values = &stack[first..top];
                    note(function, values, frame);
                    stack[first] = function.apply(values, &mut frame.rng).map_err(failed)?;
                    top = first + 1;
                }
                Step::Draw(low, most) => {
                    stack[top] = draw(low, most, frame);
                    top += 1;
                }
                Step::Unless(target) => {
                    top -= 1;
                    next = if stack[top].holds() { next } else { target as usize };
                }
                Step::Jump(target) => next = target as usize,
                Step::Decided(or, target) => {
                    if stack[top - 1].truth().map_err(failed)? == Some(!or) {
                        top -= 1;
                    } else {
                        next = target as usize;
                    }
                }
                Step::Boolean => drop(stack[top - 1].truth().map_err(failed)?),
            }
        }
        Ok(stack[top - 1])
    }

    #[cold]
    fn failed(&self, at: usize, message: String) -> EvalError {
        EvalError {
            message,
            offset: self.places[at] as usize,
        }
    }
}

#[inline]
fn draw(low: i64, most: u64, frame: &mut Frame) -> Scalar {
    Scalar::Int(low.wrapping_add(frame.rng.up_to(most) as i64))
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
