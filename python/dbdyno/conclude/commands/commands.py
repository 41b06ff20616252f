"""Concludes from executions of commands: durations, the serial share, the order, and which command is
faster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.commands.command_pairs import Took, against_fastest, ratio, verdict
from dbdyno.conclude.compare.table import MARGIN, Judgement, few_repeats
from dbdyno.conclude.run.case import Case, Row
from dbdyno.conclude.run.quality import foreign_load
from dbdyno.model.plan.parallel_axes import Axis, axes_of, counted
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.ledger_rows import TOGETHER
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import NS_PER_S, format_ns
from dbdyno.model.units import counted as number_of
from dbdyno.stats.amdahl import Serial, serial_share

SLOWER_FIRST = 1.1
"""Multiple of the median from which on a first execution is called slower."""
FEWEST = 8
"""Executions of a job that outliers need: with fewer the median absolute deviation is too uncertain."""
FEWEST_FIRST = 3
"""Executions of a job from which on its first one is compared with the others."""
PARALLEL = 1.2
"""Mean CPUs in use from which on a job has a parallel part to examine."""
LEAST_SAMPLES = 100
"""Samples of a job's tasks that a share of its time needs."""
_NUMBERS = (
    *("no", "one", "two", "three", "four", "five", "six", "seven"),
    *("eight", "nine", "ten", "eleven", "twelve"),
)


# -- how fast --


@check("speed-up", of="whole")
def speed_up(case: Case) -> Iterator[Claim]:
    """Yields the speed-up of one job with more threads and its serial share by Amdahl's law. The serial share
    is left out if other processes used the CPUs as well."""
    durations, disturbed = _durations_alone(case), next(foreign_load(case), None) is not None
    axes = axes_of(case.plan.variants, durations)
    for axis in axes:
        took = {n: durations[v] for n, v in axis.points}
        low, top = min(took), max(took)
        faster = ratio(took[low], took[top], "speed-up", "times")
        fitted = None if disturbed else serial(took, case.plan.cpus)
        best = min(took, key=lambda n: took[n].mean)
        gain = took[low].mean / took[best].mean
        beyond = top > case.plan.cpus
        values = {
            "top": counted(axis.name, top),
            "base": counted(axis.name, low),
            "ratio": faster.value,
            "interval": fmt.spread(faster),
            "cpus": int(case.plan.cpus),
            "load": _at_once(_lowest(case)),
            "measurements": sum(len(t.means) for t in took.values()),
            "best": counted(axis.name, best),
            "best_ratio": gain,
        } | _share(fitted)
        beaten = best != top and gain > 1.05 * faster.value
        parts = [] if not beaten else ["first"] if best == low else ["best"]
        judged = verdict(took[low], took[top])
        kind = _kind(fitted, beyond, faster, judged)
        parts = [p for p in parts if kind not in ("even", "undecided") or p == "best"]
        if kind == "undecided":
            values["ends"] = fmt.changes(faster)
        elif faster.low is not None and judged.verdict == "undecided" and judged.note:
            parts.append("undecided")
            values["why"] = judged.note
        values["verdict"] = judged.verdict
        subject = axis.rest if len(axes) > 1 else ""
        yield claim("speed-up", values, faster, case=kind, parts=parts, subject=subject)


def serial(took: dict[float, Took], cpus: float) -> Serial | None:
    """Returns the serial share from numbers of threads up to the number of CPUs: beyond it, waiting for a CPU
    would count as serial. None without an interval, that is if nothing was measured twice."""
    points = [(n, mean) for n, t in took.items() if n <= cpus for mean in t.means]
    fitted = serial_share([n for n, _ in points], [mean / NS_PER_S for _, mean in points])
    return None if fitted is None or fitted.low is None else fitted


