"""Concludes on a suite: its benchmarks by variants. A verdict holds for all rows and variants together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.compare import costs
from dbdyno.conclude.compare.cpu_profile import between
from dbdyno.conclude.compare.effects import BY_NAME, Cells, Group, cells_of, effect_between, known
from dbdyno.conclude.compare.table import ALPHA, careful_p, judge
from dbdyno.model.errors import UsageError
from dbdyno.model.results.claim import Claim, disturbed_cells
from dbdyno.model.results.comparison import (
    MARGIN,
    Account,
    CodeCost,
    Comparison,
    Contrast,
    CostChange,
    Verdict,
    in_brackets,
    ratio_text,
)
from dbdyno.model.results.results import Results
from dbdyno.model.results.suite import Cause, SuiteMatrix, SuiteRow
from dbdyno.model.schema.data_sources.costs import CALL, CPU, FIGURES, metric_of
from dbdyno.model.units import format_amount, joined
from dbdyno.stats.estimates import Mean
from dbdyno.stats.significance import holm

THROUGHPUT = "calls_per_s"
MOSTLY = 0.5
"""Share of the difference in session time from which on an account is named as its cause."""
NAMED_CODE = 3
"""Most functions or modules that a sentence names."""
_CHANGED = ("better", "worse")
_VERDICTS: Mapping[str, Sequence[Verdict]] = {
    "better": ("better",),
    "worse": ("worse",),
    "same": ("equal", "no difference"),
    "undecided": ("undecided",),
}


class Measured(NamedTuple):
    """A benchmark of a suite with the results of its run, or the reason why it has none."""

    benchmark: str
    doc: str
    results: Results | None
    reason: str = ""


def matrix(id: str, suite: str, benchmarks: Sequence[Measured], planned: int) -> SuiteMatrix:
    """Returns the matrix. ``planned``: how many benchmarks were to be measured."""
    rows = [row for b in benchmarks for row in _rows(b)]
    measured = {b.benchmark: b.results for b in benchmarks if b.results is not None}
    first = next((r.comparison for r in measured.values() if r.comparison is not None), None)
    margin, alpha = (first.margin, first.alpha) if first is not None else (MARGIN, ALPHA)
    rows, family = _judged(rows, "contrasts", margin, alpha)
    rows, _ = _judged(rows, "cpu", margin, alpha)
    comparisons = {
        r.run: _with_verdicts(results.comparison, r, results)
        for r in rows
        if (results := measured.get(r.benchmark)) is not None and results.comparison is not None
    }
    rows = [_with_causes(r, comparisons[r.run]) if r.run in comparisons else r for r in rows]
    rows.sort(key=_place)
    shown = SuiteMatrix(
        id=id,
        suite=suite,
        server=next((b.results.environment.server_names() for b in benchmarks if b.results is not None), ""),
        variants=tuple(_variants(rows, first)),
        margin=margin,
        alpha=alpha,
        family=family,
        rows=tuple(rows),
        planned=planned,
        comparisons=comparisons,
    )
    return shown.model_copy(update={"conclusions": (*_conclusions(shown, benchmarks),)})


def _variants(rows: Sequence[SuiteRow], comparison: Comparison | None) -> list[str]:
    first = [] if comparison is None else [comparison.baseline]
    return list(dict.fromkeys([*first, *(v for r in rows for v in r.means)]))


# -- rows --


def _rows(measured: Measured) -> Iterator[SuiteRow]:
    """Yields a row for each number of sessions, or one with the reason why there are no figures."""
    benchmark, doc, results, reason = measured
    row = SuiteRow(benchmark=benchmark, doc=doc, run="" if results is None else results.info.id)
    cells = None if results is None else cells_of(results.tables)
    loads = [] if cells is None else [(w, n) for w in cells.workloads() for n, _ in cells.rungs(w)]
    if results is None or cells is None or not loads:
        yield row.model_copy(update={"reason": reason or _why_none(results)})
        return
    for workload, sessions in loads:
        figures = _figures(_by_variant(cells, workload, sessions))
        contrasts = [] if results.comparison is None else _contrasts(results.comparison, sessions)
        cpu = _of_cpu(results, workload, sessions, contrasts)
        lacking = len(contrasts) < len(results.plan.variants) - 1
        missing = "" if not lacking else "a variant has no usable measurement"
        why = reason or (missing if figures["means"] else _why_none(results))
        update = {
            "sessions": sessions,
            "contrasts": tuple(contrasts),
            "cpu": tuple(cpu),
            "reason": why,
            **figures,
        }
        yield row.model_copy(update=update)


def _by_variant(cells: Cells, workload: str, sessions: int) -> dict[str, Group]:
    """Returns the cells of a load, by variant."""
    return {k.variant: g for k, g in cells.of.items() if (k.workload, k.sessions) == (workload, sessions)}


def _why_none(results: Results | None) -> str:
    """Returns why a run has no usable measurement."""
    if results is None:
        return "not measured"
    errors = [c.text for c in results.findings if c.id.startswith("errors")]
    return (results.info.reason or "") or next(iter(errors), "no measurement is usable")


def _figures(groups: Mapping[str, Group]) -> dict[str, object]:
    """Returns means of throughput and costs by variant, where they are known."""
    means = {v: Mean.of(rates.values()) for v, g in groups.items() if (rates := known(g, THROUGHPUT))}
    ends = {v: m.positive95 or (None, None) for v, m in means.items()}
    each = {v: {f.id: metric_of(f.id, CALL) for f in FIGURES} for v in means}
    amounts = {
        v: {f: Mean.of(own.values()).value for f, name in names.items() if (own := known(groups[v], name))}
        for v, names in each.items()
    }
    return {
        "means": {v: m.value for v, m in means.items()},
        "low": {v: low for v, (low, _) in ends.items()},
        "high": {v: high for v, (_, high) in ends.items()},
        "costs": amounts,
        "unit": "calls/s",
    }


def _contrasts(comparison: Comparison, sessions: int) -> list[Contrast]:
    table = next((t for t in comparison.metrics if t.metric == THROUGHPUT), None)
    claims = () if table is None else table.claims
    return [c for c in claims if not c.neighbours and c.sessions == sessions]


def _of_cpu(results: Results, workload: str, sessions: int, throughput: Sequence[Contrast]) -> list[Contrast]:
    """Returns the CPU time of a call against the baseline for the variants whose throughput is compared. The
    server's CPU time holds for measurements that the client limited, too."""
    of = _by_variant(cells_of(results.tables, limited=True), workload, sessions)
    metric = BY_NAME[metric_of(CPU, CALL)]
    return [
        c.model_copy(update={"effect": effect_between(of[c.baseline], of[c.variant], metric, True)})
        for c in throughput
        if known(of[c.baseline], metric.name) and known(of[c.variant], metric.name)
    ]


