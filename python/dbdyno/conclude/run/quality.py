"""Checks whether the figures can be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.background import is_pooled
from dbdyno.conclude.run.case import Case, Row, at, ids, listed, of_cell, where
from dbdyno.model.engine.checking import FAILED
from dbdyno.model.plan.kinds import DRIVEN
from dbdyno.model.results import session_time
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.session_time import hidden, too_brief
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.source import MEANS
from dbdyno.model.text.interruptions import AWAY, LATE, SLOW
from dbdyno.model.text.nouns import at_once, noun
from dbdyno.model.units import NS_PER_S, significant

STEAL = 0.01
"""Share of the machine's CPU time."""
STRADDLING = 0.25
"""Share of calls that cross the window's ends from which on calls are long relative to the window."""


@check("variants-unmeasured", of="whole", kinds=(DRIVEN,))
def variants_unmeasured(case: Case) -> Iterator[Claim]:
    """Yields whose figures a run has that ended before each of its variants was measured."""
    if missing := case.unmeasured:
        of_rungs = set(case.tables["rungs"]["variant"])
        measured = [v.name for v in case.plan.variants if v.name in of_rungs]
        values = {
            "variants": len(measured) + len(missing),
            "measured": listed(measured),
            "was": "was" if len(measured) == 1 else "were",
            "missing": listed(missing),
            "were": "was" if len(missing) == 1 else "were",
            "unmeasured": missing,
        }
        yield claim("variants-unmeasured", values)


@check("check-failed", "cell-invalid", "cell-short", "window-short", of="whole")
def cells_cut_short(case: Case) -> Iterator[Claim]:
    for cell in case.cells:
        if case.observed and cell["status"] == "short":
            yield _window_short(cell, case)
        elif str(cell["reason"]).startswith(FAILED):
            values = {"place": at(cell, case), "check": str(cell["reason"]).removeprefix(FAILED)}
            yield claim("check-failed", values, cells=(cell["cell"],))
        elif cell["status"] != "ok":
            bad = cell["status"] == "invalid"
            yield claim(
                "cell-invalid" if bad else "cell-short",
                {"place": at(cell, case), "wall": max(cell["wall_s"], 0.0), "reason": _why(cell)},
                cell["wall_s"],
                cells=(cell["cell"],),
            )


def _window_short(cell: Row, case: Case) -> Claim:
    """Returns the claim of an observation's short window: ending it is no fault, a server that disappeared
    needs a look."""
    kind = "stopped" if cell["reason"] == "stopped by the user" else "early"
    for start, cause in ((AWAY, "away"), (SLOW, "slow"), (LATE, "late")):
        if str(cell["reason"]).startswith(start):
            kind = cause
    return claim(
        "window-short",
        {"place": at(cell, case), "wall": cell["wall_s"], "reason": _why(cell)},
        cell["wall_s"],
        case=kind,
        severity="note" if kind == "stopped" else None,
        cells=(cell["cell"],),
    )


@check("client-limited")
def client_limits(case: Case) -> Iterator[Claim]:
    """Yields the limit by the client, the first claim that a reader must see."""
    limited = [(f, c) for c in case.cells if session_time.is_limit(f := case.figures(c["cell"]))]
    if not limited:
        return
    figures, cell = max(limited, key=lambda f: f[0]["driver_delay"] or 0.0)
    repeat = f" in repeat {cell['repeat']}" if case.plan.experiment.repeats > 1 else ""
    share, threads = figures["driver_delay"] or 0.0, round(figures["driver_threads"] or 0)
    values = {
        "places": _all_at([c for _, c in limited], case) + _how_many([c for _, c in limited], case),
        "share": share,
        "time": "their time" if cell["rate_per_s"] is None else "the response time of calls",
        "place": f" {at(cell, case)}" if len(limited) > 1 else repeat,
        "threads": threads,
        "busy": session_time.busy(figures) or 0.0,
        "cpus": figures["driver_cpus"] or 0.0,
    } | (carried := _carried(figures, case))
    begun = cell["rate_per_s"] is not None and not (figures.get("backlog_end") or figures.get("dropped"))
    parts = [*(["carried"] if carried else []), *(["delivered"] if begun else [])]
    yield claim("client-limited", values, share, parts=parts, cells=ids([c for _, c in limited]))


