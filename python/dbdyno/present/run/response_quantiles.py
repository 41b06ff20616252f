"""Quantiles of response times: by load, and each with its interval."""

from __future__ import annotations

from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.response_quantiles import REPEATS, SECONDS
from dbdyno.model.schema.quantiles import QUANTILES
from dbdyno.model.text.nouns import fill, noun
from dbdyno.model.units import format_given, format_ns
from dbdyno.present.document.document import Block, Column, figure_cell, numeric, remarks, table, word
from dbdyno.present.figures import figures, tails
from dbdyno.present.figures.selection import Pick, rows_of
from dbdyno.present.figures.sources_used import in_words

_COVERS = {
    REPEATS: "Intervals are 95 %, over repeats.",
    SECONDS: "Intervals are 95 %, of chance within the window only: repeats may differ by more.",
}


def by_load(results: Results) -> list[Block]:
    """Returns a table for each series: a row for each load, a column for each quantile."""
    series, load = figures.series_of(results), figures.load_of(results)
    head = noun("at_once") if load == figures.SESSIONS else "due/s"
    columns = (
        (numeric(head), figure_cell(load.column, format_given)),
        (numeric("{~calls}", 2), figure_cell("calls", "{:,.0f}".format)),
        *((numeric(q.name), figure_cell(q.response, format_ns, "ns")) for q in QUANTILES),
        (numeric("max", 1), figure_cell("response_max_ns", format_ns, "ns")),
    )
    blocks = list[Block]()
    for one in series:
        rungs = figures.ladder(results, one)
        shown = table(one.label if len(series) > 1 else "", columns, rungs.to_dicts(), along_axis=True)
        blocks += tails.with_reason(shown, numbers=rungs["calls"].drop_nulls())
    return blocks


def intervals(results: Results, pick: Pick) -> list[Block]:
    """Returns the quantiles of a load or a measurement with their intervals."""
    rows = rows_of(results, "response_quantiles", pick).to_dicts()
    if not rows:
        return []
    columns = (
        (Column("quantile"), lambda r: word(r["quantile"])),
        (numeric("{~response_time}"), figure_cell("value_ns", format_ns, "ns")),
        (numeric("95 % from"), figure_cell("low_ns", format_ns, "ns")),
        (numeric("to"), figure_cell("high_ns", format_ns, "ns")),
        (numeric("{~calls} above it"), figure_cell("above", "{:,.0f}".format)),
    )
    covers = dict.fromkeys(_COVERS[r["basis"]] for r in rows if r["basis"])
    reasons: dict[str, list[str]] = {}
    for r in rows:
        if r["basis"] is None and r["value_ns"] is not None:
            reasons.setdefault(r["reason"] or "unknown", []).append(r["quantile"])
    why = [f"No interval of {', '.join(names)}: {in_words(reason)}." for reason, names in reasons.items()]
    title = fill("Quantiles of {~response_time} ") + pick.at
    return [table(title, columns, rows), *remarks([*covers, *why])]
