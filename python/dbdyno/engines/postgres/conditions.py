"""Judges settings and the build of the server that may distort figures, for ``dbdyno doctor`` and runs.

The entries are in ``conditions.toml``. All values that the judges need are read in two or three statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple, cast

import psycopg
from psycopg.rows import tuple_row

from dbdyno.engines.postgres import managed, sql, statements, versions
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.facts import visibility
from dbdyno.engines.postgres.settings import Site
from dbdyno.model.engine.condition import (
    RESTART,
    Condition,
    Entry,
    Judged,
    ServerConditions,
    State,
    concluded,
    entries,
)
from dbdyno.model.schema.data_source import Step

DATA_FILES = re.compile(r"/(base/\d+|global|PG_\d+_\d+/\d+)/(t\d+_)?\d+(_(fsm|vm|init))?(\.\d+)?$")
"""Files of relations (PostgreSQL, "Database File Layout"); those of tablespaces are in PG_VERSION_CATALOG."""
_RELOAD = "SELECT pg_reload_conf();"
_UNITS = {"B": 1, "kB": 1 << 10, "8kB": 8 << 10, "MB": 1 << 20, "GB": 1 << 30}
_MORE = (
    *("shared_buffers", "shared_memory_size", "shared_memory_size_in_huge_pages", "max_connections"),
    *("max_worker_processes", "autovacuum_max_workers", "autovacuum_worker_slots", "max_wal_senders"),
    *(
        "io_workers",
        "io_max_workers",
        "huge_pages",
        "huge_pages_status",
        "debug_io_direct",
        "dynamic_shared_memory_type",
    ),
    *("max_parallel_workers_per_gather", "max_parallel_workers", "work_mem", "hash_mem_multiplier"),
    *("log_statement", "log_min_duration_statement", "log_duration", "log_min_duration_sample"),
    *("log_statement_sample_rate", "log_statement_stats", "log_parser_stats", "log_planner_stats"),
    *("log_executor_stats", "auto_explain.log_min_duration", "auto_explain.log_analyze"),
    *("auto_explain.log_timing", "auto_explain.sample_rate", "data_directory"),
)
_HELPERS = 8
"""Processes of the server besides those that a setting counts."""


class Setting(NamedTuple):
    """A setting as in force in this session; a row of ``conditions.sql``."""

    value: str
    unit: str | None
    source: str
    pending: bool = False  # a file has another value, which a restart puts in force

    @property
    def bytes(self) -> int:
        return int(self.value) * _UNITS.get(self.unit or "B", 1)


class _Known(NamedTuple):
    """Values that the judges use."""

    settings: Mapping[str, Setting]
    query_ids: bool  # this session has a query id
    short_jit: tuple[int, int] | None  # (short statements that are compiled, all statements); None if unknown
    flags: str | None  # of the compiler; None if hidden from this role
    texts: statements.Texts | None = None  # None if statements are not counted, or hidden from this role
    major: int = versions.NEWEST

    def is_on(self, name: str) -> bool:
        return name in self.settings and self.settings[name].value == "on"

    def number(self, name: str, missing: float = 0) -> float:
        return float(self.settings[name].value) if name in self.settings else missing


@cache
def registry() -> Mapping[str, Entry]:
    text = resources.files(__package__).joinpath("conditions.toml").read_text(encoding="utf-8")
    return entries(text)


class Conditions:
    """Implements :class:`dbdyno.model.engine.condition.Conditions`."""

    data_files = DATA_FILES

    def __init__(self, site: Site) -> None:
        self._site = site

    def conditions(self) -> ServerConditions:
        with doing("looking at settings"):
            connection = self._site.connection()
            known = _known(connection)
            seen = visibility(connection)
            (database,) = connection.execute(
                "select pg_catalog.quote_ident(current_database())"
            ).fetchone() or ("?",)
        embedded = self._site.instance is not None
        cures = _Cures(seen.superuser, seen.role, str(database), embedded=embedded, service=seen.service)
        results = tuple(judged(known, cures))
        return _facts(known, results, ours=embedded)


class _Cures(NamedTuple):
    """Steps by which this role can change a setting, depending on where it was set."""

    superuser: bool
    role: str
    database: str
    embedded: bool
    service: managed.Service | None = None

    def steps(self, name: str, value: str, known: _Known) -> tuple[Step, ...]:
        how: Literal["sql", "hand"] = "sql" if self.superuser else "hand"
        if self.embedded:
            return (Step(f"run without the setting {name}, or with {name} = {value}"),)
        reset = {
            "database": f"ALTER DATABASE {self.database} RESET {name};",
            "user": f"ALTER ROLE {self.role} RESET {name};",
            "database user": f"ALTER ROLE {self.role} IN DATABASE {self.database} RESET {name};",
        }
        source = known.settings[name].source if name in known.settings else ""
        if source in reset:
            return (Step(reset[source], how),)
        if self.service is not None:
            return (Step(self.service.change(name, value)),)
        if source == "command line":
            return Step(f"take {name} off the server's command line"), Step(RESTART)
        return Step(f"ALTER SYSTEM SET {name} = {value};", how), Step(_RELOAD, how)


# -- reading ----------------------------------------------------------------------------------------


def _known(connection: Connection) -> _Known:
    names = [e.rule["setting"] for e in registry().values() if "setting" in e.rule]
    cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
    rows = cursor.execute(sql.text("conditions").encode(), [[*names, *_MORE]]).fetchall()
    has_id = connection.execute(
        "select pg_catalog.to_jsonb(a) ->> 'query_id' is not null "
        "from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) as a"
    ).fetchone()
    settings = {name: Setting(*rest) for name, *rest in rows}
    return _Known(
        settings,
        bool(has_id and has_id[0]),
        _short_jit(connection),
        _compiler_flags(connection),
        statements.readable(connection),
        versions.major(connection),
    )


def _short_jit(connection: Connection) -> tuple[int, int] | None:
    with suppress(psycopg.errors.DatabaseError):
        text = statements.for_version(connection, "short_jit")
        if text is not None and "null::float8" not in text:
            row = connection.execute(text.encode()).fetchone()
            return (int(row[0]), int(row[1])) if row else None
    if connection.closed:
        raise psycopg.OperationalError("the connection is lost")
    return None


def _compiler_flags(connection: Connection) -> str | None:
    may = "select pg_catalog.has_function_privilege('pg_catalog.pg_config()', 'execute')"
    allowed = connection.execute(may.encode()).fetchone()
    if not allowed or not allowed[0]:
        return None
    row = connection.execute("select setting from pg_catalog.pg_config() where name = 'CFLAGS'").fetchone()
    return str(row[0]) if row else None


# -- judging ----------------------------------------------------------------------------------------


def judged(known: _Known, cures: _Cures) -> Iterator[Condition]:
    """Yields the judgement on each entry of the registry. Does no I/O."""
    for id, entry in registry().items():
        name = entry.rule.get("setting", "")
        verdict = _JUDGES.get(id, _judge_by_rule)(entry, known)
        if verdict.state in ("bad", "worth a look") and not verdict.steps and not entry.cure:
            verdict = verdict._replace(steps=cures.steps(name, entry.rule["good"], known))
        elif verdict.steps:
            steps = [s for step in verdict.steps for s in _completed(step, cures, known)]
            verdict = verdict._replace(steps=tuple(dict.fromkeys(steps)))
        yield concluded(id, entry, verdict)


def _completed(step: Step, cures: _Cures, known: _Known) -> tuple[Step, ...]:
    """Returns ``setting=value`` as the steps that set it, or a command as this role can execute it."""
    name, pair, value = step.command.partition("=")
    if pair:
        return cures.steps(name, value, known)
    return (step._replace(how="sql" if cures.superuser else "hand"),)


def _judge_by_rule(entry: Entry, known: _Known) -> Judged:
    """Judges by the value of one setting."""
    name = entry.rule["setting"]
    if name not in known.settings:
        return Judged("not supported", entry.rule.get("absent", "this version has no such setting"))
    value = known.settings[name].value
    states: Mapping[State, list[str]] = {
        "bad": entry.rule.get("bad", []),
        "worth a look": entry.rule.get("look", []),
    }
    state = next((s for s, values in states.items() if value in values), "ok")
    return Judged(cast(State, state), value)


def _version(_entry: Entry, known: _Known) -> Judged:
    doubt = versions.doubt(known.major)
    return Judged("ok", str(known.major)) if doubt is None else Judged("worth a look", doubt)


def _optimised(_entry: Entry, known: _Known) -> Judged:
    if known.flags is None:
        return Judged("unknown", "this role may not call pg_config(), as by default only a superuser may")
    levels = re.findall(r"(?<!\S)-O(\S*)", known.flags)
    if not levels:
        return Judged("unknown", "CFLAGS name no level of optimisation")
    return Judged("bad" if levels[-1] == "0" else "ok", f"-O{levels[-1]}")  # the last -O option counts


def _jit(_entry: Entry, known: _Known) -> Judged:
    if not known.is_on("jit"):
        return Judged("ok", "off")
    if known.short_jit is None:
        why = "on; whether short statements are compiled is counted by pg_stat_statements 1.10 or later"
        return Judged("unknown", why)
    short, counted = known.short_jit
    if not short:
        return Judged("ok", f"on; none of {counted} statements counted is short and compiled")
    return Judged(
        "worth a look", f"on; {short} of {counted} statements take less than 0.1 s and 10 % of it to compile"
    )


def _pending(_entry: Entry, known: _Known) -> Judged:
    names = sorted(name for name, setting in known.settings.items() if setting.pending)
    if not names:
        return Judged("ok", "none")
    return Judged("worth a look", ", ".join(names))


def _statement_ids(_entry: Entry, known: _Known) -> Judged:
    """Judges by the session's own id, since ``auto`` computes ids only if a library asks for them."""
    setting = known.settings.get("compute_query_id")
    value = setting.value if setting else "this version has no such setting"
    if value == "auto" and not known.query_ids:
        value = f"{value}: on by itself once pg_stat_statements is loaded"
    return Judged("ok" if known.query_ids else "worth a look", value)


