"""Compares the variants of a run, or two runs, and lists what else differs between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, Literal

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.compare import costs, paced
from dbdyno.conclude.compare.cache_placement import cache_placement
from dbdyno.conclude.compare.effects import RANKING, Cells, Key, cells_of
from dbdyno.conclude.compare.restarts import restart_differences
from dbdyno.conclude.compare.sizes import check_sizes
from dbdyno.conclude.compare.summary import notes, summary, whys
from dbdyno.conclude.compare.table import (
    Match,
    Options,
    alpha_of,
    only_rung,
    tables_of,
)
from dbdyno.conclude.ladder.ladders import in_doubt
from dbdyno.conclude.noise_records import NoiseRecord
from dbdyno.conclude.run.quality import other_cpus
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan.jobs import PlannedJob
from dbdyno.model.plan.kinds import OBSERVATION, kind_of, speaking_of
from dbdyno.model.plan.plan import Plan, Variant
from dbdyno.model.results.claim import Claim, disturbed_cells
from dbdyno.model.results.comparison import Comparison, Difference
from dbdyno.model.results.results import Results
from dbdyno.model.results.run_names import run_names
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.wait_advice import advice_of
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import counted, format_given

NONE = "-"
_RUN = ("measure", "settle", "cool_down", "think", "order", "observe", "waits", "sample_hz", "log_calls")
_PLACES = ("port", "unix_socket_directories", "data_directory", "config_file", "hba_file", "ident_file")
"""Settings that state where a server is."""
_CHANGING = (
    "server.main_pid",
    "server.where",
    "server.here_detail",
    "server.helpers",
    "server.clock",
    *(f"server.settings.{name}" for name in _PLACES),
    "host.limits.affinity",
    "host.notes",
    "sources",
)
"""Properties that differ from run to run and decide nothing, or are shown elsewhere."""


def variant_differences(plan: Plan, baseline: str) -> Iterator[Difference]:
    """Yields the differences of each other variant from the baseline, as the plan resolved them, prefixed
    with the variant's name."""
    variants = {v.name: v for v in plan.variants}
    first = variants.get(baseline)
    for name, variant in variants.items():
        if first is not None and name != baseline:
            for d in _differences(_flat(_variant_values(first)), _flat(_variant_values(variant))):
                yield d.model_copy(update={"what": f"{name}: {d.what}"})


def server_differences(results: Results, baseline: str) -> Iterator[Difference]:
    """Yields how many settings of each variant's server differ from those of the baseline's, in value or
    default, and where they are listed."""
    environment, report = results.environment, f"dbdyno report {results.info.id}"
    for name in environment.servers:
        differing = [
            d
            for d in environment.differences
            if any(each.get(name) != each.get(baseline) for each in (d.values, d.defaults))
        ]
        if name != baseline and differing:
            count = counted(len(differing), "setting")
            verb = "differs" if len(differing) == 1 else "differ"
            yield Difference(
                what=f"{name}: settings and defaults",
                baseline="",
                variant=f"{count} {verb} in value or default: {report}",
            )


def run_differences(a: Results, b: Results) -> Iterator[Difference]:
    """Yields the differences of environment, plan, size of a call and other load on the machine."""
    left, right = ({**_environment(r), **_plan(r), **_other_cpus(r)} for r in (a, b))
    yield from _differences(left, right)


def _environment(results: Results) -> dict[str, str]:
    flat = _flat(results.environment.model_dump(mode="json", exclude={"conditions"}))
    for c in results.environment.conditions:
        flat[f"check: {c.title}{f' ({c.variant})' if c.variant else ''}"] = f"{c.state}: {c.value}"
    return {k: v for k, v in flat.items() if not any(k == c or k.startswith(f"{c}.") for c in _CHANGING)}


def _other_cpus(results: Results) -> dict[str, str]:
    """Returns the machine's CPU time that neither the server's tasks nor dbdyno used, over all measurements.
    Empty if unknown. It is rounded so that noise shows no difference."""
    used: Any = other_cpus(results.tables["data_sources"])["other_cpus"].mean()
    return {} if used is None else {"CPUs used by other processes (mean)": f"{used:.1f}"}


