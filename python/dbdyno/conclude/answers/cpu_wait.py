"""From which load on sessions wait for a CPU."""

from __future__ import annotations

import polars as pl

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.answers import rungs
from dbdyno.conclude.answers.ladders import cells_of
from dbdyno.conclude.claims import claim
from dbdyno.model.claim import Claim
from dbdyno.model.results import Results
from dbdyno.model.scaling import Estimate, Ladder, Scaling

SHARE = 0.05
"""Of session time in the run queue: less is not called CPU WAIT."""
IDLE = 0.80
"""Sessions that use less of the CPUs than this leave some free."""


def onset(scaling: Scaling, results: Results | None) -> Claim:
    """The lowest rung whose sessions are in the run queue for significantly more of their time than at the
    lowest rung, and for more than :data:`SHARE` of it. The true onset lies between it and the rung below."""
    ladder = scaling.ladder
    shares = [(n, s) for n in rungs.loads(ladder) if (s := _share(ladder, n, results)) is not None]
    evidence = "run queue per session (ledger: runq), rung by rung"
    if not shares:
        return claim(
            "cpu-wait-onset", "From which load on sessions wait for a CPU is not told: no run queue."
        )
    floor = max(SHARE, _upper(shares[0][1]))
    found = next(((i, n, s) for i, (n, s) in enumerate(shares[1:], 1) if _lower(s) > floor), None)
    unit = ladder.load_unit
    if _lower(shares[0][1]) > SHARE:
        n, s = shares[0]
        text = f"Sessions wait for a CPU from the lowest rung on: {_said(s)} at {fmt.load(n, unit)}"
        text += _though(ladder, n)
        return claim("cpu-wait-onset", f"{text}.", Estimate("CPU WAIT from", n, unit, high=n), evidence)
    if found is None:
        top, most = max(shares, key=lambda p: p[1].value)
        text = f"No CPU WAIT up to {fmt.load(shares[-1][0], unit)}: at most {_said(most)}, "
        text += f"at {fmt.load(top, unit)}"
        return claim("cpu-wait-onset", f"{text}.", None, evidence)
    i, n, s = found
    below, before = shares[i - 1]
    text = f"Sessions wait for a CPU from {fmt.load(n, unit)} on: {_said(s)} in the run queue, "
    text += f"{fmt.percent(before.value)} at {fmt.load(below, unit)}{_though(ladder, n)}"
    value = Estimate("CPU WAIT from", n, unit, below, n, "between two rungs")
    return claim("cpu-wait-onset", f"{text}.", value, evidence)


def _though(ladder: Ladder, load: float) -> str:
    """Sessions that wait though they leave CPUs free are kept from them: by others on them, or by a limit."""
    used, cpus = rungs.at(ladder, load, "cpu"), ladder.machine.cpus
    if used is None or cpus is None or used.value >= IDLE * cpus:
        return ""
    text = f", though sessions use {fmt.plain(used.value)} of {fmt.plain(cpus)} CPUs: "
    return text + "somebody else is on them, or a limit holds the sessions"


def _said(share: Estimate) -> str:
    return f"{fmt.percent(share.value)}{fmt.percent_spread(share)} of their time"


def _share(ladder: Ladder, load: float, results: Results | None) -> Estimate | None:
    """Of session time; with one repeat its interval is the ledger's own."""
    found = rungs.at(ladder, load, "cpu_wait", over="load")
    if found is None or found.low is not None or results is None or ladder.workload is None:
        return found
    for window, parts in cells_of(results, ladder):
        if window["sessions"] == load:
            rows = parts["ledger"].filter((pl.col("scope") == "rung") & (pl.col("account") == "runq"))
            low, high = (float(rows[end].sum()) / load for end in ("low", "high"))
            known = not rows["low"].null_count() and not rows["high"].null_count()
            return Estimate("share", found.value, "", low, high, "ledger") if known else found
    return found


def _lower(share: Estimate) -> float:
    return share.value if share.low is None else share.low


def _upper(share: Estimate) -> float:
    return share.value if share.high is None else share.high
