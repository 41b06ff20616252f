"""Shows microstates of every process, as ``prstat -m`` does: sorted, workers below their leader."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.plan.kinds import SERVED, current_kind
from dbdyno.model.results.brief import BRIEF
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources import SOURCES, process_rates
from dbdyno.model.sources.source import TRACE
from dbdyno.model.text.nouns import at_once, fill, noun
from dbdyno.model.units import significant
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    Paragraph,
    Row,
    Table,
    known,
    numeric,
    remarks,
    word,
)
from dbdyno.present.figures import sources_used
from dbdyno.present.figures.figures import grouped, percent
from dbdyno.present.figures.selection import Pick, rows_of
from dbdyno.present.figures.sources_used import in_words

ABSENT = "-"
_MOST_ALIKE = 4
"""Most parallel workers of a session, and most other processes of a name, that have a row each."""
MAX_ROWS = 100
"""Most rows of a block; the least active are left out, and the block says how many."""


class State(NamedTuple):
    """A state of processes as a column."""

    name: str  # column of table microstates
    head: str
    words: str
    share: bool  # whether it is a share of the process's time with an interval; else a rate per second
    rank: int = 0
    kinds: tuple[str, ...] = ()  # kinds of runs that have it; empty for all


STATES = (
    State("usr", "USR", "on a CPU, user mode", True),
    State("sys", "SYS", "on a CPU, kernel", True),
    State("cpu_wait", "WAIT", "CPU WAIT: in the run queue", True),
    State("lock", "LOCK", "asleep in a lock or latch", True, kinds=(SERVED,)),
    State("client", "CLNT", "asleep, waiting for its client", True, kinds=(SERVED,)),
    State("sleep", "SLP", "asleep in anything else", True),
    State("unaccounted", "UNAC", "signed remainder: these seven add up to 100", True),
    State("block_io", "BLKIO", "block I/O delay; lies inside SLP and LOCK", True, 3),
    State("voluntary_per_s", "VCX/s", "voluntary context switches per second", False, 1),
    State("involuntary_per_s", "ICX/s", "involuntary context switches per second", False, 2),
    *(State(r.column.name, r.heading, r.title, False, 4) for r in process_rates()),
)
_TICKS = "too little CPU time to tell USR from SYS: no clock tick fell on it"
_OURS = ("driver", "pooler", "dbdyno")
_SESSIONS = ("session", BRIEF)
_COUNTED = {c.rate.column.name: s for s in SOURCES for c in s.counts if c.rate}
_SOURCES = {"block_io": ("block I/O delay",), **{c: (s.name, TRACE) for c, s in _COUNTED.items()}}
_SWITCHED_OFF = {c: s.cures["off"] for c, s in _COUNTED.items() if "off" in s.cures}


_LEGEND = "USR to UNAC, in percent of the process's time, add up to 100 (UNAC: signed remainder); BLKIO lies "
_LEGEND += "inside SLP and LOCK."


def tables(results: Results, pick: Pick, most: int = MAX_ROWS) -> list[Block]:
    """Returns sessions with their parallel workers, processes of the server, and other processes."""
    rows = _folded(rows_of(results, "microstates", pick).to_dicts())
    if not rows:
        return [
            Paragraph(
                fill("No processes were visible: microstates need {~server_processes} on this host."), "muted"
            )
        ]
    role = {
        fill("{~process_owners:capital}"): [r for r in rows if r["role"] in _SESSIONS],
        fill("{~processes_of_server:capital}"): [r for r in rows if r["role"].startswith("helper")],
        "Beside them": [r for r in rows if r["role"] not in _SESSIONS and not r["role"].startswith("helper")],
    }
    why, states = reasons(results), _states()
    columns = _columns(states)
    shown: list[Block] = []
    for title, of_role in role.items():
        lines = [_row(r, of_role, states, why) for r in _ordered(of_role)[:most]]
        left = len(of_role) - len(lines)
        shown += (
            [Table(f"{title}, microstates {pick.at}{pick.which}", columns, lines, named=True)]
            if lines
            else []
        )
        shown += remarks([f"{left} less active ones are left out; the export holds them."] if left else [])
    return [*shown, *remarks([_LEGEND, *unknown(results, pick), sources_used.caption(results, pick.cell)])]


def _folded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merges threads of one process into one row: means of their shares, sums of their rates."""
    own = [() if r["role"] in _OURS else (r["start_ticks"], r["worker"]) for r in rows]
    groups = grouped(((r["pid"], r["role"], *key), r) for r, key in zip(rows, own, strict=True))
    return _summed([_merged(rows) if len(rows) > 1 else rows[0] for rows in groups.values()])


