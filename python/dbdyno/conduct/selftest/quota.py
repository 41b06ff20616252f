"""A CPU quota on the server's processes for the length of a test, removed at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dbdyno import limits
from dbdyno.kernel.control_groups import file_words
from dbdyno.limits import places
from dbdyno.model.errors import DbdynoError
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.store import FileJournal

_COUNTS = ("cpuacct.usage", "cpu.stat")  # files with a group's CPU time, of v1 and v2


class QuotaRefused(Exception):
    """No quota can be set here; the message has the reason and the cure."""


@contextlib.contextmanager
def quota(main_pid: int, cpus: float) -> Iterator[tuple[Path, ...]]:
    """Moves the server's processes to a control group with ``cpus`` CPUs; yields the directories of its
    groups.

    One of the groups counts CPU time if possible. Raises :class:`QuotaRefused`. If the test is killed,
    ``dbdyno clean`` undoes it.
    """
    spec = LimitSpec(quota=cpus)
    try:
        applied = limits.apply(spec, main_pid, FileJournal("selftest"))
    except DbdynoError as e:
        raise QuotaRefused(f"{e.message}; {e.cure}" if e.cure else e.message) from e
    with applied:
        if not any(_counts(group) for group in applied.groups):
            with contextlib.suppress(places.Refused):  # the group's CPU time is then unknown
                for place in places.find(main_pid, ["cpuacct"]):
                    applied.make(spec, place)
                applied.settle()
        yield applied.groups


def _counts(group: Path) -> bool:
    usage, stat = (group / name for name in _COUNTS)
    return usage.exists() or "usage_usec" in file_words(stat)
