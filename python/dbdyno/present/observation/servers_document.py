"""Builds the document of servers that were observed together: tables side by side, charts over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import polars as pl

from dbdyno.model.results.raw import REPLAY_BEHIND, REPLAY_LAG
from dbdyno.model.results.results import Results
from dbdyno.model.sources.wait_families import AT_CLIENT, Family
from dbdyno.model.units import format_average, format_ns, format_rate, format_size
from dbdyno.present.charts import wall_clock
from dbdyno.present.charts.chart import channel, chart, coloured, encoded, layer, series_keys, time_unit, tips
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Paragraph,
    Row,
    Section,
    Statement,
    Statements,
    Table,
    known,
    numeric,
    optional,
    remarks,
    table,
    word,
)
from dbdyno.present.figures import headline
from dbdyno.present.figures.figures import grouped, percent, stretches
from dbdyno.present.observation.servers import MOST_STATEMENTS, Server, servers_of, title
from dbdyno.present.run import statements

_MOST_CLAIMS = 3
_WAITS = tuple(f for f in Family if f not in AT_CLIENT)


def document(several: Sequence[Results]) -> Document:
    """Returns all servers in one page."""
    servers = servers_of(several)
    sections = [
        Section(
            "Servers",
            [_table(servers), *remarks([*_unknown_rates(servers), *_legend(servers)])],
            "servers",
        ),
        Section("Over time", _charts(servers), "time", detail=True),
        Section("Top SQL", _statements(servers), "statements"),
        Section("Where the time of sessions went", [_families(servers)], "waits"),
        Section("What limits the trust in these figures", _claims(servers, None), "claims"),
        Section("Each server by itself", [_runs(servers)], "runs", detail=True),
    ]
    return Document(
        title(servers), [s for s in sections if s.blocks], lead=_lead(servers), footer=_footer(servers)
    )


def brief(several: Sequence[Results]) -> Document:
    """Returns the document for a terminal."""
    servers = servers_of(several)
    sections = [
        Section("", [_table(servers), *remarks(_unknown_rates(servers))]),
        Section("", [_families(servers)]),
        Section("", _statements(servers, 1)),
        Section("", _claims(servers, _MOST_CLAIMS)),
    ]
    each = ", ".join(f"dbdyno show {s.results.info.id} ({s.name})" for s in servers)
    return Document(
        title(servers),
        [s for s in sections if s.blocks],
        lead=_ends(servers),
        more=remarks([f"Each by itself: {each}"]),
    )


def _lead(servers: Sequence[Server]) -> list[Paragraph]:
    activities = [(s, [a.text for a in s.results.answers if a.id == headline.ACTIVITY]) for s in servers]
    return [
        *_ends(servers),
        *(Paragraph(f"{_named(s)}: {t}", lead=True) for s, texts in activities for t in texts),
    ]


def _ends(servers: Sequence[Server]) -> list[Paragraph]:
    """Returns warnings about observations that did not complete."""
    infos = [(s.name, s.results.info) for s in servers]
    return [
        Paragraph(f"{name}: this run is {info.status}: {info.reason or 'no reason was recorded'}.", "warning")
        for name, info in infos
        if info.status != "complete"
    ]


def _named(server: Server) -> str:
    return server.name if server.role is None else f"{server.name} ({server.role})"


def _figure(value: float | None) -> Cell:
    return known(value, format_average, "s/s")


def _part(name: str) -> Callable[[Server], Cell]:
    return lambda s: _figure(None if s.overview is None else getattr(s.overview, name))


def _table(servers: Sequence[Server]) -> Table:
    standbys = any(s.role == "standby" or s.most(REPLAY_BEHIND) is not None for s in servers)
    columns: list[tuple[Column, Callable[[Server], Cell]]] = [
        (Column("server"), lambda s: word(s.name)),
        (Column("role"), lambda s: word(s.role or UNKNOWN)),
        (Column("host", rank=4), lambda s: word(s.host)),
        (numeric("tx/s")._replace(name="transactions/s"), _rate(_RATES["transactions"])),
        (numeric("stmt/s")._replace(name="statements/s"), _rate(_RATES["statements"])),
        (numeric("sessions"), lambda s: known(s.overview and s.overview.sessions, lambda n: f"{n:,.0f}")),
        (numeric("DB time"), _part("db_time")),
        (numeric("DB CPU"), _part("db_cpu")),
        (numeric("CPU WAIT"), _part("cpu_wait")),
        *(
            [
                (numeric("not replayed", 1), _behind),
                (numeric("replay lag", 2), lambda s: optional(s.most(REPLAY_LAG), format_ns, "ns")),
            ]
            if standbys
            else []
        ),
        (Column("most time", rank=3), _top),
        (numeric("clock error", 5), lambda s: optional(s.clock_bound_ns, format_ns, "ns")),
    ]
    return table("Means over the windows; times in seconds per second", columns, servers, named=True)


_RATES: dict[str, Callable[[headline.Overview], headline.Rate]] = {
    "transactions": lambda o: o.transactions,
    "statements": lambda o: o.statements,
}


def _rate(which: Callable[[headline.Overview], headline.Rate]) -> Callable[[Server], Cell]:
    def cell(server: Server) -> Cell:
        if server.overview is None:
            return known(None, format_rate)
        rate = which(server.overview)
        return known(rate.per_s, format_rate, "1/s", rate.why)

    return cell


def _behind(server: Server) -> Cell:
    value = server.most(REPLAY_BEHIND)
    shown = known if server.role == "standby" else optional
    return shown(value, format_size, "bytes")


def _top(server: Server) -> Cell:
    top = server.overview.top if server.overview is not None else []
    if not top or top[0]["share"] is None:
        return Cell("-")
    return word(f"{top[0]['name']} {percent(top[0]['share'])} %")


def _unknown_rates(servers: Sequence[Server]) -> Iterator[str]:
    """Yields why rates are unknown, or known of some windows alone."""
    for what, which in _RATES.items():
        rates = [(s.name, which(s.overview)) for s in servers if s.overview is not None]
        for (why, in_part), names in grouped(
            ((r.why, r.per_s is not None), n) for n, r in rates if r.why
        ).items():
            of = f"{what}/s of {', '.join(names)}"
            yield f"{of}: of {why}." if in_part else f"{UNKNOWN} {of}: {why}."


def _legend(servers: Sequence[Server]) -> Iterator[str]:
    """Yields the meaning of the columns."""
    if len({tuple(s.over_time["t1_ns"].to_list()) for s in servers}) == 1:
        yield "The windows of all servers end at the same instants."
    if any(s.clock_bound_ns is not None for s in servers):
        yield "Clock error: times of that host are known to this on the clock of the host that dbdyno ran on."
    if any(s.most(REPLAY_BEHIND) is not None for s in servers):
        yield (
            "Not replayed: of a standby WAL that it has received, of a primary WAL that its slowest standby "
            "has not replayed; replay lag: time, of that standby. The most at any end of a window."
        )


def _families(servers: Sequence[Server]) -> Table:
    """Returns seconds per second, a row per family of waits and a column per server."""
    families = [f for f in _WAITS if any(f in s.waits for s in servers)]
    columns = [Column("time"), *(numeric(s.name) for s in servers)]
    rows: list[tuple[str, Callable[[Server], Cell]]] = [
        ("CPU", _part("db_cpu")),
        ("CPU WAIT", _part("cpu_wait")),
        *((f"asleep: {f}", _asleep(f)) for f in families),
        ("DB time", _part("db_time")),
    ]
    lines = [Row([word(name), *(cell(s) for s in servers)]) for name, cell in rows]
    return Table("Time of sessions, seconds per second", columns, lines, named=True)


def _asleep(family: Family) -> Callable[[Server], Cell]:
    return lambda s: _figure(s.waits[family]) if family in s.waits else Cell("-", note="none was seen")


def _statements(servers: Sequence[Server], most: int = MOST_STATEMENTS) -> list[Block]:
    """Returns the first statements of each server, one server below the other."""
    statement_rows = [(s, row) for s in servers for row in s.statements(most) if row["calls"] is not None]
    if not statement_rows:
        return []
    by_db_time = any(row["db_time_s"] is not None for _, row in statement_rows)
    shown = statements.DB_TIME_COLUMNS if by_db_time else statements.COLUMNS
    columns: list[tuple[Column, Callable[[tuple[Server, dict[str, Any]]], Cell]]] = [
        (Column("server", shortens=True), lambda f: word(f[0].name)),
        *((c, _for_row(cell)) for c, cell in shown if c.head in _SHOWN),
    ]
    by = "DB time" if by_db_time else "execution time"
    return [table(f"Top SQL of each server by {by}", columns, statement_rows)]


_SHOWN = ("statement", "calls", "DB time", "%", "exec time", "mean")


def _for_row(cell: Callable[[dict[str, Any]], Cell]) -> Callable[[tuple[Server, dict[str, Any]]], Cell]:
    return lambda pair: cell(pair[1])


def _claims(servers: Sequence[Server], most: int | None) -> list[Block]:
    statements = [
        Statement(f"{s.name}: {f.text}", "", "", f.severity, f.id, f.advice)
        for severity in ("invalid", "warning")
        for s in servers
        for f in s.results.findings
        if f.severity == severity
    ]
    return [Statements(statements[:most])] if statements else []


def _runs(servers: Sequence[Server]) -> Table:
    columns: list[tuple[Column, Callable[[Server], Cell]]] = [
        (Column("server"), lambda s: word(s.name)),
        (Column("system"), lambda s: word(_system(s.results))),
        (Column("run"), lambda s: word(s.results.info.id)),
        (Column("status"), lambda s: word(s.results.info.status)),
        (numeric("windows"), lambda s: known(s.over_time.height, str)),
    ]
    return table("Each is a run: dbdyno show RUN, dbdyno report RUN", columns, servers)


def _system(results: Results) -> str:
    return results.environment.server.name


def _footer(servers: Sequence[Server]) -> str:
    info = min((s.results.info for s in servers), key=lambda i: i.started)
    started = f"{info.started.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    return f"Observation {info.group} · started {started} · measured with dbdyno {info.dbdyno}"


# Charts.


def _charts(servers: Sequence[Server]) -> list[Block]:
    rates = (
        (
            "transactions_per_s",
            "Transactions per second",
            "transactions/s",
            1.0,
            "Committed and rolled back.",
        ),
        (
            "statements_per_s",
            "Statements per second",
            "statements/s",
            1.0,
            "Statements that each server executed.",
        ),
    )
    drawn = (
        (
            "db_time",
            "Average active sessions",
            "active sessions (s/s)",
            1.0,
            "DB time of each server: how many of its sessions were active, on average of a window.",
        ),
        (
            "cpu_wait",
            "CPU WAIT",
            "seconds per second",
            1.0,
            "Time for which active sessions waited for a CPU of their server.",
        ),
    )
    charts = [_chart(servers, *arguments) for arguments in (*rates, *drawn)]
    if any(lags := [v for s in servers if (v := s.most(REPLAY_LAG)) is not None]):
        unit, factor = time_unit(max(lags))
        caption = "Of a primary, its slowest standby's, at the ends of windows."
        charts.append(_chart(servers, REPLAY_LAG, "Replay lag", f"lag, {unit}", factor, caption))
    caption = (
        "WAL that a standby has received and not replayed, a primary's slowest one; at the ends of windows."
    )
    charts.append(_chart(servers, REPLAY_BEHIND, "WAL not replayed", "MiB", 1 << 20, caption))
    return [c for c in charts if c is not None]


def _chart(
    servers: Sequence[Server], column: str, title: str, unit: str, factor: float, caption: str
) -> Chart | None:
    """Returns a step per window and server on one time axis; None if no value is above 0."""
    names = [s.name for s in servers]
    steps = [_steps(s, column, factor) for s in servers]
    rows = [row for of_server in steps for row in of_server]
    if not any(r["value"] for r in rows):
        return None
    longest = max(servers, key=lambda s: s.over_time.height).results
    tooltip = tips("server:N", *wall_clock.FROM_TO, ("value:Q", ",.3~r", unit))
    step = encoded(
        layer(rows, "rule", strokeWidth=3, opacity=0.9),
        **wall_clock.x_span(longest),
        y=channel("value:Q", title=unit, scale={"zero": True}),
        color=coloured("server", names),
        tooltip=tooltip,
    )
    gaps = [w for s in servers for w in wall_clock.left_open(s.results, s.name)]
    return chart(
        column.replace("_", "-"),
        title,
        caption + (" Grey: a server was not measured there." if gaps else ""),
        [*gaps, step],
        f"{title} of each server over time",
        rows,
        legend=series_keys(names),
        wide=True,
    )


def _steps(server: Server, column: str, factor: float) -> list[dict[str, Any]]:
    """Returns the windows of a server with known values; many windows are merged into stretches."""
    places = stretches(server.results).select("cell", "place", "weight")
    known_rows = server.over_time.join(places, on="cell").filter(pl.col(column).is_not_null())
    value, weight = pl.col(column), pl.col("weight")
    together = known_rows.group_by("place", maintain_order=True).agg(
        pl.col("t0_ns").min(),
        pl.col("t1_ns").max(),
        value=((value * weight).sum() / weight.sum() / factor).round(4),
    )
    return (
        wall_clock.with_times(server.results, together.drop("place"))
        .with_columns(server=pl.lit(server.name))
        .to_dicts()
    )
