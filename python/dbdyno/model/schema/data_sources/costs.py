"""The costs of a call: their figures and their derived table."""

from __future__ import annotations

from typing import NamedTuple

from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.table import DRIVEN, SERVED, Method, Table

CALL, WORK = "call", "work unit"
"""Values of ``per``."""


class Figure(NamedTuple):
    """A figure of a call. ``device``: the column of the table ``device_io`` that it is made of."""

    id: str
    unit: str
    device: str = ""


CPU, USER, SYSTEM, CLIENT_CPU = "cpu_ns", "cpu_user_ns", "cpu_system_ns", "client_cpu_ns"
VOLUNTARY, INVOLUNTARY = "switches_voluntary", "switches_involuntary"
NETWORK, SENT, RECEIVED = "network_bytes", "network_sent_bytes", "network_received_bytes"
ROUND_TRIPS, SYSTEM_CALLS = "round_trips", "system_calls"

FIGURES = (
    Figure(CPU, "ns"),
    Figure(USER, "ns"),
    Figure(SYSTEM, "ns"),
    Figure(CLIENT_CPU, "ns"),
    Figure(VOLUNTARY, "count"),
    Figure(INVOLUNTARY, "count"),
    Figure("logical_reads", "blocks"),
    Figure("reads", "count"),
    Figure("read_bytes", "bytes"),
    Figure("writes", "count"),
    Figure("written_bytes", "bytes"),
    Figure("device_reads", "count", "reads_per_s"),
    Figure("device_read_bytes", "bytes", "read_bytes_per_s"),
    Figure("device_writes", "count", "writes_per_s"),
    Figure("device_written_bytes", "bytes", "written_bytes_per_s"),
    Figure("device_flushes", "count", "flushes_per_s"),
    Figure("wal_bytes", "bytes"),
    Figure("wal_records", "count"),
    Figure("wal_full_page_images", "count"),
    Figure("wal_writes", "count"),
    Figure("wal_syncs", "count"),
    Figure(NETWORK, "bytes"),
    Figure(SENT, "bytes"),
    Figure(RECEIVED, "bytes"),
    Figure(ROUND_TRIPS, "count"),
    Figure(SYSTEM_CALLS, "count"),
)
"""All figures, in the order in which they are shown."""


INCLUDED = "included in the sessions' share"
"""Status of the background's share where a counter does not tell the processes apart."""

COSTS = Table(
    "costs",
    (
        *CELL,
        _c("per", "str", f"{CALL} | {WORK}"),
        _c("figure", "str", "cpu_ns | switches_voluntary | wal_bytes | ...: see docs/costs.md"),
        _c("unit", "str", "ns | count | blocks | bytes"),
        _c("value", "f64", "of sessions, with their parallel workers, and of the client", null=True),
        _c("low", "f64", "lower end of its interval; NULL: none known", null=True),
        _c("high", "f64", "upper end", null=True),
        _c("background", "f64", "of the server's own processes, the share of a call", null=True),
        _c("total", "f64", "of sessions over the window, from which totals over repeats are made", null=True),
        _c("background_total", "f64", "of the server's own processes over the window", null=True),
        _c("units", "f64", "calls or units of work in the window", null=True),
        _c("status", "str", "ok | why the value is unknown"),
        _c("source", "str", "data source; server-wide: the work of others is in it, too"),
        _c("background_status", "str", "ok | why the background's share is unknown"),
        _c("background_source", "str", "data source of the background's share"),
    ),
    together=True,
    options=("costs",),
    methods=(
        Method(
            "costs of a call",
            "value",
            "what sessions used in the window over the {~calls} of the window; of repeats together the sum "
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
