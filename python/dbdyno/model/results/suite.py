"""The result of a suite: its benchmarks by variants, with verdicts that hold for all of them together."""

from __future__ import annotations

from pydantic import Field

from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import Comparison, Contrast, Frozen, OperationCost


class Cause(Frozen):
    """The changes that go with a variant's other throughput or CPU time."""

    claim: Claim
    """The sentence of the row."""
    costs: tuple[OperationCost, ...] = ()
    """The costs of a call that differ."""


class SuiteRow(Frozen):
    """A benchmark at one number of sessions, or the reason why it has no figures."""

    benchmark: str
    doc: str = ""
    run: str = ""
    """Id of its run; empty if none is stored."""
    sessions: int | None = None
    unit: str = ""
    """Unit of its throughput."""
    means: dict[str, float] = Field(default_factory=dict)
    """Throughput by variant."""
    low: dict[str, float | None] = Field(default_factory=dict)
    high: dict[str, float | None] = Field(default_factory=dict)
    costs: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Mean costs of a call by variant and figure."""
    contrasts: tuple[Contrast, ...] = ()
    """Throughput of each variant against the baseline. ``p_holm`` and verdict are for all rows and variants
    together."""
    cpu: tuple[Contrast, ...] = ()
    """CPU time of a call, in the same way: a family of its own. ``better`` is less."""
    causes: dict[str, Cause] = Field(default_factory=dict)
    """Causes by variant, if its throughput or CPU time differs."""
    reason: str = ""
    """Why there is no throughput, or no comparison."""


class SuiteMatrix(Frozen):
    """All benchmarks of a suite, those with the largest difference first."""

    id: str
    """The id that all runs of the suite have in common."""
    suite: str
    server: str = ""
    """Product and versions of the servers."""
    variants: tuple[str, ...] = ()
    """The baseline first."""
    margin: float
    alpha: float
    family: int = 0
    """Number of comparisons that p is adjusted for."""
    rows: tuple[SuiteRow, ...]
    planned: int
    """Number of benchmarks that were to be measured."""
    comparisons: dict[str, Comparison] = Field(default_factory=dict)
    """Comparisons by run, with the verdicts that hold for all rows."""
    conclusions: tuple[Claim, ...] = ()
    """The answers for each variant first, then the caveats."""
