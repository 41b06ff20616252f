"""Derived tables of a noise measurement: where differences of equal measurements come from, and which a
comparison can see."""

from __future__ import annotations

from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.table import Method, Table

NOISE = "noise"
_LOAD = (
    _c("workload", "str", "workload"),
    _c("sessions", "i64", "load level"),
)
WITHIN, WINDOWS, NEW_SESSIONS, RESTARTS, DRIFT, REPEAT = (
    "within a window",
    "between windows in a row",
    "new sessions",
    "restarts of the server",
    "drift",
    "one repeat",
)
"""Parts of the noise; the last is what a comparison on one start of the server meets."""

TABLES = (
    Table(
        "noise",
        (
            *_LOAD,
            _c("part", "str", f"{' | '.join((WITHIN, WINDOWS, NEW_SESSIONS, RESTARTS, DRIFT, REPEAT))}"),
            _c("deviation", "f64", "relative standard deviation that this part adds", null=True),
            _c("low", "f64", "95 % interval", null=True),
            _c("high", "f64", "its upper end", null=True),
            _c("degrees", "f64", "degrees of freedom", null=True),
            _c("values", "i64", "values that it rests on"),
            _c("source", "str", "data source"),
            _c("status", "str", "ok | why unknown"),
        ),
        methods=(
            Method(
                "noise",
                "deviation",
                "nested variances of the logarithm of throughput: seconds with their autocorrelation, "
                "windows of one measurement, neighbouring measurements, means of starts; each less what the "
                "level below it explains",
                kinds=(NOISE,),
            ),
        ),
    ),
    Table(
        "noise_plan",
        (
            *_LOAD,
            _c("difference", "f64", "relative difference of two variants"),
            _c("restarts", "bool", "whether each measurement has a start of the server of its own"),
            _c(
                "repeats",
                "i64",
                "repeats that find it with a probability of 80 %; NULL: too many",
                null=True,
            ),
            _c("measure_s", "f64", "length of each measurement, for the shortest time", null=True),
            _c("time_s", "f64", "duration of the comparison of two variants", null=True),
            _c("source", "str", "data source"),
            _c("status", "str", "ok | why unknown"),
        ),
        methods=(
            Method(
                "noise_plan",
                "repeats",
                "power of the paired t test of a comparison at 5 %, with the upper bound of the variance "
                "(80 % confidence)",
                kinds=(NOISE,),
            ),
        ),
    ),
    Table(
        "noise_budget",
        (
            *_LOAD,
            _c("measure_s", "f64", "length of a measurement"),
            _c("variance", "f64", "variance of the logarithm of throughput beside the next measurement"),
            _c("degrees", "f64", "its degrees of freedom"),
            _c("second_variance", "f64", "variance of a long mean times its seconds"),
            _c("second_degrees", "f64", "its degrees of freedom"),
            _c("autocorrelation_s", "f64", "integrated autocorrelation time"),
            _c("overhead_s", "f64", "time between two measurements"),
            _c("start_variance", "f64", "variance of means of starts; NULL: not restarted", null=True),
            _c("start_degrees", "f64", "its degrees of freedom", null=True),
            _c("per_start", "f64", "measurements on a start"),
            _c("restart_s", "f64", "further time that a restart takes"),
            _c("floor", "f64", "difference of two runs that starts alone exceed in 5 %", null=True),
        ),
    ),
)