def _statement_texts(_entry: Entry, known: _Known) -> Judged:
    if known.texts is None:
        return Judged("unknown", "pg_stat_statements is not there or not permitted")
    if not known.texts.error:
        return Judged("ok", "readable")
    return Judged("worth a look", known.texts.error, steps=known.texts.cure)


def _statement_log(_entry: Entry, known: _Known) -> Judged:
    changes: dict[str, str] = {}
    if "log_statement" in known.settings and known.settings["log_statement"].value in ("all", "mod"):
        changes["log_statement"] = "none"
    if known.number("log_min_duration_statement", -1) == 0:
        changes["log_min_duration_statement"] = "-1"
    if known.is_on("log_duration"):
        changes["log_duration"] = "off"
    if known.number("log_min_duration_sample", -1) == 0 and known.number("log_statement_sample_rate") > 0:
        changes["log_min_duration_sample"] = "-1"
    return _logs_off(changes, known)


def _statistics_log(_entry: Entry, known: _Known) -> Judged:
    names = ("log_statement_stats", "log_parser_stats", "log_planner_stats", "log_executor_stats")
    return _logs_off({name: "off" for name in names if known.is_on(name)}, known)


def _logs_off(changes: Mapping[str, str], known: _Known) -> Judged:
    if not changes:
        return Judged("ok", "off")
    value = ", ".join(f"{name} = {known.settings[name].value}" for name in changes)
    return Judged("worth a look", value, steps=tuple(Step(f"{n}={v}") for n, v in changes.items()))