def _kind(fitted: Serial | None, beyond: bool, faster: Estimate, judged: Judgement) -> str:
    if judged.verdict == "no difference":
        return "even"
    if faster.low is not None and faster.low <= 1 <= (faster.high or 0.0):
        return "undecided"
    if fitted is None:
        return "alone"
    if not fitted.fits:
        return "departs"
    if fitted.low is not None and fitted.low <= 0 and fitted.high is not None and not beyond:
        return "parallel"
    return "cpus" if beyond else "serial"


def _share(fitted: Serial | None) -> Row:
    if fitted is None:
        return {"share": 0.0, "share_interval": "", "most": 0.0}
    low, high = (None if v is None else min(1.0, max(0.0, v)) for v in (fitted.low, fitted.high))
    spread = fmt.percent_spread(Estimate("", fitted.share, "", low, high))
    return {"share": max(0.0, fitted.share), "share_interval": spread, "most": high or 0.0}


@check("commands-compared", of="whole")
def compared(case: Case) -> Iterator[Claim]:
    """Yields the fastest variant against each other one."""
    durations = _durations_alone(case)
    if len(durations) < 2 or axes_of(case.plan.variants, durations):
        return
    elsewhere = [_durations_at(case, n) for n in sorted({r["sessions"] for r in _cell_rows(case)})[1:]]
    for fast, slow, times, judged, kind, repeats, enough in against_fastest(durations, elsewhere):
        basis = (
            f"{repeats} measurements each, paired" if repeats > 1 else "executions of one measurement each"
        )
        if times.low is not None and len(durations) > 2 and kind != "equal":
            basis += f"; the intervals of all {word(len(durations))} commands hold together (Bonferroni)"
        if durations[fast].error or durations[slow].error:
            basis += "; with the error of what was taken off for the shell"
        values = {"fast": fast, "slow": slow, "ratio": times.value, "interval": fmt.spread(times)}
        values |= {"fast_ns": durations[fast].mean, "slow_ns": durations[slow].mean, "basis": basis}
        values |= {
            "error": max(durations[fast].error, durations[slow].error),
            "repeats": repeats,
            "commands": word(len(durations)),
            "enough": enough,
            "verdict": judged.verdict,
            "because": few_repeats(repeats) if kind == "undecided" else judged.because,
            "margin": MARGIN,
        }
        if kind == "undecided":
            values["ends"] = fmt.changes(times)
        parts = ["needed"] if kind == "few" and enough > repeats else []
        yield claim("commands-compared", values, times, case=kind, parts=parts)


def _least(row: Row) -> str:
    """Formats the shortest execution. If the subtracted start-up of the shell left nothing of it, this is an
    upper limit."""
    if row["min_ns"] == 0 and row["shell_ns"]:
        return f"less than {format_ns(row['shell_ns'])}"
    return format_ns(row["min_ns"])


@check("command-time", of="whole")
def durations(case: Case) -> Iterator[Claim]:
    """Yields the duration of each job of a single variant, at the lowest number at once. More than two jobs
    are shown in the table only."""
    if (
        len(case.plan.variants) > 1
        or any(len(v.jobs) > 2 for v in case.plan.variants)
        or _cells_of_sets(case)
    ):
        return
    for r in _job_rows(case):
        if r["mean_ns"] is None or r["sessions"] != _lowest(case):
            continue
        many = r["executions"] > 1
        values = {"job": r["job"], "mean": r["mean_ns"], "sd": r["sd_ns"] or 0.0, "count": r["executions"]}
        values |= {"least": _least(r), "most": r["max_ns"], "place": _place(r, case)}
        used = r["parallelism"]
        if used is not None:
            values |= {"cpu": r["cpu_user_ns"] + r["cpu_system_ns"], "parallelism": used}
        error = _shell_errors(case).get((r["variant"], r["job"]), 0)
        values |= {"error": error}
        parts = [*(["cpu"] if used is not None else []), *(["shell"] if error else [])]
        mean = r["mean_ns"] / NS_PER_S
        ends = (max(0.0, mean - error / NS_PER_S), mean) if error else (None, None)
        value = Estimate("command-time", mean, "s", *ends)
        yield claim("command-time", values, value, case="many" if many else "one", parts=parts)


