"""Lock waits with their blockers. The core queries them from the server after a sample that shows such a
wait."""

from __future__ import annotations

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_source import Asked, DataSource, Enabling
from dbdyno.model.schema.raw import TABLES

LOCK_WAITS = "lock waits"
PREPARED = 0
"""Value of ``blocker`` for a prepared transaction, which has no process."""
BLOCKED = TABLES["blocked"]
WAIT_CHAINS: tuple[Column, ...] = (
    _c("by", "str", "doing (what the root does) | chain | statement | object"),
    _c("rank", "i64", "by seconds"),
    _c("name", "str", "what the root does; events from waiter to root; who the root is; what is locked"),
    _c("query_id", "i64", "of the root's statement, where by is statement", null=True),
    _c("seconds", "f64", "that sessions waited so, over the window"),
    _c("low", "f64", "lower end: 95 % interval of sampling"),
    _c("high", "f64", "upper end"),
    _c("share", "f64", "of DB time", null=True),
    _c("lock_share", "f64", "of the time that sessions waited for locks"),
    _c("samples", "i64", "samples that met it"),
    _c("longest_s", "f64", "longest wait seen so far, by the server's clock", null=True),
    _c("status", "str", "ok | why it is unknown"),
    _c("source", "str", "data source of the seconds"),
)
"""Columns of the derived wait chains. Their seconds come from the ledger."""
BLOCKING = DataSource(
    name=LOCK_WAITS,
    provenance="the server's table of locks, read when a sample meets a session that waits for one",
    cures={},  # the engine provides the advice
    enabling=Enabling("who makes whom wait: chains of lock waits, and what their roots do"),
    asked=Asked("blocked", BLOCKED),
)
