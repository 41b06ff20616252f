"""A CPU quota on the server's processes for the length of a test, put back at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dbdyno import limits
from dbdyno.model.errors import DbdynoError
from dbdyno.model.plan import LimitSpec
from dbdyno.store import FileJournal


class QuotaRefused(Exception):
    """No quota can be set here; the words say why and what would help."""


@contextlib.contextmanager
def quota(main_pid: int, cpus: float) -> Iterator[Path]:
    """The server's tree in a group of its own with ``cpus`` CPUs; yields the group's directory.

    Raises :class:`QuotaRefused`. A test that is killed is put back by ``dbdyno clean``.
    """
    try:
        applied = limits.apply(LimitSpec(quota=cpus), main_pid, FileJournal("selftest"))
    except DbdynoError as e:
        raise QuotaRefused(f"{e.message}; {e.cure}" if e.cure else e.message) from e
    with applied:
        yield applied.groups[0]
