"""Rows of the driver's tables, from the sessions' calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dbdyno.model.units import NS_PER_S
from tests.fake_engine.paced import Arrivals
from tests.fake_engine.programs import Call, Schedule, Session
from tests.fake_engine.world import FIRST_PID

CONNECT_NS = 2_000_000
PREPARE_NS = 1_000_000
PROBE_WORK = 274  # what one probe adds to the work counter of its session; to the call counter it adds none
LOST = "08006"

Row = dict[str, Any]


class Work(NamedTuple):
    """The counter of work, and the amount of a call."""

    name: str
    unit: str
    per_call: int


def measured(session: Session, schedule: Schedule) -> list[Call]:
    return [c for c in session.calls if schedule.t0_ns <= c.since_ns < schedule.t1_ns]


def session(session: Session, schedule: Schedule) -> Row:
    within = measured(session, schedule)
    good = [c for c in within if c.sqlstate is None]
    lengths = [c.end_ns - c.since_ns for c in good]
    total = sum(c.sqlstate is None for c in session.calls)
    return {
        "session": session.number,
        "backend_pid": FIRST_PID + session.number,
        "connect_ns": CONNECT_NS,
        "prepare_ns": PREPARE_NS,
        "first_start_ns": within[0].start_ns if within else None,
        "last_end_ns": within[-1].end_ns if within else None,
        "calls": len(good),
        "errors": len(within) - len(good),
        "calls_total": total,
        "errors_total": len(session.calls) - total,
        "straddle_in": int(any(c.start_ns < schedule.t0_ns < c.end_ns for c in session.calls)),
        "straddle_out": int(any(c.end_ns > schedule.t1_ns for c in within)),
        "in_call_ns": sum(lengths),
        "min_ns": min(lengths, default=None),
        "max_ns": max(lengths, default=None),
        "sum_sq_ns2": float(sum(n * n for n in lengths)),
        "end_reason": session.end_reason or "aborted",
        "end_detail": "the fake server closed the connection" if session.end_reason == "lost" else None,
    }


def histogram(sessions: Sequence[Session], schedule: Schedule) -> list[Row]:
    good = (c for s in sessions for c in measured(s, schedule) if c.sqlstate is None)
    return _buckets(c.end_ns - c.since_ns for c in good)


def second_histogram(sessions: Sequence[Session], schedule: Schedule) -> list[Row]:
    good = [c for s in sessions for c in measured(s, schedule) if c.sqlstate is None]
    counts = Counter(
        ((c.end_ns - schedule.t0_ns) // NS_PER_S, _sixteenth(c.end_ns - c.since_ns)) for c in good
    )
    return [
        {"second": second, "seconds": 1, "low_ns": low, "high_ns": high, "count": n}
        for (second, (low, high)), n in sorted(counts.items())
    ]


def _sixteenth(ns: int) -> tuple[int, int]:
    """Returns a bucket of five binary digits, as the real driver counts by second."""
    width = 1 << max(0, ns.bit_length() - 5)
    low = ns // width * width
    return low, low + width - 1


def _buckets(lengths: Iterable[int]) -> list[Row]:
    buckets = Counter(map(_bucket, lengths))
    return [{"low_ns": low, "high_ns": high, "count": n} for (low, high), n in sorted(buckets.items())]


def paced(sessions: Sequence[Session], schedule: Schedule, arrivals: Arrivals) -> dict[str, list[Row]]:
    """Returns the tables of an open loop."""
    within = [c for s in sessions for c in measured(s, schedule)]
    lags = [c.start_ns - c.since_ns for c in within]
    limit_ns = arrivals.pacing.latency_limit_ns
    over = None if limit_ns is None else sum(c.end_ns - c.since_ns > limit_ns for c in within)
    row = {
        "arrivals": arrivals.due,
        "begun": len(within),
        "dropped": arrivals.dropped,
        "backlog_end": len(arrivals.waited),
        "backlog_begin": None,
        "idle_ns": None,
        "backlog_max": arrivals.most,
        "late": sum(lag > 1_000_000 for lag in lags),
        "late_driver": 0,
        "over_limit": over,
        "lag_sum_ns": sum(lags),
        "lag_max_ns": max(lags, default=0),
        "driver_lag_sum_ns": 0,
        "driver_lag_max_ns": 0,
        "backlog_age_sum_ns": sum(arrivals.waited),
        "backlog_age_max_ns": max(arrivals.waited, default=0),
        "settle_arrivals": arrivals.settle,
    }
    good = [c for c in within if c.sqlstate is None]
    return {
        "pace": [row],
        "service": [_service(s, schedule) for s in sessions],
        "service_histogram": _buckets(c.end_ns - c.start_ns for c in good),
        "lag_histogram": _buckets(lags),
        "backlog_histogram": _buckets(arrivals.waited),
    }


def _service(session: Session, schedule: Schedule) -> Row:
    lengths = [c.end_ns - c.start_ns for c in measured(session, schedule) if c.sqlstate is None]
    return {
        "session": session.number,
        "in_call_ns": sum(lengths),
        "sum_sq_ns2": float(sum(n * n for n in lengths)),
        "min_ns": min(lengths, default=None),
        "max_ns": max(lengths, default=None),
    }


def errors(session: Session) -> list[Row]:
    codes = Counter(c.sqlstate for c in session.calls if c.sqlstate is not None)
    words = {LOST: "the fake server closed the connection"}
    return [
        {
            "session": session.number,
            "sqlstate": code,
            "count": n,
            "message": words.get(code, "as the law says"),
        }
        for code, n in sorted(codes.items())
    ]


def calls(session: Session, schedule: Schedule) -> Iterator[Row]:
    for c in session.calls:
        yield {
            "session": session.number,
            "start_ns": c.start_ns,
            "duration_ns": c.end_ns - c.start_ns,
            "ok": c.sqlstate is None,
            "measured": schedule.t0_ns <= c.since_ns < schedule.t1_ns,
            "due_ns": c.due_ns,
        }


def counters(session: Session, work: Work, start_ns: int) -> Iterator[Row]:
    """Yields the four probes. A lost session has none after its calls. A failed call has done its work,
    too."""
    done = len(session.calls)
    at_ns = {"before1": start_ns - 2_000, "before2": start_ns - 1_000}
    last = session.calls[-1].end_ns if session.calls else start_ns
    at_ns |= {"after1": last + 1_000, "after2": last + 2_000}
    for probe, (phase, when_ns) in enumerate(at_ns.items()):
        after = phase.startswith("after")
        lost = after and session.end_reason == "lost"
        for name, unit, per_call, cost in ((*work, PROBE_WORK), ("calls", "count", 1, 0)):
            yield {
                "before_ns": when_ns,
                "after_ns": when_ns + 500,
                "phase": phase,
                "scope": "session",
                "session": session.number,
                "name": name,
                "kind": "counter",
                "unit": unit,
                "value": None if lost else float(7 + probe * cost + (done * per_call if after else 0)),
                "status": "lost" if lost else "ok",
            }


def progress(sessions: Sequence[Session], start_ns: int, end_ns: int) -> list[Row]:
    """Returns the driver's reports, one a second and one at the end. A session lives until its last call."""
    calls = sorted((c for s in sessions for c in s.calls), key=lambda c: c.end_ns)
    lives = [s.calls[-1].end_ns if s.calls and s.end_reason else end_ns for s in sessions]
    rows, errors, in_call_ns, done = [], 0, 0, 0
    for at_ns in [*range(start_ns + NS_PER_S, end_ns, NS_PER_S), end_ns]:
        while done < len(calls) and calls[done].end_ns <= at_ns:
            failed = calls[done].sqlstate is not None
            errors += failed
            in_call_ns += 0 if failed else calls[done].end_ns - calls[done].since_ns
            done += 1
        live = sum(end > at_ns for end in lives)
        counts = {"at_ns": at_ns, "calls": done - errors, "errors": errors, "live": live}
        rows.append(counts | {"in_call_ns": in_call_ns})
    return rows


def _bucket(ns: int) -> tuple[int, int]:
    """Returns a bucket of three significant digits, as in the real driver's histogram."""
    width = 10 ** max(0, len(str(ns)) - 3)
    low = ns // width * width
    return low, low + width - 1
