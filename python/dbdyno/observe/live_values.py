"""Values of trigger conditions: figures of each activity sample, in order of time.

Counts (``sessions``, ``active``, ``statement``, ``lock_depth``) are of one sample. ``wait`` and
``db_time`` are means over the samples of a second. ``cpu_wait`` uses the exact figures of the sessions'
tasks, which are read once a second. A figure is None until there are enough samples, and while a session's
activity is hidden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.schema.tables import Tables, quantile_ns
from dbdyno.model.sources.source import HIDDEN
from dbdyno.model.sources.wait_families import AT_CLIENT, WaitFamilies
from dbdyno.model.units import NS_PER_S
from dbdyno.observe.blocking import blocking
from dbdyno.observe.glance_parts import IDLE

SPAN_NS = NS_PER_S
"""Span of means."""
_WHOLE = 0.8  # least share of the span that samples must cover
TASKS_NS = 2_300_000_000
"""Span that contains two reads of tasks, which are read once a second."""
READ_NS = max(TASKS_NS, 2 * SPAN_NS)
"""Length of the past that is needed."""
_ACTIVE = ("sample", "wait_class", "wait_event", "query_id")
_OF_A_MOMENT = ("sessions", "active", "statement")


class Wanted(NamedTuple):
    """A figure of a condition."""

    name: str
    argument: str
    key: str


class _Sample(NamedTuple):
    at_ns: int
    sessions: int
    active: tuple[tuple[str | None, str | None, int | None], ...]  # wait class, event, query id
    hidden: bool  # whether the activity of a session is hidden


def counted(durations: Iterable[tuple[int, int]]) -> Counter[int]:
    """Returns the number of calls by duration (ns). Durations may repeat, as each thread counts its own."""
    calls: Counter[int] = Counter()
    for duration_ns, count in durations:
        calls[duration_ns] += count
    return calls


def p95_ns(calls: Counter[int]) -> int | None:
    """Returns the duration (ns) that 95 % of the calls did not exceed; None without calls."""
    rows = [(at, at, count) for at, count in calls.items()]
    buckets = dict.fromkeys(("low_ns", "high_ns", "count"), pl.Int64)
    return quantile_ns(pl.DataFrame(rows, buckets, orient="row"), 0.95)


def tables_for(wanted: Sequence[Wanted]) -> tuple[str, ...]:
    """Returns the names of the needed tables of a watch."""
    names = {w.name for w in wanted}
    tasks = ("tasks",) if names & {"cpu_wait", "db_time"} else ()
    return ("samples", "sampler", *tasks, *(("blocked",) if "lock_depth" in names else ()))


def needed_from(wanted: Sequence[Wanted], now_ns: int, since_ns: int) -> int:
    """Returns the time from which on tables are needed, if samples up to ``since_ns`` were evaluated
    before."""
    moment = all(w.name in _OF_A_MOMENT for w in wanted)
    return max(now_ns - READ_NS, since_ns) if moment else now_ns - READ_NS


def live_values(
    recent: Tables, wanted: Sequence[Wanted], families: WaitFamilies, since_ns: int
) -> list[tuple[int, dict[str, float | None]]]:
    """Returns time and figures by key for each sample that was answered after ``since_ns``. ``recent``:
    tables of :func:`tables_for` from :func:`needed_from` on."""
    samples = list(_samples(recent, families))
    fresh = [n for n, s in enumerate(samples) if s.at_ns > since_ns]
    if not fresh:
        return []
    spent = _spent(recent["tasks"]) if "tasks" in recent else None
    depth = float(max((b.depth for b in blocking(recent)), default=0)) if "blocked" in recent else None
    values = []
    for n in fresh:
        span = [s for s in samples[: n + 1] if s.at_ns > samples[n].at_ns - SPAN_NS]
        lasting = samples[n].at_ns - samples[0].at_ns >= _WHOLE * SPAN_NS
        values.append(
            (samples[n].at_ns, {w.key: _value(w, span, spent, depth, lasting=lasting) for w in wanted})
        )
    return values


def _value(
    wanted: Wanted,
    span: Sequence[_Sample],
    spent: tuple[float, float] | None,
    depth: float | None,
    *,
    lasting: bool,
) -> float | None:
    now = span[-1]
    if wanted.name == "sessions":
        return now.sessions
    if now.hidden:
        return None
    match wanted.name:
        case "active":
            return len(now.active)
        case "statement":
            return sum(query == int(wanted.argument) for *_, query in now.active)
        case "lock_depth":
            return depth
    if not lasting or any(s.hidden for s in span):
        return None
    if wanted.name == "wait":
        return _mean(span, _in_wait(wanted.argument))
    if wanted.name == "db_time":
        return _mean(span, lambda _: True)
    if wanted.name != "cpu_wait":
        return None
    if spent is None:  # unknown, unless nobody is connected
        return None if any(s.sessions for s in span) else 0.0
    run, runq = spent
    asleep = _mean(span, lambda a: a[0] is not None)
    whole = run + runq + asleep
    return runq / whole if whole > 0 else 0.0


def _mean(span: Sequence[_Sample], counts: Callable[[tuple[Any, ...]], bool]) -> float:
    return sum(sum(counts(a) for a in s.active) for s in span) / len(span)


def _in_wait(name: str) -> Callable[[tuple[Any, ...]], bool]:
    """Returns a predicate for ``CLASS`` or ``CLASS/EVENT``, case-insensitive."""
    wanted_class, _, event = name.lower().partition("/")
    return lambda a: (a[0] or "").lower() == wanted_class and (not event or (a[1] or "").lower() == event)


def _samples(recent: Tables, families: WaitFamilies) -> Iterator[_Sample]:
    """Yields samples by SQL, those without a session included."""
    by_sql = pl.col("via").fill_null("sql") == "sql"
    asked = recent["sampler"].filter(by_sql & (pl.col("status") == "ok")).sort("end_ns")
    of_sessions = recent["samples"].filter(
        by_sql & (pl.col("role") == "session") & pl.col("session").is_not_null()
    )
    counts = dict(of_sessions.group_by("sample").agg(pl.col("session").n_unique()).iter_rows())
    hidden = set(of_sessions.filter(pl.col("state") == HIDDEN)["sample"])
    awake = of_sessions.filter(~pl.col("state").fill_null(IDLE).is_in([IDLE, HIDDEN]))
    rows: dict[int, list[tuple[Any, ...]]] = {}
    client: dict[tuple[str | None, str | None], bool] = {}
    for number, wait_class, event, query in awake.select(_ACTIVE).iter_rows():
        if (label := (wait_class, event)) not in client:
            family = families.of(f"{wait_class or ''}/{event or ''}")
            client[label] = wait_class is not None and family in AT_CLIENT
        if not client[label]:
            rows.setdefault(number, []).append((wait_class, event, query))
    for number, at_ns in asked.select("sample", "end_ns").iter_rows():
        sessions, active = int(counts.get(number, 0)), tuple(rows.get(number, ()))
        yield _Sample(int(at_ns), sessions, active, number in hidden)


def _spent(tasks: pl.DataFrame) -> tuple[float, float] | None:
    """Returns the mean number of sessions on a CPU and in the run queue, between each task's first and
    last read; None if none was read twice."""
    of_sessions = tasks.filter(
        (pl.col("role") == "session") & (pl.col("status") == "ok") & pl.col("runq_ns").is_not_null()
    )
    each = of_sessions.group_by("pid", "tid", "start_ticks").agg(
        run=pl.col("run_ns").max() - pl.col("run_ns").min(),
        runq=pl.col("runq_ns").max() - pl.col("runq_ns").min(),
        wall=pl.col("after_ns").max() - pl.col("after_ns").min(),
    )
    each = each.filter(pl.col("wall") > 0)
    if each.is_empty():
        return None
    run, runq = each.select(
        (pl.col("run") / pl.col("wall")).sum(), (pl.col("runq") / pl.col("wall")).sum()
    ).row(0)
    return float(run), float(runq)
