"""Who waits for a lock, and whom for: what the core asks the server after a sample that met such a wait."""

from __future__ import annotations

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_source import Asked, DataSource, Enabling

LOCK_WAITS = "lock waits"
PREPARED = 0
"""``blocker`` of a transaction without a process."""
BLOCKED: tuple[Column, ...] = (
    _c("sample", "i64", "number of the activity sample (via sql) after which the server was asked"),
    _c("before_ns", "i64", "before the server was asked"),
    _c("after_ns", "i64", "when its answer was there"),
    _c("pid", "i64", "process that waits for a lock"),
    _c("leader_pid", "i64", "of a parallel worker", null=True),
    _c("wait_class", "str", "the server's wait event type", null=True),
    _c("wait_event", "str", "the server's wait event: the kind of lock", null=True),
    _c("waited_ns", "i64", "how long it has waited for this lock, by the server's clock", null=True),
    _c("mode", "str", "mode of the lock that it waits for", null=True),
    _c("object", "str", "what is locked", null=True),
    _c(
        "relation",
        "str",
        "its table: that of the lock, of the row that the waiter has locked, or the tables that both have "
        "locked for writing",
        null=True,
    ),
    _c(
        "blocker",
        "i64",
        "process that holds the lock, or is first in its queue; 0: a prepared transaction; NULL: none found",
        null=True,
    ),
    _c("blocker_mode", "str", "mode of its lock", null=True),
    _c("helper", "str", "what the blocker is where it is one of the server's own processes", null=True),
    _c("state", "str", "state of the blocker; hidden: not visible; NULL: it has ended", null=True),
    _c("blocker_wait_class", "str", "wait event type of the blocker", null=True),
    _c("blocker_wait_event", "str", "wait event of the blocker", null=True),
    _c("query_id", "i64", "of the blocker's statement, of its latest one between statements", null=True),
    _c("user", "str", "the blocker's role", null=True),
    _c("database", "str", "the blocker's database", null=True),
    _c("application", "str", "the blocker's application_name, or the prepared transaction's name", null=True),
    _c("task_ns", "i64", "when the state of the blocker's task was read", null=True),
    _c("task_state", "str", "R, S, D, ... of the blocker's task; F: frozen", null=True),
    _c("status", "str", "of task_state"),
)
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
"""As they are derived; seconds are the ledger's."""
BLOCKING = DataSource(
    name=LOCK_WAITS,
    provenance="the server's table of locks, read when a sample meets a session that waits for one",
    cures={},  # the engine says what is missing
    enabling=Enabling("who makes whom wait: chains of lock waits, and what their roots do"),
    asked=Asked("blocked", BLOCKED),
)
