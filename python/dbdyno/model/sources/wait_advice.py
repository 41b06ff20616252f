"""Explanations of wait events in which sessions block each other, with advice, and earlier names of events.

Each engine has its own, as data.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from pydantic import BaseModel, ConfigDict, RootModel

from dbdyno.model.schema.tables import empty, rows

TABLE = "wait_advice"


class Advice(BaseModel):
    """The explanation of one event. ``row``: sessions wait for a row that another session changes.
    ``earlier``: the event that earlier versions of the server show for the same waits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: str = ""
    advice: str = ""
    row: bool = False
    earlier: str = ""


class WaitAdvice(RootModel[dict[str, Advice]]):
    """Advice by ``class/event``."""

    root: dict[str, Advice] = {}

    def of(self, label: str) -> Advice:
        """Returns the advice for an event, which is empty if there is none."""
        return self.root.get(label, Advice())

    def earlier(self) -> dict[str, str]:
        """Returns the earlier names of events."""
        return {label: a.earlier for label, a in self.root.items() if a.earlier}

    def table(self) -> pl.DataFrame:
        """Returns the table ``wait_advice``."""
        return rows(TABLE, [{"event": label, **a.model_dump()} for label, a in self.root.items()])


def advice_of(tables: Mapping[str, pl.DataFrame]) -> WaitAdvice:
    """Returns the advice in the table ``wait_advice`` of ``tables``."""
    known = tables.get(TABLE, empty(TABLE)).to_dicts()
    return WaitAdvice({r.pop("event"): Advice(**r) for r in known})
