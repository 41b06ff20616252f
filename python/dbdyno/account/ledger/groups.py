"""Groups of tasks that accounts are made for: each session, each rung (all its sessions), each kind of
helper, others."""

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
    """``table``: one row a group (``group``, ``cell``, ``scope``, ``session``, ``who``, ``total``: its W
    over the window, ``tasks``, how many of them were ``heard`` (sampled or traced) and the W of the others,
    how many are ``hidden`` from our role, or (``stateless``) their states alone, sources in words).
    ``tasks``: ``group`` of each task, which may have several, beside all that is known of the task."""

    table: pl.DataFrame
    tasks: pl.DataFrame
    every: Groups | None = None
    """Those that these are some scopes of."""

    @cached_property
    def members(self) -> pl.DataFrame:
        """``task``, ``group``."""
        return self.tasks.select("task", "group")

    @cached_property
    def crowds(self) -> pl.DataFrame:
        """``group``, ``bunch``: those of groups of several tasks."""
        several = self.tasks.filter(pl.len().over("group") > 1)
        return several.select("group", "bunch").unique(maintain_order=True)

    @cached_property
    def held(self) -> dict[Callable[..., Any], Any]:
        return {}

    @cached_property
    def scopes(self) -> tuple[str, ...]:
        """Those that there are."""
        return tuple(s for s in SCOPES if (self.table["scope"] == s).any())

    def only(self, *scopes: str) -> Groups:
        """The groups of these scopes; asked for the same ones, the same."""
        every, mine = self.every or self, tuple(s for s in self.scopes if s in scopes)
        if mine == every.scopes:
            return every
        if mine not in every.subsets:
            table = every.table.filter(pl.col("scope").is_in(mine))
            tasks = every.tasks.join(table, on="group", how="semi", maintain_order="left")
            every.subsets[mine] = Groups(table, tasks, every)
        return every.subsets[mine]

    @cached_property
    def subsets(self) -> dict[tuple[str, ...], Groups]:
        """What :meth:`only` gave."""
        return {}

    def where(self, mine: pl.Expr | str) -> Groups:
        """The same groups without the other tasks."""
        return Groups(self.table, self.tasks.filter(mine))

    def summed(self, **figures: pl.Expr) -> pl.DataFrame:
        """Per group that has tasks ``figures`` of these."""
        return self.tasks.group_by("group", maintain_order=True).agg(**figures)

    def named(self, rows: pl.DataFrame, *columns: str, **renamed: pl.Expr | str) -> pl.DataFrame:
        """``rows`` with columns of their group's row in ``table``."""
        return rows.join(self.table.select("group", *columns, **renamed), on="group", maintain_order="left")


def groups(tasks: pl.DataFrame) -> Groups:
    """Sessions (those too brief to be sampled as one), rungs, helpers by role, and who is beside."""
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
        who=pl.when(own).then(pl.lit("session")).when(role == BRIEF).then(pl.lit(NAME)).otherwise(
            pl.coalesce(helper, beside)
        ),
    )  # fmt: skip
    all_of_rung = one.filter(pl.col("scope").is_in(["session", "brief"])).with_columns(
        session=pl.lit(None, one.schema["session"]), scope=pl.lit("rung"), who=pl.lit("rung")
    )
    order = pl.col("scope").replace_strict({s: i for i, s in enumerate(SCOPES)})
    parts = pl.concat([one.drop_nulls("scope"), all_of_rung]).sort(order, maintain_order=True)
    return _grouped(parts, tasks, ["cell", "scope", "session", "who"])


def each(tasks: pl.DataFrame) -> Groups:
    """Every task for itself."""
    return _grouped(tasks.select("task", "cell", pid_of="task"), tasks, ["cell", "pid_of"])


def _grouped(parts: pl.DataFrame, tasks: pl.DataFrame, key: list[str]) -> Groups:
    names = parts.select(key).unique(maintain_order=True).with_row_index("group")
    members = parts.join(names, on=key, nulls_equal=True, maintain_order="left").select("task", "group")
    mine = members.join(tasks, on="task", maintain_order="left")
    sums = mine.group_by("group").agg(
        total=(pl.col("wall_ns") / pl.col("over_ns")).sum(),
        tasks=pl.len(),
        sampled=pl.col("samples").is_not_null().sum(),
        heard=_OBSERVED.sum(),
        stateless=pl.col("stateless").sum(),
        hidden=pl.col("hidden").sum(),
        unheard=(pl.col("wall_ns") / pl.col("over_ns")).filter(~_OBSERVED).sum(),
        known=pl.col("known").sum(),
        whole=(_OBSERVED & (pl.col("known") | pl.col("word"))).sum(),
        why=pl.col("status").filter(~pl.col("known")).min(),
        sampled_source=_words(pl.col("wait_source").filter(~pl.col("exact"))),
        raw_source=_words(pl.col("raw_source")),
        wait_source=_words(pl.col("wait_source")),
        cpu_source=_words(pl.when("traced").then(pl.lit(TRACE)).otherwise(pl.lit(TASKS))),
    )
    return Groups(names.join(sums, on="group", maintain_order="left"), mine)


def _words(sources: pl.Expr) -> pl.Expr:
    words = sources.drop_nulls().unique().sort().str.join("; ")
    return pl.when(words != "").then(words)
