"""The ledger of a cell behind a connection pooler: N sessions take turns on the pool's server connections.

The rung's W is that of the N sessions. Between calls they are at the client (driver's clock). In a call they
wait for a server connection (``pool.queue``, the pooler's own count) or are served by one: run, run queue and
sleep of the pool's connections. The connections' own sleep at the client is not time of a session. The rest
is the way through the pooler and back. A single session's time in a call is not divided, as it shares the
connections.

docs/pool.md has the method.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.model.results.session_time import each_in_call
from dbdyno.model.schema.tables import Tables
from dbdyno.model.sources.wait_families import AT_CLIENT, families_of

QUEUE = "pool.queue"
SHARED = "shared"
"""Status of accounts that cannot be divided by session, as sessions share server connections."""
SCOPE = "pooler"
_OWN = ("client", "unaccounted")  # accounts of the connections that do not belong to sessions
_SOURCE = "pooler"
_IDLE = "a server connection of the pool that waits for work is no session's time"
_LEFT = "W less all other accounts; the way through the pooler and back is in it"


def with_pool(rows: pl.DataFrame, noted: pl.DataFrame, cut: Tables) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns rows of accounts and memos, with those of pooled cells converted to the N sessions."""
    pools = pools_of(cut)
    if pools.is_empty():
        return rows, noted
    in_pool = pl.col("cell").is_in(pools["cell"].implode())
    rung = pl.col("scope") == "rung"
    served = rows.filter(in_pool & rung & ~pl.col("account").is_in(_OWN))
    kept = rows.filter(~in_pool | ~pl.col("scope").is_in(["rung", "session"]))
    pools = _with_served(pools, rows.filter(in_pool & rung))
    parts = [kept, served, _rungs(pools), _sessions(pools, cut)]
    kept_memos = noted.filter(~in_pool | ((pl.col("who") == "rung") & (pl.col("account") != "wall")))
    return pl.concat(parts, how="diagonal_relaxed"), pl.concat(
        [kept_memos, _memos(pools)], how="diagonal_relaxed"
    )


def through_pool(events: pl.DataFrame, cut: Tables) -> pl.DataFrame:
    """Returns the rows of table ``events``. Pooled cells lose the connections' own sleep at the client,
    and get the pool's queue."""
    pools = pools_of(cut)
    if pools.is_empty():
        return events
    in_pool = pl.col("cell").is_in(pools["cell"].implode())
    own = in_pool & families_of(cut).among(*AT_CLIENT)
    sleeps = [n for n in events.columns if n.startswith("sleep")]
    rows = events.filter(~in_pool | (pl.col("scope") != "session")).with_columns(
        *(pl.when(own).then(None).otherwise(n).alias(n) for n in sleeps),
        status=pl.when(own).then(pl.lit(_IDLE)).otherwise("status"),
    )
    busy = (pl.col("run").fill_null(0.0) > 0) | (pl.col("runq").fill_null(0.0) > 0)
    queue = pools.select(
        "cell",
        scope=pl.lit("rung"),
        who=pl.lit("rung"),
        wait_class=pl.lit("Pool"),
        wait_event=pl.lit("Queue"),
        sleep="queue",
        sleep_low=(pl.col("queue") - pl.col("queue_slack")).clip(0.0),
        sleep_high=pl.col("queue") + pl.col("queue_slack"),
        status="queue_status",
        source=pl.lit(_SOURCE),
    )
    return pl.concat([rows.filter(~own | busy), queue], how="diagonal_relaxed")


def pools_of(cut: Tables) -> pl.DataFrame:
    """Returns one row per pooled cell: ``n`` sessions; seconds per second ``between`` calls, in ``queue``
    and ``waited`` for the client inside transactions, each with its error (``_slack``); and ``workers``."""
    levels = cut["cut_levels"].filter((pl.col("origin") == "engine") & (pl.col("scope") == SCOPE))
    pools = [_pool(cell, levels.filter(pl.col("cell") == cell), cut) for cell in levels["cell"].unique()]
    return pl.DataFrame(pools, schema=_SCHEMA)


