"""The report on a terminal: text of fixed width, so that a rung's line can be printed while climbing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from dbdyno.model.claim import Claim
from dbdyno.model.results import Results
from dbdyno.model.visible import one_line
from dbdyno.present import (
    compare,
    headline,
    missing_values,
    placement,
    scaling_document,
    sources_used,
    terminal_tables,
)
from dbdyno.present.figures import (
    UNKNOWN,
    cpus_text,
    half_width,
    has_pool,
    is_observation,
    ladder,
    percent,
    series_of,
    short_ns,
    short_number,
    work_short,
)
from dbdyno.present.media.text import Printed
from dbdyno.present.selection import pick_of

PROCESSES = 12
"""So many rows of each kind of process at the end of an observation."""

_FIRST_TO_GO = (
    "errors", "unaccounted_aas", "scaling", "pool_queue_aas", "client_aas", "response_mean_ns", "sleep_aas",
    "run_aas", "response_p95_ns", "runq_aas",
)  # fmt: skip
"""Columns that terminals of less than 80 columns lack, the first first: a figure is never cut."""

Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column of the rung table."""

    name: str  # of table rungs
    head: str
    width: int
    rank: int  # 0 always shown; the highest goes first where the line is too long
    text: Callable[[Row], str]


def _share(name: str) -> Callable[[Row], str]:
    return lambda row: percent(row.get(name), row.get("sessions"))


def _ns(name: str) -> Callable[[Row], str]:
    return lambda row: short_ns(row.get(name))


def _interval(row: Row) -> str:
    half = half_width({k: row.get(k) for k in ("calls_per_s", "calls_per_s_low", "calls_per_s_high")})
    return "" if half is None else f"{100 * half:.1f}%"


def all_columns(work: str) -> tuple[Column, ...]:
    """Every column; ``work`` is the short name of the work unit."""
    return (
        Column("sessions", "sess", 4, 0, lambda r: str(r["sessions"])),
        Column("calls_per_s", "calls/s", 7, 0, lambda r: short_number(r.get("calls_per_s"))),
        Column("calls_per_s_low", "±95%", 5, 2, _interval),
        Column("work_per_s", f"{work}/s"[:8], 8, 3, lambda r: short_number(r.get("work_per_s"))),
        Column("scaling", "eff%", 5, 0, lambda r: percent(r.get("scaling"))),
        Column("response_mean_ns", "mean", 6, 0, _ns("response_mean_ns")),
        Column("response_p50_ns", "p50", 6, 5, _ns("response_p50_ns")),
        Column("response_p95_ns", "p95", 6, 0, _ns("response_p95_ns")),
        Column("response_p99_ns", "p99", 6, 4, _ns("response_p99_ns")),
        Column("run_aas", "CPU%", 4, 0, _share("run_aas")),
        Column("runq_aas", "WAIT%", 5, 0, _share("runq_aas")),
        Column("sleep_aas", "sleep%", 6, 0, _share("sleep_aas")),
        Column("client_aas", "clnt%", 5, 0, _share("client_aas")),
        Column("pool_queue_aas", "pool%", 5, 0, _share("pool_queue_aas")),
        Column("unaccounted_aas", "unac%", 5, 0, _share("unaccounted_aas")),
        Column("errors", "err", 4, 0, lambda r: short_number(r.get("errors"))),
        Column("top_wait", "top wait", 12, 1, lambda r: str(r.get("top_wait") or "")),
    )


def columns(
    width: int, work: str = "work", *, repeats: bool = False, errors: bool = False, pooled: bool = False
) -> tuple[Column, ...]:
    """The columns that fit into ``width`` characters; ``repeats``: with intervals; ``pooled``: with queue."""
    asked = {"calls_per_s_low": repeats, "errors": errors, "pool_queue_aas": pooled}
    chosen = [c for c in all_columns(work) if asked.get(c.name, True)]
    while _line_width(chosen) > width and any(c.rank for c in chosen):
        chosen.remove(max(chosen, key=lambda c: c.rank))
    for name in _FIRST_TO_GO:
        if _line_width(chosen) > width:
            chosen = [c for c in chosen if c.name != name]
    spare = max(0, min(width, 120) - _line_width(chosen))
    return tuple(c._replace(width=c.width + spare) if c.name == "top_wait" else c for c in chosen)


def rung_header(chosen: Sequence[Column]) -> Text:
    """The table's heading, one line."""
    return Text(_join(chosen, [c.head for c in chosen]), style="bold", no_wrap=True, overflow="crop")


def rung_row(row: Row, chosen: Sequence[Column]) -> Text:
    """One rung as one line. ``row``: columns of table ``rungs``; what is absent or NULL shows as ``?``."""
    status = str(row.get("status"))
    cells = ["invalid" if c.name == "top_wait" and status == "invalid" else c.text(row) for c in chosen]
    style = {"invalid": "red", "short": "yellow"}.get(status, "")
    return Text(_join(chosen, cells), style=style, no_wrap=True, overflow="crop")


def rung_table(results: Results, width: int = 100) -> RenderableType:
    """A block for each series, then footnotes: what the columns mean, and why a figure is unknown."""
    series = series_of(results)
    lines: list[RenderableType] = []
    shown: dict[str, Column] = {}
    for one in series:
        frame = ladder(results, one)
        work = work_short(results, one.workload)
        chosen = columns(
            width,
            work,
            repeats=_any(frame["repeats"] > 1),
            errors=_any(frame["errors"] > 0),
            pooled=has_pool(frame),
        )
        shown.update({c.name: c for c in chosen})
        if len(series) > 1:
            lines.append(Text(one.label, style="bold underline"))
        lines += [rung_header(chosen), *(rung_row(row, chosen) for row in frame.to_dicts())]
    return Group(*lines, *_footnotes(results, shown))


