"""The table ``ledger``: exact and sampled accounts of sessions and rungs, helpers, those beside, memos."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.apportion import Joint
from dbdyno.account.ledger.breakdowns import by_label, memos, queued
from dbdyno.account.ledger.cpu import cpu_accounts, cpu_sums, halves, inside
from dbdyno.account.ledger.groups import SCOPES, groups
from dbdyno.account.ledger.pooled import with_pool
from dbdyno.account.ledger.sample_rows import Tables
from dbdyno.account.ledger.throttle import throttle_bracket
from dbdyno.account.ledger.waits import unaccounted, wait_accounts
from dbdyno.model.column import CELL
from dbdyno.model.ledger_rows import with_parents
from dbdyno.model.tables import conform, empty


def ledger_of(found: Joint, cut: Tables) -> pl.DataFrame:
    """Table ``ledger`` of a joint table: sessions' accounts in the order of reading, then memos."""
    everyone = groups(found.tasks)
    if everyone.table.is_empty():
        return empty("ledger")
    whole = everyone.only("session", "brief", "rung")
    serving = everyone.only("session", "brief", "rung", "helper")
    sums = cpu_sums(found.tasks, everyone)
    both = sums.filter(pl.col("scope").is_in(["session", "brief", "rung"]))
    cpu, waits = cpu_accounts(sums), wait_accounts(found, serving, cut)
    accounts = pl.concat([halves(both), cpu, waits], how="diagonal")
    left = unaccounted(found, whole, accounts, cut)
    beside = sums.filter(pl.col("scope") != "beside")
    labels = by_label(found, whole)
    rows = with_parents(
        pl.concat([accounts, left, inside(beside), queued(labels, cpu, whole)], how="diagonal")
    ).join(
        everyone.table.select("group", "cell", "scope", "session", "who"), on="group", maintain_order="left"
    )
    noted = memos(found, whole, labels).join(
        whole.table.select("group", "cell", "session", "who"), on="group", maintain_order="left"
    )
    rows, noted = with_pool(rows, noted, cut)
    bracket = throttle_bracket(cut).with_columns(scope=pl.lit("rung"), who=pl.lit("rung"))
    return _ordered([rows, bracket, noted.with_columns(scope=pl.lit("memo"))], cut)


def _ordered(parts: list[pl.DataFrame], cut: Tables) -> pl.DataFrame:
    """By cell, scope and session; the accounts in the order they were made."""
    rows = with_parents(pl.concat([p for p in parts if p.height], how="diagonal_relaxed"))
    scope = pl.col("scope").replace_strict({s: i for i, s in enumerate((*SCOPES, "memo"))})
    keys = cut["windows"].select(c.name for c in CELL).with_row_index("nth")
    rows = keys.join(rows, on="cell", maintain_order="right")
    rows = rows.sort("nth", scope, "who", "session", maintain_order=True)
    return conform("ledger", rows.drop("nth", "group"))
