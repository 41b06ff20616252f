"""Conditions of a measurement: checks of the machine and of the server that may spoil figures.

A check has two parts. Its :class:`Entry` is data: the reason and the remedy. Its judge is a pure function of
facts that were read once. The machine has a registry in :mod:`dbdyno.conclude.machines.conditions`, the
server has one in its engine.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from dbdyno.model.schema.data_source import Step
from dbdyno.model.sources.source import Status

State = Literal["ok", "worth a look", "bad", "unknown", "not supported", "remote"]
"""``bad``: the figures are wrong, or come from a configuration that nobody uses. ``worth a look``: the same
is possible, or performance is lost. ``unknown``: the value holds the reason. ``remote``: the check concerns
the server's host, which is another one."""
ASKING: tuple[State, ...] = ("bad", "worth a look")
"""The states that call for action, the gravest first."""
RESTART = "restart the server"
Touches = Literal["", "every run", "writes"]


class Entry(BaseModel):
    """The registry's entry of a check. ``cure`` and ``commands`` may contain ``{named}`` values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    reads: str  # the file or query that the value comes from
    why: str  # why it matters for measurements, as a sentence
    cure: str = ""  # the remedy in words, if a command alone is not enough
    commands: tuple[str, ...] = ()
    how: Literal["sql", "root", "hand"] = "hand"
    touches: Touches = ""  # the runs that show it as a claim
    source: str = ""  # the data source that is missing for the same reason
    rule: dict[str, Any] = Field(default_factory=dict)  # thresholds and names for the registry's judge


def entries(text: str) -> Mapping[str, Entry]:
    """Returns the registry of a TOML file, which has one table per id."""
    return {id: Entry.model_validate(table) for id, table in tomllib.loads(text).items()}


class Judged(NamedTuple):
    """The result of a judge. ``value`` is the value read, or the reason why it is unknown. ``named`` fills
    the placeholders of the entry's texts."""

    state: State
    value: str
    named: Mapping[str, str] = {}
    steps: tuple[Step, ...] = ()  # replaces the entry's commands


class Condition(BaseModel):
    """One check with its result."""

    model_config = ConfigDict(frozen=True)

    id: str
    title: str
    state: State
    value: str
    why: str = ""
    cure: str = ""  # one line
    touches: Touches = ""
    variant: str = ""  # the variant whose settings were in force; empty for the server's original settings
    steps: tuple[Step, ...] = Field(default=(), exclude=True)  # shown by `dbdyno doctor`, not stored
    source: str = Field(default="", exclude=True)

    @property
    def asks(self) -> bool:
        return self.state in ASKING


def concluded(id: str, entry: Entry, judged: Judged) -> Condition:
    """Returns the check with its result. Only states that call for action get a remedy."""
    steps: tuple[Step, ...] = ()
    cure = ""
    if judged.state in ASKING:
        steps = judged.steps or tuple(_step(entry, c.format_map(judged.named)) for c in entry.commands)
        cure = entry.cure.format_map(judged.named) or "; ".join(s.command.rstrip(";") for s in steps)
    return Condition(
        id=id,
        title=entry.title,
        state=judged.state,
        value=judged.value,
        why=entry.why,
        cure=cure,
        touches=entry.touches,
        steps=steps,
        source=entry.source,
    )


def _step(entry: Entry, command: str) -> Step:
    return Step(command, "hand" if command == RESTART else entry.how)


class DirectFiles(NamedTuple):
    """The number of distinct open files (``files``) and of those with O_DIRECT on every open descriptor
    (``direct``). Both are ``None`` if unknown; ``status`` and ``detail`` give the reason."""

    direct: int | None
    files: int | None
    status: Status = "ok"
    detail: str = ""

    @property
    def words(self) -> str:
        """Returns ``O_DIRECT seen on 3 of 12 open data files``, or the reason if it is unknown."""
        if self.files is None:
            return self.detail
        return f"O_DIRECT seen on {self.direct} of {self.files} open data files"


@dataclass(frozen=True)
class ServerConditions:
    """A server's answers about its own configuration. ``None`` means unknown. Only the texts contain names
    of a particular system."""

    conditions: tuple[Condition, ...] = ()  # the engine's own checks
    direct_io: bool | None = None  # requested for data files; None if this version has no such option
    direct_setting: str = ""  # the setting, in words
    direct_pending: bool = False  # a configuration file has another value, which takes effect at a restart
    shared_bytes: int | None = None  # size of its shared memory
    sessions: int | None = None  # the maximum
    processes: int | None = None  # the maximum, background processes included
    huge_pages: Literal["on", "try", "off"] | None = None  # the requested mode
    huge_pages_got: bool | None = None
    huge_pages_needed: int | None = None  # number of pages of the default size
    shm_mount_bytes: int | None = None  # the part of /dev/shm that one statement may use; 0 if it uses none
    directory: str | None = None  # the data directory
    ours: bool = False  # whether dbdyno may write there
    # remedies by id of a check of the machine
    cures: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)


class Conditions(Protocol):
    """Checks a server's configuration for conditions that may spoil measurements."""

    data_files: re.Pattern[str]
    """Matches within the path of each file that holds the server's relations."""

    def conditions(self) -> ServerConditions:
        """Reads the server's configuration in a few milliseconds, without changing it. Raises
        :class:`TargetError`."""
