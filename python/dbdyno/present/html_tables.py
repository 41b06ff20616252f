"""The parts of the page that are tables: rungs, methods and sources, witnesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dbdyno.model.results import Results
from dbdyno.model.units import format_ns, format_rate, significant
from dbdyno.present import accounts, figures, missing_values
from dbdyno.present import methods as method_texts
from dbdyno.present.figures import Series
from dbdyno.present.markup import Content, Html, el, join, table
from dbdyno.present.palette import var

Cell = Callable[[dict[str, Any]], Content]
_UNKNOWN = el("span", figures.UNKNOWN, class_="unknown", title="unknown: see the footnotes")
_ALL = "Per rung; the table scrolls sideways"
_PARTS = ("run", "runq", "sleep", "client", "pool_queue", "unaccounted")


def _value(column: str, text: Callable[[Any], str]) -> Cell:
    return lambda row: _UNKNOWN if row[column] is None else text(row[column])


def _share(column: str) -> Cell:
    return lambda row: (
        _UNKNOWN if row[column] is None else f"{figures.percent(row[column], row['sessions'])} %"
    )


def _rate(row: dict[str, Any]) -> Content:
    if row["calls_per_s"] is None:
        return _UNKNOWN
    half = figures.half_width(row)
    return format_rate(row["calls_per_s"]) + ("" if half is None else f" ± {100 * half:.1f} %")


def _columns(work: str) -> list[tuple[str, str, Cell]]:
    """Name in table rungs, heading, cell."""
    percent = figures.percent
    return [
        ("sessions", "sessions", lambda r: str(r["sessions"])),
        ("calls_per_s", "calls/s", _rate),
        ("work_per_s", f"{work}/s", _value("work_per_s", format_rate)),
        ("scaling", "scaling", _value("scaling", lambda v: f"{percent(v)} %")),
        *(
            (f"response_{s}_ns", s, _value(f"response_{s}_ns", format_ns))
            for s in ("mean", "p50", "p95", "p99")
        ),
        ("", "session time", _bar),
        ("run_aas", "CPU", _share("run_aas")),
        ("runq_aas", "CPU WAIT", _share("runq_aas")),
        ("sleep_aas", "sleep", _share("sleep_aas")),
        ("client_aas", "client", _share("client_aas")),
        ("pool_queue_aas", "pool queue", _share("pool_queue_aas")),
        ("unaccounted_aas", "unacc.", _share("unaccounted_aas")),
        ("top_wait", "top wait", lambda r: r["top_wait"] or ""),
        ("cpu_per_call_ns", "CPU/call", _value("cpu_per_call_ns", format_ns)),
        ("cpu_per_work_ns", f"CPU/{work}", _value("cpu_per_work_ns", format_ns)),
        ("helpers_aas", "helpers, CPUs", _value("helpers_aas", significant)),
        ("driver_cpus", "driver, CPUs", _value("driver_cpus", significant)),
        ("driver_starved", "driver starved", _value("driver_starved", lambda v: f"{percent(v, digits=1)} %")),
        ("errors", "errors", lambda r: f"{r['errors']:,}"),
        ("status", "status", lambda r: r["status"]),
    ]


def rungs(results: Results) -> Html:
    """One table a series; footnotes say why a figure is unknown."""
    series = figures.series_of(results)
    if not series:
        return el("p", "No rung was measured.", class_="muted")
    tables = [_rungs(results, s, named=len(series) > 1) for s in series]
    return join(*tables, *_footnotes(results))


def _rungs(results: Results, series: Series, *, named: bool) -> Html:
    ladder = figures.ladder(results, series)
    rows = ladder.to_dicts()
    columns = _columns(figures.work_short(results, series.workload))
    columns = [c for c in columns if c[0] != "pool_queue_aas" or figures.has_pool(ladder)]
    numeric = [name not in ("", "top_wait", "status") for name, _, _ in columns]
    cells = [[cell(r) for _, _, cell in columns] for r in rows]
    made = table(f"Rungs of {series.label}" if named else _ALL, [h for _, h, _ in columns], cells, numeric)
    return join(made, *_throttled(results, series))


def _bar(row: dict[str, Any]) -> Content:
    """The shares as a strip of colours; unknown parts stay empty."""
    parts = []
    for name in _PARTS:
        value = row.get(f"{name}_aas")
        if value is not None and value > 0:
            colour = var("sleep-3" if name == "sleep" else name.replace("_", "-"))
            parts.append(el("i", style=f"width:{100 * value / row['sessions']:.1f}%;background:{colour}"))
    return el("span", *parts, class_="bar", aria_hidden="true")


def _throttled(results: Results, series: Series) -> Iterator[Html]:
    found = accounts.throttled(results, series)
    if found:
        words = ", ".join(f"{bracket} at {n} sessions" for n, bracket in sorted(found.items()))
        yield el(
            "p",
            f"Throttled by a CPU limit, in s per second, inside CPU WAIT (a bracket, never added): {words}.",
            class_="foot",
        )


def _footnotes(results: Results) -> Iterator[Html]:
    yield el(
        "p",
        "CPU to unacc.: shares of session time, unacc. signed. Scaling: of perfect scaling.",
        class_="foot",
    )
    heads = {name: head for name, head, _ in _columns("work unit") if name}
    for (why, cure), names in missing_values.grouped(missing_values.reasons(results, tuple(heads))).items():
        columns = ", ".join(heads[n] for n in names if n != "top_wait")
        if columns:
            yield el(
                "p", _UNKNOWN, f" {columns}: {why}.", f" {sentence(cure)}" if cure else "", class_="foot"
            )


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def methods(results: Results) -> Html:
    """Formula, witness and status of each figure; then all sources."""
    rows: list[list[Content]] = [
        [m.figure, m.formula, ", ".join(m.sources) or "none", m.status] for m in method_texts.of(results)
    ]
    figures_table = table("Figures", ["figure", "how it is obtained", "source in this run", "status"], rows)
    sources: list[list[Content]] = [
        [r["name"], el("code", r["provenance"]), r["status"], r["detail"]]
        for r in results.tables["sources"].unique(maintain_order=True).to_dicts()
    ]
    heads = ["source", "what it reads", "status", "why not, and the cure"]
    return join(figures_table, table("Sources", heads, sources))
