"""Whom the accounts are of: each session, each rung (all its sessions), each kind of helper, others."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dbdyno.account.ledger.margins import TASKS
from dbdyno.account.ledger.sample_rows import ASKED, READ, WORD_ALONE
from dbdyno.model.brief import BRIEF, NAME
from dbdyno.model.source import TRACE

SCOPES = ("session", "brief", "rung", "helper", "beside")
_BESIDE = ("other", "driver", "pooler", "dbdyno")
_OBSERVED = pl.col("samples").is_not_null() | pl.col("exact")


@dataclass(frozen=True)
class Groups:
    """``table``: one row a group (``group``, ``cell``, ``scope``, ``session``, ``who``, ``total``: its W
    over the window, ``tasks``, how many of them were ``heard`` (sampled or traced) and the W of the others,
    how many are ``hidden`` from our role, or (``stateless``) their states alone, sources in words).
    ``members``: ``group`` of each ``task``, which may have several."""

    table: pl.DataFrame
    members: pl.DataFrame

    def only(self, *scopes: str) -> Groups:
        """The groups of these scopes."""
        table = self.table.filter(pl.col("scope").is_in(scopes))
        return Groups(table, self.members.join(table.select("group"), on="group", how="semi"))


def groups(tasks: pl.DataFrame) -> Groups:
    """Sessions (those too brief to be sampled as one), rungs, helpers by role, and who is beside."""
    role = pl.col("role")
    own = tasks.filter(role == "session")
    brief = tasks.filter(role == BRIEF)
    helper = tasks.filter(role.str.starts_with("helper:"))
    beside = tasks.filter(role.is_in(_BESIDE))
    none = pl.lit(None, dtype=pl.Int64)
    parts = [
        own.select("task", "cell", "session", scope=pl.lit("session"), who=pl.lit("session")),
        brief.select("task", "cell", session=none, scope=pl.lit("brief"), who=pl.lit(NAME)),
        pl.concat([own, brief]).select(
            "task", "cell", session=none, scope=pl.lit("rung"), who=pl.lit("rung")
        ),
        helper.select(
            "task", "cell", session=none, scope=pl.lit("helper"), who=role.str.strip_prefix("helper:")
        ),
        beside.select("task", "cell", session=none, scope=pl.lit("beside"), who=role),
    ]
    return _grouped(pl.concat(parts), tasks, ["cell", "scope", "session", "who"])


def each(tasks: pl.DataFrame) -> Groups:
    """Every task for itself."""
    return _grouped(tasks.select("task", "cell", pid_of="task"), tasks, ["cell", "pid_of"])


def _grouped(parts: pl.DataFrame, tasks: pl.DataFrame, key: list[str]) -> Groups:
    names = parts.select(key).unique(maintain_order=True).with_row_index("group")
    members = parts.join(names, on=key, nulls_equal=True, maintain_order="left").select("task", "group")
    table = members.join(tasks.with_columns(*_source()), on="task", maintain_order="left")
    sums = table.group_by("group").agg(
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
    return Groups(names.join(sums, on="group", maintain_order="left"), members)


def _words(sources: pl.Expr) -> pl.Expr:
    words = sources.drop_nulls().unique().sort().str.join("; ")
    return pl.when(words != "").then(words)


def _source() -> list[pl.Expr]:
    seen = pl.col("samples").is_not_null()
    sampler = pl.when(pl.col("via") == "memory").then(pl.lit(READ)).otherwise(pl.lit(ASKED))
    raked = (
        pl.when("exact")
        .then(pl.lit(TRACE))
        .when(pl.col("samples").is_null())
        .then(None)
        .when("word")
        .then(pl.lit(WORD_ALONE))
        .when("known")
        .then(pl.concat_str(sampler, pl.lit(", raked")))
        .otherwise(sampler)
    )
    raw = pl.when("word").then(pl.lit(WORD_ALONE)).otherwise(sampler)
    return [raked.alias("wait_source"), pl.when(seen).then(raw).alias("raw_source")]
