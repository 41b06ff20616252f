"""A data source as one registration: what it reads, its columns, how a window is cut from it, its advice.

The instances are in :mod:`dbdyno.model.schema.data_sources`, a module each. They are data and pure parsers:
what reads (the core's watch, or :mod:`dbdyno.observe`) and what cuts (:mod:`dbdyno.account.window`) goes by
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from dbdyno.model.schema.column import Column


class Step(NamedTuple):
    """One command on the way to a data source. ``how``: ``sql``, a statement that our role may execute and
    that takes effect at once; ``root``, a command of the operating system for root; ``hand``, whatever needs
    a restart, another role or a decision."""

    command: str
    how: Literal["sql", "root", "hand"] = "hand"


def with_rights(capabilities: str, options: str = "") -> Step:
    """Runs dbdyno as the user, with ``capabilities`` as setpriv writes them: ``+bpf,+perfmon``."""
    return Step(
        "sudo -E setpriv --reuid=$(id -u) --regid=$(id -g) --init-groups "
        f"--inh-caps={capabilities} --ambient-caps={capabilities} $(command -v dbdyno) run WORKLOAD{options}"
    )


class Enabling(NamedTuple):
    """What a data source gives, and how to get it where it is not read."""

    adds: str = ""
    right: str = ""  # that it needs, or that the steps need
    steps: tuple[Step, ...] = ()
    state: str = ""  # in place of the status, where that says less: ``not loaded``


NO_ENABLING = Enabling()


MOST_HZ = 1000
"""Samples a second."""


class Option(NamedTuple):
    """Asks for a source that is off unless asked for. With ``hz`` it takes a frequency, this one without."""

    key: str  # of a recipe, and of the watch's specification
    flag: str  # of the commands run and observe
    help: str
    hz: float | None = None


class ProcessRate(NamedTuple):
    """A column of the table ``microstates``: growth of ``figure`` over all labels, per second."""

    column: Column
    figure: str
    heading: str  # of the table of processes
    title: str


class TaskCounts(NamedTuple):
    """Sums since the watch was opened, one row a task and label; the core's watch reads them.

    Raw table ``table``; of a window ``cut_TABLE``, the growth between the task's two reads. Figures that may
    be NULL are unknown of runs that were measured before they were counted.
    """

    table: str
    labels: tuple[Column, ...]
    figures: tuple[Column, ...]
    rate: ProcessRate | None = None


class CounterFile(NamedTuple):
    """Counters of the machine in a file that is read where a window begins and ends.

    They are rows of the raw table ``host`` (key ``KEY.COUNTER``); their growth is in ``cut_levels``, and a
    second of it in ``rates`` (``KEY.COUNTER_per_s``).
    """

    path: str  # below the root directory
    key: str
    counters: tuple[Column, ...]
    parse: Callable[[str], Mapping[str, int]]  # counter -> value; further ones are passed over


class KeyedCounters(NamedTuple):
    """Counters of the server by key, which the engine reads before a window and after it.

    Raw table ``table``: of each key that was active in between a row a phase (t0, t1).
    """

    table: str
    key: tuple[Column, ...]
    figures: tuple[Column, ...]  # grow; NULL: not counted by this server


class SampledStacks(NamedTuple):
    """Stacks of the server's tasks, sampled by a clock; the core's watch samples and names them.

    The raw tables by name: samples, the frames of each stack, and what each frame is.
    """

    tables: Mapping[str, tuple[Column, ...]]


class Asked(NamedTuple):
    """Rows of the server that the core's watch asks for after a sample that calls for it.

    The engine's part of the watch's specification has the question. Raw table ``table``.
    """

    table: str
    columns: tuple[Column, ...]


class DataSource(NamedTuple):
    name: str  # as in the table of sources
    provenance: str
    cures: Mapping[str, str]  # status -> advice, where it is not ok
    enabling: Enabling = NO_ENABLING  # what it gives, the right it needs, the commands that enable it
    option: Option | None = None
    counts: tuple[TaskCounts, ...] = ()
    file: CounterFile | None = None
    keyed: KeyedCounters | None = None
    stacks: SampledStacks | None = None
    asked: Asked | None = None
    tables: Mapping[str, tuple[Column, ...]] | None = None  # raw ones that are read outside of the watch