def _summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merges many short-lived processes of a kind into one row: the workers of a leader, and others."""

    def kind(n: int, r: dict[str, Any]) -> tuple[Any, ...]:
        workers, others = r["worker"] and r["session"] is not None, r["role"] == "other"
        return ("workers", r["role"], r["session"]) if workers else ("others", r["name"]) if others else (n,)

    groups = grouped((kind(n, r), r) for n, r in enumerate(rows)).values()
    return [row for alike in groups for row in ([_mean(alike)] if len(alike) > _MOST_ALIKE else alike)]


def _mean(alike: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the mean of processes over the time that each was seen, without intervals."""
    merged = dict(alike[0])
    for name in merged:
        known = [(r[name], r["wall_s"]) for r in alike if r[name] is not None]
        if name != "wall_s" and any(isinstance(v, float) for v, _ in known):
            weight = sum(w for _, w in known)
            unusable = name.endswith(("_low", "_high")) or not weight
            merged[name] = None if unusable else sum(v * w for v, w in known) / weight
    what = "parallel workers" if merged["worker"] else f"{merged['name']} processes"
    return {**merged, "pid": None, "wall_s": sum(r["wall_s"] for r in alike), "name": f"{len(alike)} {what}"}


def _merged(threads: list[dict[str, Any]]) -> dict[str, Any]:
    merged = dict(threads[0])
    for name, value in merged.items():
        known = [t[name] for t in threads if t[name] is not None]
        if isinstance(value, float) or value is None:
            total = sum(known) if known and not isinstance(known[0], str) else None
            merged[name] = total if total is None or name.endswith("_per_s") else total / len(known)
    return {**merged, "name": f"{merged['name']}: {len(threads)} threads, their mean"}


def reasons(results: Results) -> dict[str, str]:
    """Returns by column the reason why its figures are unknown, for rows without a reason of their own."""
    sources = results.tables["sources"].filter(pl.col("status") != "ok")
    failed = sources.select("name", "status", "detail").unique().rows()
    failed.sort(key=lambda row: (row[0], row[1], row[2] or ""))
    reason_of = dict.fromkeys(("usr", "sys"), _TICKS)
    for column, names in _SOURCES.items():
        texts = [f"{n}: {in_words(s)}{f'; {d}' if d else ''}" for n, s, d in failed if n in names]
        reason_of[column] = "; ".join(texts) or _SWITCHED_OFF.get(column, "no data source measured it")
    return reason_of


def unknown(results: Results, pick: Pick) -> list[str]:
    """Returns why a column is unknown for all processes, or for some (USR and SYS): ``- BLKIO: ...``."""
    frame = rows_of(results, "microstates", pick)
    why = reasons(results)
    columns_by_reason: list[tuple[str, str]] = []
    for c in _states():
        nulls = frame[c.name].null_count()
        if not nulls or (nulls < len(frame) and c.name not in ("usr", "sys")):
            continue
        bad = frame.filter(pl.col(c.name).is_null() & (pl.col("status") != "ok"))["status"].unique().sort()
        from_status = "; ".join(in_words(s) for s in bad.to_list())
        own = why.get(c.name, "no data source measured it")
        columns_by_reason.append((own if c.name in _SOURCES else from_status or own, c.head))
    columns = [f"{ABSENT} {', '.join(heads)}: {text}." for text, heads in grouped(columns_by_reason).items()]
    return columns + _unseen_sleeps(frame)