def _all_at(cells: list[Row], case: Case) -> str:
    """Names the places of cells: ``at 500 and 1000 sessions``; with the variant if there are several; ``in
    phase spike``."""
    if case.plan.experiment.phases:
        return f"in {listed([where(c, case) for c in cells], 3)}"
    if len({c["variant"] for c in case.cells}) > 1:
        loads = (f"{fmt.load(c['sessions'])} ({c['variant']})" for c in cells)
        return f"{noun('at')} {listed(list(loads), 3)}"
    paced = sorted({c["rate_per_s"] for c in cells if c["rate_per_s"] is not None})
    if paced:
        return f"at {listed([fmt.rate_of_load(r) for r in paced], 3)}"
    counts = sorted({c["sessions"] for c in cells})
    *first, last = (str(n) for n in counts)
    numbers = f"{', '.join(first)} and {last}" if first else last
    return f"{noun('at')} {at_once(numbers)}"


def _how_many(cells: list[Row], case: Case) -> str:
    """Returns ``, in 1 of 4 measurements``; "" if all at the places of the cells are meant."""

    def place(cell: Row) -> tuple[Any, ...]:
        return cell["variant"], cell["sessions"], cell["rate_per_s"]

    places = set(map(place, cells))
    every = sum(place(c) in places for c in case.cells)
    return "" if every == len(cells) else f", in {len(cells)} of {every} measurements"


def _carried(figures: Mapping[str, float | None], case: Case) -> dict[str, float]:
    """Returns the rate that one core of the driver can serve, from the measurement whose calls cost the
    driver least CPU."""
    costs = [case.figures(c["cell"]).get("client_cpu_per_call_ns") for c in case.cells]
    least_ns, rate = min((c for c in costs if c), default=None), figures.get("calls_per_s")
    if least_ns is None or not rate:
        return {}
    return {"core_rate": NS_PER_S / least_ns, "rate": rate}


def _why(cell: Row) -> str:
    return cell["reason"] or "no reason was recorded"


@check("driver-starved")
def driver_starved(case: Case) -> Iterator[Claim]:
    """Yields a driver that waits for CPUs: it does not limit throughput, but it lengthens response times."""
    candidates = []
    for cell in case.usable:
        figures = case.figures(cell["cell"])
        share, starved = figures.get("driver_delay") or 0.0, figures.get("driver_starved") or 0.0
        if share > session_time.WORTH_TELLING and starved > session_time.STARVED:
            time = "theirs" if cell["rate_per_s"] is None else "the response time of calls"
            candidates.append(({"share": share, "starved": starved, "time": time}, cell))
    yield from case.worst("driver-starved", candidates, "share")


@check("driver-share")
def driver_share(case: Case) -> Iterator[Claim]:
    """Yields a driver on the server's machine that takes much CPU from the server."""
    cpus, candidates = case.plan.cpus, []
    for cell in case.usable if case.environment.server.local else ():
        used = case.figures(cell["cell"]).get("driver_cpus")
        if used is not None and used > session_time.MACHINE_SHARE * cpus:
            candidates.append(({"used": used, "cpus": cpus, "share": used / cpus}, cell))
    yield from case.worst("driver-share", candidates, "share")


@check("steal")
def steal(case: Case) -> Iterator[Claim]:
    """Yields time that the hypervisor gave to other virtual machines."""
    candidates = [
        ({"share": s, "limit": STEAL}, c) for c in case.usable if (s := _stolen(case, c["cell"])) > STEAL
    ]
    yield from case.worst("steal", candidates, "share")


@of_cell
def _stolen(case: Case, cell: str) -> float:
    """Returns the share of the machine's time; 0 if /proc/stat has no figure."""
    host = case.levels(cell, "host").filter(pl.col("delta").is_not_null() | (pl.col("key") == "cpus"))
    stolen, cpus = host.filter(pl.col("key") == "cpu.steal_ns"), host.filter(pl.col("key") == "cpus")
    if stolen.is_empty() or cpus.is_empty():
        return 0.0
    return float(stolen["delta"][0] / stolen["wall_ns"][0] / cpus["last"][0])


FOREIGN = 0.10
"""CPU time of other processes, relative to that of known tasks and in CPUs. Less is within what clock ticks
explain."""


@check("foreign-load", of="whole")
def foreign_load(case: Case) -> Iterator[Claim]:
    """Yields CPU time of the machine that neither the server's tasks nor dbdyno used."""
    rows = _foreign_rows(case).to_dicts()
    processes = case.tables.get("other_processes", empty("other_processes"))
    by_cell = processes.partition_by("cell", as_dict=True)
    candidates = [({"used": r["other_cpus"], "who": _who(r, by_cell.get((r["cell"],)))}, r) for r in rows]
    severity = "note" if case.observed else None
    yield from case.worst("foreign-load", candidates, "used", case=case.kind, severity=severity)


