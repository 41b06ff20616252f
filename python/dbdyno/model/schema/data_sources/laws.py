"""Operational laws: what each says of a measurement by two independent sources, and the bounds of
throughput."""

from __future__ import annotations

from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.table import DATABASE, DRIVEN, Method, Table

LITTLE, UTILISATION = "littles-law", "utilisation-law"
HOLDS, VIOLATED = "holds", "violated"

LAWS = Table(
    "laws",
    (
        *CELL,
        _c("law", "str", f"{LITTLE} | {UTILISATION}"),
        _c("of", "str", "sessions | calls in progress | CPU of the server | CPU of the machine"),
        _c("value", "f64", "as it was counted; NULL: unknown", null=True),
        _c("source", "str", "who counted it"),
        _c("by_law", "f64", "as it follows from throughput and times; NULL: unknown", null=True),
        _c("by_law_source", "str", "who measured these"),
        _c("relative_difference", "f64", "(value - by_law) / by_law", null=True),
        _c("error", "f64", "a difference up to this is within the errors of both, in the unit", null=True),
        _c("verdict", "str", f"{HOLDS} | {VIOLATED} | unknown"),
        _c("status", "str", "ok, or why unknown"),
    ),
    options=("cross_check",),
    methods=(
        Method(
            "Little's law",
            "value",
            "sessions that the kernel saw at the server = {~calls}/s x (mean {~response_time} + think time), "
            "and time in {~calls} by the ledger = {~calls}/s x mean {~response_time}, both by the driver's "
            "clock",
            kinds=(DATABASE,),
        ),
        Method(
            "utilisation law",
            "by_law",
            "CPU use of the server's group, or of the machine, by the kernel's counters = {~calls}/s x CPU "
            "per {~call} + the other tasks' CPU, by the single tasks",
            kinds=(DATABASE,),
        ),
    ),
)

BOUNDS = Table(
    "bounds",
    (
        _c("workload", "str", "workload"),
        _c("variant", "str", "variant"),
        _c("sessions", "i64", "load level"),
        _c("from_sessions", "i64", "load of the demands: the lowest usable one"),
        _c("waitless_per_s", "f64", "N / (R + Z): calls/s if nobody waited for another", null=True),
        _c("waitless_low", "f64", "lower end of its interval", null=True),
        _c("waitless_high", "f64", "its upper end", null=True),
        _c("cpus", "f64", "CPUs that the server may use; NULL: its host is not known", null=True),
        _c("cpu_demand_ns", "f64", "CPU time of a call at the lowest load", null=True),
        _c("cpu_limit_per_s", "f64", "CPUs / CPU time of a call", null=True),
        _c("cpu_limit_low", "f64", "lower end of its interval", null=True),
        _c("cpu_limit_high", "f64", "its upper end", null=True),
        _c("bound_per_s", "f64", "the lower one of both", null=True),
        _c("calls_per_s", "f64", "measured", null=True),
        _c("verdict", "str", "within | above: more than the interval of the bound explains | unknown"),
        _c("source", "str", "data sources"),
        _c("status", "str", "ok, or why unknown"),
    ),
    methods=(
        Method(
            "bounds of throughput",
            "bound_per_s",
            "N / (R + Z) and CPUs / CPU per {~call}, from the lowest load (Denning, Buzen 1978)",
            kinds=(DRIVEN,),
        ),
    ),
)
