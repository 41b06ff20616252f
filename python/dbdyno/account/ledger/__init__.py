"""Accounts for every second of every session: exact CPU and run queue, and waits that are estimated or
traced. Pure.

The input is the windows (:data:`dbdyno.model.schema.window_schema.CUT`). The accounts of a session add up to
its wall time W with ``unaccounted``, which is signed, never clipped and always present. The rung is the sum
of its sessions.

docs/how-it-works/ledger.md has the method.
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
    """Returns tables ``ledger``, ``events``, ``microstates``, ``strips``, ``served``, ``task_cpu`` of all
    cells. ``samples``: the rows of ``cut_samples`` in chunks, if ``cut`` lacks them."""
    tasks_joint = joint(cut, samples)
    everyone = groups(tasks_joint.tasks)
    return {
        "ledger": ledger_of(tasks_joint, everyone, cut),
        "events": events_of(tasks_joint, everyone, cut),
        "microstates": microstates_of(tasks_joint, cut),
        "strips": strips_of(tasks_joint, cut),
        "served": tasks_joint.served,
        "task_cpu": task_cpu(tasks_joint.tasks),
    }


@makes("ledger", "events", "microstates", "strips")
def session_accounts(cells: Sequence[RawCell], tables: Tables) -> dict[str, pl.DataFrame]:
    """Returns the tables of :func:`accounts` for these cells."""
    return accounts(tables, sample_chunks(cells))


def ledger(cut: Tables) -> pl.DataFrame:
    """Returns table ``ledger``: every account of sessions, rungs and helpers, and memos."""
    tasks_joint = joint(cut)
    return ledger_of(tasks_joint, groups(tasks_joint.tasks), cut)
