"""The host of a server, which is this host or one that is read over a connection, and how it was reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, ConfigDict

from dbdyno.model.units import format_ns

if TYPE_CHECKING:
    from dbdyno.model.engine.protocols import Watch

PageCounts = Sequence[tuple[int | None, int | None, int | None, str]]
"""The return value of ``_core.page_cache``."""


class Reached(BaseModel):
    """The connection to another host. It contains no credentials."""

    model_config = ConfigDict(frozen=True)

    host: str  # the name that the user gave
    user: str | None = None
    by: str = "ssh"
    clock_bound_ns: int = 0  # maximum error of the offset between the two hosts' clocks

    @property
    def words(self) -> str:
        """Returns for example ``dba@db1, over ssh; its clock is known to 0.2 ms``."""
        who = f"{self.user}@{self.host}" if self.user else self.host
        return f"{who}, over {self.by}; its clock is known to {format_ns(self.clock_bound_ns)}"


class Machine(Protocol):
    """A host. Its files are read below ``root``, which behaves like any other path."""

    @property
    def root(self) -> Path: ...

    @property
    def reached(self) -> Reached | None:
        """The connection to the host; None if it is this host."""

    @property
    def uid(self) -> int:
        """The user id that files are read with."""

    @property
    def pid(self) -> int:
        """The pid of the process that reads the files, hence its ``/proc/self``."""

    @property
    def architecture(self) -> str:
        """The machine's name of ``uname -m``."""

    def boot_s(self) -> float:
        """Returns the seconds since the host booted (CLOCK_BOOTTIME)."""

    def ahead(self, paths: Iterable[Path], folders: Iterable[Path] = ()) -> AbstractContextManager[None]:
        """Reads these files and the names in these folders together, because each would take a round trip of
        its own. Within the context, reads return these contents. A component ``*`` matches every name."""

    def find_cgroups(
        self, pid: int | None, root: Path, controllers: Sequence[str] | None = None
    ) -> Sequence[tuple[int, str]]:
        """Runs ``_core.find_cgroups`` on the host."""

    def read_task(self, pid: int, tid: int) -> Mapping[str, Any]:
        """Runs ``_core.read_task`` on the host."""

    def read_behind(self, pid: int, program: str, symbol: str, offset: int) -> tuple[int | None, str, str]:
        """Runs ``_core.read_behind`` on the host."""

    def page_cache(
        self, files: Sequence[tuple[str | Path, bytes, int]], block_bytes: int, budget_ns: int
    ) -> PageCounts:
        """Runs ``_core.page_cache`` on the host."""

    def watch(self, spec: Mapping[str, Any]) -> Watch:
        """Returns observers on the host. ``spec`` is the specification of ``_core.Watch``. Raises
        :class:`dbdyno._core.ObserverError`."""

    def connects(self, engine: str, spec: Mapping[str, Any], same: Callable[[int], bool]) -> bool:
        """Returns whether a load (``spec`` of ``_core.Load``) can connect from the host to the same server.
        ``same`` decides this for the pid that serves each session. The sessions are closed at once."""

    def revive(self) -> None:
        """Connects again after the host was lost. Raises :class:`dbdyno.model.errors.TargetError`."""
