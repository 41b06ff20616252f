"""Can the figures be used?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from dbdyno.conclude.claims import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids, listed, many, percent, where
from dbdyno.model import client_limit
from dbdyno.model.claim import Claim
from dbdyno.model.raw import AWAY, SLOW
from dbdyno.model.source import MEANS
from dbdyno.model.units import NS_PER_S, format_ns, format_rate, significant

STEAL = 0.01
STRADDLING = 0.25
"""Calls are long against the window if this share of them crosses its ends."""


def cells_cut_short(case: Case) -> Iterator[Claim]:
    for cell in case.cells():
        if case.observed and cell["status"] == "short":
            yield _window_short(cell, case)
        elif cell["status"] != "ok":
            bad = cell["status"] == "invalid"
            yield claim(
                id="cell-invalid" if bad else "cell-short",
                severity="invalid" if bad else "warning",
                text=f"The measurement {at(cell, case)} {'is of no use' if bad else 'was cut short'} "
                f"({significant(max(cell['wall_s'], 0.0))} s measured): "
                f"{cell['reason'] or 'no reason was given'}.",
                value=cell["wall_s"],
                unit="s",
                evidence="table windows",
                advice="measure that rung again",
                cells=(cell["cell"],),
            )


def _window_short(cell: Row, case: Case) -> Claim:
    """Of an observation: to end it is no fault; a server that went away is worth a look."""
    stopped = cell["reason"] == "stopped by the user"
    away = str(cell["reason"]).startswith(AWAY)
    what = "has a hole" if away else "ended early"
    if str(cell["reason"]).startswith(SLOW):
        what = "is incomplete"
    return claim(
        id="window-short",
        severity="note" if stopped else "warning",
        text=f"The observation {at(cell, case)} {what} ({significant(cell['wall_s'])} s): "
        f"{cell['reason'] or 'no reason was given'}.",
        value=cell["wall_s"],
        unit="s",
        evidence="table windows",
        advice="" if stopped or away else "see the server's log",
        cells=(cell["cell"],),
    )


def client_limits(case: Case) -> Iterator[Claim]:
    """The headline begins with this claim."""
    found = [(f, c) for c in case.cells() if client_limit.is_limit(f := case.figures(c["cell"]))]
    if not found:
        return
    figures, cell = max(found, key=lambda f: f[0]["driver_delay"] or 0.0)
    share, threads = figures["driver_delay"] or 0.0, round(figures["driver_threads"] or 0)
    there = f" {at(cell, case)}" if len(found) > 1 else ""
    yield claim(
        id="client-limited",
        severity="invalid",
        text=f"Limited by the client {_all_at([c for _, c in found], case)}: sessions waited for "
        f"dbdyno's driver in {percent(share)} of their time{there}. Its {many(threads, 'thread')} were on a "
        f"CPU or waited for one in {percent(client_limit.busy(figures) or 0.0)} of the time, and got "
        f"{significant(figures['driver_cpus'] or 0.0)} CPUs{_carried(figures, case)}.",
        value=share,
        unit="of session time",
        evidence="driver tasks: schedstat; the ledger's time at the client, less thinking",
        advice="run dbdyno on another host, give server and driver CPUs of their own, make calls longer, "
        "or climb to fewer sessions",
        cells=ids([c for _, c in found]),
    )


def _all_at(cells: list[Row], case: Case) -> str:
    """``at 500 and 1000 sessions``; with the variant where there are several."""
    if len({c["variant"] for c in case.cells()}) > 1:
        return f"at {listed(list(dict.fromkeys(where(c, case) for c in cells)), 3)}"
    counts = sorted({c["sessions"] for c in cells})
    *first, last = (str(n) for n in counts)
    numbers = f"{', '.join(first)} and {last}" if first else last
    return f"at {numbers} {'session' if counts == [1] else 'sessions'}"


def _carried(figures: Mapping[str, float | None], case: Case) -> str:
    """What a core carries at best: by the measurement whose calls cost the driver the least CPU."""
    costs = [case.figures(c["cell"]).get("client_cpu_per_call_ns") for c in case.cells()]
    least_ns, rate = min((c for c in costs if c), default=None), figures.get("calls_per_s")
    if least_ns is None or not rate:
        return ""
    return (
        f"; one driver core carries about {format_rate(NS_PER_S / least_ns)} calls/s here, "
        f"{format_rate(rate)} were made"
    )


def driver_starved(case: Case) -> Iterator[Claim]:
    """Not the limit, but in the response times."""
    found = []
    for cell in case.usable():
        figures = case.figures(cell["cell"])
        share, starved = figures.get("driver_delay") or 0.0, figures.get("driver_starved") or 0.0
        if share > client_limit.WORTH_TELLING and starved > client_limit.STARVED:
            found.append((share, starved, cell))
    if found:
        share, starved, cell = max(found, key=lambda f: f[0])
        yield claim(
            id="driver-starved",
            severity="warning",
            text=f"The driver had to wait for a CPU: {percent(starved)} of its runnable time "
            f"{at(cell, case)}; sessions waited for it in {percent(share)} of their time.",
            value=share,
            unit="of session time",
            evidence="driver tasks: schedstat",
            advice="run dbdyno on another host, bind server and driver to different CPUs, "
            "or climb to fewer sessions",
            cells=ids([c for _, _, c in found]),
        )


def driver_share(case: Case) -> Iterator[Claim]:
    """On the server's machine the driver takes CPU away from what is measured."""
    cpus = case.plan.cpus
    shares = [(f, c) for c in case.usable() if (f := case.figures(c["cell"]).get("driver_cpus")) is not None]
    large = [(f, c) for f, c in shares if f > client_limit.MACHINE_SHARE * cpus]
    if large and case.environment.server.here:
        used, cell = max(large, key=lambda s: s[0])
        yield claim(
            id="driver-share",
            severity="warning",
            text=f"The driver took {significant(used)} of {cpus:g} CPUs ({percent(used / cpus)}) "
            f"{at(cell, case)}: the server could not have them.",
            value=used / cpus,
            unit="of the machine",
            evidence="driver tasks: schedstat",
            advice="run dbdyno on another host, or make calls longer",
            cells=ids([c for _, c in large]),
        )


