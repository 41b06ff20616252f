"""A data source as one record: its columns, the way to cut a window from it, and advice if it is missing.

The records are in :mod:`dbdyno.model.schema.data_sources`, one module each. They hold data and pure parsers.
The readers (the core's watch and :mod:`dbdyno.observe`) and :mod:`dbdyno.account.window`, which cuts
windows, follow them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from dbdyno.model.schema.column import Column


class Step(NamedTuple):
    """One command that helps to enable a data source. ``how``: ``sql`` is a statement that dbdyno's database
    role may execute and that takes effect at once. ``root`` is a command of the operating system for root.
    ``hand`` is anything that needs a restart, another role or a decision."""

    command: str
    how: Literal["sql", "root", "hand"] = "hand"


def with_rights(capabilities: str, options: str = "") -> Step:
    """Returns the command that runs dbdyno as the same user with ``capabilities`` in setpriv's notation:
    ``+bpf,+perfmon``."""
    return Step(
        "sudo -E setpriv --reuid=$(id -u) --regid=$(id -g) --init-groups "
        f"--inh-caps={capabilities} --ambient-caps={capabilities} $(command -v dbdyno) run WORKLOAD{options}"
    )


class Enabling(NamedTuple):
    """The benefit of a data source, and how to enable it."""

    adds: str = ""
    right: str = ""  # the privilege that the source or the steps need
    steps: tuple[Step, ...] = ()
    state: str = ""  # shown in place of a status that is less specific: ``not loaded``
    only: str = ""  # the loads that have the source, if not all: doctor knows no load


NO_ENABLING = Enabling()


MOST_HZ = 1000
"""The maximum number of samples per second."""


class Option(NamedTuple):
    """The option that switches on a source which is off by default. With ``hz`` the option takes a
    frequency, which has this default."""

    key: str  # key in a recipe and in the specification of the watch
    flag: str  # option of the commands run and observe
    help: str
    hz: float | None = None


class ProcessRate(NamedTuple):
    """A column of the table ``microstates``: the growth of ``figure`` per second, summed over all labels."""

    column: Column
    figure: str
    heading: str  # heading in the table of processes
    title: str


class TaskCounts(NamedTuple):
    """Counters that grow from the opening of the watch, one row per task and label. The core's watch reads
    them.

    ``table`` names the raw table. ``cut_TABLE`` holds a window's growth between the task's two reads. A
    figure that may be NULL is unknown in runs of versions that did not count it.
    """

    table: str
    labels: tuple[Column, ...]
    figures: tuple[Column, ...]
    rate: ProcessRate | None = None


class CounterFile(NamedTuple):
    """Counters of the machine in a file that is read at the start and end of a window.

    Their values are rows of the raw table ``host`` with the key ``KEY.COUNTER``. Their growth is in
    ``cut_levels``, and their growth per second in ``rates`` as ``KEY.COUNTER_per_s``.
    """

    path: str  # relative to the root directory
    key: str
    counters: tuple[Column, ...]
    parse: Callable[[str], Mapping[str, int]]  # counter -> value; counters that are not listed are ignored


class KeyedCounters(NamedTuple):
    """Counters of the server by key, which the engine reads before and after a window.

    ``table`` names the raw table. It has one row per phase (t0, t1) for each key that was active between the
    reads.
    """

    table: str
    key: tuple[Column, ...]
    figures: tuple[Column, ...]  # counters; NULL if this server does not count them


class SampledStacks(NamedTuple):
    """Stacks of the server's tasks, sampled periodically. The core's watch samples them and resolves
    symbols.

    ``tables`` has the raw tables by name: samples, the frames of each stack, and the description of each
    frame.
    """

    tables: Mapping[str, tuple[Column, ...]]


class Asked(NamedTuple):
    """Rows that the core's watch queries from the server after a sample that requires it.

    The query is in the engine's part of the watch's specification. ``table`` names the raw table.
    """

    table: str
    columns: tuple[Column, ...]


class WatchedReads(NamedTuple):
    """Counters of parts of the machine, which the core's watch reads with the machine's own.

    ``table`` names the raw table of the reads. ``parts`` names the one that says once which parts there are,
    or with its status why there is none. Without a row there nothing was asked for.
    """

    table: str
    parts: str


class DataSource(NamedTuple):
    name: str  # as in the table of sources
    provenance: str
    cures: Mapping[str, str]  # advice by status, for each status but ok
    enabling: Enabling = NO_ENABLING  # benefit, required privilege, commands to enable it
    option: Option | None = None
    counts: tuple[TaskCounts, ...] = ()
    file: CounterFile | None = None
    keyed: KeyedCounters | None = None
    stacks: SampledStacks | None = None
    asked: Asked | None = None
    reads: WatchedReads | None = None
    tables: Mapping[str, tuple[Column, ...]] | None = None  # raw tables that are not read by the watch