def _unseen_sleeps(frame: pl.DataFrame) -> list[str]:
    """Returns a note on sessions with unknown waits, whose UNAC includes their sleep."""
    unknown = pl.all_horizontal(pl.col("lock", "client", "sleep").is_null())
    unseen = unknown & pl.col("unaccounted").is_not_null() & pl.col("role").is_in(_SESSIONS)
    count = frame.filter(unseen).select("pid", "start_ticks").n_unique()
    if not count:
        return []
    whose, asleep = at_once(f"{count:,}"), noun("asleep_where")
    return [f"{ABSENT} What {whose} waited for is unknown; {asleep} lies in UNAC."]


def _ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorts by USR + SYS + CPU WAIT. Workers follow their leader; workers without one come last."""
    leaders = sorted((r for r in rows if not r["worker"]), key=_active)
    known = {r["session"] for r in leaders if r["session"] is not None}
    ordered: list[dict[str, Any]] = []
    for leader in leaders:
        ordered.append(leader)
        if leader["session"] is not None and _is_first(leader, leaders):
            workers = (r for r in rows if r["worker"] and r["session"] == leader["session"])
            ordered += sorted(workers, key=_active)
    return ordered + sorted((r for r in rows if r["worker"] and r["session"] not in known), key=_active)


def _is_first(leader: dict[str, Any], leaders: list[dict[str, Any]]) -> bool:
    """Returns whether it is the first process with its session's number: a successor has the same number."""
    return next(r for r in leaders if r["session"] == leader["session"]) is leader


def _active(row: dict[str, Any]) -> tuple[float, int]:
    return -sum(row[n] or 0.0 for n in ("usr", "sys", "cpu_wait")), row["pid"] or 0


def _row(row: dict[str, Any], rows: list[dict[str, Any]], states: list[State], why: dict[str, str]) -> Row:
    """Returns a row; a worker is indented, and has its share of the session's CPU."""
    name = f"\N{BOX DRAWINGS LIGHT UP AND RIGHT} {row['name']}" if row["worker"] else row["name"]
    share = _share(row, rows) if row["worker"] else ""
    pid = word("") if row["pid"] is None else known(row["pid"], str)
    return Row([word(name), pid, *(_cell(row, c, why) for c in states), word(share)])


def _states() -> list[State]:
    """Returns the states that this kind of run has."""
    return [s for s in STATES if current_kind().among(s.kinds)]


def _columns(states: list[State]) -> list[Column]:
    return [
        Column("process", shortens=True),
        numeric("pid"),
        *(Column(s.head, number=True, rank=s.rank, note=s.words) for s in states),
        numeric(f"of {noun('slot')} CPU", 5),
    ]


def _cell(row: dict[str, Any], state: State, why: dict[str, str]) -> Cell:
    value = row[state.name]
    if value is None:
        if row["role"] in _OURS and state.name in ("lock", "client"):
            return Cell(ABSENT, note="it is no process of the server: it waits in no wait event")
        status = "" if row["status"] == "ok" else in_words(row["status"])
        return Cell(ABSENT, note=status or why.get(state.name, "no data source measured it"))
    if not state.share:
        return Cell(significant(value) if value < 100 else f"{value:,.0f}", value, "1/s")
    low, high = row.get(f"{state.name}_low"), row.get(f"{state.name}_high")
    ends = "" if low is None or high is None else f"{percent(low, digits=2)} to {percent(high, digits=2)} %"
    return Cell(percent(value, digits=1), value, "", ends)


def _share(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    def cpu(r: dict[str, Any]) -> float:
        return ((r["usr"] or 0.0) + (r["sys"] or 0.0)) * float(r["wall_s"])

    session = sum(cpu(r) for r in rows if r["session"] == row["session"])
    return f"{percent(cpu(row), session)} %" if row["usr"] is not None else ABSENT
