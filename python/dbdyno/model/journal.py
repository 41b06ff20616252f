"""Changes to undo. They are written to disk before they are made, so that a crash loses none."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["group", "affinity", "settings", "pooler", "login trace", "commands", "cluster"]


class Undo(BaseModel):
    """One change to undo. ``data`` is for the code that made the change and holds no credentials."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    # identifies the object: a group, a process, a server; a later change with the same key is not recorded
    key: str
    what: str  # in words: "control group /sys/fs/cgroup/cpu/dbdyno-17 with the server's processes"
    data: dict[str, Any] = Field(default_factory=dict)


class Journal(Protocol):
    """The changes that a current run has to undo."""

    def note(self, undo: Undo) -> None:
        """Writes the change to disk before it returns. Only the first change of a key is kept, because it
        holds the original state."""

    def forget(self, key: str) -> None:
        """Removes the change, because it has been undone."""
