"""The host of a server: this one, or another that is read from afar; and how that was reached."""

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
"""See ``_core.page_cache``."""


class Reached(BaseModel):
    """How another host was reached. No credentials."""

    model_config = ConfigDict(frozen=True)

    host: str  # as it was asked for
    user: str | None = None
    by: str = "ssh"
    clock_bound_ns: int = 0  # the other host's clock is known to this, at worst

    @property
    def words(self) -> str:
        """``dba@db1, over ssh; its clock is known to 0.2 ms``."""
        who = f"{self.user}@{self.host}" if self.user else self.host
        return f"{who}, over {self.by}; its clock is known to {format_ns(self.clock_bound_ns)}"


class Machine(Protocol):
    """A host. Its files are below ``root``: a path as any other, whose methods read there."""

    @property
    def root(self) -> Path: ...

    @property
    def reached(self) -> Reached | None:
        """None: it is this host."""

    @property
    def uid(self) -> int:
        """Of the user who reads there."""

    @property
    def pid(self) -> int:
        """Of the process that reads there: its ``/proc/self``."""

    @property
    def architecture(self) -> str:
        """As ``uname -m`` has it."""

    def boot_s(self) -> float:
        """Seconds since it booted, now (CLOCK_BOOTTIME)."""

    def ahead(self, paths: Iterable[Path], folders: Iterable[Path] = ()) -> AbstractContextManager[None]:
        """Meanwhile these files and the names in these folders are as they are now: read together, where each
        would take a round trip. ``*`` in a component stands for all that there is."""

    def find_cgroups(
        self, pid: int | None, root: Path, controllers: Sequence[str] | None = None
    ) -> Sequence[tuple[int, str]]:
        """See ``_core.find_cgroups``."""

    def read_task(self, pid: int, tid: int) -> Mapping[str, Any]:
        """See ``_core.read_task``."""

    def read_behind(self, pid: int, program: str, symbol: str, offset: int) -> tuple[int | None, str, str]:
        """See ``_core.read_behind``."""

    def page_cache(
        self, files: Sequence[tuple[str | Path, bytes, int]], block_bytes: int, budget_ns: int
    ) -> PageCounts:
        """See ``_core.page_cache``."""

    def watch(self, spec: Mapping[str, Any]) -> Watch:
        """The observers there. ``spec``: of ``_core.Watch``. Raises :class:`dbdyno._core.ObserverError`."""

    def connects(self, engine: str, spec: Mapping[str, Any], same: Callable[[int], bool]) -> bool:
        """Whether sessions of a load (``spec`` of ``_core.Load``) can be had from there, and ``same`` says of
        each process that serves one that it is of the server meant. They are ended at once."""

    def revive(self) -> None:
        """Reaches it again where it was lost. Raises :class:`dbdyno.model.errors.TargetError`."""
