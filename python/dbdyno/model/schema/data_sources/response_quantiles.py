"""Quantiles of response times, each with its interval."""

from __future__ import annotations

from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.table import DRIVEN, Method, Table

REPEATS, SECONDS = "repeats", "seconds"
UNREPEATED = "5 repeats are needed, as nothing was counted by second"
SHORT = "5 repeats are needed, or a measurement of 60 s"
DRIFTING = "response times drift within the measurement; a longer one is needed, or 10 repeats"
BURSTS = "too few slow calls that are independent of each other"
UNEQUAL = "the repeats differ too much for their number; more are needed"

RESPONSE_QUANTILES = Table(
    "response_quantiles",
    (
        *CELL,
        _c("quantile", "str", "p50 | p95 | p99 | p99.9 | p99.99"),
        _c("q", "f64", "the same as a share of the calls"),
        _c("value_ns", "f64", "NULL: too few calls", null=True),
        _c("low_ns", "f64", "lower end of its 95 % interval; NULL: no interval", null=True),
        _c("high_ns", "f64", "its upper end", null=True),
        _c("calls", "i64", "measured calls"),
        _c("above", "f64", "of which above it, as the quantile is defined"),
        _c(
            "design_effect",
            "f64",
            "variance of the number of calls above it, over that of independent calls, with Student's "
            "factor; NULL: unknown",
            null=True,
        ),
        _c(
            "basis",
            "str",
            "what the interval covers: repeats (from 3 on) | seconds (chance within the windows only); NULL: "
            "no interval",
            null=True,
        ),
        _c("reason", "str", "why there is no interval", null=True),
        _c("status", "str", "ok | too few calls"),
        _c("source", "str", "driver"),
    ),
    together=True,
    options=("response",),
    methods=(
        Method(
            "quantiles of {~response_time}",
            "value_ns",
            "a quantile needs ten {~calls} above it. The ends of its interval are two of the ordered "
            "{~calls}, by the binomial distribution; {~calls} that are slow together count as one, by the "
            "variation between repeats, or between the seconds of a window",
            kinds=(DRIVEN,),
        ),
    ),
)
