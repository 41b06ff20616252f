"""The screens of the live view that are particular to this server. A new screen is one entry of
:data:`SCREENS`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dbdyno.engines.postgres.statements import without_passwords
from dbdyno.model.engine.live import LiveColumn, LiveRows, LiveScreen
from dbdyno.model.units import format_count, format_ns

if TYPE_CHECKING:
    from dbdyno.engines.postgres.live import Reader

MOST_ROWS = 200
YOUNG_S = 1.0
"""Transactions that are younger, and hold up nothing, are not shown."""
_MOST_NAMED = 5


class Entry(NamedTuple):
    screen: LiveScreen
    read: Callable[[Reader], LiveRows]


def _with_hidden(reader: Reader, rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> LiveRows:
    """Returns the rows, with a note if this role does not see all of them."""
    hidden = [reader.hidden] if reader.hidden else []
    return LiveRows(rows, [*notes, *hidden], partial=bool(notes or hidden) and not rows)


def _transactions(reader: Reader) -> LiveRows:
    rows, notes = reader.rows_or_reason("live_transactions")
    blocked: Sequence[Mapping[str, Any]] = ()
    if any(str(row["event"] or "").startswith("Lock/") for row in rows):
        blocked, missing = reader.rows_or_reason("blocked")
        notes += [f"who blocks whom: {words}" for words in missing]
    waiters: dict[int | None, dict[int, float]] = defaultdict(dict)
    blockers: dict[int, list[int]] = defaultdict(list)
    for row in blocked:
        waiter = row["leader_pid"] or row["pid"]
        waiters[row["blocker"] or None][waiter] = (row["waited_ns"] or 0) / 1e9
        if row["blocker"] not in (None, waiter):
            blockers[waiter].append(row["blocker"])
    shown = []
    for row in rows:
        held = waiters.get(row["pid"], {}) if row["pid"] or row["state"] == "prepared" else {}
        waits_for = blockers.get(row["pid"], [])
        if row["age"] is not None and row["age"] < YOUNG_S and not held and not waits_for:
            continue
        shown.append(
            {
                **row,
                "state": (row["state"] or "").replace("transaction", "tx"),
                "statement": without_passwords(row["statement"] or ""),
                "blocks": len(_all_behind(row["pid"], waiters)) if held else 0,
                "holds_up": _holds_up(row, held, waits_for),
            }
        )
    if any(row["oldest"] for row in shown):
        dead, _ = reader.rows_or_reason("live_dead_rows")
        notes += [
            f"oldest: keeps vacuum from removing rows that died since; database {row['database']} has "
            f"{format_count(row['dead'])} dead rows"
            for row in dead
        ]
    return _with_hidden(reader, shown, notes)


def _all_behind(pid: int | None, waiters: Mapping[int | None, Mapping[int, float]]) -> set[int]:
    """Returns the sessions that wait for a process, also by way of others."""
    behind: set[int] = set()
    fresh = set(waiters.get(pid, ()))
    while fresh:
        behind |= fresh
        fresh = {waiter for one in fresh for waiter in waiters.get(one, ())} - behind
    return behind - {pid} if pid is not None else behind


def _holds_up(row: Mapping[str, Any], held: Mapping[int, float], waits_for: Sequence[int]) -> str:
    words = []
    if held:
        longest = sorted(held, key=lambda pid: -held[pid])
        more = "" if len(held) <= _MOST_NAMED else f" and {len(held) - _MOST_NAMED} more"
        names = ", ".join(str(pid) for pid in longest[:_MOST_NAMED])
        words.append(f"blocks {names}{more} for {format_ns(max(held.values()) * 1e9)}")
    if waits_for:
        words.append(f"waits for {', '.join(str(pid) for pid in waits_for[:_MOST_NAMED])}")
    if row["oldest"]:
        words.append("oldest")
    return "; ".join(words)


_WHO = LiveColumn("who", "user@database", "role and database", "text", 16, 2)
_PID = LiveColumn("pid", "pid", "process id of the session", "id", 8)

TRANSACTIONS = LiveScreen(
    "transactions",
    "Open transactions, oldest first: how old, what they hold up.",
    (
        _PID,
        _WHO,
        LiveColumn("age", "age", "time since the transaction began", "seconds"),
        LiveColumn("idle", "idle", "time since its last statement ended", "seconds"),
        LiveColumn("state", "state", "state of the session; tx: transaction", "text", 10),
        LiveColumn("blocks", "blocks", "sessions that wait for it, also by way of others", "count", 6),
        LiveColumn(
            "xmin_age",
            "xmin age",
            "transactions begun since its snapshot; rows that died in between cannot be removed",
            "count",
            8,
            1,
        ),
        LiveColumn(
            "holds_up",
            "holds up",
            "whom it blocks and for how long; whom it waits for; oldest: no other keeps dead rows longer",
            "text",
            36,
        ),
        LiveColumn("event", "event", "wait event", "text", 20, 4),
        LiveColumn("statement", "statement", "its latest statement", "text", 0, 3),
    ),
    ("pid", "application", "who"),
    "age",
    "no transaction is open for a second or more",
    "statement",
)


def _progress(reader: Reader) -> LiveRows:
    rows, notes = reader.rows_or_reason("live_progress")
    shown = [{**row, "statement": without_passwords(row["statement"] or "")} for row in rows]
    return _with_hidden(reader, shown, notes)


PROGRESS = LiveScreen(
    "progress",
    "Vacuum, analyze, builds of indexes, cluster, copy and base backups in progress.",
    (
        _PID,
        LiveColumn("command", "command", "what is done", "text", 14),
        LiveColumn(
            "relation", "table", "its table; empty in another database than the connection's", "text", 20
        ),
        LiveColumn("phase", "phase", "phase of the command", "text", 24),
        LiveColumn("share", "done %", "share of the phase that is done", "share", 6),
        LiveColumn("done", "done", "blocks, rows, bytes or transactions that are done", "count", 8, 2),
        LiveColumn("total", "of", "the number to do in this phase", "count", 8, 2),
        LiveColumn("unit", "", "what is counted", "text", 7, 2),
        LiveColumn("age", "since", "time since the command began", "seconds"),
        LiveColumn("event", "event", "wait event", "text", 20, 3),
        LiveColumn("database", "database", "its database", "text", 0, 4),
    ),
    ("pid",),
    "age",
    "no vacuum, analyze, build of an index, cluster, copy or base backup is in progress",
    "statement",
)


def _replication(reader: Reader) -> LiveRows:
    rows, notes = reader.rows_or_reason("live_replication")
    return _with_hidden(reader, rows, notes)


REPLICATION = LiveScreen(
    "replication",
    "Standbys and slots: how far behind.",
    (
        LiveColumn(
            "name", "name", "application name and address of the standby, or name of the slot", "text", 24
        ),
        LiveColumn("what", "kind", "standby of this server, slot, or this server as a standby", "text", 12),
        LiveColumn(
            "state", "state", "state of the sender, of WAL of the slot, or of the receiver", "text", 10
        ),
        LiveColumn("sync", "sync", "whether commits wait for it", "text", 6, 2),
        LiveColumn("replay_lag", "replay", "time until a commit is visible there", "seconds"),
        LiveColumn("replay_bytes", "behind", "WAL that is not replayed there", "bytes", 10),
        LiveColumn("flush_lag", "flush", "time until a commit is on disk there", "seconds", 9, 1),
        LiveColumn("write_lag", "write", "time until a commit is written there", "seconds", 9, 3),
        LiveColumn("sent_bytes", "unsent", "WAL that is not sent yet", "bytes", 10, 2),
        LiveColumn("kept_bytes", "kept", "WAL that a slot keeps on disk", "bytes", 10),
        _PID,
    ),
    ("what", "name", "pid"),
    "replay_bytes",
    "no standby is connected, and there is no slot",
)


def _temporary(reader: Reader) -> LiveRows:
    rows, notes = reader.rows_or_reason("live_temporary", database=reader.in_database("datname"))
    counters = {(r["database"], what): float(r[what]) for r in rows for what in ("files", "bytes")}
    rates = reader.growth("temporary files", counters)
    if rows and not rates:
        notes += ["bytes/s and files/s are known from the second reading on, in a moment"]
    return LiveRows(
        [
            {
                **row,
                "files_per_s": rates.get((row["database"], "files")),
                "bytes_per_s": rates.get((row["database"], "bytes")),
            }
            for row in rows
        ],
        notes,
    )


TEMPORARY = LiveScreen(
    "temp",
    "Files of sorts and hashes that needed more than work_mem; counted when they are closed.",
    (
        LiveColumn("database", "database", "the database", "text", 24),
        LiveColumn("bytes_per_s", "bytes/s", "bytes of temporary files a second", "bytes_per_s", 12),
        LiveColumn("files_per_s", "files/s", "temporary files a second", "per_s"),
        LiveColumn("bytes", "bytes", "since the counters were reset", "bytes", 10),
        LiveColumn("files", "files", "since the counters were reset", "count"),
    ),
    ("database",),
    "bytes_per_s",
    "no database",
)

SCREENS = (
    Entry(TRANSACTIONS, _transactions),
    Entry(PROGRESS, _progress),
    Entry(REPLICATION, _replication),
    Entry(TEMPORARY, _temporary),
)