def _judged(rows: Sequence[SuiteRow], field: str, margin: float, alpha: float) -> tuple[list[SuiteRow], int]:
    """Returns the rows with p and verdicts for all comparisons of a field together, and their number."""
    adjusted = holm([careful_p(c.effect) for r in rows for c in getattr(r, field)])
    family = sum(p is not None for p in adjusted)
    ps = iter(adjusted)

    def again(c: Contrast) -> Contrast:
        p = next(ps)
        judged = judge(c.effect, p, margin, field != "cpu", family or 1, alpha)
        return c.model_copy(update={"p_holm": p, **judged._asdict()})

    return [r.model_copy(update={field: tuple(map(again, getattr(r, field)))}) for r in rows], family


def _with_verdicts(comparison: Comparison, row: SuiteRow, results: Results) -> Comparison:
    """Returns the comparison of a run with the row's verdicts in place of its own, and with the profiles of
    all its measurements, those that the client limited, too."""
    judged = {(c.variant, c.sessions): c for c in row.contrasts}
    tables = tuple(
        t.model_copy(update={"claims": tuple(judged.get((c.variant, c.sessions), c) for c in t.claims)})
        if t.metric == THROUGHPUT
        else t
        for t in comparison.metrics
    )
    profiled = [change for c in row.contrasts if (change := _profiles(results, c)) is not None]
    return comparison.model_copy(update={"metrics": tables, "costs": tuple(profiled)})


def _profiles(results: Results, c: Contrast) -> CostChange | None:
    """Returns the change of the CPU profile of a call; None without profiles."""
    if "cpu_profile" not in results.tables:
        return None
    base, other = ((c.workload, v, c.sessions) for v in (c.baseline, c.variant))
    try:
        return between(results, base, results, other, (c.baseline, c.variant))
    except UsageError:
        return None


