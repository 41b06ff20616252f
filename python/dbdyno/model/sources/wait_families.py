"""Wait families: what a wait is for, whatever an engine calls it. Each maps its own events, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import reduce

import polars as pl
from pydantic import RootModel

from dbdyno.model.schema.tables import rows

TABLE = "wait_families"


class Family(StrEnum):
    CLIENT = "client"  # for the client's next message
    LOCK = "lock"  # for a lock or a page that another session holds
    LATCH = "latch"  # for a short lock inside the server
    IO = "io"  # for data files
    COMMIT = "commit"  # until changes are durable
    NETWORK = "network"  # until an answer has been sent to the client
    TIMER = "timer"  # until a time has passed
    OTHER = "other"


AT_CLIENT = (Family.CLIENT, Family.NETWORK)
"""The server waits for its client, not the client for the server."""
LOCKS = (Family.LOCK, Family.LATCH)
"""An event of these names one lock, one latch, one page."""
STORAGE = (Family.IO, Family.COMMIT)
STOPPED = "Stopped"
"""Class of no server's: its process was stopped, or its control group frozen."""


class WaitFamilies(RootModel[dict[str, Family]]):
    """By label: ``class``, or ``class/event`` where an event is of another family than its class.

    A class that is not there is of the family ``other``.
    """

    root: dict[str, Family] = {}

    def __or__(self, other: WaitFamilies) -> WaitFamilies:
        return WaitFamilies(self.root | other.root)

    def of(self, label: str | None) -> Family:
        """The family of ``class/event``, or of a class alone."""
        name = label or ""
        return self.root.get(name) or self.root.get(name.partition("/")[0], Family.OTHER)

    def among(self, *families: Family) -> pl.Expr:
        """Whether a row's ``wait_class`` and ``wait_event`` are of one of these; false without a class."""
        wait_class, wait_event = pl.col("wait_class"), pl.col("wait_event")
        whole = [name for name, family in self.root.items() if "/" not in name and family in families]
        found = wait_class.is_in(whole)
        for name, family in self.root.items():
            of, _, event = name.partition("/")
            if event and (of in whole) != (family in families):
                one = ((wait_class == of) & (wait_event == event)).fill_null(False)
                found = found & ~one if of in whole else found | one
        return found.fill_null(False)

    def hue(self, wait_class: str) -> str:
        """What a class is coloured as: its family, for the first class of it; further ones are themselves."""
        family = self.of(wait_class)
        first = next((name for name, own in self.root.items() if "/" not in name and own is family), None)
        return str(family) if wait_class == first else wait_class

    def table(self) -> pl.DataFrame:
        """Table ``wait_families``."""
        labels = [(*name.partition("/"), family) for name, family in self.root.items()]
        return rows(
            TABLE, [{"wait_class": c, "wait_event": e or None, "family": str(f)} for c, _, e, f in labels]
        )


def merged(maps: Iterable[WaitFamilies]) -> WaitFamilies:
    return reduce(WaitFamilies.__or__, maps, WaitFamilies())


def families_of(tables: Mapping[str, pl.DataFrame]) -> WaitFamilies:
    """Reads the table ``wait_families``. Raises :class:`KeyError` where ``tables`` lack it: without families
    every wait, that for the client too, would count as the server's."""
    known = tables[TABLE].iter_rows()
    return WaitFamilies({f"{c}/{e}" if e else c: Family(f) for c, e, f in known})


# What a server's own processes are for, whatever an engine calls them. Each maps their names, as data.

ROLE = "helper:"
"""How the role of such a process begins; its name follows."""


class Helper(StrEnum):
    IO = "io"  # does I/O for sessions
    CHECKPOINT = "checkpoint"  # writes what has changed to the data files
    CLEANUP = "cleanup"  # removes what nobody sees any more


def named(column: str, kind: Helper, kinds: Mapping[str, Helper]) -> pl.Expr:
    """Whether ``column``, a role or the name in it, is that of a helper of this kind."""
    names = [name for name, its in kinds.items() if its is kind]
    return pl.col(column).str.strip_prefix(ROLE).is_in(names).fill_null(False)


# Names of counters that more is made of than a line: an engine that counts this calls it so.

LOG_BYTES = "wal_bytes"
"""Written to the log that makes changes durable; per session or of the whole server."""
READ_REQUESTS = "read_requests"
"""Requests for blocks that were not in the database's cache; per session or of the whole server."""
STORAGE_BYTES = "storage_read_bytes"
"""Bytes that a device had to deliver for the server's processes: what the page cache has does not count."""
READ_CALLS = "read_calls"
"""System calls of the server's processes that read files, whoever delivers."""
CHECKPOINTS = "checkpoints_"
"""How names of counters of checkpoints begin; the cause follows."""
