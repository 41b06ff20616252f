"""This host as a :class:`dbdyno.model.engine.machine.Machine`, and the machine that a path belongs to."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dbdyno import _core
from dbdyno.model.engine.machine import Machine, PageCounts, Reached
from dbdyno.model.engine.protocols import Watch


class ThisHost:
    """This host; see :class:`Machine`."""

    root = Path("/")
    reached: Reached | None = None

    @property
    def uid(self) -> int:
        return os.geteuid()

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def architecture(self) -> str:
        return platform.machine()

    def boot_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    @contextmanager
    def ahead(self, paths: Iterable[Path], folders: Iterable[Path] = ()) -> Iterator[None]:  # noqa: ARG002
        """Does nothing, as reads on this host need no round trip."""
        yield

    def find_cgroups(
        self, pid: int | None, root: Path, controllers: Sequence[str] | None = None
    ) -> Sequence[tuple[int, str]]:
        return _core.find_cgroups(pid, root, controllers)

    def read_task(self, pid: int, tid: int) -> Mapping[str, Any]:
        return _core.read_task(pid, tid)

    def read_behind(self, pid: int, program: str, symbol: str, offset: int) -> tuple[int | None, str, str]:
        return _core.read_behind(pid, program, symbol, offset)

    def page_cache(
        self, files: Sequence[tuple[str | Path, bytes, int]], block_bytes: int, budget_ns: int
    ) -> PageCounts:
        return _core.page_cache(files, block_bytes, budget_ns)

    def watch(self, spec: Mapping[str, Any]) -> Watch:
        return _core.Watch(json.dumps(spec))

    def connects(self, engine: str, spec: Mapping[str, Any], same: Callable[[int], bool]) -> bool:  # noqa: ARG002
        """Returns True: the caller connects from this host."""
        return True

    def revive(self) -> None:
        pass


HERE: Machine = ThisHost()


def machine_of(path: Path) -> Machine:
    """Returns the machine that a path belongs to. A recorded tree belongs to this host."""
    machine: Machine = getattr(path, "machine", HERE)
    return machine


def groups_of(pid: int | None, root: Path, controllers: Sequence[str]) -> list[tuple[int, Path]]:
    """Returns (version, directory) of the control groups with these controllers of a process (None: the
    reader), innermost first; empty if they are not visible."""
    try:
        directories = machine_of(root).find_cgroups(pid, root, controllers)
    except OSError:
        return []
    return [(version, type(root)(directory)) for version, directory in directories]
