"""Table ``costs``: what a call and a unit of work cost the server, the client and the network.

A figure of a call is the figure of the window over the calls of the window, by the same rates as the table
``rates``. Where the server counts by session, a figure is that of the load's own sessions; else of all
sessions; else of the whole server, which the source then says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.results.ledger_rows import BY_LABEL, groups
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.costs import (
    AT_LEAST,
    CALL,
    CLIENT_CPU,
    COUNTERS,
    CPU,
    FIGURES,
    INCLUDED,
    INVOLUNTARY,
    LESS_SESSIONS,
    NETWORK,
    NO_TICK,
    RECEIVED,
    ROUND_TRIPS,
    SENT,
    SERVER_WIDE,
    SMALL,
    SOME_WINDOWS,
    SYSTEM,
    SYSTEM_CALLS,
    USER,
    VOLUNTARY,
    WARM_UP,
    WORK,
)
from dbdyno.model.schema.tables import ByCell, Tables, empty, rows
from dbdyno.model.sources.cost_counters import BACKGROUND, COUNTED, SESSIONS, Counted
from dbdyno.model.sources.source import TRACE
from dbdyno.model.sources.wait_families import ROLE
from dbdyno.model.units import NS_PER_S
from dbdyno.stats.estimates import Mean

_TASKS, _DRIVER, _EXECUTIONS, _CALLS = "os tasks", "driver", "executions", "system calls"
_READ = ("rates", "ledger", "microstates", "system_calls", "execution_rates", "device_io")
_CUT = ("cut_work", "cut_levels", "cut_tasks", "cell_sessions")
_UNITS = {f.id: f.unit for f in FIGURES}
TELLING = 0.02
"""Share of the server's count from which on the rest beside the sessions' counts as that of others: both are
scaled to the window, which leaves about a call at each end."""
FILLING = ("reads", "read_bytes")
"""Figures that first calls have more of than later ones, as they fill caches."""
STEADY = 0.5
"""Least part of a call's figure that calls of the window have alone if the warm-up was like them; reports of
the server are up to a second late, which shifts its count of the window by as much."""
_HALVES = {USER: "run.user", SYSTEM: "run.system"}
_OFF, _IDLE = "off", "no measured calls"
_MISSED = {
    "vanished": "{} ended in the window: what it used after its last reading is missing",
    "too short": "{} lived too briefly to be read twice: what it used is missing",
}
"""Status of a process that came or went in the window -> what is missing of it."""
_EXECUTED = {
    USER: "cpu_user_ns",
    SYSTEM: "cpu_system_ns",
    VOLUNTARY: "voluntary",
    INVOLUNTARY: "involuntary",
    "read_bytes": "read_bytes",
    "written_bytes": "written_bytes",
}
"""Columns of ``execution_rates``: means of the executions that ended well."""

Row = dict[str, Any]


class Share(NamedTuple):
    """A figure of a call: of sessions, or of the server's own processes."""

    value: float | None
    status: str = "ok"
    source: str = ""

    @property
    def reason(self) -> str:
        if self.value is not None:
            return self.status if self.status.startswith(AT_LEAST) else "ok"
        return self.status if self.status != "ok" else _IDLE


Ends = tuple[float | None, float | None]
_NO_ENDS: Ends = (None, None)


class Cost(NamedTuple):
    of_sessions: Share
    background: Share
    ends: Ends = _NO_ENDS


_NOBODY = Share(None, "none: the client's")
"""The background's share of a figure of the client or the network."""


@makes("costs", reads=_READ)
def costs(tables: Tables) -> pl.DataFrame:
    """Returns the costs of each cell of a driven load. Reads ``windows``, ``cut_work``, ``cut_levels``,
    ``cut_tasks``, ``cell_sessions`` and the tables of ``reads``."""
    parts = ByCell({name: tables.get(name, empty(name)) for name in (*_READ, *_CUT)})
    records: list[Row] = []
    for window in tables["windows"].iter_rows(named=True):
        cell = parts.of(window["cell"])
        if cell["cell_sessions"].height:
            head = {c.name: window[c.name] for c in CELL}
            records += [head | row for row in _rows(_Cell(cell), float(window["wall_s"]))]
    return rows("costs", records)