def _plan(results: Results) -> dict[str, str]:
    experiment = results.plan.experiment.model_dump(mode="json")
    properties = {name: _text(experiment[name]) for name in _RUN}
    for variant in results.plan.variants:
        before = f"{variant.name}: " if len(results.plan.variants) > 1 else ""
        properties |= {f"{before}{k}": v for k, v in _flat(_variant_values(variant)).items()}
    for name, c in results.info.calibrations.items():
        properties[f"size of a call ({name})"] = f"{c.size} {c.size_unit}"
    return properties


def _variant_values(variant: Variant) -> dict[str, Any]:
    values = variant.model_dump(mode="json", exclude={"name", "doc", "jobs"})
    if len(variant.jobs) == 1:  # its name differs with its command
        return values | _job(variant.jobs[0])
    return values | {"job": {job.name: _job(job) for job in variant.jobs}} if variant.jobs else values


_JOB_NAMES = {"name", "argv", "shown", "shell_ns", "shell_error_ns"}
"""Properties of a job that hold its name, repeat its command in other words, or are measured again by each
run."""


def _job(job: PlannedJob) -> dict[str, Any]:
    """Returns the job's options one by one, without defaults, and its command."""
    kept = job.model_dump(mode="json", exclude=_JOB_NAMES, exclude_defaults=True)
    words = {k: " ".join(v) if isinstance(v, list) else v for k, v in kept.items()}
    return {"command": job.shown} | words


