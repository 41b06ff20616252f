"""Follows a run by its measurements as they are saved, and by the notes of the measuring process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from dbdyno.account.ladder import just_measured, rungs
from dbdyno.conduct.derive.polars_thread import on_polars_thread
from dbdyno.conduct.live.following import Following, News, plain
from dbdyno.engines import wait_families
from dbdyno.model.errors import StoreError
from dbdyno.model.results.raw import PRELIMINARY, labelled
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.visible import with_stop
from dbdyno.model.units import NS_PER_S
from dbdyno.plan import cell_expected_ns, deriving_ns
from dbdyno.present.document.document import Block, Document, Paragraph
from dbdyno.present.run import in_progress
from dbdyno.store import DamagedCell, Run

_OLD_S = 10.0
"""Age from which on a note no longer says what the measuring process does."""


class LadderFollowing(Following):
    kind = "run"

    def __init__(self, record: Run) -> None:
        super().__init__(record)
        self._measured: list[dict[str, Any]] = []
        self._tables: dict[str, list[pl.DataFrame]] = {}
        self._done: dict[str, None] = {}
        self._note: dict[str, Any] | None = None

    def look(self) -> list[News]:
        changed = self._changed(self.record.path / "plan.json")
        if changed:
            with contextlib.suppress(StoreError):
                self.plan = self.record.plan
        news: list[News] = []
        if self._changed(self.record.path / "cells"):
            new = [c for c in self.record.cells() if c not in self._done]
            self._done.update(dict.fromkeys(new))
            news += self._read_all(new)
            changed = changed or bool(new)
        before = self._at()
        if self._changed(self.record.path / "live.json"):
            self._note = self.record.read_progress() or self._note
            if before == self._at() and not changed:
                figures = in_progress.progress_figures(self._now())
                news.append(News("now", {"shown": plain(figures, []), "headline": self.headline()}))
        if changed or before != self._at():
            news.append(News("ladder", self._picture()))
        return news

    @on_polars_thread
    def _picture(self) -> dict[str, Any]:
        now = self._now()
        shown = plain(in_progress.progress_figures(now), in_progress.blocks(now, self._ladder()))
        return {"shown": shown, "chart": self.chart(None), "headline": self.headline()}

    def _at(self) -> object:
        """Returns what decides which measurement is under way."""
        return None if self._note is None else self._note.get("cell")

    @on_polars_thread
    def _read_all(self, cells: Sequence[str]) -> list[News]:
        return [item for cell in cells for item in self._read(cell)]

    def _read(self, cell_id: str) -> list[News]:
        damaged: list[DamagedCell] = []
        engine = self.record.environment.server.engine
        for raw in self.record.each_cell(damaged, [cell_id]):
            tables = just_measured(labelled(raw, lambda: wait_families(engine)), self.plan)
            rung = tables["rungs"].to_dicts()[0]
            self._measured.append({**rung, "repeat": raw.meta.cell.repeat, PRELIMINARY: rung[PRELIMINARY]})
            tables["cell_histogram"] = tables.pop("histogram")
            for name in ("windows", "rates", "cell_histogram"):
                self._tables.setdefault(name, []).append(tables[name])
        return [
            News("note", {"text": f"Measurement {d.id} is left out: {with_stop(d.reason)}"}) for d in damaged
        ]

    def _pooled(self) -> Results:
        """Returns the rungs so far, repeats together."""
        tables = {name: pl.concat(frames) for name, frames in self._tables.items()}
        return self.results({**tables, "rungs": rungs({**tables, "ledger": empty("ledger")})})

    def _ladder(self) -> list[Block]:
        if not self._measured:
            return [Paragraph("No measurement has ended yet.", "muted")]
        pooled = self._pooled()
        scaling = {
            (w, v, n): s
            for w, v, n, s in pooled.tables["rungs"]
            .select("workload", "variant", "sessions", "scaling")
            .iter_rows()
        }
        rows = [
            {**r, "scaling": scaling.get((r["workload"], r["variant"], r["sessions"]))}
            for r in self._measured
        ]
        return in_progress.ladder(pooled, rows)

    def chart(self, last_s: float | None) -> dict[str, Any]:  # noqa: ARG002  a ladder has no time
        return in_progress.curve(self._pooled()) if self._tables else {"series": []}

    def headline(self) -> str:
        return self.ENDED if self.record.info.status != "running" else in_progress.headline_now(self._now())

    def _now(self) -> in_progress.Now:
        expected = {
            c.id: cell_expected_ns(c, self.plan.call_target_ns, self.plan.cpus) for c in self.plan.cells
        }
        note, left_s = self._note or {}, self._left_s(expected)
        age_s = time.time() - _number(note, "at_s", 0.0)
        if (noted_s := _number(note, "left_s", -1.0)) >= 0:
            left_s = max(0.0, noted_s - age_s)
        current = note.get("cell")
        if "doing" not in note and (current in self._done or age_s > _OLD_S):
            note = {}
            current = next((c.id for c in self.plan.cells if c.id not in self._done), None)
        return in_progress.Now(self.plan, expected, self._done, current, note, left_s)

    def _left_s(self, expected_ns: Mapping[str, int]) -> float:
        """Returns the time left by the plan alone."""
        to_come = sum(ns for cell, ns in expected_ns.items() if cell not in self._done)
        return (to_come + deriving_ns(len(self.plan.cells))) / NS_PER_S

    def shown(self) -> Document:
        now, experiment = self._now(), self.plan.experiment
        named = ", ".join(self.record.info.workloads) or experiment.workload or experiment.name
        return Document(
            f"Live: {named}{self.place()}",
            in_progress.blocks(now, self._ladder()),
            figures=in_progress.progress_figures(now),
        )


def _number(note: Mapping[str, Any], name: str, absent: float) -> float:
    value = note.get(name)
    return float(value) if isinstance(value, int | float) else absent
