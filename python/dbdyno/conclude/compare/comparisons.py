"""Comparisons: the variants of a run, two runs; and what differs beside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.compare import paced
from dbdyno.conclude.compare.cache_placement import cache_placement
from dbdyno.conclude.compare.effects import Cells, Key, cells_of
from dbdyno.conclude.compare.sizes import check_sizes
from dbdyno.conclude.compare.summary import notes, summary, whys
from dbdyno.conclude.compare.table import (
    Match,
    Options,
    alpha_of,
    only_rung,
    tables_of,
)
from dbdyno.conclude.run.quality import other_cpus
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan.jobs import PlannedJob
from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.plan.plan import Plan, Variant
from dbdyno.model.results.comparison import Comparison, Difference
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import counted, format_given

NONE = "-"
_RUN = ("measure", "settle", "cool_down", "think", "order", "observe", "waits", "sample_hz", "log_calls")
_CHANGING = (
    "server.main_pid",
    "server.where",
    "server.here_detail",
    "server.helpers",
    "host.limits.affinity",
    "host.notes",
    "sources",
)
"""They differ from run to run and decide nothing, or are shown elsewhere."""


def of_variants(plan: Plan, baseline: str) -> Iterator[Difference]:
    """Each other variant against the baseline, as the plan resolved them; the name is in front."""
    variants = {v.name: v for v in plan.variants}
    first = variants.get(baseline)
    for name, variant in variants.items():
        if first is not None and name != baseline:
            for d in _differences(_flat(_said(first)), _flat(_said(variant))):
                yield d.model_copy(update={"what": f"{name}: {d.what}"})


def of_runs(a: Results, b: Results) -> Iterator[Difference]:
    """Environment, plan and size of a call, and what else ran on the machine."""
    left, right = ({**_environment(r), **_plan(r), **_beside(r)} for r in (a, b))
    yield from _differences(left, right)


def _environment(results: Results) -> dict[str, str]:
    flat = _flat(results.environment.model_dump(mode="json", exclude={"conditions"}))
    for c in results.environment.conditions:
        flat[f"check: {c.title}{f' ({c.variant})' if c.variant else ''}"] = f"{c.state}: {c.value}"
    return {k: v for k, v in flat.items() if not any(k == c or k.startswith(f"{c}.") for c in _CHANGING)}


def _beside(results: Results) -> dict[str, str]:
    """CPU time of the machine that neither the server's tasks nor dbdyno's used, over all measurements; empty
    where the machine's is not known. Rounded so far that noise is no difference."""
    used: Any = other_cpus(results.tables["data_sources"])["other_cpus"].mean()
    return {} if used is None else {"CPUs used by other processes (mean)": f"{used:.1f}"}


def _plan(results: Results) -> dict[str, str]:
    experiment = results.plan.experiment.model_dump(mode="json")
    found = {name: _text(experiment[name]) for name in _RUN}
    for variant in results.plan.variants:
        found |= {f"{variant.name}: {k}": v for k, v in _flat(_said(variant)).items()}
    for name, c in results.info.calibrations.items():
        found[f"size of a call ({name})"] = f"{c.size} {c.size_unit}"
    return found


def _said(variant: Variant) -> dict[str, Any]:
    said = variant.model_dump(mode="json", exclude={"name", "doc", "jobs"})
    return said | {"job": {job.name: _job(job) for job in variant.jobs}} if variant.jobs else said


_BESIDE = {"name", "argv", "shown", "shell_ns", "shell_error_ns"}
"""Of a job what is its name, its command in other words, or measured anew by each run."""


def _job(job: PlannedJob) -> dict[str, Any]:
    """What was asked for, each by itself: a job has more properties than a reader wants to see twice."""
    kept = job.model_dump(mode="json", exclude=_BESIDE, exclude_defaults=True)
    words = {k: " ".join(v) if isinstance(v, list) else v for k, v in kept.items()}
    return {"command": job.shown} | words


