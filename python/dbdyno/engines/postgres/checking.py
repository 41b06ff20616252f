"""Checks a workload's data: by queries that come with its scripts, and by comparing row counts with calls."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.script_halves import ScriptHalf, script_half, text_of
from dbdyno.engines.postgres.settings import Site
from dbdyno.model.engine.checking import Check

_UNKNOWN = r"^(08|57P|40003)"
"""SQLSTATEs of lost connections and ending servers, after which a transaction may or may not be committed."""
_BROKEN = ("lost", "aborted")


class Checks:
    """Implements :class:`dbdyno.model.engine.checking.Checking`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def counts(self, workload: str) -> Mapping[str, int] | None:
        half = script_half(workload)
        return None if half is None or not half.checks else self._counts(workload, half)

    def _counts(self, workload: str, half: ScriptHalf) -> dict[str, int]:
        if half.counts is None:
            return {}
        with doing(f"counting the rows of {workload}"), self._site.connection().patient():
            query = text_of(workload, half.counts)
            return dict(self._site.connection().execute(query.encode()).fetchall())

    def checks(
        self,
        workload: str,
        params: Mapping[str, object],
        before: Mapping[str, int],
        tables: Mapping[str, pl.DataFrame],
    ) -> list[Check]:
        half = script_half(workload)
        assert half is not None
        results = counted(before, self._counts(workload, half), tables)
        with doing(f"checking the data of {workload}"), self._site.connection().patient():
            for file in half.checks:
                query = _substitute(text_of(workload, file), params)
                for name, expected, is_now in self._site.connection().execute(query.encode()).fetchall():
                    results.append(Check(name, int(expected), int(expected), int(is_now)))
        return results


def _substitute(query: str, params: Mapping[str, object]) -> str:
    """Returns the query with values for parameters, written ``${name}``. Those of checks are integers."""
    for name, value in params.items():
        query = query.replace(f"${{{name}}}", str(value))
    return query


def counted(
    before: Mapping[str, int], after: Mapping[str, int], tables: Mapping[str, pl.DataFrame]
) -> list[Check]:
    """Compares commits by script with calls that ended well. Calls whose outcome is unknown may count or
    not."""
    scripts = tables["scripts"]
    ended: dict[str, int] = dict(
        scripts.group_by("name").agg((pl.col("calls") + pl.col("settle_calls")).sum()).rows()
    )
    known = scripts.select("script", "name").unique()
    doubtful = tables["script_errors"].filter(pl.col("sqlstate").str.contains(_UNKNOWN))
    doubtful_calls: dict[str, int] = dict(
        doubtful.join(known, on="script").group_by("name").agg(pl.col("count").sum()).rows()
    )
    broken = tables["sessions"].filter(pl.col("end_reason").is_in(_BROKEN)).height
    return [
        Check(
            f"committed calls of {name}",
            ended.get(name, 0),
            ended.get(name, 0) + doubtful_calls.get(name, 0) + broken,
            after.get(name, 0) - count,
        )
        for name, count in before.items()
    ]
