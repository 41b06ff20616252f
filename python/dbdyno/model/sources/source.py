"""The data source of a figure, and whether the source could be read. Unknown is not zero."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dbdyno.model.schema.data_source import NO_ENABLING, Enabling

Status = Literal["ok", "limited", "not here", "not permitted", "not supported", "off", "lost", "vanished"]
"""``ok``: read. ``limited``: read, but a part was lost; the detail states its size. ``not here``: the
server's processes are not visible on this host. ``not permitted``: a privilege is missing. ``not
supported``: the kernel or the server version lacks it. ``off``: it is switched off. ``lost``: the source
failed while it was in use. ``vanished``: the task ended while it was read."""

READ = ("ok", "limited")
"""Statuses of a source whose figures can be used."""
HIDDEN = "hidden"
"""State of a session in a sample if dbdyno's database role may see neither its activity nor its waits."""
HIDDEN_STATUS = "hidden from this role"
"""Part of the status of a figure that is unknown for this reason."""
TRACE = "scheduler trace"
"""The data source that measures every wait. The others sample."""
MEANS = ("sampler priority", "open files", "samples on disk")
"""Sources that describe how others are read. No figure is missing without them."""


class Source(BaseModel):
    """One data source: its name, the interface it reads, its status, and how to make it available."""

    model_config = ConfigDict(frozen=True)

    name: str  # e.g. "os tasks", "activity samples", "engine counters"
    provenance: str  # e.g. "/proc/PID/task/TID/schedstat, fields 1 and 2"
    status: Status
    detail: str = ""  # the reason and the remedy if the status is not ok
    enabling: Enabling = Field(default=NO_ENABLING, exclude=True)  # shown by `dbdyno doctor`, not stored
