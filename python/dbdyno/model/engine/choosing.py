"""The capability of several servers of which one is in use at a time: those that a run's variants name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from dbdyno.model.engine.protocols import Target


class SettingValue(NamedTuple):
    """The value of a setting and its default, as the server shows them."""

    value: str
    default: str | None


class Choosing(Protocol):
    """Several servers of which one is in use at a time. All other methods of the server are those of the one
    in use."""

    def use(self, variant: str, *, anew: bool = False) -> bool:
        """Puts the server of this variant in use: stops the one in use if dbdyno started it, and starts this
        one; to a server that runs already it connects. ``anew``: starts it again if it is in use. Returns
        whether it was started. Raises :class:`DbdynoError`; then no server of dbdyno's runs. Raises
        :class:`Abandoned` if the user has requested a stop."""

    def lacking(self, names: Iterable[str]) -> Sequence[str]:
        """Returns the names of settings that the server in use does not have."""

    def tables_of(self, texts: Sequence[str]) -> Sequence[str]:
        """Returns the workloads whose prepared tables these scripts use; none for a server that runs
        already, whose data are the user's."""

    def flush(self) -> None:
        """Writes what the server in use has changed to its files, so that measurements begin with nothing to
        write."""

    def all_settings(self) -> Mapping[str, SettingValue]:
        """Returns every setting of the server in use, without those that name places."""

    def programs(self) -> str:
        """Returns the directory of programs of the server in use; empty if dbdyno does not start it."""

    def is_read_anew(self) -> bool:
        """Returns whether the programs of the server in use got a new place in memory when it was started.
        True if dbdyno does not start it."""

    def identity(self) -> str:
        """Returns what two connections have in common if and only if they lead to the same data."""

    def same_settings(self) -> Mapping[str, str]:
        """Sets at each later start what all servers have to the default of the oldest where their defaults
        differ. Returns these settings. Raises :class:`UsageError` if a server is not started by dbdyno."""

    def left_out(self) -> Mapping[str, str]:
        """Returns the settings of the start that some server does not have, each with those servers in words.
        Raises :class:`UsageError` for one that none has."""

    def target(self) -> Target:
        """Returns the address of the server in use."""
