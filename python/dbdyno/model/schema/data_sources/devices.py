"""Block devices below the server's directories: counters of ``/proc/diskstats``, which
crates/dyno-observe/src/read/device_rows.rs reads. crates/dyno-observe/src/read/places.rs finds the devices.

The kernel documents the counters in Documentation/admin-guide/iostats.rst. The rates are those of iostat(1)
of sysstat: ``r_await``, ``w_await``, ``f_await`` (time of requests over requests), ``areq-sz`` (bytes over
requests), ``aqu-sz`` (weighted time over wall time) and ``%util`` (time with a request over wall time).
"""

from __future__ import annotations

from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_source import DataSource, Enabling, Step, WatchedReads
from dbdyno.model.schema.table import Method, Table

DEVICES = "devices"
ASSUMED_PLACE = "(unless a link)"
"""Follows the name of a directory whose device is known by mount points alone."""
"""Name of the data source."""
SUMS = (
    _c("reads", "i64", "reads completed in the window", null=True),
    _c("read_bytes", "i64", "bytes read", null=True),
    _c("read_ns", "i64", "sum of the durations of these reads, queue included", null=True),
    _c("writes", "i64", "writes completed", null=True),
    _c("written_bytes", "i64", "bytes written", null=True),
    _c("write_ns", "i64", "sum of the durations of these writes, queue included", null=True),
    _c("discards", "i64", "discards completed", null=True),
    _c("discarded_bytes", "i64", "bytes discarded", null=True),
    _c("flushes", "i64", "flushes completed; NULL: not counted for such a device", null=True),
    _c("flush_ns", "i64", "sum of their durations", null=True),
    _c("io_ns", "i64", "time with a request in progress", null=True),
    _c("weighted_ns", "i64", "the same times the requests in progress", null=True),
)
"""Growth of the counters in a window. Rates and totals follow from it."""
RATES = (
    _c("reads_per_s", "f64", "reads per second", null=True),
    _c("read_bytes_per_s", "f64", "bytes read per second", null=True),
    _c("read_await_ns", "f64", "mean duration of a read, queue included; NULL: there was none", null=True),
    _c("writes_per_s", "f64", "writes per second", null=True),
    _c("written_bytes_per_s", "f64", "bytes written per second", null=True),
    _c("write_await_ns", "f64", "mean duration of a write; NULL: there was none", null=True),
    _c("flushes_per_s", "f64", "flushes per second", null=True),
    _c("flush_await_ns", "f64", "mean duration of a flush; NULL: there was none", null=True),
    _c("request_bytes", "f64", "mean size of a read or write; NULL: there was none", null=True),
    _c("utilisation", "f64", "share of the time with a request in progress", null=True),
    _c("in_flight", "f64", "requests in progress, mean over time", null=True),
)

DEVICE_TABLES = (
    Table(
        "device_io",
        (
            *CELL,
            _c("device", "str", "name by the kernel; NULL: the places have no device", null=True),
            _c(
                "places", "str", "directories on its file systems; NULL: it only lies below others", null=True
            ),
            _c("layers", "str", "what it lies on", null=True),
            _c(
                "below", "str", "devices of this table that lie on it: their I/O is in its figures", null=True
            ),
            _c(
                "counted",
                "bool",
                "sums over devices add these rows: each I/O of the places is in one of them",
            ),
            _c("wall_s", "f64", "time between the two reads", null=True),
            *SUMS,
            *RATES,
            _c("status", "str", "ok | no device: type of the file system | why it is unknown"),
            _c("source", "str", "data source"),
        ),
        together=True,
        options=("devices",),
        methods=(
            Method(
                "devices",
                "utilisation",
                "/proc/diskstats at both ends of the window; await, request size, queue and utilisation as "
                "iostat(1) defines them; all processes of the machine together",
            ),
        ),
    ),
    Table(
        "device_time",
        (
            *CELL,
            _c("device", "str", "name by the kernel"),
            _c("start_s", "f64", "since t0: when the counters were read, about once a second"),
            _c("end_s", "f64", "when they were read next"),
            *SUMS,
            *RATES,
        ),
        json=False,
    ),
)

DEVICE_SOURCE = DataSource(
    name=DEVICES,
    provenance="/proc/diskstats, of the devices below the server's directories",
    cures={
        "not supported": "none of the server's directories is on a block device of this machine: "
        "dbdyno show RUN --devices says on what they are",
        "not permitted": "the server's directories are not known to this user: run dbdyno as the server's "
        "user or root",
        "vanished": "the device was removed, or the server's directories were",
    },
    enabling=Enabling(
        "IOPS, MB/s, response time and queue of the devices below data, WAL and temporary files",
        "the server's user or root, or a role that may see where the directories are",
        (Step("sudo -E $(command -v dbdyno) run WORKLOAD --dsn DSN"),),
    ),
    reads=WatchedReads("devices", "places"),
)
