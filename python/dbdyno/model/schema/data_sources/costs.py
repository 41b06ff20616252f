"""The costs of a call: their figures and their derived table."""

from __future__ import annotations

from typing import NamedTuple

from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.table import DRIVEN, SERVED, Method, Table

CALL, WORK = "call", "work unit"
"""Values of ``per``."""


class Figure(NamedTuple):
    """A figure of a call. ``title``: its name within a sentence; ``whole``: the figure that it is a part or
    another measure of; ``device``: the column of the table ``device_io`` that it is made of."""

    id: str
    unit: str
    title: str
    whole: str = ""
    device: str = ""


CPU, USER, SYSTEM, CLIENT_CPU = "cpu_ns", "cpu_user_ns", "cpu_system_ns", "client_cpu_ns"
VOLUNTARY, INVOLUNTARY = "switches_voluntary", "switches_involuntary"
NETWORK, SENT, RECEIVED = "network_bytes", "network_sent_bytes", "network_received_bytes"
ROUND_TRIPS, SYSTEM_CALLS, WAL = "round_trips", "system_calls", "wal_bytes"

FIGURES = (
    Figure(CPU, "ns", "CPU"),
    Figure(USER, "ns", "user CPU", CPU),
    Figure(SYSTEM, "ns", "kernel CPU", CPU),
    Figure(CLIENT_CPU, "ns", "client CPU"),
    Figure(VOLUNTARY, "count", "voluntary switches"),
    Figure(INVOLUNTARY, "count", "involuntary switches"),
    Figure("logical_reads", "blocks", "logical reads"),
    Figure("reads", "count", "reads"),
    Figure("read_bytes", "bytes", "bytes read", "reads"),
    Figure("writes", "count", "writes"),
    Figure("written_bytes", "bytes", "bytes written", "writes"),
    Figure("device_reads", "count", "device reads", "", "reads_per_s"),
    Figure("device_read_bytes", "bytes", "bytes read from devices", "device_reads", "read_bytes_per_s"),
    Figure("device_writes", "count", "device writes", "", "writes_per_s"),
    Figure(
        "device_written_bytes", "bytes", "bytes written to devices", "device_writes", "written_bytes_per_s"
    ),
    Figure("device_flushes", "count", "device flushes", "", "flushes_per_s"),
    Figure(WAL, "bytes", "WAL"),
    Figure("wal_records", "count", "WAL records", WAL),
    Figure("wal_full_page_images", "count", "full-page images", WAL),
    Figure("wal_writes", "count", "WAL writes", WAL),
    Figure("wal_syncs", "count", "WAL syncs", WAL),
    Figure(NETWORK, "bytes", "bytes over the network"),
    Figure(SENT, "bytes", "bytes sent", NETWORK),
    Figure(RECEIVED, "bytes", "bytes received", NETWORK),
    Figure(ROUND_TRIPS, "count", "round trips"),
    Figure(SYSTEM_CALLS, "count", "system calls"),
)
"""All figures, in the order in which they are shown."""
BY_ID = {f.id: f for f in FIGURES}

PER = {CALL: "call", WORK: "work"}
"""Endings of the names of metrics, by the divisor of a cost."""


def metric_of(figure: str, per: str, *, background: bool = False) -> str:
    """Returns the name by which a comparison calls a cost: ``cpu_user_per_call_ns``,
    ``background_wal_bytes_per_work``."""
    bare = figure.removesuffix("_ns")
    name = f"{bare}_per_{PER[per]}{figure.removeprefix(bare)}"
    return f"background_{name}" if background else name


INCLUDED = "included in the sessions' share"
"""Status of the background's share where a counter does not tell the processes apart."""

AT_LEAST = "at least: "
"""Begin of the status of a background's share that lacks a part; what is missing follows."""
NO_TICK = "no tick seen"
"""Status of a part of CPU time that was too little for the kernel's ticks."""
SMALL = "too small beside the sessions' share to be told from it"
"""Status of the background's share where the server's count hardly exceeds the sessions'."""
SOME_WINDOWS = " windows"
"""End of the status of a figure that not all windows of a load have: ``2 of 4 windows``."""
LESS_SESSIONS = "less the sessions'"
"""End of the source of a background's share that is the rest of two figures."""

COUNTERS, SERVER_WIDE = "engine counters", ", server-wide"
"""Begin of the source of a figure that the engine counts, and what follows where it counts for everybody."""

WARM_UP = ", warm-up included"
"""End of the source of a figure whose growth the window alone does not show: sessions count from their first
call."""


def counted_for(source: str, background_status: str) -> str:
    """Returns whose work a figure of the engine's counters holds, in words of a sentence; "" for any other
    figure. Figures of other people's work are compared with nothing but their like."""
    if not source.startswith(COUNTERS):
        return ""
    if SERVER_WIDE not in source:
        whose = "for its own sessions"
    else:
        whose = "server-wide" if background_status == INCLUDED else "server-wide without the background"
    return f"{whose}{WARM_UP}" if source.endswith(WARM_UP) else whose


COSTS = Table(
    "costs",
    (
        *CELL,
        _c("per", "str", f"{CALL} | {WORK}"),
        _c("figure", "str", "cpu_ns | switches_voluntary | wal_bytes | ...: dbdyno help costs"),
        _c("unit", "str", "ns | count | blocks | bytes"),
        _c("value", "f64", "of sessions, with their parallel workers, and of the client", null=True),
        _c("low", "f64", "lower end of its interval; NULL: none known", null=True),
        _c("high", "f64", "upper end", null=True),
        _c("background", "f64", "of the server's own processes, the share of a call", null=True),
        _c("total", "f64", "of sessions over the window, from which totals over repeats are made", null=True),
        _c("background_total", "f64", "of the server's own processes over the window", null=True),
        _c("units", "f64", "calls or units of work in the window", null=True),
        _c("status", "str", "ok | why the value is unknown"),
        _c(
            "source",
            "str",
            "data source; server-wide: the work of others is in it, too"
            "; warm-up included: so are calls before the window",
        ),
        _c("background_status", "str", "ok | at least: what is missing | why the share is unknown"),
        _c("background_source", "str", "data source of the background's share"),
    ),
    together=True,
    options=("costs",),
    methods=(
        Method(
            "costs of {~a_call}",
            "value",
            "what {~owners} used in the window over the {~calls} of the window; of repeats together the sum "
            "over the sum, with Student's interval of the repeats",
            kinds=(DRIVEN,),
        ),
        Method(
            "background per call",
            "background",
            "what the server's own processes used in the window over the {~calls} of the window",
            kinds=(SERVED,),
        ),
    ),
)