def _auto_explain(_entry: Entry, known: _Known) -> Judged:
    if "auto_explain.log_min_duration" not in known.settings:
        return Judged("ok", "auto_explain is not loaded")
    least_ms = known.number("auto_explain.log_min_duration", -1)
    rate = known.number("auto_explain.sample_rate", 1)
    if least_ms < 0 or rate == 0:
        return Judged("ok", "no statement is logged")
    if known.is_on("auto_explain.log_analyze") and known.is_on("auto_explain.log_timing"):
        value = f"log_analyze and log_timing are on, sample_rate {rate:g}"
        return Judged("worth a look", value, steps=(Step("auto_explain.log_timing=off"),))
    if least_ms == 0:
        steps = (Step("auto_explain.log_min_duration=-1"),)
        return Judged("worth a look", "the plan of each statement is logged", steps=steps)
    return Judged("ok", f"plans from {least_ms:g} ms on, without timing of rows")


_JUDGES: Mapping[str, Callable[[Entry, _Known], Judged]] = {
    "known-version": _version,
    "pending-restart": _pending,
    "optimised-build": _optimised,
    "jit": _jit,
    "statement-ids": _statement_ids,
    "statement-texts": _statement_texts,
    "statement-log": _statement_log,
    "statement-statistics-log": _statistics_log,
    "auto-explain": _auto_explain,
}


