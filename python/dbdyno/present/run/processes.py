"""Microstates of every process, as ``prstat -m`` shows them: sorted, workers below their leader."""

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
MAX_ROWS = 100
"""Rows of a block; the least active are left out, and the block says how many."""


class State(NamedTuple):
    name: str  # in table microstates
    head: str
    words: str
    share: bool  # of the process's time, with an interval; else a number per second
    rank: int = 0
    kinds: tuple[str, ...] = ()  # of runs that have it


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
    """Sessions with their parallel workers, the server's own processes, and who else is seen."""
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
    for title, found in role.items():
        made = [_row(r, found, states, why) for r in _ordered(found)[:most]]
        left = len(found) - len(made)
        shown += (
            [Table(f"{title}, microstates {pick.at}{pick.which}", columns, made, named=True)] if made else []
        )
        shown += remarks([f"{left} less active ones are left out; the export holds them."] if left else [])
    return [*shown, *remarks([_LEGEND, *unknown(results, pick), sources_used.caption(results, pick.cell)])]


def _folded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Threads of one process as one row: the means of their shares, the sums of their rates."""
    own = [() if r["role"] in _OURS else (r["start_ticks"], r["worker"]) for r in rows]
    groups = grouped(((r["pid"], r["role"], *key), r) for r, key in zip(rows, own, strict=True))
    return [_one(rows) if len(rows) > 1 else rows[0] for rows in groups.values()]


def _one(threads: list[dict[str, Any]]) -> dict[str, Any]:
    made = dict(threads[0])
    for name, value in made.items():
        known = [t[name] for t in threads if t[name] is not None]
        if isinstance(value, float) or value is None:
            total = sum(known) if known and not isinstance(known[0], str) else None
            made[name] = total if total is None or name.endswith("_per_s") else total / len(known)
    return {**made, "name": f"{made['name']}: {len(threads)} threads, their mean"}


def reasons(results: Results) -> dict[str, str]:
    """Column -> why its figures are unknown, where no row says it."""
    sources = results.tables["sources"].filter(pl.col("status") != "ok")
    told = dict.fromkeys(("usr", "sys"), _TICKS)
    for column, names in _SOURCES.items():
        rows = sources.filter(pl.col("name").is_in(names)).select("name", "status", "detail").unique().rows()
        words = [f"{n}: {in_words(s)}{f'; {d}' if d else ''}" for n, s, d in sorted(rows)]
        told[column] = "; ".join(words) or _SWITCHED_OFF.get(column, "no source gave it")
    return told


def unknown(results: Results, pick: Pick) -> list[str]:
    """Why a column is unknown to all processes, or to one (USR and SYS): ``- BLKIO: ...``."""
    frame = rows_of(results, "microstates", pick)
    why = reasons(results)
    found: list[tuple[str, str]] = []
    for c in _states():
        nulls = frame[c.name].null_count()
        if not nulls or (nulls < len(frame) and c.name not in ("usr", "sys")):
            continue
        bad = frame.filter(pl.col(c.name).is_null() & (pl.col("status") != "ok"))["status"].unique().sort()
        told = "; ".join(in_words(s) for s in bad.to_list())
        own = why.get(c.name, "no source gave it")
        found.append((own if c.name in _SOURCES else told or own, c.head))
    columns = [f"{ABSENT} {', '.join(heads)}: {text}." for text, heads in grouped(found).items()]
    return columns + _unseen_sleeps(frame)


def _unseen_sleeps(frame: pl.DataFrame) -> list[str]:
    """UNAC of sessions whose waits are unknown is no remainder."""
    unknown = pl.all_horizontal(pl.col("lock", "client", "sleep").is_null())
    unseen = unknown & pl.col("unaccounted").is_not_null() & pl.col("role").is_in(_SESSIONS)
    count = frame.filter(unseen).select("pid", "start_ticks").n_unique()
    if not count:
        return []
    whose, asleep = at_once(f"{count:,}"), noun("asleep_where")
    return [f"{ABSENT} What {whose} waited for is unknown; {asleep} lies in UNAC."]


def _ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By USR + SYS + CPU WAIT; workers below their leader, those without one by themselves."""
    leaders = sorted((r for r in rows if not r["worker"]), key=_active)
    known = {r["session"] for r in leaders if r["session"] is not None}
    made: list[dict[str, Any]] = []
    for leader in leaders:
        made.append(leader)
        if leader["session"] is not None and _is_first(leader, leaders):
            mine = (r for r in rows if r["worker"] and r["session"] == leader["session"])
            made += sorted(mine, key=_active)
    return made + sorted((r for r in rows if r["worker"] and r["session"] not in known), key=_active)


def _is_first(leader: dict[str, Any], leaders: list[dict[str, Any]]) -> bool:
    """A session's number may stand at two processes where one followed the other."""
    return next(r for r in leaders if r["session"] == leader["session"]) is leader


def _active(row: dict[str, Any]) -> tuple[float, int]:
    return -sum(row[n] or 0.0 for n in ("usr", "sys", "cpu_wait")), row["pid"]


def _row(row: dict[str, Any], rows: list[dict[str, Any]], states: list[State], why: dict[str, str]) -> Row:
    """A worker stands below its leader, with its share of the session's CPU."""
    name = f"\N{BOX DRAWINGS LIGHT UP AND RIGHT} {row['name']}" if row["worker"] else row["name"]
    share = _share(row, rows) if row["worker"] else ""
    return Row([word(name), known(row["pid"], str), *(_cell(row, c, why) for c in states), word(share)])


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
        return Cell(ABSENT, note=status or why.get(state.name, "no source gave it"))
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
