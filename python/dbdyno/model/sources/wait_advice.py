"""What sessions wait for in an event in which they wait for each other, and what to change.

Each engine has its own, as data.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from pydantic import BaseModel, ConfigDict, RootModel

from dbdyno.model.schema.tables import empty, rows

TABLE = "wait_advice"


class Advice(BaseModel):
    """``row``: it is a row that another session changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: str = ""
    advice: str = ""
    row: bool = False


class WaitAdvice(RootModel[dict[str, Advice]]):
    """By ``class/event``."""

    root: dict[str, Advice] = {}

    def of(self, label: str) -> Advice:
        """That of an event; an empty one where there is none."""
        return self.root.get(label, Advice())

    def table(self) -> pl.DataFrame:
        """Table ``wait_advice``."""
        return rows(TABLE, [{"event": label, **a.model_dump()} for label, a in self.root.items()])


def advice_of(tables: Mapping[str, pl.DataFrame]) -> WaitAdvice:
    """By the table ``wait_advice`` among ``tables``."""
    known = tables.get(TABLE, empty(TABLE)).to_dicts()
    return WaitAdvice({r.pop("event"): Advice(**r) for r in known})
