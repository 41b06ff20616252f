"""Columns of response time over time: the heat map, what went on meanwhile, and modes."""

from __future__ import annotations

from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.table import Table

SHARE, IMAGES, BYTES, DURATION = "s/s", "images/s", "bytes/s", "ns"
"""Units of activities."""
FEW_CALLS, UNCERTAIN, FAR, FEW_SECONDS = "too few calls", "uncertain", "far", "too few seconds"
"""Statuses of modes."""
_SPAN = (
    _c("start_s", "f64", "since t0"),
    _c("end_s", "f64", "since t0"),
)
_MODE = _c("mode", "i64", "1.. from the shortest durations to the longest")

RESPONSE_TABLES: tuple[Table, ...] = (
    Table(
        "response_heat",
        (
            *CELL,
            *_SPAN,
            _c("low_ns", "i64", "lowest duration, inclusive"),
            _c("high_ns", "i64", "highest duration, inclusive"),
            _c("count", "i64", "measured calls that ended well in that time and took so long"),
        ),
        json=False,
        options=("heat",),
    ),
    Table(
        "activity_over_time",
        (
            *CELL,
            *_SPAN,
            _c(
                "kind",
                "str",
                "wait | process | checkpoint | WAL | device | run queue | quota | hypervisor | driver",
            ),
            _c("name", "str", "class/event of a wait; role of a process; requests of a device"),
            _c("value", "f64", "mean, in its unit; NULL: not known", null=True),
            _c("unit", "str", f"{SHARE} (time in it) | {IMAGES} | {BYTES} | {DURATION} (mean duration)"),
        ),
        json=False,
        options=("heat",),
    ),
    Table(
        "response_modes",
        (
            *CELL,
            _MODE,
            _c("low_ns", "i64", "its durations are from here", null=True),
            _c("high_ns", "i64", "to below this; NULL: no end", null=True),
            _c(
                "shortest_ns",
                "i64",
                "the shortest of its durations, to 6 % unless it is the shortest of all",
                null=True,
            ),
            _c("longest_ns", "i64", "the longest, to 6 % unless it is the longest of all", null=True),
            _c("middle_ns", "f64", "median of its durations", null=True),
            _c("calls", "i64", "measured calls that ended well"),
            _c("share", "f64", "of all of them"),
            _c("time_share", "f64", "of the sum of their durations"),
            _c("seconds", "i64", "seconds (in a long window: intervals) in which one of them ended"),
            _c("every_s", "f64", "distance of such seconds, if they come regularly", null=True),
            _c(
                "status",
                "str",
                f"ok | {FEW_CALLS} (in all) | {UNCERTAIN} (few calls, apart from all others) | {FAR} (fewer, "
                f"each many times as long as any other) | {FEW_SECONDS} (calls of a mode ended in fewer "
                "than 3)",
            ),
        ),
        options=("heat",),
    ),
    Table(
        "mode_activities",
        (
            *CELL,
            _MODE,
            _c("kind", "str", "as in activity_over_time | script | job"),
            _c("name", "str", "its name"),
            _c(
                "goes",
                "bool",
                "the mode goes with it: p below 0.05; of scripts and jobs: they have its calls",
            ),
            _c(
                "share",
                "f64",
                "of the mode's calls: those that ended while it was higher than otherwise",
                null=True,
            ),
            _c("during", "f64", "its mean in seconds in which calls of the mode ended", null=True),
            _c("otherwise", "f64", "the same in all others", null=True),
            _c("unit", "str", "of both, as in activity_over_time; NULL: script, job", null=True),
            _c("p", "f64", "of coincidence, adjusted for all activities (Holm)", null=True),
            _c("status", "str", f"ok | {FEW_SECONDS} | always the same"),
        ),
        options=("heat",),
    ),
)