_SCHEMA = {
    "cell": pl.String,
    "n": pl.Float64,
    "between": pl.Float64,
    "failed": pl.Boolean,
    "queue": pl.Float64,
    "queue_slack": pl.Float64,
    "queue_status": pl.String,
    "waited": pl.Float64,
    "waited_slack": pl.Float64,
    "workers": pl.Float64,
}


def _pool(cell: str, levels: pl.DataFrame, cut: Tables) -> dict[str, Any]:
    level_by_key = {row["key"]: row for row in levels.to_dicts()}
    sessions = cut["cell_sessions"].filter(pl.col("cell") == cell)
    t0_ns, t1_ns = cut["windows"].filter(pl.col("cell") == cell).select("t0_ns", "t1_ns").row(0)
    spent = each_in_call(sessions, t0_ns, t1_ns)
    n, in_call = float(spent["alive"].sum()), float(spent["in_call"].sum())
    known = spent["in_call"].null_count() < spent.height
    workers = cut["cut_tasks"].filter((pl.col("cell") == cell) & "worker" & (pl.col("role") == "session"))
    return {
        "cell": cell,
        "n": n,
        "between": n - in_call if known else None,
        "failed": bool(sessions["errors"].sum()),
        "workers": float((workers["wall_ns"] / workers["over_ns"]).sum() or 0.0),
        **_queue(level_by_key),
        **_waited_in_transactions(level_by_key),
    }


