"""Where every second of every session went: exact CPU and run queue, waits estimated or traced. Pure.

The tables come from the windows (:data:`dbdyno.model.schema.window_schema.CUT`). The accounts of a session
add up to its W by ``unaccounted``, which is signed, never clipped and always there; the rung is the sum of
its sessions.
docs/ledger.md has the method.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from dbdyno.account.ledger.apportion import joint
from dbdyno.account.ledger.cpu import microstates_of, task_cpu
from dbdyno.account.ledger.groups import groups
from dbdyno.account.ledger.sources import cross_check
from dbdyno.account.ledger.tables import events_of, ledger_of, strips_of
from dbdyno.account.making import makes
from dbdyno.account.window.samples import sample_chunks
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import Tables

__all__ = ["accounts", "cross_check", "ledger"]


def accounts(cut: Tables, samples: Iterable[pl.DataFrame] | None = None) -> dict[str, pl.DataFrame]:
    """Tables ``ledger``, ``events``, ``microstates``, ``strips``, ``served``, ``task_cpu`` of all cells.
    ``samples``: the rows of ``cut_samples`` in chunks, if these are not in ``cut``."""
    found = joint(cut, samples)
    everyone = groups(found.tasks)
    return {
        "ledger": ledger_of(found, everyone, cut),
        "events": events_of(found, everyone, cut),
        "microstates": microstates_of(found, cut),
        "strips": strips_of(found, cut),
        "served": found.served,
        "task_cpu": task_cpu(found.tasks),
    }


@makes("ledger", "events", "microstates", "strips")
def session_accounts(cells: Sequence[RawCell], tables: Tables) -> dict[str, pl.DataFrame]:
    """The tables of :func:`accounts`."""
    return accounts(tables, sample_chunks(cells))


def ledger(cut: Tables) -> pl.DataFrame:
    """Table ``ledger``: every account of sessions, rungs and helpers, and memos."""
    found = joint(cut)
    return ledger_of(found, groups(found.tasks), cut)
