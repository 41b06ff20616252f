"""Commands as forms: their options as plain data, which the command line makes of its own declarations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from dbdyno.model.errors import UsageError
from dbdyno.present.document.document import Block, Document

Kind = Literal["text", "number", "choice", "switch", "lines", "optional"]
"""``lines``: several values, one a line. ``optional``: a switch whose value may be left out."""
Given = Mapping[str, str]
"""The texts that a browser sent, by the names of fields; nothing for what was left empty."""
VALUE = ".value"
"""Ends the name of the value of an ``optional`` field."""


class Offer(NamedTuple):
    """A value to choose, and a few words on it."""

    value: str
    words: str = ""


@dataclass(frozen=True)
class Field:
    """An option. ``default``: in words, as the help has it, or the value of the configuration file.

    ``fixed``: a switch that the configuration file has set, so that the command line cannot undo it.
    ``in_address``: whether an address of the form may fill it; not what is executed, and may hold a secret.
    """

    name: str
    flag: str
    help: str
    kind: Kind
    default: str = ""
    metavar: str = ""
    choices: Sequence[Offer] = ()
    common: bool = False
    fixed: bool = False
    in_address: bool = True


@dataclass(frozen=True)
class Group:
    title: str
    fields: Sequence[Field]


@dataclass(frozen=True)
class Form:
    """``left_out``: the reason by flag. ``further``: flags that need ``--allow-commands``, if that was not
    given. ``about``: what there is to choose."""

    name: str
    help: str
    groups: Sequence[Group]
    left_out: Mapping[str, str]
    further: Sequence[str] = ()
    about: Sequence[Block] = ()

    def fields(self) -> Iterator[Field]:
        for group in self.groups:
            yield from group.fields


class NotAllowed(UsageError):
    """An action that this server was started without the permission for."""


class WrongField(UsageError):
    """A value that cannot be used, or must not be; ``field`` is the name of its field. ``others``: errors of
    other fields, to be shown together."""

    def __init__(self, field: str, message: str, cure: str | None = None) -> None:
        super().__init__(message, cure)
        self.field = field
        self.others: Sequence[WrongField] = ()


class CommandLine(Protocol):
    """The commands that may be started, as the command line declares and understands them."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the commands."""

    def form(self, name: str) -> Form:
        """Returns the form of a command, with the defaults of the configuration file as it is now."""

    def words(self, name: str, given: Given) -> Sequence[str]:
        """Returns the words of a command line that has these values, without the program's name.

        Raises :class:`WrongField` for what a browser may not ask for.
        """

    def plan(self, name: str, given: Given) -> Document:
        """Returns what would happen. Raises :class:`WrongField` and other errors as the command would."""