def _place(row: SuiteRow) -> tuple[int, float]:
    """Returns the order of a row: those with another throughput first, then those with another CPU time,
    then the others; the largest difference first in each."""
    for n, contrasts in enumerate((_decided(row.contrasts), _decided(row.cpu), row.contrasts)):
        if ratios := [c.effect.ratio for c in contrasts if c.effect.ratio]:
            return n, -max(abs(math.log(r)) for r in ratios)
    return 3, 0.0


def _decided(contrasts: Sequence[Contrast]) -> list[Contrast]:
    return [c for c in contrasts if c.verdict in _CHANGED]


# -- causes --


def _with_causes(row: SuiteRow, comparison: Comparison) -> SuiteRow:
    """Returns the row with what changed together with its throughput or CPU time, if one of them differs."""
    differing = {c.variant for c in (*_decided(row.contrasts), *_decided(row.cpu))}
    causes = {c.variant: _cause(row, comparison, c) for c in row.contrasts if c.variant in differing}
    return row.model_copy(update={"causes": causes})


def _cause(row: SuiteRow, comparison: Comparison, contrast: Contrast) -> Cause:
    """Returns the sentence about a row: how much faster or slower, and what changed with it."""
    of_row = [
        c for c in comparison.operation_costs if (c.variant, c.sessions) == (contrast.variant, row.sessions)
    ]
    changed = [f for c in of_row for f in costs.changed_costs(c, comparison.margin)]
    listed = [text for c in of_row for text in costs.listed(changed, c)]
    cpu = [c for c in _decided(row.cpu) if c.variant == contrast.variant]
    if cpu and not any(f.figure == CPU and not f.background for f in changed):
        listed = [_cpu_words(cpu[0]), *listed]
    decided = contrast.verdict in _CHANGED
    parts = [*_accounts(row, comparison, contrast.variant), *listed] if decided else listed
    values = {
        "benchmark": row.benchmark,
        "variant": contrast.variant,
        "baseline": contrast.baseline,
        "speed": _speed(contrast),
        "named": "; ".join(parts),
        "code": _code(row, comparison, contrast.variant),
    }
    alone = "cpu" if contrast.verdict == "undecided" else "cpu-alone"
    case = ("speed" if parts else "bare") if decided else alone
    extra = ["code"] if values["code"] else []
    effect = contrast.effect
    sentence = claim(
        "suite-row", values, effect.ratio, case=case, parts=extra, low=effect.low, high=effect.high
    )
    return Cause(claim=sentence, costs=tuple(changed))


def _speed(contrast: Contrast) -> str:
    """Returns ``6 % slower than a``, or ``3.1 times as fast as a``."""
    ratio, base = contrast.effect.ratio, contrast.baseline
    if ratio is None:
        return f"{'faster' if contrast.verdict == 'better' else 'slower'} than {base}"
    if 0.5 < ratio < 2:
        return f"{fmt.percent(abs(ratio - 1))} {'faster' if ratio > 1 else 'slower'} than {base}"
    return f"{ratio_text(contrast.effect, ratio)} times as fast as {base}"


def _cpu_words(contrast: Contrast) -> str:
    """Returns ``1.45 times as much CPU (1.21 to 1.72)``."""
    e = contrast.effect
    if e.ratio is None:
        return f"{'less' if contrast.verdict == 'better' else 'more'} CPU"
    return f"{ratio_text(e, e.ratio)} times as much CPU{in_brackets(e)}"


def _accounts(row: SuiteRow, comparison: Comparison, variant: str) -> Iterator[str]:
    """Yields the account of session time, other than CPU, that makes most of the difference."""
    for why in comparison.why:
        if (why.variant, why.sessions) != (variant, row.sessions):
            continue
        for a in why.accounts:
            if a.account != "run" and not a.inside and (a.share or 0.0) >= MOSTLY and _is_sure(a):
                change = "more" if a.difference_s > 0 else "less"
                amount = format_amount(abs(a.difference_s) * 1e9, "ns")
                yield f"{amount} {change} {_account_name(a)} per {why.unit}"


def _is_sure(account: Account) -> bool:
    """Returns whether the interval of a change excludes 0."""
    low, high = account.low_s, account.high_s
    return low is not None and high is not None and not low <= 0 <= high


