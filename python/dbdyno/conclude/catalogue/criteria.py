"""Criteria that several checks share, each once."""

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
"""Share of session time in the run queue up to which it is not called CPU WAIT."""

APART, LARGE = 5.0, 0.25
"""Factor between two shares, and the least share, from which on it matters which of the two a reader
means."""


def apart(number: float, cost: float) -> bool:
    """Returns whether a share of the number of things differs much from their share of the cost: one is at
    least :data:`LARGE` and at least :data:`APART` times the other."""
    high, low = max(number, cost), min(number, cost)
    return high >= LARGE and high >= APART * low


SLACK, SLACK_S = 0.05, 0.01
"""Relative and absolute (seconds per second) difference that two reads at different instants explain."""


def exceeds(inside: float, most: float) -> bool:
    """Returns whether a part (seconds per second) is larger than the upper end of its whole by more than two
    reads at different instants explain: :data:`SLACK` and :data:`SLACK_S`."""
    return inside > most * (1 + SLACK) + SLACK_S


LOG_RECORD = 24.0
"""Bytes of the shortest WAL record (the header, XLogRecord, has 24). A call that changes rows writes at least
one."""
STRAY_LOG = 65_536.0
"""Bytes of WAL that a read-only load may write in a measurement: hint bits and the server's own changes to
its catalogue. They touch a few pages, regardless of the number of calls; a logged page takes about 8 kB."""


def writes_as_planned(per_call: float, calls: float | None, changing: bool) -> bool:
    """Returns whether the sessions' own WAL (bytes per call) fits the plan: calls that change rows
    (``changing``) or only read."""
    wrote = per_call >= LOG_RECORD
    return wrote if changing else not wrote or per_call * (calls or 0.0) <= STRAY_LOG


LEAST_RUNS = change_points.LEAST
"""Runs that a history needs before level changes are searched for."""
level_changes, level_outliers = change_points.changes, change_points.outliers
"""Level changes of a history beyond chance; runs that lie far from the level around them."""


def begins(shares: Sequence[tuple[float, Estimate]]) -> int | None:
    """Returns the index of the first of ``shares`` (load, share of session time in the run queue; ascending
    by load) at which CPU WAIT begins: the share is above :data:`CPU_WAIT` and above the one at the lowest
    load, both beyond their intervals. Index 0 means that it begins at or below the lowest load. None if it
    begins nowhere."""
    if not shares:
        return None
    if _lower(shares[0][1]) > CPU_WAIT:
        return 0
    floor = max(CPU_WAIT, _upper(shares[0][1]))
    return next((i for i, (_, s) in enumerate(shares) if i and _lower(s) > floor), None)


def waiting(runq: Sequence[pl.DataFrame], load: float) -> Estimate | None:
    """Returns the share of session time in the run queue at ``load``, from the ledger's rows of each repeat,
    all known. The interval is Student's over repeats, or the ledger's own for a single repeat. None without
    rows."""
    share = fmt.estimate("share", [float(rows["aas"].sum()) / load for rows in runq], share=True)
    if share is None or len(runq) > 1 or runq[0]["low"].null_count() or runq[0]["high"].null_count():
        return share
    low, high = (float(runq[0][end].sum()) / load for end in ("low", "high"))
    return Estimate("share", share.value, "", low, high, "ledger")


def _lower(share: Estimate) -> float:
    return share.value if share.low is None else share.low


def _upper(share: Estimate) -> float:
    return share.value if share.high is None else share.high


TRUTH, TRUTH_UNACCOUNTED = 0.02, 0.01
"""Shares of the sessions' time by which an account, and the remainder, may differ from their truth."""
TRUTH_BRIEF = 0.15
"""Share by which CPU time of brief sessions may differ from its truth. The CPU time of a session's end is a
mean, and some sessions are in progress when the window begins and ends."""
TRUTH_CHANCE = 2.0
"""Half-widths of its 95 % interval by which an account may differ. About one in 10,000 does by chance (4
standard errors of a normal distribution: 6 in 100,000)."""
TRUTH_VAGUE = 0.1
"""Half-width of a 95 % interval, as a share of the sessions' time, above which an account that agrees only
within chance proves nothing."""
LATE_READS = 0.05
"""Largest share of the sessions' time that reads delayed by other processes explain."""


def truth_verdict(truth: Truth, needs: Needs) -> Verdict:
    """Returns the verdict on an account.

    "ok": it differs from its truth by no more than ``allowed``, or than chance allows for a sampled figure;
    "inconclusive" if its interval is so wide that chance allows almost anything (:func:`is_vague`).
    Else it is "off", but "inconclusive" if disturbances explain the difference. That needs two things. First,
    other processes and the hypervisor took at least as large a share of the CPUs as the difference is of the
    sessions' time. Second, something was late for at least that share: the reads (:data:`LATE_READS`), the
    driver if the account needs it to be on time, or the sessions if the account needs an idle machine. If the
    use by others is unknown, only an account that needs nothing can be "off".
    """
    if truth.off is None or truth.truth is None or truth.ledger is None:
        return "unknown"
    differs = abs(truth.off)
    if is_vague(truth):
        return "inconclusive"
    if differs <= max(truth.allowed, TRUTH_CHANCE * _half_width(truth)):
        return "ok"
    others = truth.disturbance
    if others is None:
        return "off" if needs == "nothing" else "inconclusive"
    return "inconclusive" if differs <= min(others.taken, _late(others, needs)) else "off"


def is_vague(truth: Truth) -> bool:
    """Returns whether an account agrees with its truth only because its interval is wide."""
    half = _half_width(truth)
    return half > TRUTH_VAGUE and truth.allowed < abs(truth.off or 0.0) <= TRUTH_CHANCE * half


def _half_width(truth: Truth) -> float:
    """Returns the part of the account's interval towards its truth, as a share of the sessions' time; 0 for
    one without chance."""
    if truth.low is None or truth.high is None or truth.account == "unaccounted":
        return 0.0
    if truth.truth is None or truth.ledger is None:
        return 0.0
    end = truth.high if truth.truth > truth.ledger else truth.low
    return abs(end - truth.ledger) / truth.wall


def _late(others: Disturbance, needs: Needs) -> float:
    """Returns the share of the sessions' time that delays may have moved to another account."""
    if needs == "idle" and others.waited is None:
        return 1.0
    waited = others.waited if needs == "idle" and others.waited else 0.0
    return max(LATE_READS, others.late) + waited + (0.0 if needs == "nothing" else others.driver)