# -- in which order --


@check("orders", of="whole")
def orders(case: Case) -> Iterator[Claim]:
    """Yields makespans of the same jobs run by several sessions, with several threads, or both, against one
    of each."""
    once = _cells_of_sets(case)
    makespans: dict[tuple[str, int], list[Row]] = {}
    for r in _cell_rows(case):
        if r["cell"] in once and r["executions"] > 1 and not r["failed"]:
            makespans.setdefault((r["variant"], r["sessions"]), []).append(r)
    axes = axes_of(case.plan.variants, {v: 0 for v, _ in makespans})
    ladders = axes or [Axis("", "", ((1.0, v),)) for v in dict.fromkeys(v for v, _ in makespans)]
    for axis in ladders:
        yield from _orders(axis, makespans, axis.rest or axis.points[0][1] if len(ladders) > 1 else "")


def _orders(axis: Axis, makespans: dict[tuple[str, int], list[Row]], subject: str) -> Iterator[Claim]:
    base, first = min(axis.points)
    serial_rows = makespans.get((first, 1))
    if not serial_rows:
        return
    count = max(r["executions"] for r in serial_rows)
    most = max(s for v, s in makespans if v in dict(axis.points).values() or v == first)
    top, last = max(axis.points)
    choices = (("parallel", last, 1), ("concurrent", first, most), ("both", last, most))
    for kind, variant, sessions in choices:
        rows = makespans.get((variant, sessions))
        if not rows or rows is serial_rows or (kind == "both" and variant == first):
            continue
        share = ratio(_makespan(rows), _makespan(serial_rows), "makespan", "of the time")
        values = {
            "jobs": word(count).capitalize(),
            "count": word(count),
            "how": "at once" if sessions >= count else f"{word(sessions)} at a time",
            "threads": counted(axis.name, top),
            "base": counted(axis.name, base),
            "share": share.value,
            "interval": fmt.percent_spread(share),
            "ours": _makespan(rows).mean,
            "serial": _makespan(serial_rows).mean,
            "measurements": len(rows) + len(serial_rows),
        }
        yield claim("orders", values, share, case=kind, subject=subject)


def _makespan(rows: Sequence[Row]) -> Took:
    return Took({r["repeat"]: r["makespan_ns"] for r in rows}, 1, None)


def word(n: int) -> str:
    """Returns a number as a word: ``five``; digits from 13 on."""
    return _NUMBERS[n] if n < len(_NUMBERS) else f"{n:,}"


# -- single executions --


_HOW_IT_ENDED = re.compile(r"^(exit code \d+|ended by signal \d+( \(\w+\))?)(: |$)")
"""The start of an error text that repeats what the sentence states."""


@check("executions-failed", of="whole")
def failed(case: Case) -> Iterator[Claim]:
    """Yields failed executions, one claim per job and outcome, the most frequent first, with the end of the
    error output."""
    table = case.tables.get("execution_failures", empty("execution_failures"))
    by = ["job", "outcome", "exit_code"]
    shown = table.group_by(by, maintain_order=True).agg(
        pl.col("count").sum(), pl.col("detail").drop_nulls().first(), pl.col("cell")
    )
    ended = _cell_rows(case, jobs=True)
    whole = sum(r["executions"] + r["failed"] for r in _cell_rows(case))
    for r in shown.sort("count", descending=True, maintain_order=True).head(3).to_dicts():
        kind = r["outcome"].replace(" ", "-")
        every = r["count"] >= sum(e["executions"] + e["failed"] for e in ended if e["job"] == r["job"])
        values = {"count": r["count"], "job": r["job"], "code": r["exit_code"]}
        detail = _HOW_IT_ENDED.sub("", " ".join((r["detail"] or "").split()))
        values |= {"share": r["count"] / max(1, whole), "detail": detail}
        executions = number_of(r["count"], "execution")
        values["executions"] = f"All {executions}" if every and r["count"] > 1 else executions
        values["of_all"] = "" if every else f" ({fmt.percent(values['share'])} of executions in this run)"
        parts = ["detail" if kind in ("exit", "signal") else "reason"] if detail else []
        yield claim("executions-failed", values, r["count"], case=kind, parts=parts, cells=r["cell"])


