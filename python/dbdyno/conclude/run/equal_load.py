"""Equal load: does a call cost the same whatever the size of the data?

Work per call is compared, not time: a larger table may be slower for its misses in the cache and still be the
same load. Where the work grows, throughput and response times of two sizes are of two different tests.
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
"""Work per call within this ratio is constant: one more level of an index makes four blocks of three."""
WHOLE = ""
"""The name of all transactions together."""

Work = Mapping[str, Sequence[float]]
"""Work units per call of each measurement, by transaction."""
Verdict = Literal["constant", "grows", "shrinks", "unclear"]


class Growth(NamedTuple):
    """How one transaction changes, from the smallest size to the one where its work per call differs most."""

    name: str
    first: int
    last: int
    before: float
    after: float
    low: float | None = None
    high: float | None = None
    """95 % interval of the ratio; ``None``: one measurement of a size has none."""

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
    """How all calls change, then each transaction that is known at every size."""
    sizes = sorted(by_size)
    names = [n for n in by_size[sizes[0]] if all(by_size[s].get(n) for s in sizes)]
    found = []
    for name in sorted(names):
        each = {s: by_size[s][name] for s in sizes}
        if len(each) < 2 or min(min(v) for v in each.values()) <= 0:
            continue
        spread = _spread(list(each.values()))
        ratios = [_between(name, (sizes[0], s), (each[sizes[0]], each[s]), spread) for s in sizes[1:]]
        found.append(max(ratios, key=lambda g: (abs(math.log(g.ratio)), g.last)))
    return found


class _Spread(NamedTuple):
    """Spread of the logarithms within a size, pooled over all sizes because repeats are few."""

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
    error = spread.deviation * math.sqrt(sum(1 / len(v) for v in values))
    factor = math.exp(students_quantile(spread.degrees) * error)
    return bare._replace(low=bare.ratio / factor, high=bare.ratio * factor)


def work_of(tables: Mapping[str, pl.DataFrame], cells: Collection[str]) -> dict[str, list[float]]:
    """Work per call of all calls of these measurements, and logical reads per call of each transaction."""
    mine = pl.col("cell").is_in(list(cells))
    whole = tables["rates"].filter(mine & (pl.col("scope") == "rung") & (pl.col("name") == "work_per_call"))
    found = {WHOLE: whole["value"].drop_nulls().to_list()}
    scripts = tables.get("script_rates", empty("script_rates")).filter(mine).drop_nulls("lio_per_call")
    if scripts["name"].n_unique() > 1:
        for (name,), rows in scripts.group_by("name", maintain_order=True):
            found[str(name)] = rows["lio_per_call"].to_list()
    return {name: values for name, values in found.items() if values}


# -- sizes within a run --


class Sizes(NamedTuple):
    """Measurements that differ in the size of their data alone."""

    workload: Workload
    others: str  # parameters besides, in words
    cells: Mapping[int, list[str]]


def sizes_of(case: Case) -> list[Sizes]:
    """Those of at least two sizes, at the lowest load that all sizes have."""
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
    return [Sizes(case.workloads[key[0]], _unlike(key, chosen), by) for key, by in chosen.items()]


def _unlike(key: tuple[str, str], keys: Collection[tuple[str, str]]) -> str:
    """The parameters of one in which the others differ."""
    every = [json.loads(text)[0] for _, text in keys]
    mine = json.loads(key[1])[0]
    return ", ".join(f"{k}={v}" for k, v in mine.items() if any(o.get(k) != v for o in every))


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
    """For each set of sizes one claim about all calls, and one about each transaction."""
    several = sizes_of(case)
    for sizes in several:
        subject = sizes.others if len(several) > 1 else ""
        found = growths({size: work_of(case.tables, ids) for size, ids in sizes.cells.items()})
        if found:
            yield _whole(found, sizes, subject)
        yield from (_each(g, sizes, subject) for g in found if g.name)
        yield from _plans(case.tables.get("plan_shapes", empty("plan_shapes")), sizes, subject)


def _plans(shapes: pl.DataFrame, sizes: Sizes, subject: str) -> Iterator[Claim]:
    """Statements whose plans are not of one shape at all sizes: one claim, with the first."""
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
        said = {"script": name, "line": was["line"], "before": was["shape"], "after": now["shape"]}
        said |= {"first": size_words(sizes.workload, was["size"]), "n": len(changed)}
        said |= {"last": size_words(sizes.workload, now["size"]), "others": len(changed) - 1}
        parts = ["others"] if len(changed) > 1 else []
        yield claim("plan-changes", said, float(len(changed)), parts=parts, subject=subject)


def _whole(found: Sequence[Growth], sizes: Sizes, subject: str) -> Claim:
    """The worst of them decides: a mix may hide a transaction that is rare."""
    by: dict[str, list[Growth]] = defaultdict(list)
    for g in found:
        by[g.verdict].append(g)
    case = next(v for v in ("grows", "shrinks", "unclear", "constant") if by[v])
    away: Callable[[Growth], float] = lambda g: abs(math.log(g.ratio))  # noqa: E731
    worst = max(by[case], key=away)
    whole = next((g for g in found if g.name == WHOLE), None)
    named = [g.name for g in sorted(by[case], key=away, reverse=True) if g.name]
    shown = listed(named) or "all calls"
    said = _said(worst, sizes) | {"names": shown, "n": len(sizes.cells), "tolerance": TOLERANCE - 1}
    parts = ["whole"] if named and whole is not None else []
    if whole is not None:
        said |= {"whole": whole.ratio, "work": whole.before, "unit": sizes.workload.work_short}
    value = Estimate("equal-load", worst.ratio, "fold", worst.low, worst.high)
    cells = [c for ids in sizes.cells.values() for c in ids]
    level: dict[str, Literal["good", "note", "warning"]] = {"constant": "good", "unclear": "note"}
    return claim("equal-load", said, value, case=case, parts=parts if case != "constant" else [],
                 severity=level.get(case, "warning"), cells=cells, subject=subject)  # fmt: skip


def _each(growth: Growth, sizes: Sizes, subject: str) -> Claim:
    value = Estimate(growth.name, growth.ratio, "fold", growth.low, growth.high)
    said = _said(growth, sizes) | {"name": growth.name, "unit": sizes.workload.work_short}
    return claim("transaction-load", said, value, case=growth.verdict, each=growth.name, subject=subject)


def _said(growth: Growth, sizes: Sizes) -> dict[str, object]:
    words = [size_words(sizes.workload, s) for s in (growth.first, growth.last)]
    number, _, unit = words[1].rpartition(" ")
    short = words[0].removesuffix(f" {unit}") if number[:1].isdigit() else words[0]
    spread = (
        ""
        if growth.low is None or growth.high is None
        else f" ({fmt.plain(growth.low)} to {fmt.plain(growth.high)})"
    )
    said: dict[str, object] = {
        "first": words[0],
        "last": words[1],
        "span": f"{short} to {words[1]}",
        "ratio": growth.ratio,
        "spread": spread,
    }
    return said | {"before": growth.before, "after": growth.after}
