"""Concludes from the table ``cpu_profile`` where CPU time goes, and why a unit of work takes more of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue.number_format import at_load, load
from dbdyno.conclude.checking import check
from dbdyno.conclude.compare.effects import CellFigures
from dbdyno.conclude.compare.table import Match
from dbdyno.conclude.run.case import Case, Row, ids
from dbdyno.model.errors import UsageError
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import CodeCost, CostChange
from dbdyno.model.results.cpu_profile import NOT_SAMPLED, OTHERS
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.profile import CPU_PROFILE
from dbdyno.stats.estimates import students_quantile, students_tail
from dbdyno.stats.significance import holm

TESTED = 0.005
"""Share of the CPU time per unit, on either side, from which on a function is compared."""
ALPHA = 0.05
CUT, UNSAMPLED = 0.1, 0.1
"""Shares of CPU time from which on cut stacks, and time without samples, are reported."""
LOST = 0.02
"""Share of lost samples from which on they are reported."""
BETWEEN = 3
"""Measurements per side from which on their spread is used, if it is larger than the sampling error."""
NAMED = 3
"""Functions named in a sentence."""
_KEY = ["name", "module"]


class _MeanCost(NamedTuple):
    """The mean cost per unit over some measurements."""

    mean: float
    variance: float
    degrees: float


def unit_cost(
    a: Sequence[pl.DataFrame], b: Sequence[pl.DataFrame], column: str, by: str = "function"
) -> tuple[_MeanCost, _MeanCost, tuple[CodeCost, ...]] | None:
    """Returns both sides' whole cost per unit and the costs by function, ``b`` against ``a``; None if
    unknown. A side is one frame of ``cpu_profile`` rows per measurement, in nanoseconds.

    The error of a function's cost is that of its share of the samples (Agresti and Caffo 2000), or the spread
    over measurements if that is larger. p values are adjusted over all functions tested (Holm).
    """
    sides = [[_costs(frame, column, by) for frame in side] for side in (a, b)]
    if not all(sides) or any(c is None for side in sides for c in side):
        return None
    known = [[c for c in side if c is not None] for side in sides]
    wholes = [_spread([c.whole for c in side], [0.0] * len(side)) for side in known]
    names = dict.fromkeys(n for side in known for c in side for n in c.of)
    parts = [_code_cost(name, *known) for name in names]
    thresholds = [TESTED * w.mean for w in wholes]
    kept = [p for p in parts if p[0].baseline_ns >= thresholds[0] or p[0].variant_ns >= thresholds[1]]
    adjusted = holm([p for _, p in kept])
    costs = [c.model_copy(update={"p_holm": p}) for (c, _), p in zip(kept, adjusted, strict=True)]
    costs.sort(key=lambda c: -abs(c.difference_ns))
    return wholes[0], wholes[1], tuple(costs)


class _Costs(NamedTuple):
    whole: float
    effective: float
    lost: float  # share of samples that are missing and may belong to any function
    of: Mapping[tuple[str, str | None], float]


def _costs(frame: pl.DataFrame, column: str, by: str) -> _Costs | None:
    rows = frame.filter((pl.col("by") == by) & (pl.col("scope") == "rung"))
    effective = rows["effective"].drop_nulls()
    if rows.is_empty() or effective.is_empty() or rows[column].null_count():
        return None
    some = rows.filter(~pl.col("name").is_in([NOT_SAMPLED, OTHERS]))
    of = {(name, module): value for name, module, value in some.select(*_KEY, column).iter_rows()}
    lost = rows["lost"].drop_nulls().max() if "lost" in rows.columns else None
    return _Costs(float(rows[column].sum()), float(effective[0]), float(lost or 0.0), of)  # type: ignore[arg-type]


def _code_cost(
    name: tuple[str, str | None], a: Sequence[_Costs], b: Sequence[_Costs]
) -> tuple[CodeCost, float | None]:
    first, second = (_mean_cost(name, side) for side in (a, b))
    difference = second.mean - first.mean
    error = math.sqrt(first.variance + second.variance)
    degrees = min(first.degrees, second.degrees)
    unsampled = _missing(a) + _missing(b)
    half = error * students_quantile(degrees) + unsampled
    sure = max(0.0, abs(difference) - unsampled)
    p = students_tail(sure / error, min(degrees, 1e9)) if error > 0 else None
    cost = CodeCost(
        name=name[0],
        module=name[1],
        baseline_ns=first.mean,
        variant_ns=second.mean,
        difference_ns=difference,
        low_ns=difference - half,
        high_ns=difference + half,
    )
    return cost, p


def _missing(side: Sequence[_Costs]) -> float:
    """Returns the part of the mean cost that the missing samples may make up."""
    return sum(c.lost * c.whole for c in side) / len(side)


def _mean_cost(name: tuple[str, str | None], side: Sequence[_Costs]) -> _MeanCost:
    values = [c.of.get(name, 0.0) for c in side]
    return _spread(values, [_sampling(v, c) for v, c in zip(values, side, strict=True)])


def _sampling(value: float, costs: _Costs) -> float:
    """Returns the variance of a cost estimated from a share of samples, with one hit and one miss added
    (Agresti and Caffo 2000)."""
    share = (value / costs.whole * costs.effective + 1) / (costs.effective + 2) if costs.whole else 0.0
    return costs.whole**2 * share * (1 - share) / (costs.effective + 2)


def _spread(values: Sequence[float], variances: Sequence[float]) -> _MeanCost:
    n, mean = len(values), sum(values) / len(values)
    sampling = sum(variances) / n**2
    between = sum((v - mean) ** 2 for v in values) / (n - 1) / n if n >= BETWEEN else 0.0
    return _MeanCost(mean, max(sampling, between), n - 1 if between > sampling else math.inf)


def changes(
    matches: Sequence[Match], profiles: Mapping[str, pl.DataFrame], rate: str, unit: str
) -> Iterator[CostChange]:
    """Yields the change of each variant or run against the baseline, at each number of sessions where both
    have a profile. ``profiles`` holds the table ``cpu_profile`` of each run, by label. Costs per call are
    compared only for calls of equal size."""
    column = "per_work_ns" if rate == "work_per_s" else "per_call_ns"
    for m in matches:
        for label, cells in m.groups.items():
            if label == m.baseline or (column == "per_call_ns" and not m.same_call(label)):
                continue
            sides = [
                _frames(profiles[m.of.get(g, "")], c)
                for g, c in ((m.baseline, m.groups[m.baseline]), (label, cells))
            ]
            where = {"workload": m.workload, "sessions": m.sessions, "series": m.series}
            if change := _change(sides[0], sides[1], column, where, (m.baseline, label), unit):
                yield change


def _frames(profile: pl.DataFrame, cells: Mapping[int, CellFigures]) -> list[pl.DataFrame]:
    return [profile.filter(pl.col("cell") == c.cell) for c in cells.values()]


def _change(
    a: Sequence[pl.DataFrame],
    b: Sequence[pl.DataFrame],
    column: str,
    where: dict[str, Any],
    names: tuple[str, str],
    unit: str,
) -> CostChange | None:
    sides = unit_cost(a, b, column)
    if sides is None:
        return None
    first, second, parts = sides
    modules = unit_cost(a, b, column, "module")
    return CostChange(
        **where,
        baseline=names[0],
        variant=names[1],
        unit=unit,
        baseline_ns=first.mean,
        variant_ns=second.mean,
        difference_ns=second.mean - first.mean,
        functions=parts,
        modules=() if modules is None else modules[2],
    )


def cost_claim(change: CostChange) -> Claim:
    """Returns the claim of a change: the whole difference, and the functions that differ beyond chance."""
    significant = [c for c in change.functions if c.p_holm is not None and c.p_holm < ALPHA]
    named = ", ".join(f"{c.title} {_signed(c.difference_ns)}" for c in significant[:NAMED])
    values = {
        "unit": change.unit,
        "difference": _signed(change.difference_ns),
        "named": named,
        "place": change.variant,
        "against": change.baseline,
    }
    return claim("unit-cost", values, change.difference_ns, case="named" if significant else "none")


def _signed(ns: float) -> str:
    digits = 0 if abs(ns) >= 10 else 2
    return f"{ns:+,.{digits}f} ns"


# Checks of a run.


@check("cpu-profile", "profile-lost", "profile-cut", "profile-unsampled", of="whole")
def where_cpu_goes(case: Case) -> Iterator[Claim]:
    """Yields the profile of the highest load of each ladder, or of an observation."""
    for subject, place, cells in _top_loads(case):
        rows = _mean_rows(case, cells)
        whole = sum(r["aas"] for r in rows if r["by"] == "mode")
        code = [r for r in rows if r["name"] not in (NOT_SAMPLED, OTHERS)]
        first = {
            by: max((r for r in code if r["by"] == by), key=lambda r: r["aas"], default=None)
            for by in ("module", "function")
        }
        module, function = first["module"], first["function"]
        if module is None or function is None or whole <= 0:
            continue
        kernel = sum(r["kernel"] or 0.0 for r in rows if r["by"] == "mode") / whole
        values = {
            "kernel": kernel,
            "place": place,
            "module": module["name"],
            "share": module["aas"] / whole,
            "function": function["name"],
            "function_share": function["aas"] / whole,
        }
        ends = (None if module[e] is None else module[e] / whole for e in ("low", "high"))
        low, high = ends
        yield claim(
            "cpu-profile",
            values,
            module["aas"] / whole,
            low=low,
            high=high,
            subject=subject,
            cells=ids(cells),
        )
        yield from _doubts(rows, whole, place, subject, cells)
        if (lost := _lost(case, cells)) > LOST:
            yield claim(
                "profile-lost", {"share": lost, "place": place}, lost, subject=subject, cells=ids(cells)
            )


def _doubts(rows: list[Row], whole: float, place: str, subject: str, cells: list[Row]) -> Iterator[Claim]:
    stacks = {r["name"]: r["aas"] / whole for r in rows if r["by"] == "stack"}
    for id, name, most in (("profile-cut", "cut", CUT), ("profile-unsampled", NOT_SAMPLED, UNSAMPLED)):
        if (share := stacks.get(name, 0.0)) > most:
            yield claim(id, {"share": share, "place": place}, share, subject=subject, cells=ids(cells))


def _lost(case: Case, cells: list[Row]) -> float:
    """Returns the share of samples for which the kernel's buffer had no room, as the data source counted
    them."""
    sources = case.tables["cell_sources"].filter(
        (pl.col("name") == CPU_PROFILE.name) & pl.col("cell").is_in([c["cell"] for c in cells])
    )
    counts = [_COUNTED.search(d or "") for d in sources["detail"]]
    taken, lost = (sum(int(m[n]) for m in counts if m) for n in (1, 2))
    return lost / (taken + lost) if lost else 0.0


_COUNTED = re.compile(r"(\d+) samples, (\d+) lost")


@check("unit-cost", of="whole")
def cost_difference(case: Case) -> Iterator[Claim]:
    """Yields the change from the lowest load of each ladder to its highest."""
    if case.observed:
        return
    table = _table(case)
    for subject, rungs in case.rungs():
        known = [(r, cells) for r in rungs if (cells := _cells(case, r))]
        if len(known) < 2:
            continue
        (low, a), (high, b) = known[0], known[-1]
        frames = [[table.filter(pl.col("cell") == c["cell"]) for c in cells] for cells in (a, b)]
        work = case.workloads[low["workload"]].work_short if low["workload"] in case.workloads else ""
        by_work = bool(work) and all(f["per_work_ns"].is_not_null().any() for side in frames for f in side)
        column, unit = ("per_work_ns", work) if by_work else ("per_call_ns", "call")
        names = load(low["sessions"]), load(high["sessions"])
        where = {"workload": low["workload"], "sessions": high["sessions"], "series": ""}
        if change := _change(frames[0], frames[1], column, where, names, unit):
            yield cost_claim(change).model_copy(update={"subject": subject, "cells": ids([*a, *b])})


def _table(case: Case) -> pl.DataFrame:
    profile = case.tables.get("cpu_profile")
    return pl.DataFrame({"cell": []}, schema={"cell": pl.String}) if profile is None else profile


def _cells(case: Case, rung: Row) -> list[Row]:
    """Returns the rung's usable cells that have a profile."""
    profiled = set(_table(case)["cell"])
    key = ("workload", "variant", "sessions", "rate_per_s")
    return [c for c in case.usable if c["cell"] in profiled and all(c[k] == rung[k] for k in key)]


