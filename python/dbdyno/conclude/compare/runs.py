"""One run against another: independent samples, because nothing ties their repeats to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dbdyno.conclude.compare.attribution import whys
from dbdyno.conclude.compare.cells import Cells, Key, cells_of
from dbdyno.conclude.compare.differences import of_runs
from dbdyno.conclude.compare.options import Options, alpha_of, only_rung, tables_of
from dbdyno.conclude.compare.table import Match
from dbdyno.conclude.compare.variants import unit, variants_of, work_short
from dbdyno.conclude.compare.words import notes, summary
from dbdyno.model.comparison import Comparison
from dbdyno.model.errors import UsageError
from dbdyno.model.results import Results

LABELS = ("A", "B")
"""What the two runs are called; the baseline's first."""


def compare_runs(baseline: Results, other: Results, options: Options | None = None) -> Comparison:
    """The other is divided by ``baseline``. Raises :class:`UsageError` without common ground."""
    options = options or Options()
    ids = baseline.info.id, other.info.id
    if ids[0] == ids[1]:
        raise UsageError(f"{ids[0]} twice: a run cannot differ from itself", "name another run: dbdyno runs")
    sides = cells_of(baseline.tables), cells_of(other.tables)
    matches = list(_matches(*sides, _pairs(baseline, other)))
    if not matches:
        raise UsageError(
            "; ".join(_grounds(baseline, other)), "compare runs of one workload with common rungs"
        )
    matches = only_rung(matches, options.rung)
    tables = tables_of(matches, options, work_short(baseline), alpha_of(baseline, other))
    ledgers = {label: r.tables["ledger"] for label, r in zip(LABELS, (baseline, other), strict=True)}
    made = Comparison(
        kind="runs",
        runs=ids,
        baseline=LABELS[0],
        margin=options.margin,
        alpha=alpha_of(baseline, other),
        metrics=tables,
        why=tuple(whys(matches, ledgers, *unit(baseline, tables[0].metric))),
        differences=tuple(of_runs(baseline, other)),
    )
    left_out = [*sides[0].left_out, *sides[1].left_out]
    return made.model_copy(
        update={"conclusions": (*summary(made, baseline), *notes(made, left_out, [baseline, other]))}
    )


def _pairs(a: Results, b: Results) -> Mapping[str, str]:
    """Which variant of one is compared with which of the other: of the same name, or the only one of each."""
    first, second = variants_of(a), variants_of(b)
    common = {v: v for v in first if v in second}
    if not common and len(first) == len(second) == 1:
        return {first[0]: second[0]}
    return common


def _matches(a: Cells, b: Cells, pairs: Mapping[str, str]) -> Iterator[Match]:
    for (workload, variant, sessions), cells in sorted(a.of.items()):
        if variant not in pairs:
            continue
        other = b.of.get(Key(workload, pairs[variant], sessions))
        if other is not None:
            groups = dict(zip(LABELS, (cells, other), strict=True))
            series = variant if len(pairs) > 1 else ""
            of = {label: label for label in LABELS}
            yield Match(workload, sessions, LABELS[0], groups, paired=False, series=series, of=of)


def _grounds(a: Results, b: Results) -> Iterator[str]:
    """What the runs have instead of something in common."""
    yield f"{a.info.id} and {b.info.id} have no rung in common"
    for r in (a, b):
        windows = r.tables["windows"].filter(r.tables["windows"]["status"] != "invalid")
        if windows.is_empty():
            yield f"{r.info.id} has no usable window"
            continue
        rungs = ", ".join(str(n) for n in sorted(set(windows["sessions"])))
        workloads = ", ".join(sorted(set(windows["workload"])))
        yield f"{r.info.id}: {workloads}, variants {', '.join(variants_of(r))}, sessions {rungs}"
