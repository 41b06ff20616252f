"""Where every second of every session went: exact CPU and run queue, waits raked or traced. Pure.

The tables come from the windows (:data:`dbdyno.model.window_schema.CUT`). The accounts of a session
add up to its W by ``unaccounted``, which is signed, never clipped and always there; the rung is the sum of
its sessions.
docs/ledger.md has the method.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from dbdyno.account.ledger.accounts import ledger_of
from dbdyno.account.ledger.apportion import joint
from dbdyno.account.ledger.events import events_of
from dbdyno.account.ledger.microstates import microstates_of
from dbdyno.account.ledger.sample_rows import Tables
from dbdyno.account.ledger.sources import witnesses
from dbdyno.account.ledger.strips import strips_of

__all__ = ["accounts", "events", "ledger", "microstates", "strips", "witnesses"]


def accounts(cut: Tables, samples: Iterable[pl.DataFrame] | None = None) -> dict[str, pl.DataFrame]:
    """Tables ``ledger``, ``events``, ``microstates``, ``strips`` and ``served`` of all cells in ``cut``.
    ``samples``: the rows of ``cut_samples`` in chunks, if these are not in ``cut``."""
    found = joint(cut, samples)
    return {
        "ledger": ledger_of(found, cut),
        "events": events_of(found, cut),
        "microstates": microstates_of(found, cut),
        "strips": strips_of(found, cut),
        "served": found.served,
    }


def ledger(cut: Tables) -> pl.DataFrame:
    """Table ``ledger``: every account of sessions, rungs and helpers, and memos."""
    return ledger_of(joint(cut), cut)


def events(cut: Tables) -> pl.DataFrame:
    """Table ``events``: the joint table of state, wait event, and CPU, sleep, run queue."""
    return events_of(joint(cut), cut)


def microstates(cut: Tables) -> pl.DataFrame:
    """Table ``microstates``: one row a process."""
    return microstates_of(joint(cut), cut)


def strips(cut: Tables) -> pl.DataFrame:
    """Table ``strips``: one row a session, bin and part."""
    return strips_of(joint(cut), cut)