@makes("costs", stage="total")
def costs_total(windows: pl.DataFrame, costs: pl.DataFrame) -> pl.DataFrame:
    """Returns the costs over all usable cells of a load together (cell ``all``): sums over sums. The
    interval is Student's over the cells, and not narrower than their own."""
    records: list[Row] = []
    for head, cells in groups(windows):
        of_load = costs.filter(pl.col("cell").is_in([w["cell"] for w in cells]))
        whole: dict[str, list[Row]] = {}
        for (per, name), figure in of_load.group_by("per", "figure", maintain_order=True):
            repeats = figure.to_dicts()
            if name == CPU:
                whole[str(per)] = repeats
            if name in _HALVES:
                repeats = _as_the_whole(repeats, whole.get(str(per), []))
            records.append(head | _together(repeats))
    return rows("costs", records)


def _as_the_whole(halves: list[Row], whole: list[Row]) -> list[Row]:
    """Returns the rows of user or kernel CPU time, unknown in every cell if one lacks it whose CPU time is
    known: over fewer cells, a part is not one of the whole and may exceed it."""
    records = halves
    for behind in ("", "background_"):
        total, status = f"{behind}total", f"{behind}status"
        counted = {r["cell"] for r in whole if r[total] is not None}
        lacking = [r[status] for r in halves if r[total] is None and r["cell"] in counted]
        if lacking:
            unknown = {total: None, status: lacking[0]}
            records = [r | unknown for r in records]
    return records


def _together(repeats: list[Row]) -> Row:
    """Returns a figure of several cells together."""
    known = [r for r in repeats if r["total"] is not None]
    behind = [r for r in repeats if r["background_total"] is not None]
    first = (known or repeats)[0]
    record = {name: first[name] for name in ("per", "figure", "unit")}
    record["source"] = next((r["source"] for r in known if r["source"].endswith(WARM_UP)), first["source"])
    record["status"] = _of_all(known, repeats, "status")
    with_background = (behind or repeats)[0]
    record |= {n: with_background[n] for n in ("background_status", "background_source")}
    record["background_status"] = _of_all(behind, repeats, "background_status")
    if behind:
        record["background_total"] = sum(r["background_total"] for r in behind)
        record["background"] = record["background_total"] / sum(r["units"] for r in behind)
    if known:
        record["total"], record["units"] = (sum(r[n] for r in known) for n in ("total", "units"))
        record["value"] = record["total"] / record["units"]
        record["low"], record["high"] = _interval(known, record["value"])
    return record


def _of_all(known: list[Row], repeats: list[Row], status: str) -> str:
    if not known:
        return str(repeats[0][status])
    if lacking := [r[status] for r in known if r[status].startswith(AT_LEAST)]:
        return str(lacking[0])
    return "ok" if len(known) == len(repeats) else f"{len(known)} of {len(repeats)}{SOME_WINDOWS}"


def _interval(known: list[Row], value: float) -> Ends:
    """Returns Student's interval over the cells, widened to the mean of their own intervals."""
    student = Mean.of(r["value"] for r in known).positive95
    own = [(r["low"], r["high"]) for r in known if r["low"] is not None and r["high"] is not None]
    ends = [student] if student else []
    if len(own) == len(known):
        ends.append((sum(low for low, _ in own) / len(own), sum(high for _, high in own) / len(own)))
    if not ends:
        return _NO_ENDS
    return min(value, *(low for low, _ in ends)), max(value, *(high for _, high in ends))


def _rows(cell: _Cell, wall_s: float) -> Iterator[Row]:
    """Yields the rows of a cell: of a call, and of a unit of work if its number is known."""
    rate, work = cell.rate("calls_per_s").value, cell.rate("work_per_call").value
    calls = rate * wall_s if rate else None
    by_figure = cell.costs()
    for per, divisor in ((CALL, 1.0), (WORK, work)):
        if not divisor:
            continue
        for figure, cost in by_figure.items():
            yield _row(per, figure, _UNITS[figure], cost, divisor, calls)


def _row(per: str, figure: str, unit: str, cost: Cost, divisor: float, calls: float | None) -> Row:
    (value, behind), (low, high) = (cost.of_sessions.value, cost.background.value), cost.ends
    amounts = {"value": value, "low": low, "high": high, "background": behind}
    return {
        **{n: None if v is None else v / divisor for n, v in amounts.items()},
        "per": per,
        "figure": figure,
        "unit": unit,
        "total": None if value is None or calls is None else value * calls,
        "background_total": None if behind is None or calls is None else behind * calls,
        "units": None if calls is None else calls * divisor,
        "status": cost.of_sessions.reason,
        "source": cost.of_sessions.source,
        "background_status": cost.background.reason,
        "background_source": cost.background.source,
    }


