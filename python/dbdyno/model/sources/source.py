"""Provenance: which data source a figure is from, and whether it could be read. Unknown is not zero."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dbdyno.model.schema.data_source import NO_ENABLING, Enabling

Status = Literal["ok", "limited", "not here", "not permitted", "not supported", "off", "lost", "vanished"]
"""``ok``; ``limited`` (read, and a part of it was lost: the detail says how much); ``not here`` (the server's
processes are not seen here); ``not permitted`` (a right is missing);
``not supported`` (kernel or server version); ``off`` (switched off); ``lost`` (the source broke off);
``vanished`` (the task ended while it was read)."""

READ = ("ok", "limited")
"""Statuses of a source whose figures can be used."""
HIDDEN = "hidden"
"""State of a session in a sample: our role may see neither what it does nor what it waits for."""
HIDDEN_STATUS = "hidden from this role"
"""Part of the status of what is unknown by that."""
TRACE = "scheduler trace"
"""The data source that measures every wait; the others sample."""
MEANS = ("sampler priority", "open files", "samples on disk")
"""Sources that say how others are read: without them no figure is missing."""


class Source(BaseModel):
    """One data source: its name, what it reads, how that went, what would make it available."""

    model_config = ConfigDict(frozen=True)

    name: str  # e.g. "os tasks", "activity samples", "engine counters"
    provenance: str  # e.g. "/proc/PID/task/TID/schedstat, fields 1 and 2"
    status: Status
    detail: str = ""  # why, and the cure, where status is not ok
    enabling: Enabling = Field(default=NO_ENABLING, exclude=True)  # for `dbdyno doctor`; not stored