def steal(case: Case) -> Iterator[Claim]:
    """Time that the hypervisor gave to others."""
    found = [(share, c) for c in case.usable() if (share := _stolen(case, c["cell"])) > STEAL]
    if found:
        share, cell = max(found, key=lambda f: f[0])
        yield claim(
            id="steal",
            severity="warning",
            text=f"The hypervisor took {percent(share)} of the machine's time {at(cell, case)} "
            f"(steal; {case.many(len(found))} beyond {percent(STEAL)}): CPU time was less than it looks.",
            value=share,
            unit="of the machine",
            evidence="host: /proc/stat",
            advice="measure when the neighbours are quiet, or on a machine of your own",
            cells=ids([c for _, c in found]),
        )


def _stolen(case: Case, cell: str) -> float:
    """Share of the machine's time; 0 where /proc/stat does not tell."""
    host = case.levels(cell, "host").filter(pl.col("delta").is_not_null() | (pl.col("key") == "cpus"))
    stolen, cpus = host.filter(pl.col("key") == "cpu.steal_ns"), host.filter(pl.col("key") == "cpus")
    if stolen.is_empty() or cpus.is_empty():
        return 0.0
    return float(stolen["delta"][0] / stolen["wall_ns"][0] / cpus["last"][0])


def foreign_load(case: Case) -> Iterator[Claim]:
    """CPU time of the machine that neither the server's tasks nor dbdyno's used."""
    machine = _complete(case).filter(pl.col("quantity") == "cpu_used_machine")
    table = machine.filter(pl.col("verdict") == "differs")
    more = table.filter(pl.col("relative_difference") > 0).to_dicts()
    if more:
        extra = [r["value"] * (1 - 1 / (1 + r["relative_difference"])) for r in more]
        most, row = max(zip(extra, more, strict=True), key=lambda pair: pair[0])
        yield claim(
            id="foreign-load",
            severity="note" if case.observed else "warning",
            text=f"Something else was at work on this machine in {case.many(len(more))}: it took "
            f"{significant(most)} CPUs {at(row, case)}.",
            value=most,
            unit="cores",
            evidence="host: busy time of /proc/stat, less the tasks of server, driver and dbdyno",
            advice="the clients of this load may be it; else see what runs besides"
            if case.observed
            else "stop what else runs on the machine, or measure when it is quiet",
            cells=ids(more),
        )


