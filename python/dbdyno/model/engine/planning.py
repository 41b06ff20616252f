"""What an engine can do that shows how it would execute statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import polars as pl

    from dbdyno.model.plan.plan import PlannedScript


class Planning(Protocol):
    """Shapes of execution plans."""

    def shapes(
        self, workload: str, params: Mapping[str, object], scripts: Sequence[PlannedScript]
    ) -> pl.DataFrame:
        """Table ``script_plans``: of each statement of ``scripts``, or where there are none of the workload's
        own. Nothing is executed. Raises :class:`TargetError` where the server is lost."""
