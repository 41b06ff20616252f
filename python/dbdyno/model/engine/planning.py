"""The capability of an engine to explain how it would execute statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import polars as pl

    from dbdyno.model.plan.plan import PlannedScript


class Planning(Protocol):
    """Reads the shapes of execution plans."""

    def shapes(
        self, workload: str, params: Mapping[str, object], scripts: Sequence[PlannedScript]
    ) -> pl.DataFrame:
        """Returns the table ``script_plans`` with a plan of each statement of ``scripts``, or of the
        workload's own statements if there are no scripts. No statement is executed. Raises
        :class:`TargetError` if the connection is lost."""
