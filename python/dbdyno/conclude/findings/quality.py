"""Can the figures be used?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids, listed, where
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model import session_time
from dbdyno.model.claim import Claim
from dbdyno.model.raw import AWAY, SLOW
from dbdyno.model.source import MEANS
from dbdyno.model.units import NS_PER_S

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
                "cell-invalid" if bad else "cell-short",
                {"place": at(cell, case), "wall": max(cell["wall_s"], 0.0), "reason": _why(cell)},
                cell["wall_s"],
                cells=(cell["cell"],),
            )


def _window_short(cell: Row, case: Case) -> Claim:
    """Of an observation: to end it is no fault; a server that went away is worth a look."""
    kind = "stopped" if cell["reason"] == "stopped by the user" else "early"
    for start, found in ((AWAY, "away"), (SLOW, "slow")):
        if str(cell["reason"]).startswith(start):
            kind = found
    return claim(
        "window-short",
        {"place": at(cell, case), "wall": cell["wall_s"], "reason": _why(cell)},
        cell["wall_s"],
        case=kind,
        severity="note" if kind == "stopped" else None,
        cells=(cell["cell"],),
    )


def client_limits(case: Case) -> Iterator[Claim]:
    """The headline begins with this claim."""
    found = [(f, c) for c in case.cells() if session_time.is_limit(f := case.figures(c["cell"]))]
    if not found:
        return
    figures, cell = max(found, key=lambda f: f[0]["driver_delay"] or 0.0)
    share, threads = figures["driver_delay"] or 0.0, round(figures["driver_threads"] or 0)
    said = {
        "places": _all_at([c for _, c in found], case),
        "share": share,
        "place": f" {at(cell, case)}" if len(found) > 1 else "",
        "threads": threads,
        "busy": session_time.busy(figures) or 0.0,
        "cpus": figures["driver_cpus"] or 0.0,
    } | (carried := _carried(figures, case))
    parts = ["carried"] if carried else []
    yield claim("client-limited", said, share, parts=parts, cells=ids([c for _, c in found]))


def _all_at(cells: list[Row], case: Case) -> str:
    """``at 500 and 1000 sessions``; with the variant where there are several."""
    if len({c["variant"] for c in case.cells()}) > 1:
        return f"at {listed(list(dict.fromkeys(where(c, case) for c in cells)), 3)}"
    counts = sorted({c["sessions"] for c in cells})
    *first, last = (str(n) for n in counts)
    numbers = f"{', '.join(first)} and {last}" if first else last
    return f"at {numbers} {'session' if counts == [1] else 'sessions'}"


def _carried(figures: Mapping[str, float | None], case: Case) -> dict[str, float]:
    """What a core carries at best: by the measurement whose calls cost the driver the least CPU."""
    costs = [case.figures(c["cell"]).get("client_cpu_per_call_ns") for c in case.cells()]
    least_ns, rate = min((c for c in costs if c), default=None), figures.get("calls_per_s")
    if least_ns is None or not rate:
        return {}
    return {"core_rate": NS_PER_S / least_ns, "rate": rate}


def _why(cell: Row) -> str:
    return cell["reason"] or "no reason was recorded"


def driver_starved(case: Case) -> Iterator[Claim]:
    """Not the limit, but in the response times."""
    found = []
    for cell in case.usable():
        figures = case.figures(cell["cell"])
        share, starved = figures.get("driver_delay") or 0.0, figures.get("driver_starved") or 0.0
        if share > session_time.WORTH_TELLING and starved > session_time.STARVED:
            found.append((share, starved, cell))
    if found:
        share, starved, cell = max(found, key=lambda f: f[0])
        yield claim(
            "driver-starved",
            {"starved": starved, "place": at(cell, case), "share": share},
            share,
            cells=ids([c for _, _, c in found]),
        )


def driver_share(case: Case) -> Iterator[Claim]:
    """On the server's machine the driver takes CPU away from what is measured."""
    cpus = case.plan.cpus
    shares = [(f, c) for c in case.usable() if (f := case.figures(c["cell"]).get("driver_cpus")) is not None]
    large = [(f, c) for f, c in shares if f > session_time.MACHINE_SHARE * cpus]
    if large and case.environment.server.here:
        used, cell = max(large, key=lambda s: s[0])
        yield claim(
            "driver-share",
            {"used": used, "cpus": cpus, "share": used / cpus, "place": at(cell, case)},
            used / cpus,
            cells=ids([c for _, c in large]),
        )


def steal(case: Case) -> Iterator[Claim]:
    """Time that the hypervisor gave to others."""
    found = [(share, c) for c in case.usable() if (share := _stolen(case, c["cell"])) > STEAL]
    if found:
        share, cell = max(found, key=lambda f: f[0])
        yield claim(
            "steal",
            {"share": share, "place": at(cell, case), "measurements": case.many(len(found)), "limit": STEAL},
            share,
            cells=ids([c for _, c in found]),
        )


@of_cell
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
            "foreign-load",
            {"used": most, "place": at(row, case), "measurements": case.many(len(more))},
            most,
            case="observed" if case.observed else "run",
            severity="note" if case.observed else None,
            cells=ids(more),
        )


def _complete(case: Case) -> pl.DataFrame:
    """Table witnesses without the quantities whose reference is only the least that it can have been."""
    table = case.tables["witnesses"]
    partly = table.filter(
        (pl.col("verdict") == "reference") & pl.col("source").str.contains("as far as read")
    )
    return table.join(partly, on=["cell", "quantity"], how="anti", maintain_order="left")


def sources_differ(case: Case) -> Iterator[Claim]:
    """CPU by the server's own group, or by a host that saw less than the tasks."""
    differ = _complete(case).filter(pl.col("verdict") == "differs")
    group = (pl.col("quantity") == "cpu_used") & (pl.col("source") == "cgroup")
    host = (pl.col("quantity") == "cpu_used_machine") & (pl.col("relative_difference") < 0)
    for (source,), rows in differ.filter(group | host).group_by("source", maintain_order=True):
        worst = max(rows.to_dicts(), key=lambda r: abs(r["relative_difference"] or 0))
        reference = worst["value"] / (1 + (worst["relative_difference"] or 0))
        yield claim(
            "cpu-differs",
            {
                "place": at(worst, case),
                "source": source,
                "value": worst["value"],
                "reference": reference,
                "measurements": case.many(rows.height),
            },
            worst["value"] - reference,
            each=str(source),
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
            "long-calls",
            {"place": at(cell, case), "mean": mean_ns, "wall": cell["wall_s"], "share": share},
            share,
            cells=ids([c for _, c, _ in found]),
        )


def sources_missing(case: Case) -> Iterator[Claim]:
    table = case.tables["cell_sources"].filter(pl.col("status") != "ok")
    for (name, status), rows in table.group_by("name", "status", maintain_order=True):
        n, all_of_them = rows["cell"].n_unique(), len(case.cells())
        yield claim(
            "source-missing",
            {
                "name": name,
                "status": status,
                "extent": "" if n == all_of_them else f" in {n} of {case.many(all_of_them)}",
                "provenance": rows["provenance"][0],
            },
            case="spare" if name in MEANS else "needed",
            each=str(name).replace(" ", "-"),
            advice=listed([d for d in rows["detail"].to_list() if d], 2),
            cells=rows["cell"].unique(maintain_order=True).to_list(),
        )


def one_repeat(case: Case) -> Iterator[Claim]:
    if all(c["repeat"] == 1 for c in case.cells()) and case.cells() and not case.observed:
        yield claim("one-repeat", {})
