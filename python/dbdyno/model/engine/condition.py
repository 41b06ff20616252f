"""Conditions under which is measured: checks of the machine and of the server that may spoil figures.

A check is an :class:`Entry` (data: why it matters, the cure) and a judge, a pure function of facts that were
read once. Machine and server have a registry each: :mod:`dbdyno.conclude.machines.conditions`, and the
engine's.
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
"""``bad``: figures are wrong, or those of a server that nobody runs; ``worth a look``: they may be, or it
costs; ``unknown``: the value says why; ``remote``: of the server's host, which is not this one."""
ASKING: tuple[State, ...] = ("bad", "worth a look")
"""The states that ask for something, the gravest first."""
RESTART = "restart the server"
Touches = Literal["", "every run", "writes"]


class Entry(BaseModel):
    """What a registry holds of a check. ``cure`` and ``commands`` may have ``{named}`` values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    reads: str  # where the value is from
    why: str  # it matters for measurements: a sentence
    cure: str = ""  # in words, where a command alone is not enough
    commands: tuple[str, ...] = ()
    how: Literal["sql", "root", "hand"] = "hand"
    touches: Touches = ""  # runs of which it is a claim
    source: str = ""  # the data source that is missing by the same cause
    rule: dict[str, Any] = Field(default_factory=dict)  # for the registry's judge


def entries(text: str) -> Mapping[str, Entry]:
    """The registry in a TOML file: a table for each id."""
    return {id: Entry.model_validate(table) for id, table in tomllib.loads(text).items()}


class Judged(NamedTuple):
    """``value``: what was found, or why it is unknown; ``named``: for the texts of the entry."""

    state: State
    value: str
    named: Mapping[str, str] = {}
    steps: tuple[Step, ...] = ()  # in place of the entry's commands


class Condition(BaseModel):
    """One check as it came out."""

    model_config = ConfigDict(frozen=True)

    id: str
    title: str
    state: State
    value: str
    why: str = ""
    cure: str = ""  # in one line
    touches: Touches = ""
    variant: str = ""  # with whose settings it was looked at; empty: as the server was found
    steps: tuple[Step, ...] = Field(default=(), exclude=True)  # for `dbdyno doctor`; not stored
    source: str = Field(default="", exclude=True)

    @property
    def asks(self) -> bool:
        return self.state in ASKING


def concluded(id: str, entry: Entry, judged: Judged) -> Condition:
    """A cure is for what asks for one."""
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
    """``direct`` of ``files``: distinct files that are open, and those of them with O_DIRECT at every open
    descriptor. ``None``: unknown, for what ``status`` and ``detail`` say."""

    direct: int | None
    files: int | None
    status: Status = "ok"
    detail: str = ""

    @property
    def words(self) -> str:
        """``O_DIRECT seen on 3 of 12 open data files``; why not, where it is unknown."""
        if self.files is None:
            return self.detail
        return f"O_DIRECT seen on {self.direct} of {self.files} open data files"


@dataclass(frozen=True)
class ServerConditions:
    """What a server says of itself. ``None``: unknown. Nothing in it is a name of one system but in words."""

    found: tuple[Condition, ...] = ()  # the engine's own checks
    direct_io: bool | None = None  # asked for data files; None: this version has none
    direct_setting: str = ""  # in words
    direct_pending: bool = False  # a file has another value, which a restart puts in force
    shared_bytes: int | None = None  # of its shared memory
    sessions: int | None = None  # at most
    processes: int | None = None  # at most, helpers among them
    huge_pages: Literal["on", "try", "off"] | None = None  # asked for
    huge_pages_got: bool | None = None
    huge_pages_needed: int | None = None  # of the default size
    shm_mount_bytes: int | None = None  # that one statement may take of /dev/shm; 0: it does not use it
    directory: str | None = None  # of its data
    ours: bool = False  # dbdyno may write there
    cures: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)  # by id of a check of the machine


class Conditions(Protocol):
    """A server that knows what may spoil measurements of it."""

    data_files: re.Pattern[str]
    """Found in the path of each file that holds its relations."""

    def conditions(self) -> ServerConditions:
        """Asked now, in a few milliseconds; changes nothing. Raises :class:`TargetError`."""
