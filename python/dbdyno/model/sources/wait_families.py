"""Wait families: the purpose of a wait, independent of an engine's names. Each engine maps its events, as
data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import reduce

import polars as pl
from pydantic import RootModel

from dbdyno.model.schema.tables import rows

TABLE = "wait_families"


class Family(StrEnum):
    CLIENT = "client"  # waits for the client's next message
    LOCK = "lock"  # waits for a lock or a page that another session holds
    LATCH = "latch"  # waits for a short lock inside the server
    IO = "io"  # waits for data files
    COMMIT = "commit"  # waits until changes are durable
    NETWORK = "network"  # waits until an answer has been sent to the client
    TIMER = "timer"  # waits until a time has passed
    OTHER = "other"


AT_CLIENT = (Family.CLIENT, Family.NETWORK)
"""Families in which the server waits for its client, not the client for the server."""
LOCKS = (Family.LOCK, Family.LATCH)
"""Families whose events name one lock, one latch or one page."""
STORAGE = (Family.IO, Family.COMMIT)
STOPPED = "Stopped"
"""A class of no server: the process was stopped, or its control group frozen."""


class WaitFamilies(RootModel[dict[str, Family]]):
    """Families by label: ``class``, or ``class/event`` if the family of an event differs from that of its
    class.

    A class without an entry belongs to the family ``other``.
    """

    root: dict[str, Family] = {}

    def __or__(self, other: WaitFamilies) -> WaitFamilies:
        return WaitFamilies(self.root | other.root)

    def of(self, label: str | None) -> Family:
        """Returns the family of ``class/event``, or of a class alone."""
        name = label or ""
        return self.root.get(name) or self.root.get(name.partition("/")[0], Family.OTHER)

    def among(self, *families: Family) -> pl.Expr:
        """Returns the expression for "``wait_class`` and ``wait_event`` belong to one of these families";
        false without a class."""
        wait_class, wait_event = pl.col("wait_class"), pl.col("wait_event")
        whole = [name for name, family in self.root.items() if "/" not in name and family in families]
        matches = wait_class.is_in(whole)
        for name, family in self.root.items():
            of, _, event = name.partition("/")
            if event and (of in whole) != (family in families):
                one = ((wait_class == of) & (wait_event == event)).fill_null(False)
                matches = matches & ~one if of in whole else matches | one
        return matches.fill_null(False)

    def hue(self, wait_class: str) -> str:
        """Returns the key of a class's colour: its family for the first class of that family, else the class
        itself."""
        family = self.of(wait_class)
        first = next((name for name, own in self.root.items() if "/" not in name and own is family), None)
        return str(family) if wait_class == first else wait_class

    def table(self) -> pl.DataFrame:
        """Returns the table ``wait_families``."""
        labels = [(*name.partition("/"), family) for name, family in self.root.items()]
        return rows(
            TABLE, [{"wait_class": c, "wait_event": e or None, "family": str(f)} for c, _, e, f in labels]
        )


def merged(maps: Iterable[WaitFamilies]) -> WaitFamilies:
    return reduce(WaitFamilies.__or__, maps, WaitFamilies())


def families_of(tables: Mapping[str, pl.DataFrame]) -> WaitFamilies:
    """Reads the table ``wait_families``. Raises :class:`KeyError` if ``tables`` lack it: without families
    every wait, even that for the client, would count as the server's."""
    known = tables[TABLE].iter_rows()
    return WaitFamilies({f"{c}/{e}" if e else c: Family(f) for c, e, f in known})


# A helper's purpose is independent of an engine's names. Each engine maps the names of its processes, as
# data.

ROLE = "helper:"
"""Prefix of the role of a helper process, followed by its name."""


class Helper(StrEnum):
    IO = "io"  # performs I/O for sessions
    CHECKPOINT = "checkpoint"  # writes changed pages to the data files
    CLEANUP = "cleanup"  # removes versions of rows that no session can see any more


def named(column: str, kind: Helper, kinds: Mapping[str, Helper]) -> pl.Expr:
    """Returns the expression for "``column``, a role or the name in it, is that of a helper of this kind"."""
    names = [name for name, its in kinds.items() if its is kind]
    return pl.col(column).str.strip_prefix(ROLE).is_in(names).fill_null(False)


# Names of counters with a meaning beyond their own line. An engine that counts the quantity uses this name.

LOG_BYTES = "wal_bytes"
"""Bytes written to the log that makes changes durable, per session or for the whole server."""
READ_REQUESTS = "read_requests"
"""Requests for blocks that were not in the database's cache, per session or for the whole server."""
STORAGE_BYTES = "storage_read_bytes"
"""Bytes that a device delivered to the server's processes. Reads from the page cache do not count."""
READ_CALLS = "read_calls"
"""System calls of the server's processes that read files, whether from the page cache or a device."""
LOCK_WAIT_NS = "lock_wait_ns"
"""Time of waits for locks, of the whole server."""
COUNTED_LOCK_WAITS = "counted lock waits"
"""The data source of that counter: ``provenance`` names it, ``detail`` says which waits it counts."""
CHECKPOINTS = "checkpoints_"
"""Prefix of the counters of checkpoints, followed by the cause."""
