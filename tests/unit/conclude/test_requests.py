"""CPU of a read request: the slope of CPU per call over requests per call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from dbdyno.conclude.regression import requests
from dbdyno.conclude.run.case import Case
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.wait_families import Helper

USER, KERNEL, REST = 6e-6, 24e-6, 0.020  # seconds: of a request, of a call without requests
RATE = 2.0
LEVELS = (16_384, 8_192, 4_096, 2_048, 1_024)


def case_of(
    calls: list[tuple[float, float, float]], *, sessions: tuple[int, ...] = (), workers: float = 0.0
) -> Case:
    """Cells with (requests, user, kernel) of a call; ``workers``: the part of it that I/O workers did."""
    cells, figures, ledgers = [], {}, {}
    for n, (count, user, kernel) in enumerate(calls):
        cell = f"{n:04}"
        cells.append({"cell": cell, "workload": "scan", "sessions": sessions[n] if sessions else 1})
        figures[cell] = {"calls_per_s": RATE, "read_requests_per_call": count}
        rows: list[dict[str, Any]] = [
            {"scope": scope, "who": who, "account": account, "parent": "run", "aas": RATE * cpu * share}
            for scope, who, share in (("rung", "rung", 1 - workers), ("helper", "io worker", workers))
            for account, cpu in (("run.user", user), ("run.system", kernel))
        ]
        ledgers[cell] = pl.DataFrame(
            rows, schema={n: t for n, t in empty("ledger").schema.items() if n in rows[0]}
        )
    server = SimpleNamespace(helpers={"io worker": Helper.IO})
    return cast(
        "Case",
        SimpleNamespace(
            usable=cells,
            facts={},
            figures=figures.__getitem__,
            environment=SimpleNamespace(server=server),
            table=lambda name, cell: ledgers.get(cell, empty(name)),
        ),
    )


def claims_of(case: Case) -> list[Claim]:
    return list(requests.cost(case))


def call(count: float, noise: float = 1.0) -> tuple[float, float, float]:
    return count, (REST + USER * count) * noise, KERNEL * count * noise


@pytest.mark.parametrize("workers", [0.0, 0.4])
def test_the_slope_is_the_cpu_of_a_request_by_sessions_and_io_workers(workers: float) -> None:
    (claim,) = claims_of(case_of([call(n) for n in LEVELS], workers=workers))
    assert claim.id == "cpu-per-request"
    assert claim.value is not None and claim.value.value == pytest.approx((USER + KERNEL) * 1e9)
    assert (claim.slots["kernel"], claim.slots["rest"]) == (pytest.approx(0.8), pytest.approx(REST))
    assert len(claim.cells) == len(LEVELS)


def test_the_slopes_interval_holds_the_truth_where_cpu_is_noisy() -> None:
    noises = (1.02, 0.97, 1.01, 0.99, 1.0, 1.03, 0.98, 1.0, 1.01, 0.99)
    (claim,) = claims_of(case_of([call(n, noise) for n, noise in zip(LEVELS * 2, noises, strict=True)]))
    value = claim.value
    assert value is not None and value.low is not None and value.high is not None
    assert value.low < (USER + KERNEL) * 1e9 < value.high


def test_requests_without_a_cost_are_claimed_as_unsure() -> None:
    noises = (1.3, 0.7, 1.2, 0.8, 1.0)
    claims = claims_of(case_of([(n, REST * x, REST * x) for n, x in zip(LEVELS, noises, strict=True)]))
    assert all(c.case == "unsure" for c in claims)


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [call(0.0) for _ in LEVELS],  # nothing is read
        [call(n) for n in (1_000, 1_100, 1_200, 1_300)],  # less than twofold
        [call(n) for n in (1_000, 1_001, 4_000, 4_001)],  # two levels
        [call(n) for n in (1_000, 4_000)],
    ],
)
def test_requests_that_do_not_vary_make_no_claim(calls: list[tuple[float, float, float]]) -> None:
    assert not claims_of(case_of(calls))


def test_only_the_fewest_sessions_count() -> None:
    """More sessions share the CPUs, and a request may take longer."""
    calls = [call(n) for n in LEVELS] + [call(n, 3.0) for n in LEVELS]
    (claim,) = claims_of(case_of(calls, sessions=(1,) * 5 + (8,) * 5))
    assert claim.value is not None and claim.value.value == pytest.approx((USER + KERNEL) * 1e9)