# -- what the checks of the machine need ------------------------------------------------------------


def _facts(known: _Known, results: tuple[Condition, ...], *, ours: bool) -> ServerConditions:
    direct = known.settings.get("debug_io_direct")
    huge = known.settings.get("huge_pages")
    status = known.settings.get("huge_pages_status")
    directory = known.settings.get("data_directory")
    shared = known.settings.get("shared_memory_size") or known.settings.get("shared_buffers")
    pages = known.number("shared_memory_size_in_huge_pages", -1)
    return ServerConditions(
        conditions=results,
        direct_io=None if direct is None else "data" in _split(direct.value),
        direct_setting="" if direct is None else f"debug_io_direct = {direct.value or chr(39) * 2}",
        direct_pending=direct is not None and direct.pending,
        shared_bytes=None if shared is None else shared.bytes,
        sessions=int(known.number("max_connections")) or None,
        processes=_processes(known),
        huge_pages=cast(Any, huge.value) if huge else None,
        huge_pages_got={"on": True, "off": False}.get(status.value) if status else None,
        huge_pages_needed=int(pages) if pages > 0 else None,
        shm_mount_bytes=_shm_needed(known),
        directory=None if directory is None else directory.value,
        ours=ours,
        cures={
            "shared-memory-mount": (
                Step("docker run --shm-size={needed}, or mount -o remount,size={needed} /dev/shm"),
            ),
        },
    )


def _split(value: str) -> list[str]:
    return [word.strip().lower() for word in value.split(",")]


def _processes(known: _Known) -> int:
    names = ("max_connections", "max_worker_processes", "max_wal_senders", "io_workers", "io_max_workers")
    workers = known.number("autovacuum_worker_slots") or known.number("autovacuum_max_workers")
    return int(sum(known.number(n) for n in names) + workers) + _HELPERS


def _shm_needed(known: _Known) -> int:
    """Returns the bytes that a parallel hash join may need in /dev/shm, 0 if it uses none.

    Each process may use work_mem times the multiplier in shared memory (PostgreSQL, "work_mem"), which
    dynamic_shared_memory_type = posix allocates in /dev/shm.
    """
    kind, each = known.settings.get("dynamic_shared_memory_type"), known.settings.get("work_mem")
    workers = min(known.number("max_parallel_workers_per_gather"), known.number("max_parallel_workers"))
    if kind is None or kind.value != "posix" or each is None or workers < 1:
        return 0
    return int(each.bytes * known.number("hash_mem_multiplier", 1) * (workers + 1))