def _foreign_rows(case: Case) -> pl.DataFrame:
    more = (pl.col("relative_difference") > FOREIGN) & (pl.col("other_cpus") > FOREIGN)
    return other_cpus(case.tables.get("data_sources", empty("data_sources"))).filter(more)


DISTURBED = 0.10
"""Share of the CPUs, taken by others, from which on conclusions about a load are in doubt."""


@check("disturbed", of="whole")
def disturbed(case: Case) -> Iterator[Claim]:
    """Yields the loads at which other processes and the hypervisor took much of the CPUs, on average over the
    measurements of the load. Other load beside an observation is part of what is observed."""
    if case.observed:
        return
    others = dict(_foreign_rows(case).select("cell", "other_cpus").iter_rows())
    shares = {
        c["cell"]: others.get(c["cell"], 0.0) / case.plan.cpus + _stolen(case, c["cell"]) for c in case.usable
    }
    rungs: dict[tuple[Any, ...], list[Row]] = {}
    for c in case.usable:
        rungs.setdefault((c["workload"], c["variant"], c["sessions"], c["rate_per_s"]), []).append(c)
    means = [(sum(shares[c["cell"]] for c in cells) / len(cells), cells) for cells in rungs.values()]
    # the share of each measurement, so that the worst one is also that of foreign-load
    bad = [({"share": shares[c["cell"]]}, c) for mean, cells in means if mean >= DISTURBED for c in cells]
    yield from case.worst("disturbed", bad, "share", case="measured")


NAMED = 3
"""Processes that the claim names."""


def _who(row: Row, processes: pl.DataFrame | None) -> str:
    """Returns who used the CPUs of others: ``: cc1 (pid 712, build) 0.92; 0.3 by processes without a name``.

    A process that began and ended between the two readings has no name. Empty for runs without the table.
    """
    if processes is None:
        return ""
    known = processes.filter(pl.col("pid").is_not_null() & (pl.col("cpus") > 0))
    named = [_named(p) for p in known.sort("cpus", descending=True).head(NAMED).to_dicts()]
    rest = known.height - len(named)
    names = f": {', '.join(named)}" + (f" and {rest} more" if rest > 0 else "") if named else ""
    whole = processes.filter(pl.col("pid").is_null())["cpus"].sum()
    not_visible = next((s for s in processes["status"].unique(maintain_order=True) if s != "ok"), "")
    if row["other_cpus"] - whole <= FOREIGN:
        return names
    why = not_visible or "they began and ended between two readings"
    return f"{names}; {significant(row['other_cpus'] - whole, 2)} without a name: {why}"


def _named(process: Row) -> str:
    ended = 2 * (process["children_cpus"] or 0.0) > process["cpus"]
    who = [f"pid {process['pid']}", process["user"], "with its ended children" if ended else None]
    name = process["name"] or "a process without a name"
    return f"{name} ({', '.join(filter(None, who))}) {significant(process['cpus'], 2)}"


