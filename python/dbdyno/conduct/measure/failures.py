"""Whether any call of a run ended well so far."""

from __future__ import annotations

import polars as pl

from dbdyno.conduct.companion import Companion
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.kinds import every_one_failed
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.raw import RawCell

REFUSED = "42"
"""Class of SQLSTATE (ISO/IEC 9075): syntax error or access rule violation. Such calls fail
again and again."""


class Failures(Companion):
    """Counts calls by how they ended."""

    def __init__(self, plan: Plan) -> None:
        self._words = every_one_failed(plan)
        self._calls = self._errors = 0
        self._refused: str | None = None
        self._others = False

    def saved(self, raw: RawCell) -> None:
        sessions, errors = raw.tables["sessions"], raw.tables["errors"]
        self._calls += int(sessions["calls_total"].sum())
        self._errors += int(sessions["errors_total"].sum())
        of_class = errors["sqlstate"].str.head(len(REFUSED)) == REFUSED
        self._others |= not of_class.all()
        for code, message in errors.filter(of_class).select("sqlstate", pl.col("message")).head(1).rows():
            self._refused = self._refused or f"{message} (SQLSTATE {code})"

    @property
    def reason(self) -> str | None:
        """Whether all calls so far failed, in words; None if one ended well, or there was none."""
        if self._calls or not self._errors:
            return None
        return self._words if self._refused is None else f"{self._words}: {self._refused}"

    def check(self) -> None:
        """Raises :class:`TargetError` if the server refused all calls so far: it would refuse all others."""
        if self.reason is not None and self._refused is not None and not self._others:
            raise TargetError(self.reason, "correct the calls, or grant the rights")
