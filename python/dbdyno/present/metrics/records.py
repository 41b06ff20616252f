"""The metrics that dbdyno serves, each declared once: exposition, list and documentation follow."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dbdyno import __version__

Kind = Literal["counter", "gauge", "histogram", "info"]

SERVER = "server"
"""Label of the observed server, which every metric but that of the program has."""
BUCKETS_S = (*(float(f"{digit}e{power}") for power in range(-5, 2) for digit in (1, 2, 5)), 100.0)
"""Upper bounds of the response-time histogram in seconds: 1, 2, 5 in each decade from 10 us to 100 s."""


class Metric(NamedTuple):
    """A metric. ``name`` is without the suffix of its kind; ``unit`` is the end of the name if there is one.

    ``source``: the derived tables that its values come from. ``open``: the labels whose values come from the
    server or its host, so that their number has to be limited.
    """

    name: str
    kind: Kind
    help: str
    source: str
    labels: tuple[str, ...] = (SERVER,)
    unit: str = ""
    open: tuple[str, ...] = ()

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its series."""
        suffixes = {
            "counter": ("_total",),
            "gauge": ("",),
            "info": ("_info",),
            "histogram": ("_bucket", "_sum", "_count"),
        }
        return tuple(f"{self.name}{suffix}" for suffix in suffixes[self.kind])


_EVENT = (SERVER, "class", "event", "family")
_DEVICE = (SERVER, "device")


def _device(name: str, help_text: str, unit: str = "") -> Metric:
    return Metric(f"dbdyno_device_{name}", "counter", help_text, "device_io", _DEVICE, unit, ("device",))


