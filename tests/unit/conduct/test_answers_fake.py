"""The fake server's law of contention is fitted from its ladder, and named as the reason."""

from __future__ import annotations

import pytest
from tests.fakery import S, climb

from dbdyno.conclude.ladder.ladders import ladders_of
from dbdyno.conclude.scaled import answered, paragraph
from dbdyno.conclude.scaling import scale
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.results.analyses import Scaling

MODELS = ("linear", "amdahl", "plateau")


@pytest.fixture(scope="module")
def locked() -> Scaling:
    """10 ms of CPU, then 5 ms more under a lock that all share: (10 + 5) / 5 = 3 sessions fill it."""
    climbed = climb(
        "fake:cpus=16,cpu=10ms,lock=LWLock/WALWrite:5ms,spread=0.1", [1, 2, 3, 4, 6], measure_ns=2 * S
    )
    results = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    (ladder,) = ladders_of(results)
    return answered(scale(ladder, models=MODELS), results)


@pytest.mark.whole
def test_the_law_of_a_lock_is_fitted_from_its_ladder(locked: Scaling) -> None:
    assert locked.best is not None and locked.best.model == "plateau"
    servers = next(p for p in locked.best.parameters if p.name == "servers")
    assert servers.low is not None and servers.high is not None and servers.low <= 3.0 <= servers.high
    rate = next(p for p in locked.best.parameters if p.name == "rate")
    work_per_call = 132  # as the fake server has it
    assert rate.value == pytest.approx(work_per_call / 0.015, rel=0.05)


def test_the_lock_is_the_reason_not_the_cpu(locked: Scaling) -> None:
    answers = {a.id: a for a in locked.answers}
    reason = answers["reason"].value
    assert reason is not None and reason.name == "lock: LWLock/WALWrite"
    assert (answers["cpu-wait"].value, answers["cpu-wait"].case) == (None, "none")
    assert "LWLock/WALWrite" in paragraph(locked)
