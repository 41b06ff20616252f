"""Checks whether a call does equal work on data of any size.

Work per call is compared and not time: a larger table may be slower because of cache misses and still be the
same load. If the work grows, throughput and response times of two sizes belong to different tests.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, listed
from dbdyno.model.plan.data_size import SIZE, size_of, size_words
from dbdyno.model.plan.plan import Workload
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.schema.tables import empty
from dbdyno.stats.estimates import students_quantile

TOLERANCE = 1.35
"""Ratio of work per call that counts as constant: one more level of an index makes four blocks of three."""
WHOLE = ""
"""The name for all transactions together."""

Work = Mapping[str, Sequence[float]]
"""Work units per call of each measurement, by transaction."""
Verdict = Literal["constant", "grows", "shrinks", "unclear"]


class Growth(NamedTuple):
    """Change of a transaction from the smallest size to the one where its work per call differs most."""

    name: str
    first: int
    last: int
    before: float
    after: float
    low: float | None = None
    high: float | None = None
    """End of the 95 % interval of the ratio; None with one measurement per size."""

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def verdict(self) -> Verdict:
        low = self.ratio if self.low is None else self.low
        high = self.ratio if self.high is None else self.high
        if low > TOLERANCE:
            return "grows"
        if high < 1 / TOLERANCE:
            return "shrinks"
        return "constant" if high <= TOLERANCE and low >= 1 / TOLERANCE else "unclear"


def growths(by_size: Mapping[int, Work]) -> list[Growth]:
    """Returns the change of all calls, then of each transaction that is known at every size."""
    sizes = sorted(by_size)
    names = [n for n in by_size[sizes[0]] if all(by_size[s].get(n) for s in sizes)]
    changes = []
    for name in sorted(names):
        each = {s: by_size[s][name] for s in sizes}
        if len(each) < 2 or min(min(v) for v in each.values()) <= 0:
            continue
        spread = _spread(list(each.values()))
        ratios = [_between(name, (sizes[0], s), (each[sizes[0]], each[s]), spread) for s in sizes[1:]]
        changes.append(max(ratios, key=lambda g: (abs(math.log(g.ratio)), g.last)))
    return changes


class _Spread(NamedTuple):
    """Spread of the logarithms within a size, pooled over all sizes, because repeats are few."""

    deviation: float
    degrees: int


def _spread(groups: Sequence[Sequence[float]]) -> _Spread | None:
    logs = [[math.log(v) for v in group] for group in groups]
    degrees = sum(len(g) - 1 for g in logs)
    if not degrees:
        return None
    squares = sum((v - sum(g) / len(g)) ** 2 for g in logs for v in g)
    return _Spread(math.sqrt(squares / degrees), degrees)


def _between(
    name: str, sizes: tuple[int, int], values: tuple[Sequence[float], Sequence[float]], spread: _Spread | None
) -> Growth:
    bare = Growth(name, *sizes, *(sum(v) / len(v) for v in values))
    if spread is None:
        return bare
    # Variance of the difference of two means of logarithms, each over its own number of values.
    error = spread.deviation * math.sqrt(sum(1 / len(v) for v in values))
    factor = math.exp(students_quantile(spread.degrees) * error)
    return bare._replace(low=bare.ratio / factor, high=bare.ratio * factor)


def work_of(tables: Mapping[str, pl.DataFrame], cells: Collection[str]) -> dict[str, list[float]]:
    """Returns work per call over all calls of these measurements, and logical reads per call of each
    transaction."""
    in_cells = pl.col("cell").is_in(list(cells))
    whole = tables["rates"].filter(
        in_cells & (pl.col("scope") == "rung") & (pl.col("name") == "work_per_call")
    )
    work = {WHOLE: whole["value"].drop_nulls().to_list()}
    scripts = tables.get("script_rates", empty("script_rates")).filter(in_cells).drop_nulls("lio_per_call")
    if scripts["name"].n_unique() > 1:
        for (name,), rows in scripts.group_by("name", maintain_order=True):
            work[str(name)] = rows["lio_per_call"].to_list()
    return {name: values for name, values in work.items() if values}


# -- sizes within a run --


class Sizes(NamedTuple):
    """Measurements that differ in the size of their data only."""

    workload: Workload
    others: str  # the other parameters, as text
    cells: Mapping[int, list[str]]


def sizes_of(case: Case) -> list[Sizes]:
    """Returns the groups with at least two sizes, at the lowest load that all sizes have."""
    groups: dict[tuple[str, str], list[tuple[int, Row]]] = defaultdict(list)
    params = {c.id: c.params for c in case.plan.cells}
    for cell in case.valid:
        workload = case.workloads.get(cell["workload"])
        given = params.get(cell["cell"], {})
        size = None if workload is None else size_of(workload, given)
        if workload is not None and size is not None:
            others = {k: v for k, v in given.items() if k != SIZE}
            setup = case.plan.variant(cell["variant"]).model_dump(exclude={"name", "doc", "params"})
            key = json.dumps([others, setup], sort_keys=True, default=str)
            groups[workload.name, key].append((size, cell))
    chosen = {key: by for key, cells in groups.items() if len(by := _at_one_load(cells)) > 1}
    return [Sizes(case.workloads[key[0]], _distinct_params(key, chosen), by) for key, by in chosen.items()]


def _distinct_params(key: tuple[str, str], keys: Collection[tuple[str, str]]) -> str:
    """Returns the parameters of a group in which other groups differ."""
    every = [json.loads(text)[0] for _, text in keys]
    own = json.loads(key[1])[0]
    return ", ".join(f"{k}={v}" for k, v in own.items() if any(o.get(k) != v for o in every))


def _at_one_load(cells: Sequence[tuple[int, Row]]) -> dict[int, list[str]]:
    sizes = {size for size, _ in cells}
    loads: dict[tuple[int, float], dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for size, cell in cells:
        loads[cell["sessions"], cell["rate_per_s"] or 0.0][size].append(cell["cell"])
    common = [load for load, by in loads.items() if by.keys() == sizes]
    return dict(loads[min(common)]) if common else {}


# -- claims --


@check("plan-changes", "equal-load", "transaction-load", of="whole")
def equal_load(case: Case) -> Iterator[Claim]:
    """Yields for each group one claim about all calls, one about each transaction, and one about changed
    plans."""
    several = sizes_of(case)
    for sizes in several:
        subject = sizes.others if len(several) > 1 else ""
        changes = growths({size: work_of(case.tables, ids) for size, ids in sizes.cells.items()})
        if changes:
            yield _overall_claim(changes, sizes, subject)
        yield from (_transaction_claim(g, sizes, subject) for g in changes if g.name)
        yield from _plans(case.tables.get("plan_shapes", empty("plan_shapes")), sizes, subject)


def _plans(shapes: pl.DataFrame, sizes: Sizes, subject: str) -> Iterator[Claim]:
    """Yields one claim, with the first statement, if plans have different shapes at different sizes."""
    by = {cell: size for size, cells in sizes.cells.items() for cell in cells}
    known = shapes.filter(pl.col("cell").is_in(list(by))).drop_nulls("shape")
    known = known.with_columns(size=pl.col("cell").replace_strict(by, return_dtype=pl.Int64)).sort("size")
    changed = []
    for (name, _command), rows in known.group_by("name", "command", maintain_order=True):
        if rows["shape"].n_unique() > 1:
            was = rows.row(0, named=True)
            now = rows.filter(pl.col("shape") != was["shape"]).row(0, named=True)
            changed.append((str(name), was, now))
    if changed:
        name, was, now = changed[0]
        values = {"script": name, "line": was["line"], "before": was["shape"], "after": now["shape"]}
        values |= {"first": size_words(sizes.workload, was["size"]), "n": len(changed)}
        values |= {"last": size_words(sizes.workload, now["size"]), "others": len(changed) - 1}
        parts = ["others"] if len(changed) > 1 else []
        yield claim("plan-changes", values, float(len(changed)), parts=parts, subject=subject)


def _overall_claim(changes: Sequence[Growth], sizes: Sizes, subject: str) -> Claim:
    """Returns the claim of the worst transaction: a mix may hide one that is rare."""
    by: dict[str, list[Growth]] = defaultdict(list)
    for g in changes:
        by[g.verdict].append(g)
    case = next(v for v in ("grows", "shrinks", "unclear", "constant") if by[v])
    away: Callable[[Growth], float] = lambda g: abs(math.log(g.ratio))  # noqa: E731
    worst = max(by[case], key=away)
    whole = next((g for g in changes if g.name == WHOLE), None)
    named = [g.name for g in sorted(by[case], key=away, reverse=True) if g.name]
    shown = listed(named) or "all calls"
    values = _growth_values(worst, sizes) | {
        "names": shown,
        "n": len(sizes.cells),
        "tolerance": TOLERANCE - 1,
    }
    parts = ["whole"] if named and whole is not None else []
    if whole is not None:
        values |= {"whole": whole.ratio, "work": whole.before, "unit": sizes.workload.work_short}
    value = Estimate("equal-load", worst.ratio, "fold", worst.low, worst.high)
    cells = [c for ids in sizes.cells.values() for c in ids]
    level: dict[str, Literal["good", "note", "warning"]] = {"constant": "good", "unclear": "note"}
    return claim(
        "equal-load",
        values,
        value,
        case=case,
        parts=parts if case != "constant" else [],
        severity=level.get(case, "warning"),
        cells=cells,
        subject=subject,
    )


def _transaction_claim(growth: Growth, sizes: Sizes, subject: str) -> Claim:
    value = Estimate(growth.name, growth.ratio, "fold", growth.low, growth.high)
    values = _growth_values(growth, sizes) | {"name": growth.name, "unit": sizes.workload.work_short}
    return claim("transaction-load", values, value, case=growth.verdict, each=growth.name, subject=subject)


def _growth_values(growth: Growth, sizes: Sizes) -> dict[str, object]:
    words = [size_words(sizes.workload, s) for s in (growth.first, growth.last)]
    number, _, unit = words[1].rpartition(" ")
    short = words[0].removesuffix(f" {unit}") if number[:1].isdigit() else words[0]
    spread = (
        ""
        if growth.low is None or growth.high is None
        else f" ({fmt.plain(growth.low)} to {fmt.plain(growth.high)})"
    )
    values: dict[str, object] = {
        "first": words[0],
        "last": words[1],
        "span": f"{short} to {words[1]}",
        "ratio": growth.ratio,
        "spread": spread,
    }
    return values | {"before": growth.before, "after": growth.after}