def other_cpus(sources: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of data_sources on the machine's CPU with ``other_cpus``: CPUs that no known task used."""
    # value = reference * (1 + relative difference), so the rest of the value is what the reference lacks
    used = (pl.col("value") * (1 - 1 / (1 + pl.col("relative_difference")))).clip(0.0)
    return _complete(sources, pl.col("quantity") == "cpu_used_machine").with_columns(other_cpus=used)


def _complete(table: pl.DataFrame, where: pl.Expr) -> pl.DataFrame:
    """Returns rows of data_sources without quantities whose reference is only a lower limit."""
    partly = table.filter(
        (pl.col("verdict") == "reference") & pl.col("source").str.contains("as far as read")
    )
    return table.filter(where).join(partly, on=["cell", "quantity"], how="anti", maintain_order="left")


@check("cpu-differs", of="whole")
def sources_differ(case: Case) -> Iterator[Claim]:
    """Yields differences of CPU time from the server's own group, or from a host that counted less than the
    tasks."""
    group = (pl.col("quantity") == "cpu_used") & (pl.col("source") == "cgroup")
    host = (pl.col("quantity") == "cpu_used_machine") & (pl.col("relative_difference") < 0)
    differ = _complete(case.tables["data_sources"], (pl.col("verdict") == "differs") & (group | host))
    for (source,), rows in differ.group_by("source", maintain_order=True):
        candidates = []
        for row in rows.to_dicts():
            relative = row["relative_difference"] or 0.0
            if relative <= -1:
                continue  # it saw nothing at all: the reference does not follow from it
            values = {"source": source, "value": row["value"], "reference": row["value"] / (1 + relative)}
            candidates.append(
                (values | {"size": abs(relative), "difference": values["value"] - values["reference"]}, row)
            )
        yield from case.worst("cpu-differs", candidates, "difference", by="size", each=str(source))


@check("long-calls")
def long_calls(case: Case) -> Iterator[Claim]:
    candidates = []
    for cell in case.usable:
        figures = case.figures(cell["cell"])
        calls, crossing = figures.get("calls"), figures.get("straddling_calls")
        if calls and crossing and crossing / calls > STRADDLING:
            mean_ns = figures.get("response_mean_ns") or 0.0
            candidates.append(({"mean": mean_ns, "wall": cell["wall_s"], "share": crossing / calls}, cell))
    kind = "not-sized" if case.plan.call_target_ns is None else "sized"
    yield from case.worst("long-calls", candidates, "share", case=kind)


@check("not-measured", of="whole")
def sources_missing(case: Case) -> Iterator[Claim]:
    """Yields one claim with all missing sources. `dbdyno doctor` explains what each would add and how to get
    it."""
    lacking = (pl.col("status") != "ok") & ~pl.col("name").is_in(MEANS)
    table = case.tables["cell_sources"].filter(lacking)
    whole = len(case.cells)
    counts = table.group_by("name", maintain_order=True).agg(pl.col("cell").n_unique()).rows()
    names = [name if n == whole else f"{name} (in {n} of {case.many(whole)})" for name, n in counts]
    if names:
        cells = table["cell"].unique(maintain_order=True).to_list()
        yield claim("not-measured", {"names": "; ".join(names)}, float(len(names)), cells=cells)


@check("one-repeat", of="whole")
def one_repeat(case: Case) -> Iterator[Claim]:
    if all(c["repeat"] == 1 for c in case.cells) and case.cells and not case.observed:
        yield claim("one-repeat", {})


# -- unaccounted time --

UNACCOUNTED_NOTE, UNACCOUNTED_WARNING = 0.01, 0.05
"""Shares of the sessions' time."""
BEYOND = 1.5
"""Half widths of its interval (1.5 * 1.96 = 3 standard errors) that a remainder must exceed, because many
cells are examined."""


class _Remainder(NamedTuple):
    """Unaccounted time as a share of the sessions' time, with its 95 % interval."""

    share: float
    low: float
    high: float
    cell: Row

    @property
    def beyond(self) -> bool:
        """True if the share lies farther from 0 than :data:`BEYOND` times half the width of its interval."""
        return abs(self.share) > BEYOND * (
            self.share - self.low if self.share > 0 else self.high - self.share
        )


@check("unaccounted", "ledger-closes")
def unaccounted(case: Case) -> Iterator[Claim]:
    """Yields the time that no account explains, beyond the samples' own error; behind a pooler see
    :func:`pool_way`."""
    direct = [c for c in case.usable if not is_pooled(case, c["cell"]) and not _partial(case, c["cell"])]
    left = [_Remainder(*remainder, c) for c in direct if (remainder := _left(case, c["cell"])) is not None]
    large = [r for r in left if r.beyond and abs(r.share) > UNACCOUNTED_NOTE]
    if not left:
        return
    worst = max(large or left, key=lambda r: abs(r.share))
    grave = abs(worst.share) > UNACCOUNTED_WARNING
    values = {"share": worst.share, "low": worst.low, "high": worst.high, "place": at(worst.cell, case)}
    yield claim(
        "unaccounted" if large else "ledger-closes",
        values | {"measurements": case.many(len(large or left))},
        worst.share,
        case="" if large else "loose" if grave else "closes",
        severity=("warning" if large else "note") if grave else None,
        low=worst.low,
        high=worst.high,
        cells=ids([r.cell for r in large]),
    )


@of_cell
def _partial(case: Case, cell: str) -> bool:
    """Returns whether sessions were hidden from our role or too brief: their time is in the remainder, which
    is then no fault of the ledger."""
    return hidden(case.accounts(cell)) or too_brief(case.table("ledger", cell))


@of_cell
def _left(case: Case, cell: str) -> tuple[float, float, float] | None:
    """Returns unaccounted time as a share of the sessions' time, and the ends of its interval; None if
    unknown."""
    rows = case.accounts(cell).filter(pl.col("account") == "unaccounted").drop_nulls("low")
    wall = case.wall(cell)
    if rows.is_empty() or not wall:
        return None
    share, low, high = (float(rows[c][0]) / wall for c in ("aas", "low", "high"))
    return share, low, high
