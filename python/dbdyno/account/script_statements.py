"""Matches a script's commands with the statements of the server's counters. Pure.

The server keeps a statement's text with ``$1`` in place of constants, a script has ``:name`` there. Two
texts match if they are equal but for variables, constants, names after AS, comments, space and case. A
statement that several commands send is divided among them by their numbers of executions.
"""

from __future__ import annotations

import re

import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.statements import LIO
from dbdyno.model.schema.tables import Tables

_SEPARATOR = re.compile(r"\\;")
_COMMENT = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_STRING = re.compile(r"\b[eExXbB]?'(?:[^']|'')*'|'(?:[^']|'')*'")
_VARYING = re.compile(r"(?<![:\w]):\w+|\$\d+|(?<![\w.])\d+(?:\.\d*)?(?:e[+-]?\d+)?\b|(?<![\w.])\.\d+\b")
_NAME = re.compile(r"\bas \w+")
_LIST = re.compile(r"\?(?: ?, ?\?)+")
_ALIKE = {"end": "commit", "end transaction": "commit", "commit transaction": "commit"}
TRANSACTION = ("begin", "start transaction", "commit", "rollback")
"""Statements that read nothing, and that a server may leave out of its counters."""
_CELL = [c.name for c in CELL]
_SCRIPT = [*_CELL, "script"]


def normalised(text: str) -> str:
    """Normalises a statement's text for comparison with others."""
    # Strings go first, as comment marks inside of them are text.
    bare = _COMMENT.sub(" ", _STRING.sub("?", text)).lower()
    bare = " ".join(_VARYING.sub("?", bare).replace("(", " ( ").replace(")", " ) ").split())
    bare = _LIST.sub("?", _NAME.sub("as ?", bare)).rstrip("; ")
    return _ALIKE.get(bare, bare)


def script_statements(commands: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """Returns each SQL command with the ids of its statements, from ``command_rates`` and
    ``statement_texts``.

    Columns of a cell, ``script``, ``command``, ``executions``, ``statement`` (its normalised text),
    ``query_id`` (NULL if no text matches) and ``part``, its share of that statement's executions.
    """
    sql = commands.filter(~pl.col("text").str.starts_with("\\") & (pl.col("executions") > 0))
    split = sql.select(*_CELL, "script", "command", "executions", statement="text").with_columns(
        pl.col("statement").map_elements(_normalised_parts, pl.List(pl.String))
    )
    known = (
        texts.drop_nulls("text")
        .select("query_id", statement=pl.col("text").map_elements(normalised, pl.String))
        .unique(maintain_order=True)
    )
    matched = split.explode("statement").join(known, on="statement", how="left", maintain_order="left")
    every = pl.col("executions").sum().over(*_CELL, "query_id")
    return matched.with_columns(part=pl.col("executions") / every)


def _normalised_parts(text: str) -> list[str]:
    return [s for part in _SEPARATOR.split(text) if (s := normalised(part))]


@makes("script_rates", stage="end")
def with_work(tables: Tables) -> pl.DataFrame:
    """Returns ``script_rates`` with blocks read and rows returned or changed per call. Both are NULL if a
    statement of the script has no counters."""
    scripts = tables["script_rates"]
    commands = script_statements(tables["command_rates"], tables["statement_texts"])
    if commands.is_empty():
        return scripts
    commands = commands.filter(~pl.col("statement").is_in(TRANSACTION))
    counted = tables["statements"].filter(
        "toplevel", pl.col("query_id").is_not_null() & (pl.col("calls") > 0)
    )
    counted = counted.group_by(*_CELL, "query_id").agg(
        *(pl.col(n).sum() for n in ("calls", "rows")), lio=pl.sum_horizontal(LIO).sum()
    )
    joined = commands.join(counted, on=[*_CELL, "query_id"], how="left")
    # If a text has several ids, a command's execution belongs to each with the frequency of that id.
    same = joined.group_by(*_SCRIPT, "command", "statement").agg(
        pl.col("executions").first(), pl.col("calls", "rows", "lio").sum()
    )
    per = {f"{n}_per_call": pl.col("executions") * pl.col(n) / pl.col("calls") for n in ("lio", "rows")}
    whole = (pl.col("calls") > 0).all()
    work = same.group_by(_SCRIPT).agg(pl.when(whole).then(e.sum()).alias(n) for n, e in per.items())
    with_sums = scripts.drop(per).join(work, on=_SCRIPT, how="left", maintain_order="left")
    return with_sums.with_columns(
        pl.when(pl.col("calls") > 0).then(pl.col(n) / pl.col("calls")).alias(n) for n in per
    )
