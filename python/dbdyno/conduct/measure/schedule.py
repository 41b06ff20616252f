"""The order of cells: the plan's cells, or those that an auto ladder requests, and the ladder's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from dbdyno.conclude.catalogue import advice, claim
from dbdyno.conclude.compare import tight_enough
from dbdyno.model.engine.protocols import Clock
from dbdyno.model.plan.kinds import EVERY_CALL_FAILED
from dbdyno.model.plan.plan import Adaptive, Cell, Goal, Plan
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.results import Results
from dbdyno.model.results.session_time import is_limit
from dbdyno.model.schema.tables import ByCell, known_quantiles_ns
from dbdyno.model.units import counted, format_ns, format_percent, parse_duration_ns
from dbdyno.plan import QUANTILES, Done, Findings, Next, Seen, grown, next_rung, repeated, so_far, until_share
from dbdyno.plan.adaptive_search import CLIENT_LIMITED

_UNITS = {"sessions": "sessions", "rate": "calls/s"}
_RATES = {"mean": "response_mean_ns", "max": "response_max_ns", "throughput": "calls_per_s"}


def seen_in(tables: Mapping[str, pl.DataFrame], rule: Adaptive) -> dict[str, list[Seen]]:
    """Returns, by variant, the cells in ``windows``, ``rates`` and ``histogram``, in the order of running."""
    parts = ByCell({name: tables[name] for name in ("rates", "histogram")})
    seen: dict[str, list[Seen]] = {}
    for window in tables["windows"].sort("cell").iter_rows(named=True):
        rates = parts.table("rates", window["cell"]).filter(pl.col("scope") == "rung")
        figures: dict[str, float | None] = dict(rates.select("name", "value").rows())
        histogram = parts.table("histogram", window["cell"])
        seen.setdefault(window["variant"], []).append(
            _measured_cell(window, figures, histogram, rule.goal, rule.by)
        )
    return seen


def _measured_cell(
    window: Mapping[str, Any],
    figures: Mapping[str, float | None],
    histogram: pl.DataFrame,
    goal: Goal | None,
    by: str,
) -> Seen:
    calls, errors = figures.get("calls") or 0.0, figures.get("errors") or 0.0
    fault = None
    if window["status"] == "invalid":
        fault = window["reason"] or "invalid"
    elif is_limit(figures):
        fault = CLIENT_LIMITED
    elif not calls:
        fault = EVERY_CALL_FAILED if errors else "no call ended in the window"
    unmet = (figures.get("dropped") or 0.0) + (figures.get("backlog_end") or 0.0)  # due, but never begun
    return Seen(
        load=window["sessions"] if by == "sessions" else round(window["rate_per_s"] or 0),
        throughput=figures.get("calls_per_s"),
        figure=None if goal is None else _figure(goal.metric, figures, histogram),
        failed=(errors + unmet) / (calls + errors + unmet) if calls + errors else 0.0,
        fault=fault,
        calls=int(histogram["count"].sum()),
        window_s=window["wall_s"],
        above=0 if goal is None else _above(goal, histogram),
    )


def _above(goal: Goal, histogram: pl.DataFrame) -> int:
    """Returns the calls that took longer than the limit of a goal for response times, by their buckets."""
    longer = (
        histogram.filter(pl.col("low_ns") > goal.limit) if goal.metric in QUANTILES else histogram.clear()
    )
    return int(longer["count"].sum())


def _figure(metric: str, figures: Mapping[str, float | None], histogram: pl.DataFrame) -> float | None:
    """Returns a target's figure in ns, or calls per second. A quantile is the upper end of its bucket, but
    at most the longest call; None with too few calls."""
    if metric in _RATES:
        return figures.get(_RATES[metric])
    (value,), longest = known_quantiles_ns(histogram, [QUANTILES[metric]]), figures.get("response_max_ns")
    return value if value is None or longest is None else min(value, longest)


def sought(plan: Plan, tables: Mapping[str, pl.DataFrame]) -> Iterator[Claim]:
    """Returns one finding for each variant of an auto ladder; none otherwise."""
    if plan.adaptive is None:
        return
    by_variant = seen_in(tables, plan.adaptive)
    for variant, seen in by_variant.items():
        findings = Findings(plan.adaptive, tuple(seen))
        step = next_rung(findings)
        yield _finding(plan, variant if len(plan.variants) > 1 else "", findings, step)


def _finding(plan: Plan, variant: str, findings: Findings, step: Next | Done) -> Claim:
    assert plan.adaptive is not None
    done = step if isinstance(step, Done) else so_far(findings)
    open_ = {} if isinstance(step, Done) else {"next": step.load}
    at = (
        None if done.at is None else Estimate(done.id, done.at, _UNITS[plan.adaptive.by], done.low, done.high)
    )
    return claim(
        done.id,
        {**done.slots, **open_},
        at,
        case=done.case,
        parts=(*done.parts, *(["unfinished"] if open_ else [])),
        severity="good" if done.found and not open_ else "note",
        advice=advice(done.id, "not-sized")
        if done.case == "not-met" and plan.call_target_ns is None
        else None,
        cells=[
            c.id
            for c in plan.cells
            if variant in ("", c.variant) and round(c.load_by(plan.adaptive.by)) == done.at
        ],
        subject=variant,
    )


_LOOKED_AT = ("windows", "rates")


class Repeats:
    """Decides before each cell whether further repeats are needed. ``clock_ns`` is the time at the run's
    start and now."""

    def __init__(self, plan: Plan, start_ns: int) -> None:
        self.plan = plan  # replaced when an auto ladder adds cells
        self._start_ns = start_ns
        self._share = until_share(plan.experiment)
        budget = plan.experiment.budget
        self._budget_ns = None if budget is None else parse_duration_ns(budget)
        self._tables: list[dict[str, pl.DataFrame]] = []
        self._repeat = 1
        self._began_ns = start_ns
        self._longest_ns = 0

    def measured(self, results: Results) -> None:
        """Takes the results of one cell."""
        self._tables.append({name: results.tables[name] for name in _LOOKED_AT})

    def enough(self, cell: Cell, now_ns: int) -> str | None:
        """Returns why the run may end before ``cell``; None if it continues. Only decides where a repeat
        begins."""
        if cell.repeat == self._repeat:
            return None
        self._longest_ns = max(self._longest_ns, now_ns - self._began_ns)
        done, self._repeat, self._began_ns = self._repeat, cell.repeat, now_ns
        return self._tight(done) or self._late(done, now_ns)

    def _tight(self, repeats: int) -> str | None:
        if self._share is None:
            return None
        tables = {name: pl.concat([t[name] for t in self._tables]) for name in _LOOKED_AT}
        verdict = tight_enough(tables, self.plan, self._share)
        if not verdict.done:
            return None
        within = f"every interval is within {format_percent(self._share)} to each side"
        return f"after {repeats} of {counted(self._all(), 'repeat')} {within}"

    def _late(self, done: int, now_ns: int) -> str | None:
        """Returns why no further repeat fits into the budget, if it takes as long as the longest so far;
        None if it fits."""
        if self._budget_ns is None or now_ns + self._longest_ns <= self._start_ns + self._budget_ns:
            return None
        return (
            f"after {done} of {counted(self._all(), 'repeat')}: another would end after the budget of "
            + format_ns(self._budget_ns)
        )

    def _all(self) -> int:
        rule = self.plan.adaptive
        return max(c.repeat for c in self.plan.cells) if rule is None else rule.repeats


class Course(Protocol):
    stopped: str | None
    """Why there are no more cells, unless the plan itself has no more."""

    def cells(self) -> Iterator[Cell]: ...

    def measured(self, results: Results) -> None:
        """Takes the results of the cell that was returned last."""


def course_of(plan: Plan, clock: Clock, grew: Callable[[Plan], None]) -> Course:
    """Returns the course of the plan. ``grew`` is called with each plan that has more cells, before the
    first of them is returned."""
    return (
        PlannedCourse(plan, clock)
        if plan.adaptive is None
        else AdaptiveCourse(plan, plan.adaptive, clock, grew)
    )


class PlannedCourse:
    """The cells of the plan in order; the run may end before a repeat."""

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self._plan, self._clock = plan, clock
        self._repeats = Repeats(plan, clock.now_ns())
        self.stopped: str | None = None

    def cells(self) -> Iterator[Cell]:
        for cell in self._plan.cells:
            self.stopped = self._repeats.enough(cell, self._clock.now_ns())
            if self.stopped is not None:
                return
            yield cell

    def measured(self, results: Results) -> None:
        self._repeats.measured(results)


class AdaptiveCourse:
    """The rungs that the variants request in turn.

    Each is measured for all variants, so that they can be compared. The first repeat searches the rungs;
    later ones measure them again, and may add some.
    """

    def __init__(self, plan: Plan, rule: Adaptive, clock: Clock, grew: Callable[[Plan], None]) -> None:
        self._plan, self._rule, self._clock, self._grew = plan, rule, clock, grew
        self._start_ns = clock.now_ns()
        self._repeats = Repeats(plan, self._start_ns)
        budget = plan.experiment.budget
        self._budget_ns = None if budget is None else parse_duration_ns(budget)
        self._longest_ns = 0
        self._seen: dict[str, list[Seen]] = {v.name: [] for v in plan.variants}
        self.stopped: str | None = None

    def cells(self) -> Iterator[Cell]:
        yield from self._block(self._plan, self._plan.cells)
        repeat = 1
        while True:
            while (wanted := self._next_load()) is not None:
                if self._late():
                    self.stopped = self._reason("because another load would end after the budget. So far: ")
                    return
                yield from self._block(*grown(self._plan, wanted, self._repeat_of(wanted, repeat)))
            self.stopped = self._reason("because the search is over. ")
            if self._rule.goal is not None or repeat == self._rule.repeats:
                return
            repeat += 1
            plan, cells = repeated(self._plan, repeat)
            if (why := self._repeats.enough(cells[0], self._clock.now_ns())) is not None:
                self.stopped += f" No further repeat: {why}."
                return
            yield from self._block(plan, cells)

    def measured(self, results: Results) -> None:
        self._repeats.measured(results)
        for variant, seen in seen_in(results.tables, self._rule).items():
            self._seen[variant] += seen

    def _block(self, plan: Plan, cells: Sequence[Cell]) -> Iterator[Cell]:
        if plan is not self._plan:
            self._plan = self._repeats.plan = plan
            self._grew(plan)
        for place, cell in enumerate(cells):
            if place == 0 or cell.block != cells[place - 1].block:
                began_ns = self._clock.now_ns()
            yield cell
            self._longest_ns = max(self._longest_ns, self._clock.now_ns() - began_ns)

    def _next_load(self) -> int | None:
        steps = [next_rung(self._findings(variant)) for variant in self._seen]
        return next((s.load for s in steps if isinstance(s, Next)), None)

    def _repeat_of(self, load: int, repeat: int) -> int:
        """Returns the number of a rung's repeat; an auto ladder may ask for a rung again before the next
        repeat."""
        before = max(
            (c.repeat for c in self._plan.cells if round(c.load_by(self._rule.by)) == load), default=0
        )
        return max(repeat, before + 1)

    def _late(self) -> bool:
        """Returns whether the next block would exceed the budget, if it takes as long as the longest so
        far."""
        if self._budget_ns is None:
            return False
        return self._clock.now_ns() + self._longest_ns > self._start_ns + self._budget_ns

    def _reason(self, why: str) -> str:
        named = len(self._seen) > 1
        return why + " ".join(self._verdict(v, v if named else "") for v in self._seen)

    def _verdict(self, variant: str, name: str) -> str:
        step = next_rung(self._findings(variant))
        done = step if isinstance(step, Done) else so_far(self._findings(variant))
        return claim(done.id, done.slots, case=done.case, parts=done.parts, subject=name).text

    def _findings(self, variant: str) -> Findings:
        return Findings(self._rule, tuple(self._seen[variant]))