def _queue(level_by_key: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns the pool's queue. Clients that wait during a read may have begun or ended their wait while
    it was read."""
    wait = level_by_key.get("pool_wait_ns", {})
    if wait.get("delta") is None:
        status = wait.get("status", "lost")  # too short: it was read at one end only
        status = "lost" if status == "too short" else status
        return {"queue": None, "queue_slack": None, "queue_status": status}
    waiting, read = level_by_key.get("pool_waiting", {}), level_by_key.get("pool_read_ns", {})
    unsure = sum((waiting.get(e) or 0.0) * (read.get(e) or 0.0) for e in ("first", "last"))
    return {
        "queue": wait["delta"] / wait["wall_ns"],
        "queue_slack": unsure / wait["wall_ns"],
        "queue_status": "ok",
    }


def _waited_in_transactions(level_by_key: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns transaction time less query time: the server connection waited for its client's next
    statement. It is booked at the end of a transaction, so transactions in progress at either end of the
    window are its error."""
    names = ("pool_transaction_time_ns", "pool_query_time_ns", "pool_transactions")
    whole, query, count = (level_by_key.get(n, {}).get("delta") for n in names)
    if whole is None or query is None or not count:
        return {"waited": 0.0, "waited_slack": 0.0}
    wall_ns = level_by_key["pool_query_time_ns"]["wall_ns"]
    waited = max(0.0, whole - query)
    size = level_by_key.get("pool_size", {}).get("last") or 0.0
    return {"waited": waited / wall_ns, "waited_slack": size * waited / count / wall_ns}


def _with_served(pools: pl.DataFrame, backends: pl.DataFrame) -> pl.DataFrame:
    """Adds the time that the connections served sessions, and its sampling error."""
    account, aas = pl.col("account"), pl.col("aas")
    counted = ~account.is_in(_OWN) & pl.col("parent").is_null()

    def end(name: str, column: str) -> pl.Expr:
        return pl.col(column).filter(account == name).sum()

    sums = backends.group_by("cell").agg(
        served=aas.filter(counted).sum(),
        idle=aas.filter(account == "client").sum(),
        below=sum((end(n, "aas") - end(n, "low") for n in _OWN), pl.lit(0.0)),
        above=sum((end(n, "high") - end(n, "aas") for n in _OWN), pl.lit(0.0)),
        connections=aas.filter(counted | account.is_in(_OWN)).sum(),
    )
    pools = pools.join(sums, on="cell", how="left", maintain_order="left")
    client = pl.col("between").fill_null(0.0) + pl.col("waited")
    return pools.with_columns(
        client=client,
        left=pl.col("n") + pl.col("workers") - client - pl.col("queue").fill_null(0.0) - pl.col("served"),
        unsure=pl.col("queue_slack").fill_null(0.0) + pl.col("waited_slack"),
    )


def _rungs(pools: pl.DataFrame) -> pl.DataFrame:
    """Returns accounts client, pool.queue and unaccounted of each rung."""
    value, slack = pl.col("client"), pl.col("waited_slack")
    known = pl.col("between").is_not_null()
    client = pools.select(
        "cell",
        account=pl.lit("client"),
        aas=pl.when(known).then(value),
        # A failed call has an end but no duration, so its time counts as client, too.
        low=pl.when(known).then(pl.when("failed").then(0.0).otherwise((value - slack).clip(0.0))),
        high=pl.when(known).then(value + slack),
        status=pl.when(known).then(pl.lit("ok")).otherwise(pl.lit("no measured calls")),
        source=pl.lit("driver; pooler"),
    )
    queue = pools.select(
        "cell",
        account=pl.lit(QUEUE),
        aas="queue",
        low=(pl.col("queue") - pl.col("queue_slack")).clip(0.0),
        high=pl.col("queue") + pl.col("queue_slack"),
        status="queue_status",
        source=pl.lit(_SOURCE),
    )
    left = pools.select(
        "cell",
        account=pl.lit("unaccounted"),
        aas="left",
        low=pl.col("left") - pl.col("unsure") - pl.col("below").fill_null(0.0),
        high=pl.col("left")
        + pl.col("unsure")
        + pl.col("above").fill_null(0.0)
        + pl.when("failed").then("client").otherwise(0.0),
        status=pl.lit("ok"),
        source=pl.lit(_LEFT),
    )
    return pl.concat([client, queue, left]).with_columns(scope=pl.lit("rung"), who=pl.lit("rung"))


def _sessions(pools: pl.DataFrame, cut: Tables) -> pl.DataFrame:
    """Returns the accounts of each session: at the client, and the undivided rest in calls."""
    parts = []
    for cell in pools["cell"]:
        sessions = cut["cell_sessions"].filter(pl.col("cell") == cell)
        window = cut["windows"].filter(pl.col("cell") == cell)
        spent = each_in_call(sessions, *window.select("t0_ns", "t1_ns").row(0))
        parts.append(pl.concat(list(_of_sessions(spent)), how="diagonal").with_columns(cell=pl.lit(cell)))
    return pl.concat(parts).with_columns(scope=pl.lit("session"), who=pl.lit("session"))


def _of_sessions(spent: pl.DataFrame) -> Iterator[pl.DataFrame]:
    for account in ("run.user", "run.system", "run", "runq", "sleep"):
        status = {"status": pl.lit(SHARED), "source": pl.lit("os tasks")}
        yield spent.select("session", account=pl.lit(account), aas=pl.lit(None, pl.Float64), **status)
    at_client = pl.col("alive") - pl.col("in_call")
    known = at_client.is_not_null()
    yield spent.select(
        "session",
        account=pl.lit("client"),
        aas=at_client,
        low=at_client,
        high=at_client,
        status=pl.when(known).then(pl.lit("ok")).otherwise(pl.lit("no measured calls")),
        source=pl.lit("driver"),
    )
    nothing = {"status": pl.lit(SHARED), "source": pl.lit(_SOURCE)}
    yield spent.select("session", account=pl.lit(QUEUE), aas=pl.lit(None, pl.Float64), **nothing)
    left = pl.col("alive") - at_client.fill_null(0.0)
    ends = dict.fromkeys(("aas", "low", "high"), left)
    yield spent.select(
        "session", account=pl.lit("unaccounted"), **ends, status=pl.lit("ok"), source=pl.lit(_LEFT)
    )


def _memos(pools: pl.DataFrame) -> pl.DataFrame:
    """Returns W of the sessions, and of the server connections their number and the time that they waited
    for work."""
    whole = pl.col("n") + pl.col("workers")
    figures = {
        "wall": (whole, "driver"),
        "pool.connections": (pl.col("connections"), "os tasks"),
        "pool.idle": ((pl.col("idle") - pl.col("waited")).clip(0.0), "os tasks; pooler"),
        "client.between": (pl.col("between"), "driver"),
        "client.in_transaction": (pl.col("waited"), _SOURCE),
    }
    rows = [
        pools.select("cell", account=pl.lit(name), aas=value, low=value, high=value, source=pl.lit(source))
        for name, (value, source) in figures.items()
    ]
    return pl.concat(rows).drop_nulls("aas").with_columns(status=pl.lit("ok"), who=pl.lit("rung"))