def _complete(case: Case) -> pl.DataFrame:
    """Table witnesses without the quantities whose reference is only the least that it can have been."""
    table = case.tables["witnesses"]
    partly = table.filter(
        (pl.col("verdict") == "reference") & pl.col("source").str.contains("as far as read")
    )
    return table.join(partly, on=["cell", "quantity"], how="anti", maintain_order="left")


def witnesses_differ(case: Case) -> Iterator[Claim]:
    """CPU by the server's own group, or by a host that saw less than the tasks."""
    differ = _complete(case).filter(pl.col("verdict") == "differs")
    group = (pl.col("quantity") == "cpu_used") & (pl.col("source") == "cgroup")
    host = (pl.col("quantity") == "cpu_used_machine") & (pl.col("relative_difference") < 0)
    for (source,), rows in differ.filter(group | host).group_by("source", maintain_order=True):
        worst = max(rows.to_dicts(), key=lambda r: abs(r["relative_difference"] or 0))
        reference = worst["value"] / (1 + (worst["relative_difference"] or 0))
        yield claim(
            id=f"cpu-differs-{source}",
            severity="warning",
            text=f"CPU used differs between witnesses in {case.many(rows.height)}: "
            f"{at(worst, case)} the {source} says {significant(worst['value'])} cores, "
            f"the sum of the tasks {significant(reference)}.",
            value=worst["value"] - reference,
            unit="cores",
            evidence="table witnesses",
            advice="other processes in that group, or tasks that ended before they were read",
            cells=ids(rows.to_dicts()),
        )


def long_calls(case: Case) -> Iterator[Claim]:
    found = []
    for cell in case.usable():
        figures = case.figures(cell["cell"])
        calls, crossing = figures.get("calls"), figures.get("straddling_calls")
        if calls and crossing and crossing / calls > STRADDLING:
            found.append((crossing / calls, cell, figures.get("response_mean_ns") or 0.0))
    if found:
        share, cell, mean_ns = max(found, key=lambda f: f[0])
        yield claim(
            id="long-calls",
            severity="note",
            text=f"Calls are long against the window {at(cell, case)}: {format_ns(mean_ns)} each in "
            f"{significant(cell['wall_s'])} s, {percent(share)} of them cross an end of it.",
            value=share,
            unit="of calls",
            evidence="driver: calls in flight at t0 and t1; rates count whole calls over their own span",
            advice="a longer --measure or a shorter --call-target",
            cells=ids([c for _, c, _ in found]),
        )


def sources_missing(case: Case) -> Iterator[Claim]:
    table = case.tables["cell_sources"].filter(pl.col("status") != "ok")
    for (name, status), rows in table.group_by("name", "status", maintain_order=True):
        cure = listed([d for d in rows["detail"].to_list() if d], 2)
        lost = "no figure is missing" if name in MEANS else "what only they can tell is unknown"
        yield claim(
            id=f"source-missing-{str(name).replace(' ', '-')}",
            severity="note",
            text=f"Witness {name}: {status} in {rows['cell'].n_unique()} of {case.many(len(case.cells()))}; "
            f"{lost}.",
            evidence=f"table sources: {rows['provenance'][0]}",
            advice=cure,
            cells=tuple(rows["cell"].unique(maintain_order=True)),
        )


def one_repeat(case: Case) -> Iterator[Claim]:
    if all(c["repeat"] == 1 for c in case.cells()) and case.cells() and not case.observed:
        yield claim(
            id="one-repeat",
            severity="note",
            text="Every rung was measured once: there is no interval for the rates, and no telling chance "
            "from cause.",
            evidence="plan: repeats = 1",
            advice="--repeats 5",
        )
