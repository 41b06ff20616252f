"""Labels and expressions of the derived CPU profile: tables ``cpu_profile`` and ``cpu_stacks``."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.results.session_time import wait_label

KERNEL, UNKNOWN = "kernel", "unknown"
NOT_SAMPLED, OTHERS = "not sampled", "others"
NO_STATEMENT = "no statement"
WAIT = "wait"
"""The module name of a wait event, which is the first frame of an off-CPU stack."""
LABELS = ("wait", "statement")
"""Labels of a sample's task: columns of ``cpu_stacks`` and kinds of rows of ``cpu_profile``."""


def labels() -> dict[str, pl.Expr]:
    """Returns the expressions for ``class/event`` and the query id of a sample, by the names of
    :data:`LABELS`."""
    why = pl.format("label unknown: {}", "label_status")
    status = pl.col("query_status").fill_null("not read")
    id = pl.col("query_id").cast(pl.String).fill_null(NO_STATEMENT)
    return {
        "wait": pl.when(pl.col("label_status") != "ok").then(why).otherwise(wait_label()),
        "statement": pl.when(status != "ok").then(pl.format("statement unknown: {}", status)).otherwise(id),
    }


def frame_text() -> pl.Expr:
    """Returns the expression for a stack frame, made of ``module`` and ``name``."""
    return pl.concat_str(as_text(pl.col("module")), as_text(pl.col("name")), separator="`")


def as_text(name: pl.Expr) -> pl.Expr:
    """Replaces characters that separate frames in the text of a stack."""
    return name.str.replace_all(r"[;\r\n]", ":").str.replace_all("`", "'")


class Frame(NamedTuple):
    """A frame parsed from the text of a stack."""

    module: str
    function: str


def frame_of(text: str) -> Frame:
    module, _, function = text.partition("`")
    return Frame(module, function or module)
