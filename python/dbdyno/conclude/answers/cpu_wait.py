"""From which load on sessions wait for a CPU."""

from __future__ import annotations

from typing import Any

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.answers import rungs
from dbdyno.conclude.answers.ladders import cells_of
from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.criteria import begins, waiting
from dbdyno.model.claim import Claim
from dbdyno.model.ledger_rows import account_rows
from dbdyno.model.results import Results
from dbdyno.model.scaling import Estimate, Ladder, Scaling

IDLE = 0.80
"""Sessions that use less of the CPUs than this leave some free."""


def onset(scaling: Scaling, results: Results | None) -> Claim:
    """By :func:`~dbdyno.conclude.criteria.begins`. The true onset lies between it and the rung below."""
    ladder = scaling.ladder
    unit = ladder.load_unit
    shares = [(n, s) for n in rungs.loads(ladder) if (s := _share(ladder, n, results)) is not None]
    if not shares:
        return claim("cpu-wait-onset", {}, case="unknown")
    found = begins(shares)
    if found is None:
        top, most = max(shares, key=lambda p: p[1].value)
        none = {"highest": fmt.load(shares[-1][0], unit), "share": _said(most), "load": fmt.load(top, unit)}
        return claim("cpu-wait-onset", none, case="none")
    n, s = shares[found]
    spare = _spare(ladder, n)
    said: dict[str, Any] = {"load": fmt.load(n, unit), "share": _said(s)} | spare
    parts = ["spare"] if spare else []
    if not found:
        value = Estimate("CPU WAIT from", n, unit, high=n)
        return claim("cpu-wait-onset", said, value, case="lowest", parts=parts)
    below, before = shares[found - 1]
    said |= {"before": before.value, "below": fmt.load(below, unit)}
    value = Estimate("CPU WAIT from", n, unit, below, n, "between two rungs")
    return claim("cpu-wait-onset", said, value, case="onset", parts=parts)


def _spare(ladder: Ladder, load: float) -> dict[str, float]:
    """Sessions that wait though they leave CPUs free are kept from them: by others on them, or by a limit."""
    used, cpus = rungs.at(ladder, load, "cpu"), ladder.machine.cpus
    if used is None or cpus is None or used.value >= IDLE * cpus:
        return {}
    return {"used": used.value, "cpus": fmt.whole(cpus)}


def _said(share: Estimate) -> str:
    return fmt.percent(share.value) + fmt.percent_spread(share)


def _share(ladder: Ladder, load: float, results: Results | None) -> Estimate | None:
    """Of session time; with one repeat its interval is the ledger's own."""
    found = rungs.at(ladder, load, "cpu_wait", over="load")
    if found is None or found.low is not None or results is None or ladder.workload is None:
        return found
    for window, parts in cells_of(results, ladder):
        if window["sessions"] == load:
            return waiting([account_rows(parts["ledger"], "runq")], load)
    return found