def _account_name(account: Account) -> str:
    if account.account == "sleep":
        return f"asleep in {account.detail}" if account.detail else "asleep, reason unknown"
    return {"runq": "CPU WAIT"}.get(account.account, account.account)


def changed_code(change: CostChange, alpha: float) -> list[CodeCost]:
    """Returns the functions whose CPU time per call changed beyond chance in the direction of the whole; the
    modules, if that holds for no function."""
    by_part = (
        [
            c
            for c in parts
            if c.p_holm is not None and c.p_holm < alpha and c.difference_ns * change.difference_ns > 0
        ]
        for parts in (change.functions, change.modules)
    )
    return next(filter(None, by_part), [])


def _code(row: SuiteRow, comparison: Comparison, variant: str) -> str:
    """Returns ``palloc (+2 %) and hash_search (+1 %)``: changes in CPU time per call, as shares of all."""
    for change in comparison.costs:
        if (change.variant, change.sessions) == (variant, row.sessions) and change.baseline_ns:
            texts = [
                f"{c.title} ({'+' if c.difference_ns > 0 else '-'}"
                f"{fmt.percent(abs(c.difference_ns) / change.baseline_ns)})"
                for c in changed_code(change, comparison.alpha)[:NAMED_CODE]
            ]
            return joined(texts)
    return ""


# -- the answer --


def _conclusions(matrix: SuiteMatrix, benchmarks: Sequence[Measured]) -> Iterator[Claim]:
    for variant in matrix.variants[1:]:
        yield _answer(matrix, variant)
    if len(matrix.variants) < 2:
        measured = len({r.benchmark for r in matrix.rows if r.means})
        values = {"measured": measured, "planned": matrix.planned, "were": "was" if measured == 1 else "were"}
        yield claim("suite-measured", values, case="one" if measured == matrix.planned == 1 else "many")
    if matrix.family:
        yield _family(matrix)
    failed = [r for r in matrix.rows if not r.means]
    if failed:
        names = ", ".join(f"{r.benchmark} ({r.reason})" for r in failed)
        yield claim("suite-failed", {"failed": len(failed), "planned": matrix.planned, "names": names})
    if len(benchmarks) < matrix.planned:
        yield claim("suite-stopped", {"measured": len(benchmarks), "planned": matrix.planned})
    disturbed = [b for b in benchmarks if b.results is not None and disturbed_cells(b.results.findings)]
    if disturbed:
        numbers = {"disturbed": len(disturbed), "measured": len(benchmarks)}
        case = "one" if len(benchmarks) == 1 else "many"
        yield claim("suite-disturbed", numbers, case=case, parts=["alternate"] if matrix.family else [])


def _answer(matrix: SuiteMatrix, variant: str) -> Claim:
    contrasts = [c for r in matrix.rows for c in r.contrasts if c.variant == variant]
    counts = {name: sum(c.verdict in verdicts for c in contrasts) for name, verdicts in _VERDICTS.items()}
    cpu = [c.verdict for r in matrix.rows for c in r.cpu if c.variant == variant]
    values = {
        "variant": variant,
        "baseline": matrix.variants[0],
        "compared": len(contrasts),
        "margin": f"{100 * matrix.margin:g} %",
        **counts,
        "more_cpu": cpu.count("worse"),
        "less_cpu": cpu.count("better"),
    }
    return claim("suite-answer", values, each=variant, parts=["cpu"] if cpu else [])


def _family(matrix: SuiteMatrix) -> Claim:
    """Returns the claim about many comparisons, and whether the repeats are too few for these."""
    pairs = [min(c.effect.n_baseline, c.effect.n_variant) for r in matrix.rows for c in r.contrasts]
    repeats = max(pairs)
    wanted = next(n for n in range(2, 100) if matrix.family * 2.0 ** (1 - 2 * n) < matrix.alpha)
    short = sum(n < wanted for n in pairs)
    values = {"family": matrix.family, "alpha": matrix.alpha, "repeats": repeats, "wanted": wanted}
    parts = ["few"] if repeats < wanted else ["lost"] if short else []
    one = matrix.family == 1
    words: dict[str, Any] = {**values, "short": short, "among": "" if one else " among so many"}
    return claim("suite-family", words, case="one" if one else "many", parts=parts)