METRICS: tuple[Metric, ...] = (
    Metric(
        "dbdyno_session_seconds",
        "counter",
        "Time of all sessions by account (cpu_user, cpu_system, cpu: not divided, run_queue, wait, client, "
        "pool_queue) and by wait event. Accounts do not overlap: their sum is the session time that is "
        "accounted for.",
        "ledger",
        (SERVER, "account", "class", "event", "family"),
        "seconds",
        ("class", "event"),
    ),
    Metric(
        "dbdyno_session_wall_seconds",
        "counter",
        "Session time: the length of the window for each session that existed throughout. Its rate over "
        "that of dbdyno_observed_seconds_total is the mean number of sessions.",
        "ledger",
        unit="seconds",
    ),
    Metric(
        "dbdyno_session_throttled_seconds",
        "counter",
        "Time for which sessions could not run as their control group's quota was used up. It lies inside "
        "the account run_queue and is not added to it.",
        "ledger",
        unit="seconds",
    ),
    Metric(
        "dbdyno_session_unaccounted_ratio",
        "gauge",
        "Share of the session time of the last window that no account has. Negative: accounts exceed it.",
        "ledger",
        unit="ratio",
    ),
    Metric(
        "dbdyno_waits",
        "counter",
        "Waits that began, by wait event. Only the scheduler trace counts them.",
        "events",
        _EVENT,
        open=("class", "event"),
    ),
    Metric(
        "dbdyno_sessions",
        "gauge",
        "Mean number of sessions in the last window, by the server's state of them.",
        "ledger",
        (SERVER, "state"),
        open=("state",),
    ),
    Metric("dbdyno_calls", "counter", "Measured calls of the load that ended well.", "rates"),
    Metric("dbdyno_errors", "counter", "Measured calls of the load that ended in an error.", "rates"),
    Metric(
        "dbdyno_transactions",
        "counter",
        "Transactions that the server ended, without dbdyno's own.",
        "profile",
    ),
    Metric(
        "dbdyno_statements", "counter", "Statements that the server ended, without dbdyno's own.", "profile"
    ),
    Metric(
        "dbdyno_response_seconds",
        "histogram",
        "Response times of the load's measured calls.",
        "cell_histogram",
        unit="seconds",
    ),
    Metric(
        "dbdyno_server_cpu_seconds",
        "counter",
        "CPU time of the server: its sessions and its own processes.",
        "ledger",
        unit="seconds",
    ),
    Metric(
        "dbdyno_helper_cpu_seconds",
        "counter",
        "CPU time of the server's own processes, by kind.",
        "ledger",
        (SERVER, "helper"),
        "seconds",
        ("helper",),
    ),
    Metric(
        "dbdyno_helper_run_queue_seconds",
        "counter",
        "Time for which the server's own processes waited for a CPU, by kind.",
        "ledger",
        (SERVER, "helper"),
        "seconds",
        ("helper",),
    ),
    Metric(
        "dbdyno_group_throttled_seconds",
        "counter",
        "Throttled time of the control group of the server that was throttled most, summed over its CPUs.",
        "machine_growth",
        unit="seconds",
    ),
    Metric(
        "dbdyno_host_cpu_seconds",
        "counter",
        "Time of all CPUs of the server's host by mode (user, nice, system, idle, iowait, irq, softirq, "
        "steal).",
        "machine_growth",
        (SERVER, "mode"),
        "seconds",
    ),
    Metric("dbdyno_host_cpus", "gauge", "CPUs of the server's host that are online.", "machine_growth"),
    Metric(
        "dbdyno_host_runnable_tasks",
        "gauge",
        "Tasks of the host on a CPU or in the run queue at the end of the last window.",
        "machine_growth",
    ),
    Metric(
        "dbdyno_host_blocked_tasks",
        "gauge",
        "Tasks of the host that waited for I/O at the end of the last window.",
        "machine_growth",
    ),
    Metric(
        "dbdyno_host_pressure_stalled_seconds",
        "counter",
        "Time for which some or all (full) tasks of the host stalled for want of a resource (cpu, io, "
        "memory): the kernel's pressure stall information.",
        "machine_growth",
        (SERVER, "resource", "kind"),
        "seconds",
    ),
    _device(
        "reads",
        "Reads that a device below the server's directories completed. A device that lies on others (a "
        "partition, LVM, RAID) has its requests in theirs, too: do not add them up.",
    ),
    _device("writes", "Writes that the device completed."),
    _device("flushes", "Flushes that the device completed."),
    _device("read_bytes", "Bytes read from the device.", "bytes"),
    _device("written_bytes", "Bytes written to the device.", "bytes"),
    _device("read_seconds", "Time of completed reads, queueing included.", "seconds"),
    _device("write_seconds", "Time of completed writes, queueing included.", "seconds"),
    _device("flush_seconds", "Time of completed flushes.", "seconds"),
    _device(
        "busy_seconds",
        "Time for which at least one request was in flight. A device that serves several at a time may be "
        "busy all the time and not at its limit.",
        "seconds",
    ),
    Metric(
        "dbdyno_device_in_flight_requests",
        "gauge",
        "Mean number of requests in flight in the last window.",
        "device_io",
        _DEVICE,
        open=("device",),
    ),
    Metric(
        "dbdyno_device",
        "info",
        "What the server keeps on the device: data, WAL, temporary, tablespaces.",
        "device_io",
        (*_DEVICE, "places"),
        open=("device", "places"),
    ),
    Metric(
        "dbdyno_driver_cpu_seconds",
        "counter",
        "CPU time of the threads that make the load.",
        "rates",
        unit="seconds",
    ),
    Metric(
        "dbdyno_driver_run_queue_seconds",
        "counter",
        "Time for which the threads that make the load waited for a CPU. If this is a large part of their "
        "time, the client limits the load.",
        "rates",
        unit="seconds",
    ),
    Metric(
        "dbdyno_observer_cpu_seconds",
        "counter",
        "CPU time of dbdyno's own observing, at the server and here, without the threads that make a load.",
        "ledger",
        unit="seconds",
    ),
    Metric(
        "dbdyno_source_up",
        "gauge",
        "1 if the data source could be read in the last window, 0 if not: its figures are then absent.",
        "cell_sources",
        (SERVER, "source"),
        open=("source",),
    ),
    Metric(
        "dbdyno_windows",
        "counter",
        "Measured windows by status: ok, short (cut, and counted), invalid (not counted in any figure).",
        "windows",
        (SERVER, "status"),
    ),
    Metric(
        "dbdyno_observed_seconds",
        "counter",
        "Length of all windows but invalid ones: the time that all other counters are of. Divide a counter's "
        "rate by the rate of this one.",
        "windows",
        unit="seconds",
    ),
    Metric(
        "dbdyno_unobserved_seconds",
        "counter",
        "Time between these windows, of which no counter has anything: the server answered late or not at "
        "all, a window was invalid, or a run prepared its next measurement.",
        "windows",
        unit="seconds",
    ),
    Metric("dbdyno_window_length_seconds", "gauge", "Length of the last window.", "windows", unit="seconds"),
    Metric(
        "dbdyno_window_end_timestamp_seconds",
        "gauge",
        "End of the last window, in seconds since 1970. Figures are no younger than this.",
        "windows",
        unit="seconds",
    ),
    Metric(
        "dbdyno_window",
        "info",
        "What the last window measured.",
        "windows",
        (SERVER, "workload", "variant", "sessions"),
        open=("workload", "variant"),
    ),
    Metric("dbdyno_build", "info", "The program that measures.", "", ("version",)),
)
BY_NAME = {metric.name: metric for metric in METRICS}
VERSION = __version__
