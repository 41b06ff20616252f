"""Groups of tasks that have accounts: each session, each rung (all its sessions), each kind of helper, and
each kind of unrelated process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from dbdyno.account.ledger.margins import TASKS
from dbdyno.model.results.brief import BRIEF, NAME
from dbdyno.model.sources.source import TRACE

SCOPES = ("session", "brief", "rung", "helper", "beside")
_BESIDE = ("other", "driver", "pooler", "dbdyno")
_OBSERVED = pl.col("samples").is_not_null() | pl.col("exact") | pl.col("ended")


@dataclass(frozen=True)
class Groups:
    """Groups and their tasks.

    ``table``: one row per group, with ``group``, ``cell``, ``scope``, ``session``, ``who``; ``total``, its
    wall time W in seconds per second of window; ``tasks``, their number; ``observed``, how many were sampled
    or traced, and ``unobserved``, the W of the others; ``hidden``, how many our role cannot see;
    ``stateless``, of how many it cannot see the state; and the names of sources.

    ``tasks``: one row per task and ``group``, with all columns of the task. A task may belong to several
    groups.
    """

    table: pl.DataFrame
    tasks: pl.DataFrame
    every: Groups | None = None
    """The groups of all scopes, of which these are some."""

    @cached_property
    def members(self) -> pl.DataFrame:
        """Columns ``task`` and ``group``."""
        return self.tasks.select("task", "group")

    @cached_property
    def crowds(self) -> pl.DataFrame:
        """Columns ``group`` and ``bunch`` of groups with several tasks."""
        several = self.tasks.filter(pl.len().over("group") > 1)
        return several.select("group", "bunch").unique(maintain_order=True)

    @cached_property
    def held(self) -> dict[Callable[..., Any], Any]:
        return {}

    @cached_property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that occur."""
        return tuple(s for s in SCOPES if (self.table["scope"] == s).any())

    def only(self, *scopes: str) -> Groups:
        """Returns the groups of these scopes; the same object for the same scopes."""
        every, wanted = self.every or self, tuple(s for s in self.scopes if s in scopes)
        if wanted == every.scopes:
            return every
        if wanted not in every.subsets:
            table = every.table.filter(pl.col("scope").is_in(wanted))
            tasks = every.tasks.join(table, on="group", how="semi", maintain_order="left")
            every.subsets[wanted] = Groups(table, tasks, every)
        return every.subsets[wanted]

    @cached_property
    def subsets(self) -> dict[tuple[str, ...], Groups]:
        """Cache of :meth:`only`."""
        return {}

    def where(self, condition: pl.Expr | str) -> Groups:
        """Returns the same groups with only the tasks that fulfil a condition."""
        return Groups(self.table, self.tasks.filter(condition))

    def summed(self, **figures: pl.Expr) -> pl.DataFrame:
        """Aggregates ``figures`` over the tasks of each group that has any."""
        return self.tasks.group_by("group", maintain_order=True).agg(**figures)

    def named(self, rows: pl.DataFrame, *columns: str, **renamed: pl.Expr | str) -> pl.DataFrame:
        """Returns ``rows`` with columns of their group's row in ``table``."""
        return rows.join(self.table.select("group", *columns, **renamed), on="group", maintain_order="left")


def groups(tasks: pl.DataFrame) -> Groups:
    """Returns sessions, rungs, helpers by role, and unrelated processes. Sessions too brief to be sampled
    are one group."""
    role, own = pl.col("role"), pl.col("role") == "session"
    helper = pl.when(role.str.starts_with("helper:")).then(role.str.strip_prefix("helper:"))
    beside = pl.when(role.is_in(_BESIDE)).then(role)
    one = tasks.select(
        "task",
        "cell",
        session=pl.when(own).then("session"),
        scope=pl.when(own)
        .then(pl.lit("session"))
        .when(role == BRIEF)
        .then(pl.lit("brief"))
        .when(helper.is_not_null())
        .then(pl.lit("helper"))
        .when(beside.is_not_null())
        .then(pl.lit("beside")),
        who=pl.when(own)
        .then(pl.lit("session"))
        .when(role == BRIEF)
        .then(pl.lit(NAME))
        .otherwise(pl.coalesce(helper, beside)),
    )
    whole_rung = one.filter(pl.col("scope").is_in(["session", "brief"])).with_columns(
        session=pl.lit(None, one.schema["session"]), scope=pl.lit("rung"), who=pl.lit("rung")
    )
    order = pl.col("scope").replace_strict({s: i for i, s in enumerate(SCOPES)})
    parts = pl.concat([one.drop_nulls("scope"), whole_rung]).sort(order, maintain_order=True)
    return _grouped(parts, tasks, ["cell", "scope", "session", "who"])


def each(tasks: pl.DataFrame) -> Groups:
    """Returns one group per task."""
    return _grouped(tasks.select("task", "cell", pid_of="task"), tasks, ["cell", "pid_of"])


def _grouped(parts: pl.DataFrame, tasks: pl.DataFrame, key: list[str]) -> Groups:
    names = parts.select(key).unique(maintain_order=True).with_row_index("group")
    members = parts.join(names, on=key, nulls_equal=True, maintain_order="left").select("task", "group")
    members_with_figures = members.join(tasks, on="task", maintain_order="left")
    sums = members_with_figures.group_by("group").agg(
        total=(pl.col("wall_ns") / pl.col("over_ns")).sum(),
        tasks=pl.len(),
        sampled=pl.col("samples").is_not_null().sum(),
        observed=_OBSERVED.sum(),
        stateless=pl.col("stateless").sum(),
        hidden=pl.col("hidden").sum(),
        unobserved=(pl.col("wall_ns") / pl.col("over_ns")).filter(~_OBSERVED).sum(),
        known=pl.col("known").sum(),
        whole=(_OBSERVED & (pl.col("known") | pl.col("word"))).sum(),
        why=pl.col("status").filter(~pl.col("known")).min(),
        sampled_source=_joined_names(pl.col("wait_source").filter(~pl.col("exact"))),
        raw_source=_joined_names(pl.col("raw_source")),
        wait_source=_joined_names(pl.col("wait_source")),
        cpu_source=_joined_names(pl.when("traced").then(pl.lit(TRACE)).otherwise(pl.lit(TASKS))),
    )
    return Groups(names.join(sums, on="group", maintain_order="left"), members_with_figures)


def _joined_names(sources: pl.Expr) -> pl.Expr:
    words = sources.drop_nulls().unique().sort().str.join("; ")
    return pl.when(words != "").then(words)
