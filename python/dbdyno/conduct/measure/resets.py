"""Resets data to their prepared state before measurements that change them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from dbdyno.conduct.companion import Companion
from dbdyno.conduct.measure.prepare import Preparation
from dbdyno.conduct.measure.tables import bring_back
from dbdyno.model.engine.protocols import Server, needed
from dbdyno.model.plan.plan import Cell, Plan, Workload
from dbdyno.model.plan.resetting import DataSet, Resetting
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import raw as raw_table
from dbdyno.model.schema.tables import rows
from dbdyno.model.units import NS_PER_S
from dbdyno.plan import begins, with_resets


def sets_of(server: Server, plan: Plan, workload: str) -> Sequence[DataSet]:
    """Returns the data sets of the workload, the largest of several sizes, as they follow one another."""
    if server.resetting is None or not plan.cells:
        return ()
    of_variants = {c.variant: c.params for c in plan.cells}
    by_name: dict[str, DataSet] = {}
    for variant, params in of_variants.items():
        texts = [s.text for s in plan.variant(variant).scripts]
        for one in server.resetting.data_sets(workload, params, texts):
            earlier = by_name.get(one.name, one)
            written = one.written or earlier.written
            by_name[one.name] = max(one, earlier, key=lambda s: s.rows)._replace(written=written)
    return tuple(by_name.values())


def decided(server: Server, plan: Plan, workload: Workload) -> Plan:
    """Returns the plan with the times of resets. Raises :class:`UsageError` for impossible ones."""
    plan = with_resets(plan, sets_of(server, plan, workload.name))
    if server.resetting is not None and plan.reset.when != "never" and _drops(plan):
        server.resetting.check_dropping()
    return plan


def _drops(plan: Plan) -> bool:
    return plan.experiment.reset_cache == "dropped"


class Resets(Companion):
    """The resets of one run. Data that no measurement has changed since the last reset are left alone."""

    def __init__(self, preparation: Preparation, workload: Workload) -> None:
        self._load_tables = partial(preparation.tables, workload)
        self._server, self._plan = preparation.server, preparation.plan
        self._listener, self._interrupt = preparation.listener, preparation.interrupt
        self._workload = workload.name
        self._sets = sets_of(self._server, self._plan, self._workload)
        self._whole: set[tuple[str | None, str]] = set()  # (server, data set) in their prepared state
        self._place: str | None = None  # the current variant's server
        self._noted: set[tuple[str | None, str]] = set()  # (server, reason)
        self._last: Cell | None = None
        self._done: list[dict[str, Any]] = []

    def complete(self) -> None:
        """Loads data sets that were left unfinished."""
        for one in self._sets:
            if one.unfinished:
                self._listener.noted(f"the tables of {one.name} are unfinished: loading them again")
                self._bring_back(one)

    def before(self, cell: Cell) -> None:
        """Resets the data sets that are due."""
        self._done, self._place = [], self._plan.variant(cell.variant).server
        if self._load_tables(cell.params):
            self._whole.add((self._place, self._workload))
        due = begins(self._plan, self._last, cell)
        self._last = cell
        for one in self._sets if due else ():
            whole = (self._place, one.name) in self._whole
            line = {"data_set": one.name, "how": "unchanged"} if whole else self._bring_back(one)
            self._done.append(line | (self._drop(one) if _drops(self._plan) else {}))
        if self._plan.experiment.expect == "memory" and self._server.resetting is not None:
            self._done.append(self._warm(self._server.resetting, cell))

    def _warm(self, resetting: Resetting, cell: Cell) -> dict[str, Any]:
        """Reads tables into the caches. Returns a row of the table ``resets``."""
        self._interrupt.check()
        self._listener.preparing(f"reading the tables of {self._workload} into the caches")
        texts = [s.text for s in self._plan.variant(cell.variant).scripts]
        begin_s = time.monotonic()
        warming = resetting.warm(self._workload, cell.params, self._plan.top, texts)
        duration_ns = round((time.monotonic() - begin_s) * NS_PER_S)
        short = warming.short or ("" if warming.tables else "no table of this workload is known")
        whose = f"the caches of {cell.variant}" if self._place else "the caches"
        self._note(f"! not all is read into {whose} before measurements: {short}", short)
        line = {"data_set": self._workload, "how": "unchanged", "cache": "warm" if warming.tables else None}
        return {**line, "duration_ns": duration_ns}

    def _note(self, text: str, why: str) -> None:
        """Notes a text once for each reason and server."""
        if why and (self._place, why) not in self._noted:
            self._noted.add((self._place, why))
            self._listener.noted(text)

    def _bring_back(self, one: DataSet) -> dict[str, Any]:
        """Loads the data set. Returns a row of the table ``resets``."""
        self._interrupt.check()
        cache = self._plan.experiment.reset_cache
        loaded = bring_back(
            self._server, one.name, cache, self._interrupt, self._loading, self._listener.noted
        )
        self._whole.add((self._place, one.name))
        count = sum(t.rows for t in loaded.tables)
        line = {"data_set": one.name, "how": "loaded", "rows": count, "cache": cache}
        return {**line, "duration_ns": round(loaded.seconds * NS_PER_S)}

    def _drop(self, one: DataSet) -> dict[str, Any]:
        """Drops the caches and returns their columns of that row. Data that need no reset are still in the
        caches."""
        self._interrupt.check()
        self._listener.preparing(f"dropping the tables of {one.name} from the caches")
        drop = needed(self._server.resetting, "drop caches").drop_cache(one.name)
        self._note(f"! the page cache is not dropped: {drop.refused}", drop.refused)
        return {
            "cache": "dropped",
            "cache_left_share": drop.left_share,
            "page_cache": drop.refused or "dropped",
            "page_cache_left_share": drop.page_left_share,
        }

    def _loading(self, step: str, done: int, total: int, sent: int, seconds: float) -> None:  # noqa: ARG002
        self._listener.preparing(f"bringing back the data: {step}, {done:,} of {total:,} rows")

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        """Adds the reset to the measurement, for phases to the first one, and notes which data it changed."""
        for raw in raws:
            growth = raw.tables["growth"]
            self._whole -= {(self._place, s.name) for s in self._sets if changed(growth, s.tables)}
        done: list[list[dict[str, Any]]] = [self._done, *([] for _ in raws[1:])]
        return [
            replace(raw, tables={**raw.tables, "resets": rows(raw_table("resets"), lines)})
            for raw, lines in zip(raws, done, strict=True)
        ]


def changed(growth: pl.DataFrame, tables: Sequence[str]) -> bool:
    """Returns whether the server counted changes of these tables; true if nothing was counted."""
    growth_of_tables = growth.filter(pl.col("relation").is_in(list(tables)))
    written = pl.sum_horizontal("rows_inserted", "rows_updated", "rows_deleted", ignore_nulls=False)
    shrunk = pl.col("table_bytes_end") < pl.col("table_bytes_start")
    still = growth_of_tables.filter((written == 0) & ~shrunk)
    return growth_of_tables.is_empty() or still.height < growth_of_tables.height
