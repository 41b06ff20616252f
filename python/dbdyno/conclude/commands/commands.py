"""What executions of commands say: how long, how much of it is serial, in which order, which is faster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.commands.command_pairs import Took, against_fastest, ratio, verdict
from dbdyno.conclude.compare.table import MARGIN, Judgement
from dbdyno.conclude.run.case import Case, Row
from dbdyno.conclude.run.quality import foreign_load
from dbdyno.model.plan.parallel_axes import Axis, axes_of, counted
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.ledger_rows import TOGETHER
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import NS_PER_S, format_ns
from dbdyno.stats.amdahl import Serial, serial_share

SLOWER_FIRST = 1.1
"""Times the median: a first execution that took no longer is no claim."""
FEWEST = 8
"""Executions of a job: the median absolute deviation of fewer is too rough to name outliers."""
FEWEST_FIRST = 3
"""Executions of a job: the first of fewer has no others to differ from."""
PARALLEL = 1.2
"""CPUs on average: a job that uses fewer has no parallel part to look at."""
LEAST_SAMPLES = 100
"""Samples of a job's tasks: fewer say little about a share of its time."""
_NUMBERS = (
    *("no", "one", "two", "three", "four", "five", "six", "seven"),
    *("eight", "nine", "ten", "eleven", "twelve"),
)


# -- how fast --


