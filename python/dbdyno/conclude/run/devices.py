"""Checks whether a block device limits throughput.

Utilisation alone proves nothing: a device that serves many requests at once can be busy all the time and
serve more. So a device is compared with itself at the lowest load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, known_aas, of_cell
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.wait_families import STORAGE, families_of

WAITING = 0.50
"""Share of DB time asleep in waits for I/O at the highest load."""
SLOWER = 2.0
"""The shortest response time of the device in a repeat of the highest load over the longest one of the lowest
load."""
QUEUE = 1.5
"""Requests in flight at the highest load over those at the lowest."""
LEAST_QUEUE = 1.0
"""Requests in flight at the highest load: with fewer the device was idle in between."""
GROWS = 1.10
"""Requests and bytes per second at the highest load over the most at a lower one, above which the device
still delivers more."""
REQUESTS = 100
"""Requests of a measurement from which on their mean response time counts."""
_KINDS = {"reads": ("reads", "read_ns", "read_await_ns"), "writes": ("writes", "write_ns", "write_await_ns")}


class _Seen(NamedTuple):
    """A device at one load: figures of each repeat, all known."""

    load: Row
    rows: Sequence[Row]

    def mean(self, *columns: str) -> float:
        return sum(float(row[c]) for row in self.rows for c in columns) / len(self.rows)


@check("device-limit", of="whole")
def device_limit(case: Case) -> Iterator[Claim]:
    """Yields a device of the server's directories that limits throughput at the highest load."""
    if case.observed:
        return
    table = case.tables.get("device_io", empty("device_io"))
    for name, rungs in case.rungs():
        loads = [rung for rung in rungs if rung["calls_per_s"]]
        if len(loads) < 2 or (share := _waiting(case, loads[-1])) is None or share < WAITING:
            continue
        at_loads = [(rung, _rows(case, table, rung)) for rung in loads]
        for device in dict.fromkeys(row["device"] for row in at_loads[-1][1]):
            seen = [_Seen(rung, [r for r in rows if r["device"] == device]) for rung, rows in at_loads]
            if (limit := _limit(seen, share, name)) is not None:
                yield limit


def _limit(seen: Sequence[_Seen], share: float, subject: str) -> Claim | None:
    """Returns the claim about one device; None if a criterion is not met, or a figure is unknown."""
    if any(not s.rows or any(r["status"] != "ok" for r in s.rows) for s in seen):
        return None
    first, top = seen[0], seen[-1]
    kind = max(_KINDS, key=lambda k: top.mean(_KINDS[k][1]))
    number, _, response = _KINDS[kind]
    if any(row[number] < REQUESTS for s in (first, top) for row in s.rows):
        return None
    ratio = min(r[response] for r in top.rows) / max(r[response] for r in first.rows)
    queues, requests, sizes = (
        [s.mean(*columns) for s in seen]
        for columns in (
            ("in_flight",),
            ("reads_per_s", "writes_per_s"),
            ("read_bytes_per_s", "written_bytes_per_s"),
        )
    )
    grew = queues[-1] >= max(LEAST_QUEUE, QUEUE * queues[0])
    delivers_more = any(rates[-1] > GROWS * max(rates[:-1]) for rates in (requests, sizes))
    if ratio < SLOWER or not grew or delivers_more:
        return None
    values = {
        "device": top.rows[0]["device"],
        "places": top.rows[0]["places"],
        "kind": kind,
        "place": fmt.at_load(top.load["sessions"]),
        "lowest": fmt.load(first.load["sessions"]),
        "await": top.mean(response),
        "before": first.mean(response),
        "queue": queues[-1],
        "queue_before": queues[0],
        "requests": requests[-1],
        "megabytes": sizes[-1] / 1e6,
        "share": share,
        "ratio": top.mean(response) / first.mean(response),
    }
    if first.load["rate_per_s"] is not None and first.load["sessions"] == top.load["sessions"]:
        values["place"], values["lowest"] = (fmt.rate_of_load(s.load["rate_per_s"]) for s in (top, first))
        values["place"] = f"at {values['place']}"
    return claim("device-limit", values, values["ratio"], subject=subject)


def _cells(case: Case, rung: Row) -> list[Row]:
    same = ("workload", "variant", "sessions", "rate_per_s")
    return [cell for cell in case.usable if all(cell[c] == rung[c] for c in same)]


def _rows(case: Case, table: pl.DataFrame, rung: Row) -> list[Row]:
    """Returns the rows of the directories' devices in all repeats of a load."""
    cells = [cell["cell"] for cell in _cells(case, rung)]
    return table.filter(pl.col("counted") & pl.col("cell").is_in(cells)).to_dicts()


def _waiting(case: Case, rung: Row) -> float | None:
    """Returns the share of DB time that sessions waited for I/O, the least of the repeats; None if it is
    unknown in one."""
    shares = [_storage_share(case, cell["cell"]) for cell in _cells(case, rung)]
    known = [share for share in shares if share is not None]
    return min(known) if known and len(known) == len(shares) else None


@of_cell
def _storage_share(case: Case, cell: str) -> float | None:
    families, served = families_of(case.tables), case.served(cell)
    if not served:
        return None
    asleep = case.accounts(cell).filter(pl.col("account") == "sleep").drop_nulls("aas")
    labels = [d for d in asleep["detail"].unique() if families.of(d) in STORAGE]
    return (known_aas(asleep.filter(pl.col("detail").is_in(labels))) or 0.0) / served
