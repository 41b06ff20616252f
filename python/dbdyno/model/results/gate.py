"""Gates: rules that a comparison, a history or a run has to keep, and how each ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dbdyno.model.errors import EXIT_GATE
from dbdyno.model.results.claim import Claim

State = Literal["failed", "cannot tell", "passed"]
"""The worst first. ``cannot tell``: the interval holds both a change that fails and one that does not."""
STATES: tuple[State, ...] = ("failed", "cannot tell", "passed")
Kind = Literal["worse", "better", "different", "change", "claim", "unknown"]


@dataclass(frozen=True)
class Rule:
    """A rule as parsed from ``text``. ``unknown`` makes a failure of all that other rules cannot tell."""

    text: str
    kind: Kind
    figure: str = ""
    """Name of a metric; empty for the one that ranks."""
    share: float | None = None
    """The least change that fails, 0.05 for 5 %; None for any that is certain."""
    direction: Literal["worse", "better", ""] = ""
    """The direction in which a change of a history fails; empty for both."""
    claim: str = ""
    """Id of a claim."""


@dataclass(frozen=True)
class Finding:
    """The result of a rule at one place: a load, a change of a history, or a claim."""

    state: State
    place: str
    """The place in words: ``B at 8 sessions``, or the id of a claim or run."""
    figure: str = ""
    baseline: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = ""
    """The comparison's verdict."""
    reason: str = ""
    """Why the rule could not be decided, the claim's sentence, or of numbers in files the direction that is
    better."""
    further_repeats: int | None = None
    """The approximate number of further repeats of each side that would decide the rule."""


@dataclass(frozen=True)
class Outcome:
    rule: str
    state: State
    findings: tuple[Finding, ...]
    """The worst first."""


@dataclass(frozen=True)
class Gate:
    outcomes: tuple[Outcome, ...]
    strict: bool = False
    """Whether a rule that cannot tell fails the gate."""
    warnings: tuple[str, ...] = ()
    """Ids of warnings about the judged run that no rule names: calls that failed, for example. The first
    are those of runs that were cut short, in words."""
    claims: Mapping[str, Claim] = field(default_factory=dict)
    """The claims of these ids."""
    sides: tuple[tuple[str, str], ...] = ()
    """The letter and the name of each of two runs."""

    @property
    def state(self) -> State:
        states: list[State] = [o.state for o in self.outcomes]
        worst = min(states, key=STATES.index, default=STATES[-1])
        return "failed" if self.strict and worst == "cannot tell" else worst

    @property
    def exit_code(self) -> int:
        return EXIT_GATE if self.state == "failed" else 0