@check("speed-up", of="whole")
def speed_up(case: Case) -> Iterator[Claim]:
    """One job with more threads, and its serial share by Amdahl's law; not of CPUs that others used, too."""
    found, disturbed = _alone(case), next(foreign_load(case), None) is not None
    axes = axes_of(case.plan.variants, found)
    for axis in axes:
        took = {n: found[v] for n, v in axis.points}
        low, top = min(took), max(took)
        faster = ratio(took[low], took[top], "speed-up", "times")
        fitted = None if disturbed else serial(took, case.plan.cpus)
        best = min(took, key=lambda n: took[n].mean)
        gain = took[low].mean / took[best].mean
        beyond = top > case.plan.cpus
        said = {
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
            said["ends"] = fmt.changes(faster)
        elif faster.low is not None and judged.verdict == "undecided" and judged.note:
            parts.append("undecided")
            said["why"] = judged.note
        said["verdict"] = judged.verdict
        subject = axis.rest if len(axes) > 1 else ""
        yield claim("speed-up", said, faster, case=kind, parts=parts, subject=subject)


def serial(took: dict[float, Took], cpus: float) -> Serial | None:
    """From numbers of threads for which there are CPUs: of more, waiting for a CPU would pass as serial.
    ``None``: no interval, as nothing was measured twice."""
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
    """The fastest variant against each other one."""
    found = _alone(case)
    if len(found) < 2 or axes_of(case.plan.variants, found):
        return
    elsewhere = [_at(case, n) for n in sorted({r["sessions"] for r in _of_cells(case)})[1:]]
    for fast, slow, times, judged, kind, repeats, enough in against_fastest(found, elsewhere):
        basis = (
            f"{repeats} measurements each, paired" if repeats > 1 else "executions of one measurement each"
        )
        if times.low is not None and len(found) > 2 and kind != "equal":
            basis += f"; the intervals of all {word(len(found))} commands hold together (Bonferroni)"
        if found[fast].error or found[slow].error:
            basis += "; with the error of what was taken off for the shell"
        said = {"fast": fast, "slow": slow, "ratio": times.value, "interval": fmt.spread(times)}
        said |= {"fast_ns": found[fast].mean, "slow_ns": found[slow].mean, "basis": basis}
        said |= {
            "error": max(found[fast].error, found[slow].error),
            "repeats": repeats,
            "commands": word(len(found)),
            "enough": enough,
            "verdict": judged.verdict,
            "why": judged.note,
            "margin": MARGIN,
        }
        if kind == "undecided":
            said["ends"] = fmt.changes(times)
        parts = ["needed"] if kind == "few" and enough > repeats else []
        yield claim("commands-compared", said, times, case=kind, parts=parts)


def _least(row: Row) -> str:
    """The shortest execution; where the start-up of the shell left nothing of it, less than that."""
    if row["min_ns"] == 0 and row["shell_ns"]:
        return f"less than {format_ns(row['shell_ns'])}"
    return format_ns(row["min_ns"])


@check("command-time", of="whole")
def durations(case: Case) -> Iterator[Claim]:
    """One variant's: each job at the lowest number at once; of more than two the table says it."""
    if len(case.plan.variants) > 1 or any(len(v.jobs) > 2 for v in case.plan.variants) or _sets(case):
        return
    for r in _named(case):
        if r["mean_ns"] is None or r["sessions"] != _lowest(case):
            continue
        many = r["executions"] > 1
        said = {"job": r["job"], "mean": r["mean_ns"], "sd": r["sd_ns"] or 0.0, "count": r["executions"]}
        said |= {"least": _least(r), "most": r["max_ns"], "place": _place(r, case)}
        used = r["parallelism"]
        if used is not None:
            said |= {"cpu": r["cpu_user_ns"] + r["cpu_system_ns"], "parallelism": used}
        error = _shell_errors(case).get((r["variant"], r["job"]), 0)
        said |= {"error": error}
        parts = [*(["cpu"] if used is not None else []), *(["shell"] if error else [])]
        mean = r["mean_ns"] / NS_PER_S
        ends = (max(0.0, mean - error / NS_PER_S), mean) if error else (None, None)
        value = Estimate("command-time", mean, "s", *ends)
        yield claim("command-time", said, value, case="many" if many else "one", parts=parts)


# -- in which order --


@check("orders", of="whole")
def orders(case: Case) -> Iterator[Claim]:
    """Makespans of the same jobs: by several sessions, with several threads, both; against one of each."""
    once = _sets(case)
    makespans: dict[tuple[str, int], list[Row]] = {}
    for r in _of_cells(case):
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
        said = {
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
        yield claim("orders", said, share, case=kind, subject=subject)


def _makespan(rows: Sequence[Row]) -> Took:
    return Took({r["repeat"]: r["makespan_ns"] for r in rows}, 1, None)


def word(n: int) -> str:
    """``five``; from 13 on figures."""
    return _NUMBERS[n] if n < len(_NUMBERS) else f"{n:,}"


# -- single executions --


_HOW_IT_ENDED = re.compile(r"^(exit code \d+|ended by signal \d+( \(\w+\))?)(: |$)")
"""What the sentence says already."""


@check("executions-failed", of="whole")
def failed(case: Case) -> Iterator[Claim]:
    """Most frequent first, each job and outcome once, with the end of the error output."""
    table = case.tables.get("execution_failures", empty("execution_failures"))
    by = ["job", "outcome", "exit_code"]
    shown = table.group_by(by, maintain_order=True).agg(
        pl.col("count").sum(), pl.col("detail").drop_nulls().first(), pl.col("cell")
    )
    whole = sum(r["executions"] + r["failed"] for r in _of_cells(case))
    for r in shown.sort("count", descending=True, maintain_order=True).head(3).to_dicts():
        kind = r["outcome"].replace(" ", "-")
        said = {"count": r["count"], "job": r["job"], "code": r["exit_code"], "place": "in this run"}
        detail = _HOW_IT_ENDED.sub("", " ".join((r["detail"] or "").split()))
        said |= {"share": r["count"] / max(1, whole), "detail": detail}
        parts = ["detail" if kind in ("exit", "signal") else "reason"] if detail else []
        yield claim("executions-failed", said, r["count"], case=kind, parts=parts, cells=r["cell"])


@check("execution-outliers", of="whole")
def outliers(case: Case) -> Iterator[Claim]:
    """The job and measurement with most of them."""
    rows = [r for r in _of_cells(case, jobs=True) if r["outliers"] and r["executions"] >= FEWEST]
    if rows:
        r = max(rows, key=lambda r: r["outliers"])
        said = {
            "outliers": r["outliers"],
            "count": r["executions"],
            "job": r["job"],
            "median": r["median_ns"],
        }
        said |= {"least": _least(r), "most": r["max_ns"], "place": _place(r, case)}
        said["are"] = "is" if r["outliers"] == 1 else "are"
        said["outliers"] = word(r["outliers"]).capitalize()
        yield claim("execution-outliers", said, r["outliers"], cells=[x["cell"] for x in rows])


@check("first-execution", of="whole")
def first(case: Case) -> Iterator[Claim]:
    """The first execution of a measurement, where none was left out as warm-up."""
    times = case.tables.get("execution_times", empty("execution_times"))
    if times.is_empty():
        return
    begun = times.group_by("cell", "job").agg(warm=(~pl.col("measured")).any()).rows()
    warm = {(cell, job) for cell, job, was in begun if was}
    found = [
        (r["first_ns"] / r["median_ns"], r)
        for r in _of_cells(case, jobs=True)
        if r["executions"] >= FEWEST_FIRST and r["median_ns"] and (r["cell"], r["job"]) not in warm
        if r["first_ns"] == r["max_ns"]
    ]
    found = [f for f in found if f[0] >= SLOWER_FIRST]
    if found:
        times_median, r = max(found, key=lambda f: f[0])
        said = {"job": r["job"], "first": r["first_ns"], "ratio": times_median, "place": _place(r, case)}
        yield claim("first-execution", said, times_median, cells=[x["cell"] for _, x in found])


@check("left-behind", of="whole")
def left_behind(case: Case) -> Iterator[Claim]:
    """Of each job: processes that outlived its executions are in none of its durations."""
    times = case.tables.get("execution_times", empty("execution_times"))
    for r in _named(case):
        if not r["left_over"] or r["sessions"] != _lowest(case):
            continue
        mine = (pl.col("job") == r["job"]) & (pl.col("variant") == r["variant"])
        most = times.filter(mine & (pl.col("sessions") == r["sessions"]) & pl.col("measured"))[
            "left_over"
        ].max()
        said = {"count": r["left_over"], "of": r["executions"] + r["failed"], "job": r["job"], "most": most}
        cells = [x["cell"] for x in _of_cells(case, jobs=True) if x["job"] == r["job"] and x["left_over"]]
        yield claim("left-behind", said | {"place": _place(r, case)}, r["left_over"], cells=cells)


@check("shell-taken-off", of="whole")
def shells(case: Case) -> Iterator[Claim]:
    """What was taken off durations."""
    found = {j.name: j for v in case.plan.variants for j in v.jobs if j.shell_ns}
    for job in list(found.values())[:1]:
        name = job.name if len(found) == 1 else f"{word(len(found))} jobs"
        low, high = (ns / NS_PER_S for ns in (job.shell_ns, job.shell_ns + job.shell_error_ns))
        said = {"shell": job.shell_ns, "job": name, "error": job.shell_error_ns}
        yield claim("shell-taken-off", said, Estimate("shell-taken-off", low, "s", low, high))


@check("serial-time", of="whole")
def serial_time(case: Case) -> Iterator[Claim]:
    """The variant that used most CPUs, one job at a time."""
    rows = [r for r in _of_cells(case) if r["sessions"] == 1 and (r["parallelism"] or 0) >= PARALLEL]
    if not rows:
        return
    r = max(rows, key=lambda r: r["parallelism"])
    table = case.tables.get("parallelism", empty("parallelism")).filter(pl.col("cell") == r["cell"])
    n = float(table["samples"].sum())
    if n < LEAST_SAMPLES:
        return
    few, mean = (float((table[c] * table["samples"]).sum()) / n for c in ("few", "runnable"))
    said = {"variant": r["variant"], "few": few, "mean": mean, "most": table["most"].max(), "samples": int(n)}
    yield claim("serial-time", said, few, cells=[r["cell"]])


# -- rows --


def _rows(case: Case) -> list[Row]:
    usable = {c["cell"] for c in case.valid} | {TOGETHER}
    return [r for r in case.tables.get("execution_rates", empty("execution_rates")).to_dicts()
            if r["cell"] in usable]  # fmt: skip


def _of_cells(case: Case, jobs: bool = False) -> list[Row]:
    """A row a measurement; of ``jobs`` a row for each of them."""
    return [r for r in _rows(case) if r["cell"] != TOGETHER and (r["job"] is not None) == jobs]


def _named(case: Case) -> list[Row]:
    """Jobs by load: of all repeats together, of one measurement its own."""
    rows = [r for r in _rows(case) if r["job"] is not None]
    whole = {(r["variant"], r["sessions"]) for r in rows if r["cell"] == TOGETHER}
    return [r for r in rows if r["cell"] == TOGETHER or (r["variant"], r["sessions"]) not in whole]


def _sets(case: Case) -> set[str]:
    """Measurements in which each of several jobs is run a set number of times."""
    several = {v.name for v in case.plan.variants if len(v.jobs) > 1}
    return {c.id for c in case.plan.cells if c.once and c.variant in several}


def _lowest(case: Case) -> int:
    return min((r["sessions"] for r in _of_cells(case)), default=1)


def _alone(case: Case) -> dict[str, Took]:
    """As :func:`_at`, at the lowest number of jobs at once."""
    return _at(case, _lowest(case))


def _at(case: Case, sessions: int) -> dict[str, Took]:
    """Variant -> how long an execution took with so many jobs at once; of sets of jobs that run once the
    makespan."""
    once = _sets(case)
    errors: dict[str, float] = {}
    for (variant, _), error in _shell_errors(case).items():
        errors[variant] = max(errors.get(variant, 0.0), error)
    found: dict[str, list[tuple[float, Row]]] = {}
    for r in _of_cells(case):
        value = r["makespan_ns" if r["cell"] in once and r["executions"] > 1 else "mean_ns"]
        if r["sessions"] == sessions and value:
            found.setdefault(r["variant"], []).append((value, r))
    return {
        v: Took(
            {r["repeat"]: m for m, r in rows},
            rows[0][1]["executions"],
            rows[0][1]["sd_ns"],
            errors.get(v, 0.0),
        )
        for v, rows in found.items()
    }


def _shell_errors(case: Case) -> dict[tuple[str, str], int]:
    """By variant and job: how much shorter its durations may be in truth."""
    return {(v.name, j.name): j.shell_error_ns for v in case.plan.variants for j in v.jobs}


def _at_once(sessions: int) -> str:
    return f"{fmt.load(sessions, 'jobs')} at once" if sessions > 1 else "one job at a time"


def _place(row: Row, case: Case) -> str:
    load = f"with {_at_once(row['sessions'])}" if row["sessions"] > 1 else "one at a time"
    return f"with {row['variant']}, {load}" if len(case.plan.variants) > 1 else load