def findings_text(findings: Sequence[Claim]) -> RenderableType:
    """One finding a paragraph, the gravest first."""
    marks = {"invalid": "red bold", "warning": "yellow", "note": "cyan", "good": "green"}
    rows: list[_Labelled] = []
    for finding in sorted(findings, key=lambda f: list(marks).index(f.severity)):
        rows.append(_Labelled(finding.severity, finding.text, marks[finding.severity]))
        if finding.advice:
            rows.append(_Labelled("", finding.advice, style="dim"))
    return Group(*rows)


def environment_text(results: Results) -> RenderableType:
    """Server, machine, limits and kernel, a line each."""
    host, server = results.environment.host, results.environment.server
    here = "" if server.here else " (its processes are not seen from here)"
    whose = "" if server.here else " (of the load driver's host)"
    lines = (
        ("server", f"{headline.server_name(server)}, {server.where}{here}"),
        ("cpu", f"{host.cpu.model or 'model unknown'}, {cpus_text(host.limits.usable_cpus)} usable{whose}"),
        ("kernel", ", ".join(t for t in (host.kernel, host.distribution, host.virtualisation) if t)),
        ("run", f"{results.info.id}, {results.info.status}, plan {results.plan.digest[:12]}"),
    )
    return Group(*(_Labelled(name, words) for name, words in lines))


class _Labelled(NamedTuple):
    """A label and words that wrap below themselves; no spaces at the end of a line (rich's tables pad)."""

    label: str
    words: str
    label_style: str = ""
    style: str = ""

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        lines = wrap(self.words, max(20, options.max_width - 10)) or [""]
        for number, line in enumerate(lines):
            label = self.label if number == 0 else ""
            yield Text.assemble((f"{label:>8}  ", self.label_style), (line, self.style))


class summary:  # used like a function
    """What ``dbdyno run`` and ``dbdyno show`` print at the end, as wide as the console."""

    def __init__(self, results: Results) -> None:
        self._results = results

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield _summary(self._results, options.max_width)


def _summary(results: Results, width: int) -> RenderableType:
    parts: list[RenderableType] = [
        Text(headline.title(results), style="bold"),
        *(Text(s) for s in headline.sentences(results)),
        *(_observed(results, width) if is_observation(results) else _climbed(results, width)),
    ]
    if results.info.status != "complete":
        reason = results.info.reason or "no reason recorded"
        parts.insert(1, Text(f"This run is {results.info.status}: {reason}", style="yellow"))
    if results.info.stopped is not None:
        parts.insert(1, Text(f"Stopped {results.info.stopped}"))
    parts += [Text(a.text) for a in results.answers]
    if results.scaling:
        parts += [Printed([*scaling_document.brief(results.scaling, results.info.id)])]
    if results.comparison is not None:
        parts += [Text(""), Printed(compare.brief(results.comparison, results.info.id))]
    if results.findings:
        parts += [Text(""), findings_text(results.findings)]
    return Group(*parts, Text(""), environment_text(results))


def _climbed(results: Results, width: int) -> Iterator[RenderableType]:
    """The rungs, then where the time of the highest went."""
    yield Text("")
    yield rung_table(results, width)
    pick = pick_of(results)
    waits = [] if pick is None else list(terminal_tables.events(results, pick, width))
    yield from [Text(""), *waits] if waits else []
    together = placement.section(results)
    yield from [Printed([together])] if together is not None else []


def _observed(results: Results, width: int) -> Iterator[RenderableType]:
    """Top events and the busiest processes over all windows."""
    pick = pick_of(results)
    if pick is None:
        return
    yield Text("")
    yield from terminal_tables.top_events(results, pick, width)
    yield from (Text(w, style="dim") for w in sources_used.words(results))
    yield Text("")
    yield from terminal_tables.microstates(results, pick, width, PROCESSES)


def _line_width(chosen: Sequence[Column]) -> int:
    return sum(c.width + 1 for c in chosen) - 1


def _join(chosen: Sequence[Column], cells: Sequence[str]) -> str:
    """Right-aligned cells; the last, a name, to the left. A cell that is too long loses its middle."""
    parts = [
        _squeeze(t, c.width).ljust(c.width) if c.name == "top_wait" else _squeeze(t, c.width).rjust(c.width)
        for c, t in zip(chosen, cells, strict=True)
    ]
    return " ".join(parts).rstrip()


def _squeeze(text: str, width: int) -> str:
    text = one_line(text)
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def _any(flags: Any) -> bool:
    return bool(flags.any())


def _footnotes(results: Results, shown: Mapping[str, Column]) -> list[RenderableType]:
    notes = ["CPU% to unac%: share of session time; WAIT%: in the run queue; eff%: of perfect scaling"]
    groups = missing_values.grouped(missing_values.reasons(results, tuple(shown)))
    for (why, cure), names in groups.items():
        heads = ", ".join(shown[n].head for n in names if n != "calls_per_s_low" and n != "top_wait")
        if heads:
            notes.append(f"{UNKNOWN} {heads}: {why}" + (f" -> {cure}" if cure else ""))
    return [Text(n, style="dim") for n in notes]