@check("execution-outliers", of="whole")
def outliers(case: Case) -> Iterator[Claim]:
    """Yields the job and measurement with most outliers."""
    rows = [r for r in _cell_rows(case, jobs=True) if r["outliers"] and r["executions"] >= FEWEST]
    if rows:
        r = max(rows, key=lambda r: r["outliers"])
        values = {
            "outliers": word(r["outliers"]).capitalize(),
            "count": r["executions"],
            "job": r["job"],
            "median": r["median_ns"],
        }
        values |= {"least": _least(r), "most": r["max_ns"], "place": _place(r, case)}
        kind = "one" if r["outliers"] == 1 else "several"
        cells = [x["cell"] for x in rows]
        yield claim("execution-outliers", values, r["outliers"], case=kind, cells=cells)


@check("first-execution", of="whole")
def first(case: Case) -> Iterator[Claim]:
    """Yields a slow first execution of a measurement, unless some were left out as warm-up."""
    times = case.tables.get("execution_times", empty("execution_times"))
    if times.is_empty():
        return
    begun = times.group_by("cell", "job").agg(warm=(~pl.col("measured")).any()).rows()
    warm = {(cell, job) for cell, job, was in begun if was}
    slow_first = [
        (r["first_ns"] / r["median_ns"], r)
        for r in _cell_rows(case, jobs=True)
        if r["executions"] >= FEWEST_FIRST and r["median_ns"] and (r["cell"], r["job"]) not in warm
        if r["first_ns"] == r["max_ns"]
    ]
    slow_first = [f for f in slow_first if f[0] >= SLOWER_FIRST]
    if slow_first:
        times_median, r = max(slow_first, key=lambda f: f[0])
        values = {"job": r["job"], "first": r["first_ns"], "ratio": times_median, "place": _place(r, case)}
        yield claim("first-execution", values, times_median, cells=[x["cell"] for _, x in slow_first])


@check("left-behind", of="whole")
def left_behind(case: Case) -> Iterator[Claim]:
    """Yields for each job the processes that outlived its executions and so are missing from its
    durations."""
    times = case.tables.get("execution_times", empty("execution_times"))
    for r in _job_rows(case):
        if not r["left_over"] or r["sessions"] != _lowest(case):
            continue
        of_job = (pl.col("job") == r["job"]) & (pl.col("variant") == r["variant"])
        most = times.filter(of_job & (pl.col("sessions") == r["sessions"]) & pl.col("measured"))[
            "left_over"
        ].max()
        values = {"count": r["left_over"], "of": r["executions"] + r["failed"], "job": r["job"], "most": most}
        cells = [x["cell"] for x in _cell_rows(case, jobs=True) if x["job"] == r["job"] and x["left_over"]]
        yield claim("left-behind", values | {"place": _place(r, case)}, r["left_over"], cells=cells)


@check("shell-taken-off", of="whole")
def shells(case: Case) -> Iterator[Claim]:
    """Yields the start-up time that was subtracted from durations."""
    jobs = {j.name: j for v in case.plan.variants for j in v.jobs if j.shell_ns}
    for job in list(jobs.values())[:1]:
        name = job.name if len(jobs) == 1 else f"{word(len(jobs))} jobs"
        low, high = (ns / NS_PER_S for ns in (job.shell_ns, job.shell_ns + job.shell_error_ns))
        values = {"shell": job.shell_ns, "job": name, "error": job.shell_error_ns}
        yield claim("shell-taken-off", values, Estimate("shell-taken-off", low, "s", low, high))


