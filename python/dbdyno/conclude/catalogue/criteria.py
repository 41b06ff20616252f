"""What counts as what: each criterion once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.model.results.claim import Estimate
from dbdyno.stats import change_points

if TYPE_CHECKING:
    from dbdyno.model.engine.truth import Disturbance, Needs, Truth, Verdict

CPU_WAIT = 0.05
"""Share of session time in the run queue: less is not called CPU WAIT."""

APART, LARGE = 5.0, 0.25
"""Times the other share; share from which on it matters which of the two is meant."""


def apart(number: float, cost: float) -> bool:
    """Whether a share of the number of things says something else than their share of the cost: one is at
    least :data:`LARGE`, and at least :data:`APART` times the other."""
    high, low = max(number, cost), min(number, cost)
    return high >= LARGE and high >= APART * low


SLACK, SLACK_S = 0.05, 0.01
"""Share, and seconds per second, that two reads at different instants explain."""


def exceeds(inside: float, most: float) -> bool:
    """Whether a part (seconds per second) is more than the upper end of its whole, by more than two reads at
    different instants explain: :data:`SLACK` and :data:`SLACK_S`."""
    return inside > most * (1 + SLACK) + SLACK_S


LOG_RECORD = 24.0
"""Bytes of WAL: the shortest record. A call that changes rows writes at least one."""
STRAY_LOG = 65_536.0
"""Bytes of WAL that a load that only reads may write in a measurement: hint bits and the server's own changes
to its catalogue. They touch a few pages, however many calls are made; a logged page takes about 8 kB."""


def writes_as_planned(per_call: float, calls: float | None, changing: bool) -> bool:
    """Whether the sessions' own WAL (bytes per call) is what calls that change rows, or only read, write."""
    wrote = per_call >= LOG_RECORD
    return wrote if changing else not wrote or per_call * (calls or 0.0) <= STRAY_LOG


LEAST_RUNS = change_points.LEAST
"""Of a history: with fewer no change is looked for."""
level_changes, level_outliers = change_points.changes, change_points.outliers
"""When the level of a history changed, beyond chance; which runs lie far from the level around them."""


def begins(shares: Sequence[tuple[float, Estimate]]) -> int | None:
    """Where CPU WAIT begins: the first of ``shares`` (load, share of session time in the run queue; by load)
    that is above :data:`CPU_WAIT` and above the one at the lowest load, both beyond their intervals. Index 0:
    at the lowest load already. ``None``: nowhere."""
    if not shares:
        return None
    if _lower(shares[0][1]) > CPU_WAIT:
        return 0
    floor = max(CPU_WAIT, _upper(shares[0][1]))
    return next((i for i, (_, s) in enumerate(shares) if i and _lower(s) > floor), None)


def waiting(runq: Sequence[pl.DataFrame], load: float) -> Estimate | None:
    """Share of session time in the run queue at ``load``, of the ledger's rows of each repeat, all known:
    with Student's interval over repeats, of a single repeat the ledger's own. ``None``: no rows."""
    found = fmt.estimate("share", [float(rows["aas"].sum()) / load for rows in runq], share=True)
    if found is None or len(runq) > 1 or runq[0]["low"].null_count() or runq[0]["high"].null_count():
        return found
    low, high = (float(runq[0][end].sum()) / load for end in ("low", "high"))
    return Estimate("share", found.value, "", low, high, "ledger")


def _lower(share: Estimate) -> float:
    return share.value if share.low is None else share.low


def _upper(share: Estimate) -> float:
    return share.value if share.high is None else share.high


TRUTH, TRUTH_UNACCOUNTED = 0.02, 0.01
"""An account, and the remainder, may differ from their truth by this share of the sessions' time."""
TRUTH_BRIEF = 0.15
"""CPU time of brief sessions may differ from its truth by this share: their ends are a mean, and some
are under way when the window begins and ends."""
TRUTH_CHANCE = 2.0
"""An account may differ by so many times its own 95 % interval: about one in 10,000 does by chance."""
LATE_READS = 0.05
"""Others' CPU time may delay reads; this share of the sessions' time is the most that it explains so."""


def truth_verdict(truth: Truth, needs: Needs) -> Verdict:
    """Whether an account is as it must be.

    Ok: it differs from its truth by no more than ``allowed``, or than chance gives a sampled figure. Else
    off; but inconclusive where what others did is enough to explain it. That needs two things. Other
    processes and the hypervisor took at least as large a share of the CPUs as the difference is of the
    sessions' time. And something was late for at least that share: the reads (:data:`LATE_READS`); the
    driver, where the account needs one that is in time; the sessions, where it needs an idle machine. Where
    it is not known what others took, only an account that needs nothing can be off.
    """
    if truth.off is None or truth.truth is None or truth.ledger is None:
        return "unknown"
    differs, chance = abs(truth.off), 0.0
    if truth.low is not None and truth.high is not None and truth.account != "unaccounted":
        end = truth.high if truth.truth > truth.ledger else truth.low
        chance = TRUTH_CHANCE * abs(end - truth.ledger) / truth.wall
    if differs <= max(truth.allowed, chance):
        return "ok"
    others = truth.disturbance
    if others is None:
        return "off" if needs == "nothing" else "inconclusive"
    return "inconclusive" if differs <= min(others.taken, _late(others, needs)) else "off"


def _late(others: Disturbance, needs: Needs) -> float:
    """Share of the sessions' time that may be elsewhere because something was late."""
    if needs == "idle" and others.waited is None:
        return 1.0
    waited = others.waited if needs == "idle" and others.waited else 0.0
    return max(LATE_READS, others.late) + waited + (0.0 if needs == "nothing" else others.driver)
