"""Provenance: which data source a figure is from, and whether it could be read. Unknown is not zero."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["ok", "not here", "not permitted", "not supported", "off", "lost", "vanished"]
"""``ok``; ``not here`` (the server's processes are not seen here); ``not permitted`` (a right is missing);
``not supported`` (kernel or server version); ``off`` (switched off); ``lost`` (the source broke off);
``vanished`` (the task ended while it was read)."""

HIDDEN = "hidden"
"""State of a session in a sample: our role may see neither what it does nor what it waits for."""
HIDDEN_STATUS = "hidden from this role"
"""Part of the status of what is unknown by that."""
TRACE = "scheduler trace"
"""The data source that measures every wait; the others sample."""
MEANS = ("sampler priority", "open files")
"""Sources that say how others are read: without them no figure is missing."""


class Step(NamedTuple):
    """One command on the way to a data source. ``how``: ``sql``, a statement that our role may execute and
    that takes effect at once; ``root``, a command of the operating system for root; ``hand``, whatever needs
    a restart, another role or a decision."""

    command: str
    how: Literal["sql", "root", "hand"] = "hand"


class Enabling(NamedTuple):
    """What a data source gives, and how to get it where it is not read."""

    adds: str = ""
    right: str = ""  # that it needs, or that the steps need
    steps: tuple[Step, ...] = ()
    state: str = ""  # in place of the status, where that says less: ``not loaded``


NO_ENABLING = Enabling()


class Source(BaseModel):
    """One data source: its name, what it reads, how that went, what would make it available."""

    model_config = ConfigDict(frozen=True)

    name: str  # e.g. "os tasks", "activity samples", "engine counters"
    provenance: str  # e.g. "/proc/PID/task/TID/schedstat, fields 1 and 2"
    status: Status
    detail: str = ""  # why, and the cure, where status is not ok
    enabling: Enabling = Field(default=NO_ENABLING, exclude=True)  # for `dbdyno doctor`; not stored
