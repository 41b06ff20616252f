"""The made-up world's finer tables: events, microstates, strips, load profile. Nothing here was measured."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

Row = dict[str, Any]
Accounts = Mapping[tuple[str, str | None], float]
WINDOW_S = 10
ESTIMATED = "wait event word, estimated"
# state, class, event -> shares of run and runq under this label; the sleep is the account's own
LABELS = {
    ("active", None, None): (0.9, 0.5),
    ("active", "LWLock", "BufferMapping"): (0.05, 0.2),
    ("active", "LWLock", "ProcArray"): (0.0, 0.0),
    ("active", "IO", "DataFileRead"): (0.05, 0.1),
    ("active", "Lock", "transactionid"): (0.0, 0.0),
    ("idle", "Client", "ClientRead"): (0.0, 0.2),
}
HELPERS = {"io worker": 0.05, "wal writer": 0.01, "checkpointer": 0.004}


def label(wait_class: str | None, wait_event: str | None) -> str:
    return "no wait event" if wait_class is None else f"{wait_class}/{wait_event}"


def joint(accounts: Accounts) -> Iterator[tuple[tuple[str, str | None, str | None], float, float, float]]:
    """Label, and its seconds per second on a CPU, asleep and in the run queue."""
    for key, (run, runq) in LABELS.items():
        _, wait_class, wait_event = key
        sleep = accounts[("client", None)] if wait_class == "Client" else 0.0
        sleep += accounts.get(("sleep", label(wait_class, wait_event)), 0.0)
        yield key, run * accounts[("run", None)], sleep, runq * accounts[("runq", None)]


def memos(accounts: Accounts, known: bool) -> Iterator[Row]:
    """Rows of the ledger that lie inside accounts of the rung."""
    for (_, wait_class, wait_event), run, _, runq in joint(accounts):
        for scope, account, parent, aas in (("memo", "label.run", None, run), ("rung", "runq", "runq", runq)):
            if known:
                yield {
                    "scope": scope,
                    "session": None,
                    "who": "rung",
                    "account": account,
                    "parent": parent,
                    "detail": label(wait_class, wait_event),
                    "aas": aas,
                    "low": 0.9 * aas,
                    "high": 1.1 * aas,
                    "status": "ok",
                    "source": ESTIMATED,
                }


def events(accounts: Accounts, sessions: int, known: bool) -> Iterator[Row]:
    scopes = [("rung", None, 1.0), *(("session", s, 1 / sessions) for s in range(sessions))]
    for scope, session, part in scopes:
        for (state, wait_class, wait_event), run, sleep, runq in joint(accounts):
            row: Row = {
                "scope": scope,
                "session": session,
                "who": scope,
                "state": state,
                "wait_class": wait_class,
                "wait_event": wait_event,
                "waits_per_s": None,
                "samples": 100.0 * part,
                "status": "ok" if known else "not here",
                "source": ESTIMATED if known else "activity samples, the server's word alone",
            }
            for name, value in (("run", run), ("sleep", sleep), ("runq", runq)):
                seconds = value * part if known or name == "sleep" else None
                row[name] = seconds
                row[f"{name}_low"] = None if seconds is None else 0.9 * seconds
                row[f"{name}_high"] = None if seconds is None else 1.1 * seconds
            yield row


def microstates(accounts: Accounts, sessions: int, known: bool) -> Iterator[Row]:
    n = sessions
    states = {
        "usr": accounts[("run.user", None)] / n,
        "sys": accounts[("run.system", None)] / n,
        "cpu_wait": accounts[("runq", None)] / n,
        "lock": sum(accounts[("sleep", f"{e}")] for e in _LOCKS) / n,
        "client": accounts[("client", None)] / n,
        "sleep": accounts[("sleep", "IO/DataFileRead")] / n,
    }
    left = accounts[("unaccounted", None)] / n
    for s in range(n):
        yield _process(
            5000 + s, "session", s, f"dbdyno {s}, user dbdyno, database dbdyno", states, left, known
        )
    worker = dict.fromkeys(states, 0.0) | {"usr": 0.25, "sys": 0.05, "sleep": 0.7}
    yield _process(6000, "session", 0, "parallel worker", worker, 0.0, known, worker=True)
    for i, (who, cpus) in enumerate(HELPERS.items()):
        helper = dict.fromkeys(states, 0.0) | {"usr": cpus, "sleep": 1 - cpus}
        yield _process(4701 + i, f"helper:{who}", None, who, helper, 0.0, known)


_LOCKS = ("LWLock/BufferMapping", "LWLock/ProcArray", "Lock/transactionid")


def _process(
    pid: int,
    role: str,
    session: int | None,
    name: str,
    states: Mapping[str, float],
    left: float,
    known: bool,
    worker: bool = False,
) -> Row:
    ends = {
        f"{n}{end}": v * f if known else None
        for n, v in states.items()
        for end, f in (("", 1.0), ("_low", 0.9), ("_high", 1.1))
    }
    return {
        "pid": pid,
        "start_ticks": 77,
        "role": role,
        "session": session,
        "worker": worker,
        "name": name,
        "wall_s": float(WINDOW_S),
        **ends,
        "unaccounted": left if known else None,
        "block_io": None,
        "voluntary_per_s": 120.0 if known else None,
        "involuntary_per_s": 31.5 if known else None,
        "slices_per_s": 151.5 if known else None,
        "syscalls_per_s": None,
        "status": "ok" if known else "not here",
        "source": f"os tasks; {ESTIMATED}",
    }


def strips(accounts: Accounts, sessions: int, known: bool, seed: str) -> Iterator[Row]:
    """A second a piece; the parts of a piece add up to 1."""
    noise = random.Random(seed)
    parts = {
        "run": accounts[("run", None)],
        "runq": accounts[("runq", None)],
        "LWLock": accounts[("sleep", "LWLock/BufferMapping")] + accounts[("sleep", "LWLock/ProcArray")],
        "IO": accounts[("sleep", "IO/DataFileRead")],
        "Lock": accounts[("sleep", "Lock/transactionid")],
        "Client": accounts[("client", None)],
    }
    for session in range(sessions if known else 0):
        for second in range(WINDOW_S):
            weights = {p: v * noise.uniform(0.5, 1.5) for p, v in parts.items()}
            whole = sum(weights.values())
            for part, weight in weights.items():
                if weight > 0:
                    yield {
                        "session": session,
                        "pid": 5000 + session,
                        "start_s": float(second),
                        "end_s": second + 1.0,
                        "part": part,
                        "share": weight / whole,
                    }


def over_time(rate: float, sessions: int) -> Iterator[Row]:
    """A look at the driver each second but for the last three, which are one."""
    for start, end in [
        *((float(s), s + 1.0) for s in range(WINDOW_S - 3)),
        (WINDOW_S - 3.0, float(WINDOW_S)),
    ]:
        calls = round(rate * (end - start))
        yield {
            "start_s": float(start),
            "end_s": float(end),
            "calls": calls,
            "errors": 0,
            "calls_per_s": calls / (end - start),
            "response_mean_ns": sessions / rate * 1e9 if calls else None,
        }


def profile(accounts: Accounts, rate: float, work: float, known: bool) -> Iterator[Row]:
    """One transaction, one execution a call."""
    busy = sum(v for (a, _), v in accounts.items() if a in ("run", "runq", "sleep"))
    lines = (
        ("DB time", "s", busy, "driver", True),
        ("DB CPU", "s", accounts[("run", None)], "os tasks", known),
        ("CPU WAIT", "s", accounts[("runq", None)], "os tasks", known),
        ("logical reads", "blocks", rate * work, "engine counters", True),
        ("physical reads", "blocks", rate * 1.5, "engine counters", True),
        ("WAL", "bytes", 812.0, "engine counters", True),
        ("temporary files", "bytes", 0.0, "engine counters", True),
        ("calls", "count", rate, "driver", True),
        ("commits", "count", rate, "engine counters", True),
        ("rollbacks", "count", 0.0, "engine counters", True),
        ("executions", "count", None, "engine counters", False),
        ("cache hit ratio", "ratio", 1 - 1.5 / work, "engine counters", True),
    )
    for name, unit, per_s, source, ok in lines:
        ratio = unit == "ratio"
        value = per_s if ok else None
        over = None if ratio or value is None else value
        yield {
            "name": name,
            "unit": unit,
            "total": value if ratio or value is None else value * WINDOW_S,
            "per_s": over,
            "per_transaction": None if over is None else over / rate,
            "per_execution": None,
            "per_call": None if over is None else over / rate,
            "status": "ok" if ok else _WHY.get(name, "not here"),
            "source": source,
        }


_WHY = {"executions": "off: load a statement counter (shared_preload_libraries) and restart the server"}


def top_events(accounts: Accounts, known: bool) -> Iterator[Row]:
    busy = sum(v for (a, _), v in accounts.items() if a in ("run", "runq", "sleep"))
    hidden = {label(c, e): runq for (_, c, e), _, _, runq in joint(accounts)}
    lines = [("DB CPU", accounts[("run", None)], None), ("CPU WAIT", accounts[("runq", None)], None)] * known
    lines += [
        (str(d), v, hidden[str(d)] if known else None) for (a, d), v in accounts.items() if a == "sleep"
    ]
    for rank, (name, aas, runq) in enumerate(sorted(lines, key=lambda r: -r[1])[:10], start=1):
        yield {
            "rank": rank,
            "name": name,
            "seconds": aas * WINDOW_S,
            "low": 9.0 * aas,
            "high": 11.0 * aas,
            "share": aas / busy if busy else None,
            "runq_s": None if runq is None else runq * WINDOW_S,
            "waits": None,
            "mean_ns": None,
            "source": "os tasks" if runq is None and known else ESTIMATED,
        }
