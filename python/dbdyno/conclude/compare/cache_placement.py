"""Compares reads from the page cache with reads from the database's cache, for each load.

Where a variant reads from is measured and not taken from its settings: by the number of its logical reads
that became read requests, and by the absence of reads from storage.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.compare.effects import BY_NAME, CellFigures, Cells, Key, cells_of, known
from dbdyno.conclude.compare.table import Match, alpha_of, metric_table
from dbdyno.conclude.run.case import known_aas
from dbdyno.conclude.run.counting import CACHED, PHYSICAL, STORED_BYTES
from dbdyno.model.plan.plan import Variant
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.comparison import Comparison, Contrast, MetricTable
from dbdyno.model.results.ledger_rows import account_rows
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.wait_families import READ_CALLS, READ_REQUESTS, STORAGE_BYTES
from dbdyno.model.units import NS_PER_S

MATTERS = 0.8
"""Share of the throughput up to which a load loses so much that the place of its data matters."""
_RATE, _CPU = "work_per_s", "cpu_per_work_ns"
_PARTS = {"cpu": ("share", 0.0), "copies": ("share", 0.01), "held": ("data_both_bytes_before", 0.0)}
"""Parts of the sentence, with the value that each depends on and the least value for it."""
_Place = Literal["cache", "pages"]
_Kind = Literal["matters", "little", "undecided"]


class _Load(NamedTuple):
    """Variants that differ in settings only. ``metric`` is throughput, or the server's CPU time per unit of
    work if the client limited throughput."""

    words: str
    match: Match
    metric: str


class _LoadResult(NamedTuple):
    load: _Load
    contrast: Contrast
    claim: Claim


def cache_placement(results: Results, cells: Cells, comparison: Comparison, work: str) -> Iterator[Claim]:
    """Yields a claim on the loads for which the place of data matters, then per load the ratio and the CPU
    time of the copies. ``cells`` excludes those limited by the client; ``comparison`` was made of them, and
    its verdicts are kept. ``work`` is the short name of the work unit."""
    loads = list(_loads(results, cells))
    results_by_load: list[_LoadResult] = []
    tables = {name: results.tables.get(name, empty(name)) for name in ("ledger", "memory_figures")}
    for metric in (_RATE, _CPU):
        of_metric = [load for load in loads if load.metric == metric]
        table = metric_table(
            BY_NAME[metric], [m.match for m in of_metric], comparison.margin, work, alpha_of(results)
        )
        known = {_key(c): c.verdict for t in comparison.metrics if t.metric == metric for c in t.claims}
        for load in of_metric:
            for computed in _contrasts(table, load.match):
                contrast = computed.model_copy(
                    update={"verdict": known.get(_key(computed), computed.verdict)}
                )
                results_by_load.append(_load_result(load, contrast, tables, work))
    if len({f.load.words for f in results_by_load}) > 1:
        yield _summary_claim(results_by_load)
    yield from (f.claim for f in results_by_load)


def _key(contrast: Contrast) -> tuple[str, int, str, str]:
    return contrast.workload, contrast.sessions, contrast.baseline, contrast.variant


def _contrasts(table: MetricTable, match: Match) -> Iterator[Contrast]:
    key = match.series, match.sessions, match.baseline
    return (c for c in table.claims if (c.series, c.sessions, c.baseline) == key and not c.neighbours)


def _loads(results: Results, cells: Cells) -> Iterator[_Load]:
    """Yields the loads for which one variant reads from the database's cache and another from the page
    cache."""
    same_load: dict[str, list[Variant]] = defaultdict(list)
    for variant in results.plan.variants:
        same_load[variant.model_dump_json(exclude={"name", "doc", "settings"})].append(variant)
    params = [group[0].params for group in same_load.values()]
    every = cells_of(results.tables, limited=True)
    for workload in every.workloads():
        for sessions, rate in every.rungs(workload):
            for group in same_load.values():
                words = _param_text(group[0].params, params)
                keys = {v.name: Key(workload, v.name, sessions, rate) for v in group}
                for metric, cells_by_key in ((_RATE, cells.of), (_CPU, every.of)):
                    groups = _sides({name: cells_by_key[k] for name, k in keys.items() if k in cells_by_key})
                    if groups:
                        base = next(iter(groups))
                        match = Match(workload, sessions, base, groups, True, words, rate_per_s=rate)
                        yield _Load(words, match, metric)
                        break


def _sides(groups: Mapping[str, Mapping[int, CellFigures]]) -> dict[str, Mapping[int, CellFigures]]:
    """Returns the first variant that reads from the database's cache, then those that read from the page
    cache. Empty if one of the sides is missing. Measurements that read from storage are left out."""
    groups = {name: {r: c for r, c in cells.items() if _from_memory(c)} for name, cells in groups.items()}
    places = {name: _place(cells) for name, cells in groups.items()}
    base = next((name for name, place in places.items() if place == "cache"), None)
    others = [name for name, place in places.items() if place == "pages"]
    return {n: groups[n] for n in (base, *others)} if base is not None and others else {}


def _from_memory(cell: CellFigures) -> bool:
    """Returns whether the cell read nothing from storage; False also if that is unknown."""
    stored, work = (cell.rates.get(f"{name}_per_call") for name in (STORAGE_BYTES, "work"))
    return stored is not None and bool(work) and stored <= STORED_BYTES * (work or 0.0)


def _param_text(params: Mapping[str, Any], all_params: Sequence[Mapping[str, Any]]) -> str:
    """Formats the parameters in which the loads differ: ``blocks=64``."""
    return ", ".join(f"{n}={v}" for n, v in params.items() if any(p.get(n) != v for p in all_params))


def _place(cells: Mapping[int, CellFigures]) -> _Place | None:
    """Returns where all of these measurements read from. None if they read from both places or it is
    unknown."""
    requests = _per_work(cells, READ_REQUESTS) or _per_work(cells, READ_CALLS)
    if not requests or len(requests) < len(cells):
        return None
    if max(requests) <= CACHED:
        return "cache"
    return "pages" if min(requests) >= PHYSICAL else None


def _per_work(cells: Mapping[int, CellFigures], name: str) -> list[float]:
    counted, work = known(cells, f"{name}_per_call"), known(cells, "work_per_call")
    return [counted[r] / work[r] for r in counted if work.get(r)]


def _load_result(
    load: _Load, contrast: Contrast, tables: Mapping[str, pl.DataFrame], work: str
) -> _LoadResult:
    effect = contrast.effect
    values: dict[str, Any] = {
        "load": f"{load.words}, {fmt.load(contrast.sessions)}" if load.words else fmt.load(contrast.sessions),
        "pages": contrast.variant,
        "cache": contrast.baseline,
        "ratio": effect.ratio or math.nan,
        "interval": _interval(contrast),
        "work": work,
        **_cpu(tables["ledger"], load.match, contrast.variant),
        **_memory_held(tables["memory_figures"], load.match, contrast.variant),
    }
    unit = "of the throughput" if load.metric == _RATE else "of the server's CPU time"
    value = Estimate("cache-placement", values["ratio"], unit, effect.low, effect.high)
    group = [*load.match.groups[contrast.baseline].values(), *load.match.groups[contrast.variant].values()]
    placement = claim(
        "cache-placement",
        values,
        value,
        case=_kind(load, contrast) + ("" if load.metric == _RATE else "-cpu"),
        parts=[p for p, (name, least) in _PARTS.items() if values.get(name, -1.0) >= least],
        cells=[c.cell for c in group],
    )
    return _LoadResult(load, contrast, placement)


def _interval(contrast: Contrast) -> str:
    low, high = contrast.effect.low, contrast.effect.high
    return "" if low is None or high is None else f" ({fmt.plain(low)} to {fmt.plain(high)})"


def _kind(load: _Load, contrast: Contrast) -> _Kind:
    """Returns whether the place matters. CPU time counts as the inverse of the throughput that it allows."""
    effect = contrast.effect
    least, ratio = effect.low, effect.ratio
    if load.metric == _CPU:
        least, ratio = (None if v is None else 1 / v for v in (effect.high, effect.ratio))
    if contrast.verdict == "worse" and ratio is not None and ratio <= MATTERS:
        return "matters"
    return "little" if least is not None and least > MATTERS else "undecided"


def _cpu(ledger: pl.DataFrame, match: Match, pages: str) -> dict[str, float]:
    """Returns CPU time per unit of work in user mode and in the kernel, in ns, from either cache; the share
    of the copies in that from the page cache; and system calls that read. Empty if unknown."""
    of_cache, of_pages = (_modes(ledger, match.groups[label]) for label in (match.baseline, pages))
    calls = _per_work(match.groups[pages], READ_CALLS)
    if of_cache is None or of_pages is None or not calls or sum(of_pages) <= 0:
        return {}
    return {
        "user_before": of_cache[0],
        "system_before": of_cache[1],
        "user": of_pages[0],
        "system": of_pages[1],
        # The work is the same from both caches, so what it costs more from the page cache is the copying.
        "share": max(0.0, 1 - sum(of_cache) / sum(of_pages)),
        "calls": math.fsum(calls) / len(calls),
    }


def _modes(ledger: pl.DataFrame, cells: Mapping[int, CellFigures]) -> tuple[float, float] | None:
    """Returns user and kernel CPU time per unit of work in ns, means over repeats. None if unknown for a
    cell."""
    per_cell: list[tuple[float, float]] = []
    for cell in cells.values():
        rows, rate = ledger.filter(pl.col("cell") == cell.cell), cell.rates.get(_RATE)
        parts = [known_aas(account_rows(rows, account)) for account in ("run.user", "run.system")]
        if not rate or None in parts:
            return None
        per_cell.append(tuple((p or 0.0) / rate * NS_PER_S for p in parts))  # type: ignore[arg-type]
    user, system = (math.fsum(side) / len(per_cell) for side in zip(*per_cell, strict=True))
    return user, system


def _memory_held(figures: pl.DataFrame, match: Match, pages: str) -> dict[str, float]:
    """Returns means in bytes at the end of the measurements: data in both caches, and page tables of the
    server's processes. Empty if unknown."""
    sizes: dict[str, float] = {}
    for name, label in (("before", match.baseline), ("after", pages)):
        cells = [c.cell for c in match.groups[label].values()]
        at_end = figures.filter(pl.col("cell").is_in(cells) & (pl.col("phase") == "end")).drop_nulls("value")
        for key in ("data_both_bytes", "page_tables_bytes"):
            values = at_end.filter(pl.col("key") == key)["value"].to_list()
            if not values:
                return {}
            sizes[f"{key}_{name}"] = math.fsum(values) / len(values)
    return sizes


def _summary_claim(results: Sequence[_LoadResult]) -> Claim:
    """Returns the claim on the loads for which the place matters."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for f in results:
        what = "of the throughput" if f.load.metric == _RATE else "times the CPU time"
        words = f"{f.load.words} ({fmt.plain(f.contrast.effect.ratio or math.nan)} {what})"
        by_kind[_kind(f.load, f.contrast)].append(words)
    values = {kind: " and ".join(dict.fromkeys(words)) for kind, words in by_kind.items()}
    cases = [k for k in get_args(_Kind) if k in values]
    cells = tuple(dict.fromkeys(c for f in results for c in f.claim.cells))
    return claim("cache-placement-load", values, case=cases[0], parts=cases[1:], cells=cells)
