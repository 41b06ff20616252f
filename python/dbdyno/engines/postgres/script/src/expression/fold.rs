//! Folds the constant parts of an expression before it runs.

use super::functions::Function;
use super::program::{Program, Step};
use super::scalar::Scalar;
use crate::{Rng, Slot, Value};

impl Program {
    /// Puts in the values of variables that never change, and does now what follows from them alone. A draw from a range
    /// that is known becomes one step.
    pub fn bind(&mut self, known: impl Fn(Slot) -> Option<Value>) {
        let jumps = |step: &Step| matches!(step, Step::Unless(_) | Step::Jump(_) | Step::Decided(..));
        // Where there are jumps, each step keeps its number.
        let fence = if self.steps.iter().any(jumps) {
            usize::MAX
        } else {
            0
        };
        let before = std::mem::take(self);
        self.depth = before.depth;
        for (step, at) in before.steps.into_iter().zip(before.places) {
            match step {
                Step::Apply(function, count) => self.apply(function, count, at, fence),
                Step::Load(slot) => {
                    let value = known(slot).and_then(|value| Scalar::of(&value).ok());
                    self.push(value.map_or(step, Step::Push), at);
                }
                _ => self.push(step, at),
            }
        }
    }

    pub(super) fn push(&mut self, step: Step, at: u32) {
        self.steps.push(step);
        self.places.push(at);
    }

    /// Adds a function of the topmost values. Of constants from the step `fence` on it is done now; what fails, fails
    /// when it runs.
    pub(super) fn apply(&mut self, function: Function, count: u16, at: u32, fence: usize) {
        let first = self.steps.len() - usize::from(count);
        let folded = self.folded(function, first).filter(|_| first >= fence);
        if folded.is_some() {
            self.steps.truncate(first);
            self.places.truncate(first);
        }
        self.push(folded.unwrap_or(Step::Apply(function, count)), at);
    }

    /// The one step that does the same with the values from the step `first` on.
    fn folded(&self, function: Function, first: usize) -> Option<Step> {
        let constant = |step: &Step| match step {
            Step::Push(value) => Some(*value),
            _ => None,
        };
        let values: Vec<Scalar> = self.steps[first..].iter().map(constant).collect::<Option<_>>()?;
        if let (Function::Random, [Scalar::Int(low), Scalar::Int(high)]) = (function, &values[..]) {
            let most = super::functions::range(*low, *high).ok()?;
            return Some(Step::Draw(*low, most));
        }
        if !function.is_pure() {
            return None;
        }
        let value = function.apply(&values, &mut Rng::seeded(0, 0)).ok()?;
        Some(Step::Push(value))
    }
}
