"""Columns of the data gathered by triggers."""

from __future__ import annotations

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.table import Table

FIRED: tuple[Column, ...] = (
    _c("number", "i64", "of the action, from 1, in the order of firing"),
    _c("trigger", "i64", "of the trigger, from 1"),
    _c("condition", "str", "of the trigger"),
    _c("matched", "str", "what was met: sessions = 10; the condition where it has no exact values"),
    _c("measured", "str", "the figures of the condition when it fired"),
    _c("at_ns", "i64", "when they were sampled"),
    _c("noticed_ns", "i64", "when they were evaluated"),
    _c("sessions", "i64", "sessions of the measurement under way; 0 in an observation", null=True),
    _c("cell", "str", "measurement or window in which it fired", null=True),
    _c("action", "str", "what was done"),
    _c("status", "str", "ok | short | failed | over budget | under way (the run ended before it did)"),
    _c("detail", "str", "why it is not ok, or what was found"),
    _c("from_ns", "i64", "begin of what was captured", null=True),
    _c("to_ns", "i64", "its end", null=True),
    _c("size_bytes", "i64", "stored"),
    _c("capture", "str", "its id: dbdyno show RUN --capture N", null=True),
    _c("lines", "str", "the last lines that a command wrote"),
)
CAPTURED: tuple[Column, ...] = (
    _c("number", "i64", "of the action that captured it"),
    _c("kind", "str", "CPU time by function | sleep by wait event | system calls by time | memory"),
    _c("name", "str", "function, wait event, system call, part of memory"),
    _c("value", "f64", "seconds per second; of memory, bytes", null=True),
    _c("share", "f64", "of all of this kind", null=True),
)
TRIGGER_TABLES: tuple[Table, ...] = (
    Table("triggers_fired", FIRED, options=("captures",)),
    Table("captured", CAPTURED, options=("captures",)),
)
"""The triggers that fired in a run, and the largest parts of their captures."""