class _Cell:
    """The tables of a cell, and the costs that follow from them."""

    def __init__(self, tables: Mapping[str, pl.DataFrame]) -> None:
        self._tables = tables
        of_rung = tables["rates"].filter(pl.col("scope") == "rung")
        figures = of_rung.select("name", "value", "status", "source").iter_rows()
        self._rates = {name: Share(*figure) for name, *figure in figures}
        self._executed = tables["execution_rates"].filter(pl.col("job").is_null()).to_dicts()
        levels = tables["cut_levels"].filter(pl.col("origin") == "engine").unique("key", keep="first")
        self._levels = {row["key"]: row for row in levels.to_dicts()}
        calls = pl.col("calls_total") + pl.col("errors_total")
        self._calls = dict(tables["cell_sessions"].select("session", calls).iter_rows())
        in_window = tables["cell_sessions"].select((pl.col("calls") + pl.col("errors")).sum()).item()
        self._in_window = float(in_window or 0)
        self._workers = bool(tables["cut_tasks"]["worker"].any())
        self._own: dict[str, dict[int, float]] = {}
        work = tables["cut_work"].drop_nulls("value").select("name", "session", "value")
        for name, session, value in work.iter_rows():
            self._own.setdefault(name, {})[session] = value

    def rate(self, name: str) -> Share:
        return self._rates.get(name, Share(None, _OFF))

    def costs(self) -> dict[str, Cost]:
        """Returns the costs in the order of their figures; of commands those that executions have."""
        by_figure = self._of_executions() if self._executed else self._of_server()
        by_figure[CLIENT_CPU] = Cost(self.rate("client_cpu_per_call_ns"), _NOBODY)
        by_figure[SYSTEM_CALLS] = self._system_calls()
        by_figure |= {f.id: self._of_devices(f.device) for f in FIGURES if f.device}
        return {f.id: by_figure[f.id] for f in FIGURES if f.id in by_figure}

    def _of_server(self) -> dict[str, Cost]:
        by_figure = {c.figure: self._counted(c) for c in COUNTED}
        by_figure |= self._cpu() | self._switches() | self._network()
        by_figure[ROUND_TRIPS] = Cost(self.rate("round_trips_per_call"), _NOBODY)
        return by_figure

    def _per_call(self, per_s: float | None) -> float | None:
        rate = self.rate("calls_per_s").value
        return None if per_s is None or not rate else per_s / rate

    # -- tasks --

    def _cpu(self) -> dict[str, Cost]:
        """Returns CPU of the sessions, divided into user and kernel as the ledger divides it, and of the
        server's own processes."""
        whole = self.rate("cpu_per_call_ns")
        accounts = pl.col("account").is_in(["run", *_HALVES.values()]) & ~BY_LABEL
        ledger = (
            self._tables["ledger"].filter(accounts & pl.col("scope").is_in(["rung", "helper"])).to_dicts()
        )
        rung = {row["account"]: row for row in ledger if row["scope"] == "rung"}
        behind = self._background_cpu(whole, [r for r in ledger if r["scope"] == "helper"])
        costs = {CPU: Cost(whole, behind[CPU])}
        for half, account in _HALVES.items():
            share, ends = _half(whole, rung.get("run"), rung.get(account))
            costs[half] = Cost(share, behind[half], ends)
        return costs

    def _background_cpu(self, whole: Share, ledger: list[Row]) -> dict[str, Share]:
        """Returns CPU of the server's own processes, divided by the ratio of all their ticks. It is a lower
        bound if some of them were not read to their end."""
        helpers = [row for row in ledger if row["account"] == "run"]
        known = [row for row in helpers if row["aas"] is not None]
        unknown = [row for row in helpers if row["aas"] is None]
        if any(row["status"] not in _MISSED for row in unknown) or (unknown and not known):
            return dict.fromkeys((CPU, *_HALVES), Share(None, unknown[0]["status"], unknown[0]["source"]))
        if not helpers and whole.value is None:
            return dict.fromkeys((CPU, *_HALVES), whole)
        status = _at_least((row["who"], row["status"]) for row in unknown)
        if some := [row for row in known if row["status"] != "ok"]:
            status = f"{AT_LEAST}of {some[0]['who']} only {some[0]['status']} were read"
        per_call = self._per_call(NS_PER_S * sum(row["aas"] for row in known))
        share, source = Share(per_call, status, whole.source), f"{whole.source}, divided by ticks"
        if not per_call:
            return dict.fromkeys((CPU, *_HALVES), share)
        tasks = self._tables["cut_tasks"].filter(pl.col("role").str.starts_with(ROLE))
        ticks = {USER: float(tasks["user_ns"].sum()), SYSTEM: float(tasks["system_ns"].sum())}
        both = sum(ticks.values())
        halves = {
            h: Share(per_call * t / both if both else None, status if both else NO_TICK, source)
            for h, t in ticks.items()
        }
        return {CPU: share, **halves}

    def _switches(self) -> dict[str, Cost]:
        tasks = self._tables["microstates"]
        role = pl.col("role")
        own, helpers = tasks.filter(role == "session"), tasks.filter(role.str.starts_with(ROLE))
        nobody = Share(0.0, source=_TASKS) if own.height and helpers.is_empty() else None
        return {
            figure: Cost(self._summed(own, column), nobody or self._summed(helpers, column))
            for figure, column in ((VOLUNTARY, "voluntary_per_s"), (INVOLUNTARY, "involuntary_per_s"))
        }

    def _summed(self, tasks: pl.DataFrame, column: str) -> Share:
        source = TRACE if tasks["source"].str.contains(TRACE, literal=True).all() and tasks.height else _TASKS
        if tasks.is_empty():
            return Share(None, _OFF, source)
        unknown = tasks.filter(pl.col(column).is_null())
        gone = pl.col("role").str.starts_with(ROLE) & pl.col("status").is_in([*_MISSED])
        if unknown.height == tasks.height or unknown.filter(~gone).height:
            bad = unknown.filter(pl.col("status") != "ok")["status"]
            why = bad[0] if len(bad) else f"{unknown.height} of {tasks.height} tasks were not read"
            return Share(None, why, source)
        status = _at_least(unknown.select(pl.col("role").str.strip_prefix(ROLE), "status").iter_rows())
        return Share(self._per_call(float(tasks[column].sum())), status, source)

    # -- the engine's counters --

    def _counted(self, counted: Counted) -> Cost:
        """Returns the figure of the load's sessions, of all sessions, or of the whole server, in this
        order."""
        of_all, of_background = (self._level(f"{who}{counted.figure}") for who in (SESSIONS, BACKGROUND))
        server = self._level(counted.server)
        own = self._of_own_sessions(counted.session)
        if own is not None:
            rest = of_background
            if rest.value is None and own.value is not None and server.value is not None:
                more, source = server.value - own.value, f"{server.source} {LESS_SESSIONS}"
                rest = Share(more if more > TELLING * server.value else None, SMALL, source)
            return Cost(self._marked(counted, own), rest)
        if of_all.value is not None:
            return Cost(self._marked(counted, of_all), of_background)
        rest = of_background if of_background.value is not None else Share(None, INCLUDED, server.source)
        if server.value is None:
            return Cost(server, Share(None, server.reason))
        return Cost(self._marked(counted, server), rest)

    def _marked(self, counted: Counted, share: Share) -> Share:
        """Returns the figure. Its source names the warm-up if the server's own count does not show that
        calls of the window did as much."""
        before = sum(self._calls.values()) - self._in_window
        if counted.figure not in FILLING or not share.value or not before:
            return share
        rows = (self._levels.get(key) for key in (f"{SESSIONS}{counted.figure}", counted.server))
        grown = next((r["last"] - r["first"] for r in rows if r and r["delta"] is not None), 0.0)
        if self._in_window and grown / self._in_window >= STEADY * share.value:
            return share
        return share._replace(source=f"{share.source}{WARM_UP}")

    def _of_own_sessions(self, name: str) -> Share | None:
        """Returns the counter of the load's own sessions; None if there is none, or parallel workers, which
        count for themselves, did part of the work."""
        if name not in self._own or self._workers:
            return None
        # Sessions of a lost driver were counted, and nobody knows their calls.
        counted = {s: value for s, value in self._own[name].items() if s in self._calls}
        calls = sum(self._calls[session] for session in counted)
        source = COUNTERS
        if len(counted) < len(self._calls):
            source += f", {len(counted)} of {len(self._calls)} sessions"
        return Share(sum(counted.values()) / calls if calls else None, source=source)

    def _level(self, key: str) -> Share:
        row = self._levels.get(key)
        source = f"{COUNTERS}{SERVER_WIDE}"
        if row is None:
            return Share(None, _OFF if not self._levels else "not supported", source)
        if row["delta"] is None or not row["wall_ns"]:
            return Share(None, row["status"], source)
        return Share(self._per_call(NS_PER_S * row["delta"] / row["wall_ns"]), row["status"], source)

    # -- devices, network, system calls --

    def _of_devices(self, column: str) -> Cost:
        """Returns what all devices below the server's directories did, each counted once."""
        source = "devices, the whole machine's"
        devices = self._tables["device_io"]
        if devices.is_empty():
            return Cost(Share(None, _OFF, source), Share(None, _OFF, source))
        counted = devices.filter("counted")
        if counted.is_empty() or counted[column].null_count():
            bad = [s for s in (counted if counted.height else devices)["status"] if s != "ok"]
            unknown = Share(None, bad[0] if bad else "not supported", source)
            return Cost(unknown, unknown)
        names = ", ".join(sorted(counted["device"].unique()))
        per_call = self._per_call(float(counted[column].sum()))
        return Cost(Share(per_call, source=f"{source} ({names})"), Share(None, INCLUDED, source))

    def _network(self) -> dict[str, Cost]:
        """Returns bytes of the protocol per call. Lost sessions are left out, as in round trips."""
        sessions = self._tables["cell_sessions"]
        whole = sessions.filter(~pl.col("end_reason").is_in(["lost", "aborted"]))
        calls = float(whole.select((pl.col("calls_total") + pl.col("errors_total")).sum()).item())
        columns = {SENT: ["sent_bytes"], RECEIVED: ["received_bytes"]}
        columns[NETWORK] = [*columns[SENT], *columns[RECEIVED]]
        by_figure = {}
        for figure, names in columns.items():
            known = not any(whole[n].null_count() for n in names)
            total = sum(float(whole[n].sum()) for n in names)
            share = Share(
                total / calls if known and calls else None, "ok" if known else "not supported", _DRIVER
            )
            by_figure[figure] = Cost(share, _NOBODY)
        return by_figure

    def _system_calls(self) -> Cost:
        counted = self._tables["system_calls"]
        if counted.is_empty():
            return Cost(Share(None, _OFF, _CALLS), Share(None, _OFF, _CALLS))
        wall_s = float(counted["wall_s"][0])
        own, helpers = (
            Share(self._per_call(float(counted.filter(whose)["calls"].sum()) / wall_s), source=_CALLS)
            for whose in (pl.col("who") == "rung", pl.col("who").str.starts_with(ROLE))
        )
        return Cost(own, helpers)

    def _of_executions(self) -> dict[str, Cost]:
        """Returns the kernel's own figures of executions of commands (wait4(2)); no server works for them."""
        executed, none = self._executed[0], Share(None, "not supported")
        by_figure = {
            figure: Cost(Share(executed[column], "not supported", _EXECUTIONS), none)
            for figure, column in _EXECUTED.items()
        }
        by_figure[CPU] = Cost(self.rate("cpu_per_call_ns"), none)
        return by_figure


def _at_least(missed: Iterable[tuple[str, str]]) -> str:
    """Returns the status of a sum that lacks processes, from the name and status of each."""
    texts = {_MISSED[why].format(f"an {who}" if who[:1] in "aeiou" else f"a {who}") for who, why in missed}
    return f"{AT_LEAST}{'; '.join(sorted(texts))}" if texts else "ok"


def _half(whole: Share, run: Row | None, half: Row | None) -> tuple[Share, Ends]:
    """Returns the part of CPU time per call that the ledger puts under user or kernel, with its ends."""
    if whole.value is None or run is None or half is None or None in (run["aas"], half["aas"]):
        why = whole.reason if whole.value is None else half["status"] if half else _OFF
        return Share(None, why, whole.source), _NO_ENDS
    value, low, high = (
        half[n] / run["aas"] * whole.value if run["aas"] else 0.0 for n in ("aas", "low", "high")
    )
    return Share(value, source=f"{whole.source}, divided by ticks"), (low, high)
