"""Table ``script_ledger``: where session time went by script and, under it, by statement. Pure.

The client's time of each statement is exact. Within it, CPU time, run queue and sleep come from
``statement_ledger`` by query id. An id that several statements share is divided by the client's time in
each. A server may have no id for statements that it does not plan (begin, commit). Time without an id is
assigned to these and to statements without any id, in proportion to their remaining client time and not
above it. The rest of a statement's time is the client's: the network, the driver, and the error of the
other parts; it is signed.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.script_statements import script_statements
from dbdyno.model.results.ledger_rows import groups
from dbdyno.model.results.session_time import in_call
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.scripted import DIVIDED, NO_ID, NO_LEDGER, NO_TEXT, ScriptPart
from dbdyno.model.schema.tables import ByCell, Tables, conform, empty, sum_of_known
from dbdyno.model.units import NS_PER_S

NAME = "script_ledger"
DRIVER, LEFT = "driver", "what is left"
_CELL = [c.name for c in CELL]
_HALVES = ("run.user", "run.system")
_SERVED = ("run", "runq", "sleep")
_COMMAND = ["script", "name", "command", "line", "text"]
_VALUES = ("seconds", "low", "high")
_NEEDED = ("script_rates", "command_rates", "statement_ledger", "ledger", "cell_sessions")


@makes("script_ledger", stage="run")
def script_ledger(tables: Tables) -> pl.DataFrame:
    """Returns the ledger of each cell, from the tables of scripts, ``statement_ledger``,
    ``statement_texts`` and ``ledger``."""
    if tables["command_rates"].is_empty():
        return empty(NAME)
    frames = [empty(NAME)]
    matched = script_statements(tables["command_rates"], tables["statement_texts"])
    parts = ByCell({n: tables[n] for n in _NEEDED} | {"matched": matched})
    for window in tables["windows"].to_dicts():
        in_cell = parts.of(window["cell"])
        if in_cell["script_rates"].height and in_cell["command_rates"].height:
            frames.append(_cell_ledger(window, in_cell, in_cell["matched"]))
    return pl.concat(frames)


@makes("script_ledger", stage="total")
def script_ledger_total(tables: Tables) -> pl.DataFrame:
    """Returns the ledger over all usable cells of a workload, variant and load together."""
    frames = [empty(NAME)]
    for head, cells in groups(tables["windows"]):
        rows = tables[NAME].filter(pl.col("cell").is_in([w["cell"] for w in cells]))
        sums = rows.group_by(*_COMMAND, "part", "account", "detail", maintain_order=True).agg(
            *(sum_of_known(n) for n in _VALUES),
            pl.col("status").filter(pl.col("status") != "ok").first().fill_null("ok"),
            pl.col("source").unique().sort().str.join("; "),
        )
        frames.append(_with_shares(sums, head))
    return pl.concat(frames)


def _cell_ledger(window: dict[str, Any], tables: Tables, ids: pl.DataFrame) -> pl.DataFrame:
    scripts, commands = tables["script_rates"], _timed_commands(tables["command_rates"])
    paced = window["rate_per_s"] is not None
    scale = 1.0 if paced else _share_in_window(window, tables)
    commands = commands.with_columns(pl.col("seconds") * scale)
    server = _server_accounts(commands, ids, tables["statement_ledger"])
    rows = [_driver_rows(commands, ScriptPart.STATEMENT), _with_rest(commands, server)]
    rows.append(_unmatched_accounts(server, tables["statement_ledger"]))
    if not paced:  # a paced call's duration begins when it was due
        spent = scripts.select("script", "name", calls=pl.col("in_call_ns") / NS_PER_S * scale)
        inside = commands.group_by("script").agg(pl.col("seconds").sum())
        between = spent.join(inside, on="script", how="left", maintain_order="left")
        left = between.with_columns(seconds=pl.col("calls") - pl.col("seconds").fill_null(0.0))
        rows.append(_driver_rows(left, ScriptPart.BETWEEN_STATEMENTS))
    known = pl.concat(rows, how="diagonal_relaxed")
    timed = float(known.filter(pl.col("account") == "all")["seconds"].sum())
    rest = pl.DataFrame({"seconds": [_session_seconds(window, tables["ledger"]) - timed]})
    rows.append(_driver_rows(rest, ScriptPart.BETWEEN_CALLS))
    return _with_shares(pl.concat(rows, how="diagonal_relaxed"), window)


def _timed_commands(commands: pl.DataFrame) -> pl.DataFrame:
    """Selects the commands that took time: they waited for the server, or slept."""
    spent = pl.col("total_ns") / NS_PER_S
    return commands.filter(pl.col("total_ns") > 0).select(*_COMMAND, "executions", seconds=spent)


def _share_in_window(window: dict[str, Any], tables: Tables) -> float:
    """Returns the share of the time in measured calls that lies in the window: the last calls may end
    after it."""
    spent = float(tables["script_rates"]["in_call_ns"].sum()) / NS_PER_S
    known = in_call(tables["cell_sessions"], window["t0_ns"], window["t1_ns"])
    return 1.0 if known is None or not spent else known * window["wall_s"] / spent


def _session_seconds(window: dict[str, Any], ledger: pl.DataFrame) -> float:
    wall = ledger.filter((pl.col("scope") == "memo") & (pl.col("account") == "wall"))["aas"].drop_nulls()
    return float((wall[0] if len(wall) else window["sessions"]) * window["wall_s"])


def _server_accounts(commands: pl.DataFrame, ids: pl.DataFrame, ledger: pl.DataFrame) -> pl.DataFrame:
    """Returns seconds of the server's accounts by command; empty if there are no times by statement."""
    key = ["script", "command"]
    spent = commands.select(*key, "seconds")
    known = ids.select(*key, "query_id").join(spent, on=key).drop_nulls("query_id").unique()
    accounts = _accounts(ledger)
    named = known.join(accounts.drop_nulls("query_id"), on="query_id", maintain_order="left", suffix="_all")
    seconds = pl.col("seconds")
    every = known.group_by("query_id").agg(every=seconds.sum(), count=pl.len())
    # Commands that share an id are indistinguishable in the server: the client's time is the best key to
    # divide by.
    named = named.join(every, on="query_id").with_columns(part=seconds / pl.col("every"))
    many = pl.col("count") > 1
    source = pl.when(many).then(pl.format("{}; {}", "source", pl.lit(DIVIDED))).otherwise("source")
    parts = [named.with_columns(source=source)]
    if named.height:  # ids are known: what has none is known, too
        unnamed = _commands_without_id(ids.select(*key, "statement"), spent, named)
        parts.append(_without_id(unnamed, accounts.filter(pl.col("query_id").is_null())))
    both = pl.concat(parts, how="diagonal_relaxed")
    values = [(pl.col(f"{n}_all") * pl.col("part")).sum().alias(n) for n in _VALUES]
    return both.group_by(*key, "account", "detail", maintain_order=True).agg(
        *values, pl.col("source").first()
    )