@check("serial-time", of="whole")
def serial_time(case: Case) -> Iterator[Claim]:
    """Yields the share of time with few runnable tasks, of the variant that used most CPUs, one job at a
    time."""
    rows = [r for r in _cell_rows(case) if r["sessions"] == 1 and (r["parallelism"] or 0) >= PARALLEL]
    if not rows:
        return
    r = max(rows, key=lambda r: r["parallelism"])
    table = case.tables.get("parallelism", empty("parallelism")).filter(pl.col("cell") == r["cell"])
    n = float(table["samples"].sum())
    if n < LEAST_SAMPLES:
        return
    few, mean = (float((table[c] * table["samples"]).sum()) / n for c in ("few", "runnable"))
    values = {
        "variant": r["variant"],
        "few": few,
        "mean": mean,
        "most": table["most"].max(),
        "samples": int(n),
    }
    yield claim("serial-time", values, few, cells=[r["cell"]])


# -- rows --


def _rows(case: Case) -> list[Row]:
    usable = {c["cell"] for c in case.valid} | {TOGETHER}
    return [
        r
        for r in case.tables.get("execution_rates", empty("execution_rates")).to_dicts()
        if r["cell"] in usable
    ]


def _cell_rows(case: Case, jobs: bool = False) -> list[Row]:
    """Returns a row per measurement, with ``jobs`` a row per measurement and job."""
    return [r for r in _rows(case) if r["cell"] != TOGETHER and (r["job"] is not None) == jobs]


def _job_rows(case: Case) -> list[Row]:
    """Returns rows of jobs by load: of all repeats together, or of a single measurement its own."""
    rows = [r for r in _rows(case) if r["job"] is not None]
    whole = {(r["variant"], r["sessions"]) for r in rows if r["cell"] == TOGETHER}
    return [r for r in rows if r["cell"] == TOGETHER or (r["variant"], r["sessions"]) not in whole]


def _cells_of_sets(case: Case) -> set[str]:
    """Returns measurements in which each of several jobs runs a set number of times."""
    several = {v.name for v in case.plan.variants if len(v.jobs) > 1}
    return {c.id for c in case.plan.cells if c.once and c.variant in several}


def _lowest(case: Case) -> int:
    return min((r["sessions"] for r in _cell_rows(case)), default=1)


def _durations_alone(case: Case) -> dict[str, Took]:
    """Returns the durations at the lowest number of jobs at once, as :func:`_at` does."""
    return _durations_at(case, _lowest(case))


def _durations_at(case: Case, sessions: int) -> dict[str, Took]:
    """Returns by variant the duration of an execution with this number of jobs at once; for sets of jobs that
    run once, the makespan."""
    once = _cells_of_sets(case)
    errors: dict[str, float] = {}
    for (variant, _), error in _shell_errors(case).items():
        errors[variant] = max(errors.get(variant, 0.0), error)
    by_variant: dict[str, list[tuple[float, Row]]] = {}
    for r in _cell_rows(case):
        value = r["makespan_ns" if r["cell"] in once and r["executions"] > 1 else "mean_ns"]
        if r["sessions"] == sessions and value:
            by_variant.setdefault(r["variant"], []).append((value, r))
    return {
        v: Took(
            {r["repeat"]: m for m, r in rows},
            rows[0][1]["executions"],
            rows[0][1]["sd_ns"],
            errors.get(v, 0.0),
        )
        for v, rows in by_variant.items()
    }


def _shell_errors(case: Case) -> dict[tuple[str, str], int]:
    """Returns by variant and job by how many ns its durations may be shorter."""
    return {(v.name, j.name): j.shell_error_ns for v in case.plan.variants for j in v.jobs}


def _at_once(sessions: int) -> str:
    return f"{fmt.load(sessions, 'jobs')} at once" if sessions > 1 else "one job at a time"


def _place(row: Row, case: Case) -> str:
    load = f"with {_at_once(row['sessions'])}" if row["sessions"] > 1 else "one at a time"
    return f"with {row['variant']}, {load}" if len(case.plan.variants) > 1 else load
