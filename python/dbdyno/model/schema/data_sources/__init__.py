"""The registry of data sources, with one module and one line each."""

from __future__ import annotations

from dbdyno.model.schema.data_source import (
    Asked,
    CounterFile,
    DataSource,
    KeyedCounters,
    Option,
    ProcessRate,
    TaskCounts,
)
from dbdyno.model.schema.data_sources.blocking import BLOCKING
from dbdyno.model.schema.data_sources.devices import DEVICE_SOURCE
from dbdyno.model.schema.data_sources.memory import MEMORY_SOURCE
from dbdyno.model.schema.data_sources.profile import CPU_PROFILE
from dbdyno.model.schema.data_sources.sleeps import OFF_CPU
from dbdyno.model.schema.data_sources.statements import STATEMENTS
from dbdyno.model.schema.data_sources.syscalls import SYSTEM_CALLS

BUILT_IN: tuple[DataSource, ...] = (
    SYSTEM_CALLS,
    STATEMENTS,
    CPU_PROFILE,
    OFF_CPU,
    BLOCKING,
    MEMORY_SOURCE,
    DEVICE_SOURCE,
)
SOURCES = list(BUILT_IN)


def options() -> tuple[Option, ...]:
    """Returns the options of the sources that are off by default."""
    return tuple(s.option for s in SOURCES if s.option)


def counts() -> tuple[TaskCounts, ...]:
    return tuple(c for s in SOURCES for c in s.counts)


def process_rates() -> tuple[ProcessRate, ...]:
    """Returns the additional columns of the table ``microstates``."""
    return tuple(c.rate for c in counts() if c.rate)


def keyed() -> tuple[KeyedCounters, ...]:
    return tuple(s.keyed for s in SOURCES if s.keyed)


def sampled() -> tuple[str, ...]:
    """Returns the names of the raw tables of sampled stacks."""
    return tuple(table for s in SOURCES if s.stacks for table in s.stacks.tables)


def asked() -> tuple[Asked, ...]:
    return tuple(s.asked for s in SOURCES if s.asked)


def read_tables() -> tuple[str, ...]:
    """Returns the names of the raw tables of parts of the machine."""
    return tuple(table for s in SOURCES if s.reads for table in s.reads)


def files() -> dict[str, CounterFile]:
    """Returns the counter files by name of their source."""
    return {s.name: s.file for s in SOURCES if s.file}


TRACED = ("traced", "waits", "wait_times", *(c.table for c in counts()))
"""Raw tables of counters that grow from the opening of the watch."""