def _accounts(ledger: pl.DataFrame) -> pl.DataFrame:
    """Sums accounts by query id. Parallel workers are left out, as their time runs beside their session's."""
    own = ~pl.col("worker").fill_null(value=False)
    kept = ledger.filter(pl.col("account").is_in([*_SERVED, *_HALVES]) & own)
    sums = kept.group_by("query_id", "account", "detail", maintain_order=True).agg(
        *(pl.col(n).sum() for n in _VALUES), pl.col("source").first()
    )
    return sums.rename({n: f"{n}_all" for n in _VALUES})


def _commands_without_id(texts: pl.DataFrame, spent: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """Returns commands that may have time without an id, with their remaining client time."""
    key = ["script", "command"]
    served = named.filter(pl.col("account").is_in(_SERVED)).with_columns(
        met=pl.col("seconds_all") * pl.col("part")
    )
    served_s = served.group_by(key).agg(pl.col("met").sum())
    planned = texts.filter(pl.col("statement").str.contains(_PLANNED)).select(key).unique()
    left = spent.join(served_s, on=key, how="left", maintain_order="left").join(planned, on=key, how="semi")
    bare = spent.join(served_s, on=key, how="left", maintain_order="left").join(planned, on=key, how="anti")
    both = pl.concat([bare, left.filter(pl.col("met").is_null())])
    return both.select(*key, seconds=(pl.col("seconds") - pl.col("met").fill_null(0.0)).clip(0.0))


_PLANNED = r"^\(* ?(select|insert|update|delete|merge|with|values|table)\b"


def _without_id(bare: pl.DataFrame, accounts: pl.DataFrame) -> pl.DataFrame:
    """Divides time without an id among such commands, in proportion to their client time and not above it."""
    client = float(bare["seconds"].sum())
    served = float(accounts.filter(pl.col("account").is_in(_SERVED))["seconds_all"].sum())
    # Time in the server is part of the client's time, so it cannot exceed it.
    most = min(1.0, client / served) if served > 0 else 0.0
    shares = bare.with_columns(part=pl.col("seconds") / client * most if client > 0 else pl.lit(0.0))
    both = shares.join(accounts, how="cross").with_columns(
        source=pl.format("{}; {}", "source", pl.lit(NO_ID))
    )
    if bare.height < 2:
        return both
    high = pl.min_horizontal("seconds", "high_all") / pl.col("part")  # nobody knows which of them had it
    return both.filter(pl.col("part") > 0).with_columns(low_all=pl.lit(0.0), high_all=high)


def _with_rest(commands: pl.DataFrame, server: pl.DataFrame) -> pl.DataFrame:
    """Returns the server's accounts of each command, and the rest of the client's time; NULL if the former
    are unknown."""
    named = commands.select(_COMMAND).join(server, on=["script", "command"], maintain_order="left")
    served = server.filter(pl.col("account").is_in(_SERVED)).group_by("script", "command")
    sums = commands.join(
        served.agg(pl.col(_VALUES).sum()), on=["script", "command"], how="left", suffix="_in"
    )
    why = NO_TEXT if server.height else NO_LEDGER
    left = sums.select(
        *_COMMAND,
        account=pl.lit("client"),
        source=pl.lit(LEFT),
        status=pl.when(pl.col("seconds_in").is_null()).then(pl.lit(why)).otherwise(pl.lit("ok")),
        low=pl.col("seconds") - pl.col("high"),
        high=pl.col("seconds") - pl.col("low"),
        seconds=pl.col("seconds") - pl.col("seconds_in"),
    )
    rows = pl.concat([named, left], how="diagonal_relaxed")
    return rows.with_columns(part=pl.lit(ScriptPart.STATEMENT), status=pl.col("status").fill_null("ok"))


def _unmatched_accounts(server: pl.DataFrame, ledger: pl.DataFrame) -> pl.DataFrame:
    """Returns the server's time in statements of no script. It is contained in the rests of the script's
    statements."""
    key = ["account", "detail"]
    every = (
        _accounts(ledger)
        .group_by(key, maintain_order=True)
        .agg(*(pl.col(f"{n}_all").sum().alias(n) for n in _VALUES), pl.col("source").first())
    )
    matched = server.group_by(key).agg(pl.col(_VALUES).sum())
    both = every.join(matched, on=key, how="left", nulls_equal=True, maintain_order="left", suffix="_in")
    left = both.with_columns(pl.col(n) - pl.col(f"{n}_in").fill_null(0.0) for n in _VALUES)
    shown = left.filter(pl.col("seconds").abs() > _ROUNDING) if server.height else left.clear()
    named = shown.with_columns(part=pl.lit(ScriptPart.OTHER_STATEMENTS), status=pl.lit("ok"))
    return named.select(*key, *_VALUES, "part", "status", "source")


_ROUNDING = 1e-9


def _driver_rows(rows: pl.DataFrame, part: ScriptPart) -> pl.DataFrame:
    """Returns rows of account ``all``: time by the driver's clock."""
    columns = [c for c in _COMMAND if c in rows.columns]
    seconds = pl.col("seconds")
    same = {"part": part.value, "account": "all", "status": "ok", "source": DRIVER}
    named = {n: pl.lit(v) for n, v in same.items()}
    return rows.select(*columns, seconds, low=seconds, high=seconds, **named)


def _with_shares(rows: pl.DataFrame, head: dict[str, Any]) -> pl.DataFrame:
    whole = pl.col("seconds").filter(pl.col("account") == "all").sum()
    named = {n: pl.lit(head[n]) for n in _CELL}
    return conform(NAME, rows.with_columns(share=pl.when(whole > 0).then(pl.col("seconds") / whole), **named))
