"""Builds the table of rungs, for every medium and for the lines printed while the ladder is climbed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import polars as pl

from dbdyno.model.plan.kinds import COMMANDS, SERVED, current_kind, kind_of, speaking_of
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.results.raw import PRELIMINARY
from dbdyno.model.results.results import Results
from dbdyno.model.results.session_time import whole
from dbdyno.model.text.nouns import at_once, fill, noun
from dbdyno.model.units import format_given, format_ns, format_rate, significant
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Paragraph,
    Row,
    Section,
    Table,
    Tone,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures import accounts, compare_rows, efficiency, figures, sources_used, tails
from dbdyno.present.figures.figures import Series, percent
from dbdyno.present.figures.targets import row_id
from dbdyno.present.scaling.scaling_charts import reference_load

Record = Mapping[str, Any]
"""A row of table ``rungs``; an absent column is unknown."""
RungColumn = tuple[Column, Callable[[Record], Cell]]
"""A column, and the function that returns its cell."""
_TONES: dict[str, Tone] = {"invalid": "invalid", "client": "warning", "short": "warning"}
_STATUS = {"client": "limited by {~client}"}
_PARTS = ("run", "runq", "sleep", "client", "pool_queue", "unaccounted")
_VARIANT_COLUMNS = (
    "calls_per_s_low",
    "work_per_s",
    "calls_per_s",
    "response_p95_ns",
    "run_aas",
    "runq_aas",
    "sleep_aas",
    "client_aas",
)
_COLOURS = {"sleep": "sleep-3", "pool_queue": "pool-queue"}
_LEGEND = "CPU to unaccounted: shares of {~session_time}."
_PARALLEL = " It includes the time of parallel workers."


def _number(head: str, width: int, rank: int, name: str) -> Column:
    return Column(head, number=True, rank=rank, width=width, name=name)


def _share(name: str) -> Callable[[Record], Cell]:
    def cell(r: Record) -> Cell:
        value, time = r.get(name), whole(r)
        return Cell(percent(value, time), None if value is None or not time else value / time)

    return cell


def _unaccounted(r: Record) -> Cell:
    """Returns the remainder of session time; unknown if no part is known, since it would be all of it."""
    known_ones = [p for p in _PARTS if p != "unaccounted" and r.get(f"{p}_aas") is not None]
    return _share("unaccounted_aas")(r) if known_ones else known(None, str)


def _tasks(name: str) -> Callable[[Record], Cell]:
    return lambda r: known(r.get(name), significant)


def _ns(name: str) -> Callable[[Record], Cell]:
    return lambda r: known(r.get(name), format_ns)


def _rate(name: str) -> Callable[[Record], Cell]:
    return lambda r: known(r.get(name), format_rate)


def _interval(r: Record) -> Cell:
    return figures.plus_minus(figures.ends(r))


def _bar(r: Record) -> Cell:
    """Returns the shares of session time as a bar; unknown parts stay empty."""
    known_ones = [(name, r.get(f"{name}_aas") or 0.0) for name in _PARTS]
    time = whole(r) or 1.0
    return Cell("", bar=[(v / time, _COLOURS.get(n, n)) for n, v in known_ones if v > 0])


def _count(n: float) -> str:
    return f"{n:.0f}" if n < 10_000 else format_rate(n)


def _top_wait(r: Record) -> Cell:
    wait = r.get("top_wait")
    return word("no event" if wait == accounts.NO_LABEL else wait)  # the column has no room for all of it


_MARKS = {"client": "*", "invalid": "!"}
_MARKED = {
    "client": "* limited by {~client}: in no conclusion",
    "invalid": "! unusable (reason: dbdyno show last --claims): in no conclusion",
}


def _sessions(r: Record) -> Cell:
    return known(r["sessions"], lambda n: f"{n}{_MARKS.get(str(r.get('status')), '')}")


def _of_kind(columns: dict[str, RungColumn]) -> dict[str, RungColumn]:
    """Returns the columns that the present kind of run has."""
    return {name: column for name, column in columns.items() if current_kind().among(column[0].kinds)}


def columns(work: str) -> dict[str, RungColumn]:
    """Returns the columns by name in table ``rungs``; ``work`` is the counted work unit, empty for calls."""
    by_work = {"work_per_s": (_number(f"{work}/s", 8, 1, f"{work}/s"), _rate("work_per_s"))}
    all_columns = {
        "sessions": (_number(noun("short_at_once"), 4, 0, noun("at_once")), _sessions),
        "calls_per_s": (_number(noun("short_call_rate"), 7, 0, f"{noun('calls')}/s"), _rate("calls_per_s")),
        "calls_per_s_low": (_number("±95%", 5, 2, "±95 %"), _interval),
        **(by_work if work else {}),
        "scaling": (_number("eff%", 5, 5, "efficiency, %"), lambda r: known(r.get("scaling"), percent)),
        "response_mean_ns": (_number("mean", 7, 12, ""), _ns("response_mean_ns")),
        "response_p50_ns": (_number("p50", 7, 14, ""), _ns("response_p50_ns")),
        "response_p95_ns": (_number("p95", 7, 3, ""), _ns("response_p95_ns")),
        "response_p99_ns": (_number("p99", 7, 13, ""), _ns("response_p99_ns")),
        "tasks_aas": (
            _number("tasks", 5, 8, "tasks, on average")._replace(kinds=(COMMANDS,)),
            _tasks("tasks_aas"),
        ),
        "cpus": (_number("CPUs", 5, 3, "CPUs used")._replace(kinds=(COMMANDS,)), _tasks("run_aas")),
        "": (Column("", name=noun("session_time")), _bar),
        "run_aas": (_number("CPU%", 4, 6, "CPU, %"), _share("run_aas")),
        "runq_aas": (_number("WAIT%", 5, 4, "CPU WAIT, %"), _share("runq_aas")),
        "sleep_aas": (_number("sleep%", 6, 7, "sleep, %"), _share("sleep_aas")),
        "client_aas": (_number("clnt%", 5, 9, "client, %")._replace(kinds=(SERVED,)), _share("client_aas")),
        "pool_queue_aas": (
            _number("pool%", 5, 8, "pool queue, %")._replace(kinds=(SERVED,)),
            _share("pool_queue_aas"),
        ),
        "unaccounted_aas": (_number("unac%", 5, 10, "unaccounted, %"), _unaccounted),
        "errors": (_number("err", 4, 8, "errors"), lambda r: known(r.get("errors"), _count)),
        "top_wait": (Column("top wait", rank=11, shortens=True, width=11), _top_wait),
    }
    return _of_kind(all_columns)


def paced_columns() -> dict[str, RungColumn]:
    """Returns the columns of measurements whose calls became due at a rate."""
    shared = columns("")
    return {
        "rate_per_s": (
            _number("rate", 6, 0, "rate"),
            lambda r: known(r.get("rate_per_s"), format_given),
        ),
        "offered_per_s": (_number("due/s", 7, 0, "due/s"), _offered),
        "calls_per_s": shared["calls_per_s"],
        "calls_per_s_low": shared["calls_per_s_low"],
        "response_p50_ns": (_number("p50", 7, 2, ""), _ns("response_p50_ns")),
        "response_p95_ns": (_number("p95", 7, 4, ""), _ns("response_p95_ns")),
        "response_p99_ns": (_number("p99", 7, 1, ""), _bound),
        "service_p99_ns": (_number("svc p99", 7, 3, "service p99"), _ns("service_p99_ns")),
        "late": (_number("late", 5, 5, "late"), lambda r: known(r.get("late"), _count)),
        "dropped": (_number("drop", 5, 6, "dropped"), lambda r: known(r.get("dropped"), _count)),
        "backlog_end": (_number("left", 5, 2, "left over"), lambda r: known(r.get("backlog_end"), _count)),
        "": shared[""],
        **{n: shared[n] for n in ("run_aas", "runq_aas", "sleep_aas", "client_aas") if n in shared},
        "errors": shared["errors"],
        "top_wait": shared["top_wait"],
    }


def phase_columns() -> dict[str, RungColumn]:
    """Returns the columns of phases; calls that wait at the end of a phase go on into the next one."""
    paced = paced_columns()
    before = (_number("before", 6, 2, "waiting at begin"), lambda r: known(r.get("backlog_begin"), _count))
    paced["response_p99_ns"] = (_number("p99", 7, 1, ""), _ns("response_p99_ns"))
    first = {name: paced.pop(name) for name in ("offered_per_s", "calls_per_s")}
    left = {"backlog_begin": before, "backlog_end": paced.pop("backlog_end")}
    left_out = ("rate_per_s", "calls_per_s_low")
    return first | left | {name: column for name, column in paced.items() if name not in left_out}


PACED_LEGEND = (
    "due/s: calls that became due; p50 to p99: from then on, svc p99: from the real start; late: begun more "
    "than 1 ms after; left: not begun at the end (then >= before p99). Shares of session time: in clnt% "
    "sessions were idle as nothing was due."
)


_AT_RANDOM = (
    "due/s differs from the rate by chance: calls become due at random (--arrivals constant: evenly)."
)
"""Stands below a table in which the difference is visible."""


def _at_random(results: Results) -> bool:
    frame = results.tables["rungs"]
    visible = (pl.col("offered_per_s") / pl.col("rate_per_s") - 1).abs() >= 0.01
    random = {c.pacing.arrivals for c in results.plan.cells if c.pacing is not None} == {"poisson"}
    return random and not frame.filter(visible).is_empty()


def is_paced(rungs: Iterable[Record]) -> bool:
    """Returns whether calls became due at a rate."""
    return any(r.get("rate_per_s") is not None for r in rungs)


def _offered(r: Record) -> Cell:
    mark = _MARKS.get(str(r.get("status")), "")
    return known(r.get("offered_per_s"), lambda v: f"{format_rate(v)}{mark}")


def _bound(r: Record) -> Cell:
    """Returns p99, as a lower bound if calls were left over; phases finish them in the next phase."""
    left = 0 if r.get("backlog_begin") is not None else (r.get("backlog_end") or 0) * r["repeats"]
    at_least = ">=" if left > 0.01 * (r.get("calls") or 0) else ""
    return known(r.get("response_p99_ns"), lambda v: at_least + format_ns(v))


def _further(work: str) -> dict[str, RungColumn]:
    """Returns the columns of CPU per call, other processes, the driver and status."""
    all_columns = {
        "sessions": (numeric(noun("at_once")), _sessions),
        "cpu_per_call_ns": (numeric(f"CPU/{noun('call')}"), _ns("cpu_per_call_ns")),
        "cpu_per_work_ns": (numeric(f"CPU/{work}")._replace(kinds=(SERVED,)), _ns("cpu_per_work_ns")),
        "helpers_aas": (numeric(f"{noun('helpers')}, CPUs"), lambda r: known(r["helpers_aas"], significant)),
        "driver_cpus": (numeric(f"{noun('driver')}, CPUs"), lambda r: known(r["driver_cpus"], significant)),
        "driver_starved": (
            numeric(f"{noun('driver')} starved, %"),
            lambda r: known(r["driver_starved"], lambda v: percent(v, digits=1)),
        ),
        "errors": (numeric("errors"), lambda r: known(r["errors"], lambda v: f"{v:,.0f}")),
        "status": (Column("status"), lambda r: word(fill(_STATUS.get(r["status"], "")) or r["status"])),
    }
    return _of_kind(all_columns)


def running(
    work: str, paced: bool = False, results: Results | None = None
) -> tuple[list[Column], Callable[[Record], Row]]:
    """Returns the columns of lines that are printed one by one, and the function that returns such a line."""
    with nullcontext() if results is None else speaking_of(kind_of(results.plan)):
        by_name = paced_columns() if paced else columns(work)
    left_out = {"calls_per_s_low", "pool_queue_aas"}
    if results is not None and results.plan.adaptive is None:
        left_out |= {"scaling"} if len({c.sessions for c in results.plan.cells}) == 1 else set()
    kept = [item for item in by_name.items() if item[0] not in left_out]
    shown = [(head, _preliminary(name, cell)) for name, (head, cell) in kept if head.width]
    return [c for c, _ in shown], lambda r: row(r, shown)


def _preliminary(name: str, cell: Callable[[Record], Cell]) -> Callable[[Record], Cell]:
    """Returns the function with a mark on what the table at the end has more exactly."""
    if name not in ("sleep_aas", "client_aas"):
        return cell

    def marked(r: Record) -> Cell:
        exact = cell(r)
        return exact._replace(text=f"~{exact.text}") if r.get(PRELIMINARY) and exact.value else exact

    return marked


def row(r: Record, columns: list[RungColumn], key: bool = False) -> Row:
    return Row([cell(r) for _, cell in columns], _TONES.get(str(r.get("status")), ""), key=key)


def tables(results: Results, together: bool = False) -> list[Block]:
    """Returns one table per series, the meaning of the columns, and why figures are unknown.

    If variants are shown ``together``, there is one table with their effects.
    """
    series, shown = figures.series_of(results), list[Block]()
    paced = is_paced(results.tables["rungs"].to_dicts())
    if not series:
        return [Paragraph("No load was measured.", "muted")]
    if together and results.comparison is not None and len({s.workload for s in series}) == 1:
        legend = [*results.comparison.lost_pairs]
        shown = tails.with_reason(_effects(results, results.comparison))
        scales = False
    else:
        parallel = current_kind().among((SERVED,)) and results.tables["rungs"]["tasks_aas"].count() > 0
        scales = any(efficiency.reference(results, s) for s in series)
        words = _LEGEND + _PARALLEL * parallel + _reference(results, series) * scales
        legend = [PACED_LEGEND if paced else fill(words)]
        ladders = [[s] for s in series]
        if one_load(results):
            # One load each: a table per workload in place of one per variant.
            ladders = list(figures.grouped((s.workload, s) for s in series).values())
        shown = [t for some in ladders for t in _ladders(results, some, len(ladders) > 1)]
    return [
        *shown,
        *remarks(
            [
                *marks(results),
                *(_doubts(results, series) if scales and not paced else []),
                *legend,
                *([_AT_RANDOM] if paced and _at_random(results) else []),
                *_unknown(results, paced_columns() if paced else columns("work")),
            ]
        ),
    ]


def one_load(results: Results) -> bool:
    """Returns whether each variant was measured at one load, that of a number of sessions."""
    series = figures.series_of(results)
    return not figures.is_paced(results) and all(figures.ladder(results, s).height == 1 for s in series)


def marks(results: Results) -> list[str]:
    """Returns the meaning of the marks on figures."""
    statuses = set(results.tables["rungs"]["status"])
    return [fill(meaning) for status, meaning in _MARKED.items() if status in statuses]


def _reference(results: Results, series: Sequence[Series]) -> str:
    """Returns what efficiency is, and the load it refers to unless that is 1."""
    lowest = {efficiency.reference(results, s) for s in series}
    only = lowest.pop() if len(lowest) == 1 else None
    start = at_once(str(only)) if only else "the lowest load"
    analysed = list(dict.fromkeys(filter(None, map(reference_load, results.scaling))))
    end = f" (the analysis of scaling refers to {', '.join(analysed)})" if analysed else ""
    return f" Efficiency: of perfect scaling{'' if only == 1 and not end else f' from {start} on'}{end}."


def _doubts(results: Results, series: Sequence[Series]) -> list[str]:
    effects = [(efficiency.of_ladder(results, s), figures.ladder(results, s).to_dicts()) for s in series]
    why = [of_rung(r).why for of_rung, rungs in effects for r in rungs]
    return [f"{UNKNOWN} after an efficiency: {w}." for w in dict.fromkeys(why) if w]


def _ladders(results: Results, series: list[Series], titled: bool) -> list[Block]:
    """Returns the table of one ladder, or of several variants of one load each."""
    numbers = {s: n for n, s in enumerate(figures.series_of(results))}
    frames = {s: figures.ladder(results, s) for s in series}
    frame = pl.concat(frames.values())
    absent = {
        "": False,
        "errors": not (frame["errors"] > 0).any(),
        "scaling": not any(efficiency.reference(results, s) for s in series),
        "pool_queue_aas": not figures.has_pool(frame),
    }
    paced = is_paced(frame.to_dicts())
    by_name = paced_columns() if paced else columns(figures.throughput_work(results, series[0].workload))
    if paced and frame["sessions"].n_unique() > 1:
        by_name = {"sessions": columns("")["sessions"], **by_name}
    absent |= {"dropped": not (frame["dropped"] > 0).any(), "calls_per_s_low": paced and _no_intervals(frame)}
    if "scaling" in by_name and len(series) == 1:
        of_rung = efficiency.of_ladder(results, series[0])
        by_name["scaling"] = by_name["scaling"][0], lambda r: of_rung(r).cell
    kept = [m for n, m in by_name.items() if not absent.get(n)]
    if len(series) > 1 or figures.unmeasured(results):
        kept = [(Column("variant"), lambda r: word(r["variant"])), *kept]
    peak = frame["calls_per_s"].max()
    rows = [
        row(r, kept, r["calls_per_s"] == peak)._replace(id=row_id(numbers[s], r["sessions"], r["rate_per_s"]))
        for s, rungs in frames.items()
        for r in rungs.to_dicts()
    ]
    brackets = [
        (f"{b} {noun('at')} {figures.load_text(figures.load_of(results), n)}", s)
        for s in series
        for n, b in sorted(accounts.throttled(results, s).items())
    ]
    texts = ", ".join(f"{text} ({s.label})" if len(series) > 1 else text for text, s in brackets)
    throttled = f"Throttled by a CPU limit, in s per second, within CPU WAIT (a bracket, not added): {texts}."
    title = (series[0].label if len(series) == 1 else series[0].workload) if titled else ""
    table_of_rungs = Table(title, [c for c, _ in kept], rows, along_axis=len(series) == 1)
    shown = tails.with_reason(table_of_rungs, numbers=frame["calls"].drop_nulls())
    return [*shown, *remarks([throttled] if brackets else [])]


def _no_intervals(frame: pl.DataFrame) -> bool:
    return frame["calls_per_s_low"].null_count() == len(frame)


def _effects(results: Results, comparison: Comparison) -> Table:
    """Returns one row per variant and number of sessions: its effect, then the figures of its rung."""
    first, rungs = comparison.metrics[0], results.tables["rungs"]
    claims = {(c.sessions, c.variant): c for c in first.claims if not c.neighbours}
    lines = {(x.sessions, x.variant): x for x in first.lines}
    by_name = columns(figures.throughput_work(results, rungs["workload"][0]))
    main = first.metric if first.metric in by_name else "calls_per_s"
    names = [main, *(n for n in _VARIANT_COLUMNS if n in by_name and n != main)]
    own = [
        (column._replace(rank=len(compare_rows.EFFECT) + n if n else 0), cell)
        for n, (column, cell) in enumerate(by_name[name] for name in names)
    ]
    rows = []
    for r in rungs.to_dicts():
        place = r["sessions"], r["variant"]
        compared = lines.get(place)
        if compared is not None and compared.repeats < r["repeats"]:
            r |= _of_pairs(comparison, place) | {"repeats": compared.repeats}
        effect = compare_rows.effect(claims.get(place), comparison, r["variant"], r["repeats"])[:4]
        rank = len(lines) if compared is None else compared.rank
        line = row(r, own, key=rank == 1)
        cells = [_sessions(r), word(r["variant"]), *effect, *line.cells]
        rows.append((r["sessions"], rank, line._replace(cells=cells)))
    heads = [
        by_name["sessions"][0],
        Column("variant", wraps=True),
        *compare_rows.EFFECT[:4],
        *(c for c, _ in own),
    ]
    rows.sort(key=lambda r: r[:2])
    return Table(
        f"{first.title}; ratio to {comparison.baseline}", heads, [row for *_, row in rows], along_axis=True
    )


def _of_pairs(comparison: Comparison, place: tuple[int, str]) -> dict[str, float | None]:
    """Returns the rates of the repeats that the ratio is of, where others of the rung lack their partner."""
    figures_of_pairs: dict[str, float | None] = {}
    for t in comparison.metrics:
        for x in t.lines:
            if t.metric in ("calls_per_s", "work_per_s") and (x.sessions, x.variant) == place:
                figures_of_pairs |= {t.metric: x.mean, f"{t.metric}_low": x.low, f"{t.metric}_high": x.high}
    return figures_of_pairs


def further(results: Results) -> Section:
    """Returns CPU per call and per unit of work, the server's own processes, the driver and the status."""
    blocks: list[Block] = []
    for s in figures.series_of(results):
        further_columns = _further(figures.work_short(results, s.workload))
        blocks.append(
            table(
                s.label,
                tuple(further_columns.values()),
                figures.ladder(results, s).to_dicts(),
                along_axis=True,
            )
        )
    return Section(
        fill("CPU per {~call}, {~helpers}, {~driver}"),
        [
            *blocks,
            *remarks(_unknown(results, _further("work unit"))),
        ],
        folded=True,
    )


def _unknown(results: Results, columns: Mapping[str, RungColumn]) -> list[str]:
    """Returns ``? CPU%, WAIT%: why; cure`` for the columns with unknown figures."""
    heads = {n: c.head for n, (c, _) in columns.items() if n not in ("", "calls_per_s_low", "top_wait")}
    counted = any(figures.throughput_work(results, s.workload) for s in figures.series_of(results))
    shown = (n for n in heads if counted or n != "work_per_s")
    unknown = [u for u in sources_used.reasons(results, tuple(shown)) if not tails.explains(u.column, u.why)]
    groups = figures.grouped(((u.why, u.cure), u.column) for u in unknown)
    return [
        f"{UNKNOWN} {', '.join(heads[n] for n in names)}: {why}" + (f" -> {cure}" if cure else "")
        for (why, cure), names in groups.items()
    ]
