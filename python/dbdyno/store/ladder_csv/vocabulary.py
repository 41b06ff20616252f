"""Lists words of headings: counted things, units, statistics."""

from __future__ import annotations

import re

TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Units of time in seconds."""
TIME_WORDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("us", "usec", "usecs", "micros", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"), "ns"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
PER_WORDS = TIME_WORDS | {"m": "min"}
LETTERS = {"s": "s", "m": "min", "h": "h", "d": "d"}  # of tps, tpm, tph
PERCENT = ("%", "pct", "percent")

SESSIONS = {
    "session": "sessions", "client": "clients", "thread": "threads", "thd": "threads", "user": "users",
    "vuser": "users",
    "vu": "users", "connection": "connections", "conn": "connections", "worker": "workers",
    "process": "processes", "proc": "processes", "backend": "backends", "terminal": "terminals",
    "stream": "streams", "job": "jobs", "load": "", "n": "", "concurrency": "", "mpl": "",
    "multiprogramming": "", "aas": "active sessions", "level": "", "size": "", "agent": "agents",
}  # fmt: skip
"""Words of loads that have one call at a time each."""
OTHERS = {
    "node": "nodes", "instance": "instances", "servers": "servers", "machines": "machines",
    "hosts": "hosts", "shard": "shards", "replica": "replicas", "processor": "processors",
    "core": "cores", "cpu": "cpus", "vcpu": "vcpus", "p": "", "dop": "parallel workers",
    "degree": "parallel workers", "degreeparallelism": "parallel workers", "parallelism": "",
    "queuedepth": "I/Os in flight", "iodepth": "I/Os in flight", "qd": "I/Os in flight",
    "depth": "I/Os in flight",
}  # fmt: skip
"""Words of loads that have any number of calls at a time each, or a share of one."""
FILLERS = frozenset(
    {"num", "number", "no", "nr", "of", "count", "concurrent", "active", "db", "virtual", "the", "average"}
    | {"avg", "parallel", "simultaneous", "in", "io", "total"}
)

COUNTED = {
    "calls": "call", "requests": "request req reqs", "transactions": "transaction trans trx tx txn txns xact",
    "queries": "query", "operations": "operation op ops", "statements": "statement stmt stmts",
    "orders": "order", "rows": "row", "events": "event", "commits": "commit", "inserts": "insert",
    "selects": "select", "updates": "update", "reads": "read", "writes": "write",
    "messages": "message msg msgs",
    "I/Os": "io ios", "executions": "execution exec execs", "iterations": "iteration", "records": "record",
    "documents": "document doc docs", "hits": "", "pages": "page", "units": "unit", "jobs": "",
}  # fmt: skip
THINGS = {word: name for name, words in COUNTED.items() for word in (name.lower(), *words.split())}
"""Counted thing by word of a heading."""
INITIALS = {
    "t": "transactions", "q": "queries", "r": "requests", "o": "operations", "op": "operations",
    "io": "I/Os", "nop": "orders", "c": "calls",
}  # fmt: skip
RATES = frozenset(
    {"rate", "throughput", "tput", "thruput", "xput", "x", "performance", "capacity", "speed"} | {"bandwidth"}
)
SCALES = {
    "k": 1e3, "thousand": 1e3, "thousands": 1e3, "m": 1e6, "mio": 1e6, "million": 1e6, "millions": 1e6,
    "g": 1e9, "billion": 1e9, "billions": 1e9,
}  # fmt: skip
NO_WORK = re.compile(
    r"(error|err|fail(ure|ed)?|retr(y|ie)|abort(ed)?|rollback|deadlock|reject(ed)?|drop(ped)?|lost|timeout)s?"
    r"|response|latency|lat|rt|min|minimum|max|maximum|peak|best|worst|median|mode|p?\d+(st|nd|rd|th)?|percentile"
    r"|(std)?(dev|err)|std|stdev|stddev|sd|se|sem|var|variance|cv|ci|sigma|σ|±|%|pct|percent|relative|rel|ratio"
    r"|normali[sz]ed|speedup|gain|diff|difference|delta|δ|∆|change|loss|vs|baseline|expected|target|predicted"
    r"|theoretical|ideal|idle|slow|dead|blocked|waiting"
)
"""Words that make a column no rate of work: ``errors/s``, ``max calls/s``."""
CONNECTING = re.compile(
    r"\b(including|excluding|without|with)[\s_]+(connections[\s_]+establishing"
    r"|(initial[\s_]+connection|reconnection)[\s_]+times?)",
    re.IGNORECASE,
)
"""Text that pgbench prints after tps."""
AVERAGE_OF = re.compile(r"\b(mean|avg|average) of \d+( [a-z]+)?\b", re.IGNORECASE)
BRACKETS = re.compile(r"[(\[{]([^()\[\]{}]*)[)\]}]")
LONGEST = 200  # characters of a heading
BYTES = re.compile(r"[kmgt]?i?(b|bit|bits|byte|bytes)\Z")
AVERAGE = frozenset({"mean", "avg", "average"})
RESPONSE = frozenset({"response", "latency", "lat", "rt", "resp", "responsetime", "r", "residence"})
P95 = frozenset({"p95", "95th", "95", "q95", "pct95", "perc95", "p95th"})
OF_CPU = frozenset({"time", "used", "usage", "util", "utilization", "utilisation", "busy", "total", "aas"})
CPUS: dict[frozenset[str], str] = {
    frozenset({"cpu"}): "cpu",
    frozenset({"run"}): "cpu",
    **{frozenset({c, w}): "cpu_user" for c in ("cpu", "run") for w in ("user", "usr")},
    **{frozenset({c, w}): "cpu_system" for c in ("cpu", "run") for w in ("system", "sys", "kernel")},
    **{frozenset({"cpu", w}): "cpu_wait" for w in ("wait", "waiting", "delay", "runq")},
    frozenset({"runq"}): "cpu_wait",
    frozenset({"run", "queue"}): "cpu_wait",
}
DURATIONS = frozenset({"duration", "elapsed", "measured", "measure", "window", "runtime", "interval"})
REPEATS = frozenset(
    {"repeat", "run", "rep", "replicate", "replication", "iteration", "iter", "round", "trial", "repetition"}
    | {"block", "pass", "sample"}
)