def _flat(value: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """``{"limits": {"pool": 6}}`` as ``{"limits.pool": "6"}``; what is not said is left out."""
    found: dict[str, str] = {}
    for key, v in value.items():
        name = f"{before}{key}"
        if isinstance(v, Mapping):
            found |= _flat(v, f"{name}.")
        elif v is not None:
            found[name] = _text(v)
    return found


def _text(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


def _differences(left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Difference]:
    for name in dict.fromkeys([*left, *right]):
        a, b = left.get(name, NONE), right.get(name, NONE)
        if a != b:
            yield Difference(what=name, baseline=a, variant=b)


# -- variants of one run, paired by block --


def compare_variants(results: Results, options: Options | None = None) -> Comparison:
    """Raises :class:`UsageError` where there is nothing to compare."""
    options = options or Options()
    if results.plan.experiment.phases:
        raise UsageError(
            f"run {results.info.id} is one measurement in phases: they are not compared with each other",
            "dbdyno show RUN lists them; two runs: dbdyno compare RUN RUN pairs phases by their names",
        )
    names = variants_of(results)
    if len(names) < 2:
        raise UsageError(
            f"run {results.info.id} has one variant ({', '.join(names) or 'none'}): nothing to compare",
            "name a second run (dbdyno compare RUN RUN), or measure a recipe with variants",
        )
    baseline = _baseline_of(results, options, names)
    cells = cells_of(results.tables)
    matches = only_rung(list(_of_variants(cells, names, baseline, results)), options.rung)
    if not matches:
        raise UsageError(
            f"run {results.info.id}: no rung has usable windows of {baseline} and another variant",
            f"look at it: dbdyno show {results.info.id}",
        )
    differences = of_variants(results.plan, baseline)
    with speaking_of(kind_of(results.plan)):
        made = _made("variants", [results], baseline, matches, options, differences, cells.left_out)
        places = tuple(cache_placement(results, cells, made, work_short(results)))
        made = made.model_copy(update={"conclusions": (*places, *made.conclusions)})
        return _with_capacities(made, {v: (cells, v) for v in names}, matches)


def _made(
    kind: Literal["variants", "runs"],
    runs: Sequence[Results],
    baseline: str,
    matches: Sequence[Match],
    options: Options,
    differences: Iterable[Difference],
    left_out: Sequence[tuple[str, str]],
) -> Comparison:
    """The first run is the baseline's."""
    first = runs[0]
    by_label = dict(zip(LABELS if kind == "runs" else ("",), runs, strict=True))
    sizes = check_sizes(matches, by_label, insisted=options.across_sizes)
    tables = tables_of(matches, options, work_short(first), alpha_of(*runs))
    ledgers = {label: r.tables["ledger"] for label, r in by_label.items()}
    made = Comparison(
        kind=kind,
        runs=tuple(r.info.id for r in runs),
        baseline=baseline,
        run_kind=kind_of(first.plan).name,
        margin=options.margin,
        alpha=alpha_of(*runs),
        metrics=tables,
        why=tuple(whys(matches, ledgers, *unit(first, tables[0].metric))),
        differences=tuple(differences),
    )
    from dbdyno.conclude.compare import cpu_profile  # it stands on this package

    profiles = {label: r.tables.get("cpu_profile", empty("cpu_profile")) for label, r in by_label.items()}
    costs = tuple(cpu_profile.changes(matches, profiles, *unit(first, tables[0].metric)))
    told = [cpu_profile.said(c) for c in costs]
    unequal = [claim("across-sizes", {"sizes": sizes})] if sizes else []
    ranked = summary(made, first, matches)
    concluded = (*unequal, *ranked, *told, *notes(made, left_out, runs, matches))
    return made.model_copy(update={"conclusions": concluded, "costs": costs})


def _with_capacities(
    made: Comparison, sides: Mapping[str, tuple[Cells, str]], matches: Sequence[Match]
) -> Comparison:
    """With the rates that each side kept, where they were set."""
    if all(m.rate_per_s is None for m in matches):
        return made
    return made.model_copy(update={"conclusions": (*paced.capacities(sides), *made.conclusions)})


def variants_of(results: Results) -> list[str]:
    """In the plan's order; those that have windows."""
    there = set(results.tables["windows"]["variant"])
    planned = [v.name for v in results.plan.variants] or [c.variant for c in results.plan.cells]
    return [v for v in dict.fromkeys(planned) if v in there]


def unit(results: Results, metric: str) -> tuple[str, str]:
    """What session time is divided by: the rate's name, and one of what it counts."""
    if metric in ("work_per_s", "cpu_per_work_ns"):
        return "work_per_s", work_short(results)
    return "calls_per_s", noun("call")


def work_short(results: Results) -> str:
    """``LIO``."""
    return next((w.work_short for w in results.info.workloads.values()), "work unit")


def _baseline_of(results: Results, options: Options, names: list[str]) -> str:
    if options.baseline is not None and options.baseline not in names:
        raise UsageError(f"no variant {options.baseline!r}", did_you_mean(options.baseline, names))
    wanted = options.baseline or results.plan.experiment.baseline
    return wanted if wanted in names else names[0]


def _size(results: Results, workload: str, variant: str) -> int:
    """Size of a call; 0: it was not calibrated."""
    found = results.info.calibrations.get(f"{workload}/{variant}")
    return found.size if found else 0


def _of_variants(cells: Cells, names: list[str], baseline: str, results: Results) -> Iterator[Match]:
    """Every rung where the baseline and at least one more variant have usable cells."""
    for workload in cells.workloads():
        for sessions, rate in cells.rungs(workload):
            groups = {v: cells.of[k] for v in names if (k := Key(workload, v, sessions, rate)) in cells.of}
            if baseline in groups and len(groups) > 1:
                sizes = {v: _size(results, workload, v) for v in groups}
                series = paced.series_of(rate)
                starts = start_ups(results, {v: v for v in groups})
                yield Match(workload, sessions, baseline, groups, True, series, {}, sizes, rate, starts)


def start_ups(results: Results, variants: Mapping[str, str]) -> dict[str, float]:
    """By label, of variants whose jobs run in a shell: how much shorter a duration may be, in ns."""
    jobs = {
        label: v.jobs for label, name in variants.items() for v in results.plan.variants if v.name == name
    }
    return {
        label: float(max(j.shell_error_ns for j in found))
        for label, found in jobs.items()
        if any(j.shell_ns for j in found)
    }


# -- two runs: independent samples, because nothing ties their repeats to each other --

LABELS = ("A", "B")
"""What the two runs are called; the baseline's first."""


def compare_runs(baseline: Results, other: Results, options: Options | None = None) -> Comparison:
    """The other is divided by ``baseline``. Raises :class:`UsageError` without common ground."""
    options = options or Options()
    ids = baseline.info.id, other.info.id
    if ids[0] == ids[1]:
        raise UsageError(f"{ids[0]} twice: a run cannot differ from itself", "name another run: dbdyno runs")
    sides = cells_of(baseline.tables), cells_of(other.tables)
    matches = list(_of_runs(*sides, baseline, other))
    if not matches:
        raise UsageError(
            "; ".join(_grounds((baseline, sides[0]), (other, sides[1]))),
            "compare runs of one workload with common rungs",
        )
    matches = only_rung(matches, options.rung)
    left_out = [*sides[0].left_out, *sides[1].left_out]
    runs = [baseline, other]
    with speaking_of(kind_of(baseline.plan)):
        made = _made("runs", runs, LABELS[0], matches, options, of_runs(baseline, other), left_out)
        pairs = _pairs(baseline, other).items()
        for variants in pairs if len(pairs) == 1 else ():
            of_labels = zip(LABELS, zip(sides, variants, strict=True), strict=True)
            made = _with_capacities(made, dict(of_labels), matches)
    return made


def _pairs(a: Results, b: Results) -> Mapping[str, str]:
    """Which variant of one is compared with which of the other: of the same name, or the only one of each."""
    first, second = variants_of(a), variants_of(b)
    common = {v: v for v in first if v in second}
    if not common and len(first) == len(second) == 1:
        return {first[0]: second[0]}
    return common


def _of_runs(a: Cells, b: Cells, baseline: Results, run: Results) -> Iterator[Match]:
    pairs = _pairs(baseline, run)
    for (workload, variant, sessions, rate), cells in sorted(a.of.items(), key=_in_order):
        if variant not in pairs:
            continue
        other = b.of.get(Key(workload, pairs[variant], sessions, rate))
        if other is not None:
            groups = dict(zip(LABELS, (cells, other), strict=True))
            told = [variant] if len(pairs) > 1 else []
            series = paced.series_of(rate, *told)
            of = {label: label for label in LABELS}
            made = _size(baseline, workload, variant), _size(run, workload, pairs[variant])
            sizes = dict(zip(LABELS, made, strict=True))
            a_start = start_ups(baseline, {LABELS[0]: variant})
            starts = a_start | start_ups(run, {LABELS[1]: pairs[variant]})
            yield Match(workload, sessions, LABELS[0], groups, False, series, of, sizes, rate, starts)


def _in_order(cells: tuple[Key, object]) -> tuple[str, str, int, float]:
    key = cells[0]
    return key.workload, key.variant, key.sessions, key.rate_per_s or 0.0


def _grounds(*sides: tuple[Results, Cells]) -> Iterator[str]:
    """What the runs have instead of something in common."""
    yield f"{' and '.join(r.info.id for r, _ in sides)} have no usable load level in common"
    for r, cells in sides:
        reasons = ", ".join(dict.fromkeys(why for _, why in cells.left_out))
        lost = f" ({counted(len(cells.left_out), 'measurement')} left out: {reasons})" if reasons else ""
        if not cells.of:
            yield f"{r.info.id} has no usable window{lost}"
            continue
        rungs = ", ".join(str(n) for n in sorted({k.sessions for k in cells.of}))
        rates = ", ".join(
            f"{format_given(v)}/s" for v in sorted({k.rate_per_s for k in cells.of if k.rate_per_s})
        )
        told = f", rates {rates}" if rates else ""
        names = f"{', '.join(sorted(cells.workloads()))}, variants {', '.join(variants_of(r))}"
        yield f"{r.info.id}: {names}, sessions {rungs}{told}{lost}"
