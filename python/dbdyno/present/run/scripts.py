"""Shows calls by script and the statements of each: time, failures, retries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.nouns import noun
from dbdyno.model.text.visible import visible
from dbdyno.model.units import counted, format_count, format_ns, format_rate
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    Paragraph,
    figure_cell,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures import tails
from dbdyno.present.figures.figures import percent
from dbdyno.present.figures.selection import Pick, pick_of, rows_of
from dbdyno.present.run.sizes import by_size

_SHORT = 80
"""Most characters of a command in a line."""
_Row = dict[str, Any]


def brief(results: Results) -> list[Block]:
    """Returns calls by script at the highest load, if there are several scripts or retries; for a
    terminal."""
    rows = results.tables.get("script_rates", empty("script_rates"))
    pick = pick_of(results, None)
    more = rows["script"].n_unique() > 1 or bool(rows["retries"].sum())
    return by_script(results, pick, sizes=False) if more and pick is not None else []


def by_script(results: Results, pick: Pick, *, sizes: bool = True) -> list[Block]:
    """Returns one row per script, and why calls failed; with ``sizes`` also a table by size of the data."""
    rows = rows_of(results, "script_rates", pick).sort("script").to_dicts()
    if not rows:
        return [Paragraph(f"No {noun('calls')} of scripts {pick.at}.", "muted")]
    failures = rows_of(results, "script_failures", pick)
    retried = any(r["retries"] for r in rows)
    kept = [(c, cell) for c, cell in _SCRIPT if c.head not in _OPTIONAL or retried]
    shown = table(f"By script {pick.at}", kept, rows)
    return [
        *tails.with_reason(shown),
        *remarks(_failed(failures)),
        *(by_size(results, pick) if sizes else []),
    ]


def by_command(results: Results, pick: Pick) -> list[Block]:
    """Returns one table per script with a row per command."""
    frame = rows_of(results, "command_rates", pick)
    tables: list[Block] = []
    for name in frame["name"].unique(maintain_order=True):
        rows = frame.filter(pl.col("name") == name).sort("command").to_dicts()
        tables.append(table(f"By statement of {visible(name)} {pick.at}", _COMMAND, rows))
    untimed = frame.height and frame["total_ns"].null_count()
    note = "A command without a time does not wait: what it took is part of the next one that does."
    return [*tables, *remarks([note] if untimed else [])]


def _failed(failures: pl.DataFrame) -> list[str]:
    """Returns one sentence per script and error code."""
    return [
        f"{visible(r['name'])}: {counted(r['count'], 'call')} failed, warm-up included ({_KINDS[r['kind']]}"
        f"{visible(r['code'])}: {visible(r['message'].split(chr(10), 1)[0])})."
        for r in failures.sort("script", "count", descending=[False, True]).to_dicts()
    ]


_KINDS = {"serialization": "serialization failure, ", "deadlock": "deadlock, ", "other": ""}


def _share(name: str) -> Callable[[_Row], Cell]:
    def cell(row: _Row) -> Cell:
        bar = ((min(1.0, row[name] or 0.0), "accent"),)
        return known(row[name], lambda v: percent(v, digits=1))._replace(bar=bar)

    return cell


def _retried(row: _Row) -> float | None:
    calls = row["calls"] + row["errors"]
    return row["retried"] / calls if calls else None


def _waited(name: str) -> Callable[[_Row], Cell]:
    return lambda r: Cell("-") if r["total_ns"] is None else known(r[name], format_ns, "ns")


def _command(row: _Row) -> Cell:
    text = visible(" ".join(row["text"].split()))
    return word(text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}...", visible(row["text"]))


_OPTIONAL = ("retried", "retries")
_SCRIPT = (
    (Column("script", shortens=True), lambda r: word(visible(r["name"]))),
    (numeric("weight", 6), figure_cell("weight", format_count)),
    (numeric("{~calls}"), figure_cell("calls", format_count)),
    (numeric("% of {~calls}", 5), _share("calls_share")),
    (numeric("% of time"), _share("time_share")),
    (numeric("{~calls}/s"), figure_cell("calls_per_s", format_rate, "1/s")),
    (numeric("mean"), figure_cell("mean_ns", format_ns, "ns")),
    (numeric("p50", 4), figure_cell("p50_ns", format_ns, "ns")),
    (numeric("p95"), figure_cell("p95_ns", format_ns, "ns")),
    (numeric("p99"), figure_cell("p99_ns", format_ns, "ns")),
    (numeric("p99.9", 7), figure_cell("p999_ns", format_ns, "ns")),
    (numeric("p99.99", 8), figure_cell("p9999_ns", format_ns, "ns")),
    (numeric("failed", 2), figure_cell("errors", format_count)),
    (numeric("retried", 2), lambda r: known(_retried(r), lambda v: f"{percent(v, digits=1)} %")),
    (numeric("retries", 3), figure_cell("retries", format_count)),
)
_COMMAND = (
    (numeric("line", 3), figure_cell("line", format_count)),
    (Column("command", shortens=True), _command),
    (numeric("executions", 2), figure_cell("executions", format_count)),
    (numeric("mean"), _waited("mean_ns")),
    (numeric("max", 3), _waited("max_ns")),
    (numeric("% of time"), lambda r: Cell("-") if r["total_ns"] is None else _share("time_share")(r)),
    (numeric("failures", 1), figure_cell("failures", format_count)),
    (numeric("retries", 1), figure_cell("retries", format_count)),
)
