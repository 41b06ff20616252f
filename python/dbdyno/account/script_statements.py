"""Which of a script's commands is which statement of the server's counters. Pure.

The server keeps a statement's text with ``$1`` for what varies, a script has ``:name`` there: they are the
same where they agree but for variables, constants, names given with AS, comments, space and case. A statement
that several commands send is divided among them by how often each was executed.
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
"""They read nothing, and a server may leave them out of its counters."""
_CELL = [c.name for c in CELL]
_SCRIPT = [*_CELL, "script"]


def alike(text: str) -> str:
    """A statement as it is compared with others."""
    bare = _COMMENT.sub(" ", _STRING.sub("?", text)).lower()
    bare = " ".join(_VARYING.sub("?", bare).replace("(", " ( ").replace(")", " ) ").split())
    bare = _LIST.sub("?", _NAME.sub("as ?", bare)).rstrip("; ")
    return _ALIKE.get(bare, bare)


def script_statements(commands: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """From ``command_rates`` and ``statement_texts``: each command of SQL with the ids of its statements.

    Columns of a cell, ``script``, ``command``, ``executions``, ``statement`` (its text as compared),
    ``query_id`` (NULL: not among the texts) and ``part``, the share of that statement's executions.
    """
    sql = commands.filter(~pl.col("text").str.starts_with("\\") & (pl.col("executions") > 0))
    split = sql.select(*_CELL, "script", "command", "executions", statement="text").with_columns(
        pl.col("statement").map_elements(_each, pl.List(pl.String))
    )
    known = texts.drop_nulls("text").select(
        "query_id", statement=pl.col("text").map_elements(alike, pl.String)
    ).unique(maintain_order=True)  # fmt: skip
    found = split.explode("statement").join(known, on="statement", how="left", maintain_order="left")
    every = pl.col("executions").sum().over(*_CELL, "query_id")
    return found.with_columns(part=pl.col("executions") / every)


def _each(text: str) -> list[str]:
    return [s for part in _SEPARATOR.split(text) if (s := alike(part))]


@makes("script_rates", stage="end")
def with_work(tables: Tables) -> pl.DataFrame:
    """``script_rates`` with what the statements of a call read, and how many rows they returned or changed.

    NULL where a statement of the script is not among the counters.
    """
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
    # Several ids of one text are executed in turn: a command's execution is as likely of each as they are.
    same = joined.group_by(*_SCRIPT, "command", "statement").agg(
        pl.col("executions").first(), pl.col("calls", "rows", "lio").sum()
    )
    per = {f"{n}_per_call": pl.col("executions") * pl.col(n) / pl.col("calls") for n in ("lio", "rows")}
    whole = (pl.col("calls") > 0).all()
    work = same.group_by(_SCRIPT).agg(pl.when(whole).then(e.sum()).alias(n) for n, e in per.items())
    made = scripts.drop(per).join(work, on=_SCRIPT, how="left", maintain_order="left")
    return made.with_columns(
        pl.when(pl.col("calls") > 0).then(pl.col(n) / pl.col("calls")).alias(n) for n in per
    )
