"""What has to be put back: written to disk before it is changed, so that a crash loses nothing."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["group", "affinity", "settings", "pooler", "login trace", "commands", "cluster"]


class Undo(BaseModel):
    """One thing to put back. ``data`` is for whoever made it; it holds no credentials."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    key: str  # names the thing: a group, a process, a server; a later one of the same key adds nothing
    what: str  # in words: "control group /sys/fs/cgroup/cpu/dbdyno-17 with the server's processes"
    data: dict[str, Any] = Field(default_factory=dict)


class Journal(Protocol):
    """What is to be put back of a run that is under way."""

    def note(self, undo: Undo) -> None:
        """On disk when this returns. Of one key the first counts: it holds what was there before us."""

    def forget(self, key: str) -> None:
        """It has been put back."""