def _top_loads(case: Case) -> Iterator[tuple[str, str, list[Row]]]:
    if case.observed:
        profiled = set(_table(case)["cell"])
        if cells := [c for c in case.usable if c["cell"] in profiled]:
            yield "", "", cells
        return
    for subject, rungs in case.rungs():
        with_profile = [(r, cells) for r in rungs if (cells := _cells(case, r))]
        if with_profile:
            rung, cells = with_profile[-1]
            yield subject, f" {at_load(rung['sessions'])}", cells


def _mean_rows(case: Case, cells: list[Row]) -> list[Row]:
    """Returns means over cells. The ends of intervals are means as well, which makes the intervals
    conservative."""
    rows = _table(case).filter(pl.col("cell").is_in([c["cell"] for c in cells]) & (pl.col("scope") == "rung"))
    n = len(cells)
    return (
        rows.group_by("by", *_KEY, maintain_order=True)
        .agg((pl.col(c).sum() / n).alias(c) for c in ("aas", "kernel", "low", "high"))
        .to_dicts()
    )


Rung = tuple[str, str, int]
"""Workload, variant, sessions."""


def between(a: Results, first: Rung, b: Results, second: Rung, names: tuple[str, str]) -> CostChange:
    """Compares a load of ``b`` with one of ``a``. Raises :class:`UsageError` if one has no profile or their
    units of work differ."""
    both = ((a, first), (b, second))
    work = [r.workloads[rung[0]].work_short if rung[0] in r.workloads else "" for r, rung in both]
    frames = [_rung_frames(r, rung) for r, rung in both]
    where = {"workload": second[0], "sessions": second[2], "series": ""}
    same = first[0] == second[0] or (work[0] != "" and work[0] == work[1])
    units = (("per_work_ns", work[1]),) if work[1] else ()
    for column, unit in (*units, ("per_call_ns", "call")) if same else ():
        if all(frames) and (change := _change(frames[0], frames[1], column, where, names, unit)):
            return change
    raise UsageError(
        f"{names[1]} and {names[0]}: no CPU profile of both per unit of the same work",
        "measure both with dbdyno run --profile",
    )


def _rung_frames(results: Results, rung: Rung) -> list[pl.DataFrame]:
    windows = results.tables["windows"].filter(pl.col("status") != "invalid")
    keys = zip(("workload", "variant", "sessions"), rung, strict=True)
    cells = windows.filter(*(pl.col(k) == v for k, v in keys))["cell"]
    profile = results.tables["cpu_profile"]
    frames = (profile.filter(pl.col("cell") == cell) for cell in cells)
    return [f for f in frames if f.height]
