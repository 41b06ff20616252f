"""The variants of one run against its baseline, paired by block."""

from __future__ import annotations

from collections.abc import Iterator

from dbdyno.conclude.compare.attribution import whys
from dbdyno.conclude.compare.cells import Cells, Key, cells_of
from dbdyno.conclude.compare.differences import of_variants
from dbdyno.conclude.compare.options import Options, alpha_of, only_rung, tables_of
from dbdyno.conclude.compare.table import Match
from dbdyno.conclude.compare.words import notes, summary
from dbdyno.model.comparison import Comparison
from dbdyno.model.errors import UsageError
from dbdyno.model.results import Results
from dbdyno.model.suggest import did_you_mean


def compare_variants(results: Results, options: Options | None = None) -> Comparison:
    """Raises :class:`UsageError` where there is nothing to compare."""
    options = options or Options()
    names = variants_of(results)
    if len(names) < 2:
        raise UsageError(
            f"run {results.info.id} has one variant ({', '.join(names) or 'none'}): nothing to compare",
            "name a second run (dbdyno compare RUN RUN), or measure a recipe with variants",
        )
    baseline = _baseline(results, options, names)
    cells = cells_of(results.tables)
    matches = only_rung(list(_matches(cells, names, baseline)), options.rung)
    if not matches:
        raise UsageError(
            f"run {results.info.id}: no rung has usable windows of {baseline} and another variant",
            f"look at it: dbdyno show {results.info.id}",
        )
    tables = tables_of(matches, options, work_short(results), alpha_of(results))
    made = Comparison(
        kind="variants",
        runs=(results.info.id,),
        baseline=baseline,
        margin=options.margin,
        alpha=alpha_of(results),
        metrics=tables,
        why=tuple(whys(matches, {"": results.tables["ledger"]}, *unit(results, tables[0].metric))),
        differences=tuple(of_variants(results.plan, baseline)),
    )
    return made.model_copy(
        update={"conclusions": (*summary(made, results), *notes(made, cells.left_out, [results]))}
    )


def variants_of(results: Results) -> list[str]:
    """In the plan's order; those that have windows."""
    there = set(results.tables["windows"]["variant"])
    planned = [v.name for v in results.plan.variants] or [c.variant for c in results.plan.cells]
    return [v for v in dict.fromkeys(planned) if v in there]


def unit(results: Results, metric: str) -> tuple[str, str]:
    """What session time is divided by: the rate's name, and one of what it counts."""
    if metric in ("work_per_s", "cpu_per_work_ns"):
        return "work_per_s", work_short(results)
    return "calls_per_s", "call"


def work_short(results: Results) -> str:
    """``LIO``."""
    return next((w.work_short for w in results.info.workloads.values()), "work unit")


def _baseline(results: Results, options: Options, names: list[str]) -> str:
    if options.baseline is not None and options.baseline not in names:
        raise UsageError(f"no variant {options.baseline!r}", did_you_mean(options.baseline, names))
    wanted = options.baseline or results.plan.experiment.baseline
    return wanted if wanted in names else names[0]


def _matches(cells: Cells, names: list[str], baseline: str) -> Iterator[Match]:
    """Every rung where the baseline and at least one more variant have usable cells."""
    for workload in cells.workloads():
        for sessions in cells.rungs(workload):
            groups = {v: cells.of[k] for v in names if (k := Key(workload, v, sessions)) in cells.of}
            if baseline in groups and len(groups) > 1:
                yield Match(workload, sessions, baseline, groups, paired=True)