def _flat(value: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Returns ``{"limits": {"pool": 6}}`` as ``{"limits.pool": "6"}``; values that are None are left out.
    Parts of a list are told apart by their names."""
    flat: dict[str, str] = {}
    for key, v in value.items():
        name = f"{before}{key}"
        if isinstance(v, Mapping):
            flat |= _flat(v, f"{name}.")
        elif isinstance(v, list) and v and all(isinstance(x, Mapping) and "name" in x for x in v):
            for x in v:
                flat |= _flat({k: y for k, y in x.items() if k != "name"}, f"{name}.{x['name']}.")
        elif v is not None:
            flat[name] = _text(v)
    return flat


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
            a, b = _changed_lines(a, b)
            yield Difference(what=name, baseline=a, variant=b)


def _changed_lines(a: str, b: str) -> tuple[str, str]:
    """Returns the lines that are on one side alone; texts of one line as they are."""
    left, right = a.splitlines(), b.splitlines()
    if len(left) < 2 and len(right) < 2:
        return a.strip(), b.strip()
    changed = [o for o in SequenceMatcher(None, left, right, autojunk=False).get_opcodes() if o[0] != "equal"]
    ours = [line.strip() for _, i, j, _, _ in changed for line in left[i:j]]
    theirs = [line.strip() for _, _, _, i, j in changed for line in right[i:j]]
    return " / ".join(ours) or NONE, " / ".join(theirs) or NONE


# -- variants of one run, paired by block --


def compare_variants(results: Results, options: Options | None = None) -> Comparison:
    """Compares the variants of one run, paired by block. Raises :class:`UsageError` if there is nothing to
    compare."""
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
    matches = only_rung(list(_variant_matches(cells, names, baseline, results)), options.rung)
    if not matches:
        raise UsageError(
            f"run {results.info.id}: no rung has usable windows of {baseline} and another variant",
            f"look at it: dbdyno show {results.info.id}",
        )
    differences = (
        *variant_differences(results.plan, baseline),
        *server_differences(results, baseline),
    )
    with speaking_of(kind_of(results.plan)):
        comparison = _comparison(
            "variants", [results], baseline, matches, options, differences, cells.left_out
        )
        places = tuple(cache_placement(results, cells, comparison, work_short(results)))
        comparison = comparison.model_copy(update={"conclusions": (*places, *comparison.conclusions)})
        return _with_capacities(comparison, {v: (cells, v) for v in names}, matches)


def _comparison(
    kind: Literal["variants", "runs"],
    runs: Sequence[Results],
    baseline: str,
    matches: Sequence[Match],
    options: Options,
    differences: Iterable[Difference],
    left_out: Sequence[tuple[str, str]],
    records: Sequence[NoiseRecord] = (),
) -> Comparison:
    """Returns the comparison. The first of ``runs`` is the baseline's."""
    first = runs[0]
    by_label = dict(zip(LABELS if kind == "runs" else ("",), runs, strict=True))
    sizes = check_sizes(matches, by_label, insisted=options.across_sizes)
    tables = tables_of(matches, options, work_short(first), alpha_of(*runs))
    ledgers = {label: r.tables["ledger"] for label, r in by_label.items()}
    comparison = Comparison(
        kind=kind,
        runs=tuple(r.info.id for r in runs),
        baseline=baseline,
        run_kind=kind_of(first.plan).name,
        margin=options.margin,
        alpha=alpha_of(*runs),
        metrics=tables,
        why=tuple(whys(matches, ledgers, *unit(first, tables[0].metric), earlier_names(*runs))),
        differences=tuple(differences),
    )
    from dbdyno.conclude.compare import cpu_profile  # it stands on this package

    every = tables
    if options.metric is not None:
        every += tables_of(matches, replace(options, metric=None), work_short(first), alpha_of(*runs))
    each = costs.changes(matches, every, unit(first, tables[0].metric)[1], comparison)
    comparison = comparison.model_copy(update={"operation_costs": tuple(each)})

    profiles = {label: r.tables.get("cpu_profile", empty("cpu_profile")) for label, r in by_label.items()}
    profiled = tuple(cpu_profile.changes(matches, profiles, *unit(first, tables[0].metric)))
    cost_claims = [*costs.claims(comparison), *(cpu_profile.cost_claim(c) for c in profiled)]
    unequal = [claim("across-sizes", {"sizes": sizes})] if sizes else []
    ranked = [
        _in_doubt(c, by_label) for c in summary(comparison, first, matches, named=options.metric is not None)
    ]
    starts = restart_differences(comparison, runs, records) if kind == "runs" else ()
    concluded = (*unequal, *ranked, *starts, *cost_claims, *notes(comparison, left_out, runs, matches))
    return comparison.model_copy(update={"conclusions": concluded, "costs": profiled})


_DECIDED = ("better", "worse", "no_difference", "equal")


def _in_doubt(rank: Claim, runs: Mapping[str, Results]) -> Claim:
    """Returns a verdict with a doubt if it is decided, and others took much of the CPUs at its numbers of
    sessions."""
    disturbed = [label for label, run in runs.items() if _disturbed(run) & {*rank.slots["sessions"]}]
    if not disturbed or not any(name in rank.slots for name in _DECIDED):
        return rank
    return in_doubt(rank, f" in {' and '.join(disturbed)}" if all(disturbed) else "")


def _disturbed(run: Results) -> set[int]:
    disturbed = pl.col("cell").is_in(disturbed_cells(run.findings))
    return set(run.tables["windows"].filter(disturbed)["sessions"])


def _with_capacities(
    comparison: Comparison, sides: Mapping[str, tuple[Cells, str]], matches: Sequence[Match]
) -> Comparison:
    """Returns the comparison with the rates that each side kept, if rates were set."""
    if all(m.rate_per_s is None for m in matches):
        return comparison
    return comparison.model_copy(update={"conclusions": (*paced.capacities(sides), *comparison.conclusions)})


def variants_of(results: Results) -> list[str]:
    """Returns the variants that have windows, in the plan's order."""
    measured = set(results.tables["windows"]["variant"])
    planned = [v.name for v in results.plan.variants] or [c.variant for c in results.plan.cells]
    return [v for v in dict.fromkeys(planned) if v in measured]


def unit(results: Results, metric: str) -> tuple[str, str]:
    """Returns what session time is divided by: the name of the rate, and the noun for one of the things it
    counts."""
    if metric == RANKING[0] or "_per_work" in metric:
        return "work_per_s", work_short(results)
    return "calls_per_s", noun("call")


def earlier_names(*runs: Results) -> dict[str, str]:
    """Returns the earlier names of wait events that the servers of the runs know."""
    return {new: old for r in runs for new, old in advice_of(r.tables).earlier().items()}


def work_short(results: Results) -> str:
    """Returns the short name of the work unit: ``LIO``."""
    return next((w.work_short for w in results.info.workloads.values()), "work unit")


def _baseline_of(results: Results, options: Options, names: list[str]) -> str:
    if options.baseline is not None and options.baseline not in names:
        raise UsageError(f"no variant {options.baseline!r}", did_you_mean(options.baseline, names))
    wanted = options.baseline or results.plan.experiment.baseline
    return wanted if wanted in names else names[0]


def _size(results: Results, workload: str, variant: str) -> int:
    """Returns the size of a call, 0 if it was not calibrated."""
    calibration = results.info.calibrations.get(f"{workload}/{variant}")
    return calibration.size if calibration else 0


def _variant_matches(cells: Cells, names: list[str], baseline: str, results: Results) -> Iterator[Match]:
    """Yields every rung where the baseline and at least one more variant have usable cells."""
    for workload in cells.workloads():
        for sessions, rate in cells.rungs(workload):
            groups = {v: cells.of[k] for v in names if (k := Key(workload, v, sessions, rate)) in cells.of}
            if baseline in groups and len(groups) > 1:
                sizes = {v: _size(results, workload, v) for v in groups}
                series = paced.series_of(rate)
                starts = start_ups(results, {v: v for v in groups})
                yield Match(workload, sessions, baseline, groups, True, series, {}, sizes, rate, starts)


def start_ups(results: Results, variants: Mapping[str, str]) -> dict[str, float]:
    """Returns by label how much shorter a duration may be, in ns, for variants whose jobs run in a shell."""
    jobs = {
        label: v.jobs for label, name in variants.items() for v in results.plan.variants if v.name == name
    }
    return {
        label: float(max(j.shell_error_ns for j in label_jobs))
        for label, label_jobs in jobs.items()
        if any(j.shell_ns for j in label_jobs)
    }


# -- two runs: independent samples, because nothing ties their repeats to each other --

LABELS = ("A", "B")
"""Labels of the two runs, the baseline's first."""


_OBSERVED = (
    "{} {} observed, not repeated: windows that follow one another are no independent repeats, and no "
    "interval of a difference would hold"
)
_CURE = (
    "to compare two periods: dbdyno snapshot at both ends of each, then dbdyno compare A..B C..D; to compare "
    "two settings: dbdyno run with --repeats 5"
)


def compare_runs(
    baseline: Results,
    other: Results,
    options: Options | None = None,
    records: Sequence[NoiseRecord] = (),
) -> Comparison:
    """Compares ``other`` with ``baseline``. Their repeats are independent samples, because nothing pairs
    them. ``records`` of measured noise say what restarts of the server add. Raises :class:`UsageError` if
    they have no rung in common."""
    options = options or Options()
    ids = baseline.info.id, other.info.id
    if ids[0] == ids[1]:
        raise UsageError(f"{ids[0]} twice: a run cannot differ from itself", "name another run: dbdyno runs")
    if observed := [r.info.id for r in (baseline, other) if kind_of(r.plan).among((OBSERVATION,))]:
        raise UsageError(
            _OBSERVED.format(" and ".join(observed), "are" if len(observed) > 1 else "is"), _CURE
        )
    names = run_names([baseline, other])
    if failed := [n for n, r in zip(names, (baseline, other), strict=True) if _all_failed(r)]:
        calls = kind_of(other.plan).noun("calls")
        raise UsageError(
            f"all {calls} of {' and of '.join(failed)} failed: there is nothing to compare",
            f"why: dbdyno show {(other if names[1] in failed else baseline).info.id}",
        )
    sides = cells_of(baseline.tables), cells_of(other.tables)
    matches = list(_run_matches(*sides, baseline, other))
    if not matches:
        raise UsageError(
            "; ".join(_nothing_in_common(names, (baseline, sides[0]), (other, sides[1]))),
            "compare runs of one workload that measured the same numbers of sessions"
            if all(cells.of for cells in sides)
            else "why measurements are left out: dbdyno show RUN --claims",
        )
    matches = only_rung(matches, options.rung)
    left_out = [*sides[0].left_out, *sides[1].left_out]
    runs = [baseline, other]
    with speaking_of(kind_of(baseline.plan)):
        comparison = _comparison(
            "runs", runs, LABELS[0], matches, options, run_differences(baseline, other), left_out, records
        )
        pairs = _pairs(baseline, other).items()
        for variants in pairs if len(pairs) == 1 else ():
            of_labels = zip(LABELS, zip(sides, variants, strict=True), strict=True)
            comparison = _with_capacities(comparison, dict(of_labels), matches)
    return comparison


def _pairs(a: Results, b: Results) -> Mapping[str, str]:
    """Returns pairs of variants to compare: those of the same name, or the only one of each run."""
    first, second = variants_of(a), variants_of(b)
    common = {v: v for v in first if v in second}
    if not common and len(first) == len(second) == 1:
        return {first[0]: second[0]}
    return common


def _run_matches(a: Cells, b: Cells, baseline: Results, run: Results) -> Iterator[Match]:
    pairs = _pairs(baseline, run)
    for (workload, variant, sessions, rate), cells in sorted(a.of.items(), key=_match_order):
        if variant not in pairs:
            continue
        other = b.of.get(Key(workload, pairs[variant], sessions, rate))
        if other is not None:
            groups = dict(zip(LABELS, (cells, other), strict=True))
            name_parts = [variant] if len(pairs) > 1 else []
            series = paced.series_of(rate, *name_parts)
            run_by_label = {label: label for label in LABELS}
            call_sizes = _size(baseline, workload, variant), _size(run, workload, pairs[variant])
            sizes = dict(zip(LABELS, call_sizes, strict=True))
            a_start = start_ups(baseline, {LABELS[0]: variant})
            starts = a_start | start_ups(run, {LABELS[1]: pairs[variant]})
            yield Match(
                workload, sessions, LABELS[0], groups, False, series, run_by_label, sizes, rate, starts
            )


def _match_order(cells: tuple[Key, object]) -> tuple[str, str, int, float]:
    key = cells[0]
    return key.workload, key.variant, key.sessions, key.rate_per_s or 0.0


def _nothing_in_common(names: Sequence[str], *sides: tuple[Results, Cells]) -> Iterator[str]:
    """Yields why the runs have no load level in common, and then what each of them has."""
    unusable = [name for name, (_, cells) in zip(names, sides, strict=True) if not cells.of]
    why = f"none of {' and of '.join(unusable)} is usable" if unusable else _apart(*sides)
    yield f"{' and '.join(names)} have no usable load level in common: {why}"
    for name, (r, cells) in zip(names, sides, strict=True):
        reasons = ", ".join(dict.fromkeys(why for _, why in cells.left_out))
        lost = f" ({counted(len(cells.left_out), 'measurement')} left out: {reasons})" if reasons else ""
        if not cells.of:
            yield f"{name}: no usable measurement{lost}"
            continue
        rungs = ", ".join(str(n) for n in sorted({k.sessions for k in cells.of}))
        rates = ", ".join(
            f"{format_given(v)}/s" for v in sorted({k.rate_per_s for k in cells.of if k.rate_per_s})
        )
        rates_text = f", rates {rates}" if rates else ""
        loads = f"{', '.join(sorted(cells.workloads()))}, variants {', '.join(variants_of(r))}"
        yield f"{name}: {loads}, sessions {rungs}{rates_text}{lost}"


def _apart(a: tuple[Results, Cells], b: tuple[Results, Cells]) -> str:
    """Returns the property in which all load levels of the runs differ."""
    if set(a[1].workloads()).isdisjoint(b[1].workloads()):
        return "their workloads differ"
    if not _pairs(a[0], b[0]):
        return "their variants differ"
    if {k.sessions for k in a[1].of}.isdisjoint(k.sessions for k in b[1].of):
        return "their numbers of sessions differ"
    if {k.rate_per_s for k in a[1].of}.isdisjoint(k.rate_per_s for k in b[1].of):
        return "their rates differ"
    return "workload, variant, sessions and rate never agree at once"


def _all_failed(results: Results) -> bool:
    rungs = results.tables["rungs"]
    return bool(rungs["errors"].sum()) and not rungs["calls"].sum()
