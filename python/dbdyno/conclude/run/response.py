"""Reports separate modes of response time, and what goes with the slow ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, listed, of_cell
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.data_sources.responses import DURATION, FAR, FEW_SECONDS, IMAGES, UNCERTAIN
from dbdyno.model.sources.wait_families import Family, Helper, families_of
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import format_average, format_ns
from dbdyno.stats import association

_KINDS = {
    "wait": "waits for {}",
    "process": "work of {}",
    "checkpoint": "a {} in progress",
    "device": "the response time of {}",
}
"""How an activity is named in a sentence, by its kind; others by their name alone."""
_CHECKPOINT, _CLEANUP, _WAL, _LOCK, _DEVICE, _WAIT, _PROCESS, _QUEUE, _REST = range(9)
"""Activities in the order in which they are named: what may be a cause before what follows from it."""
_RANKS = {
    "checkpoint": _CHECKPOINT,
    "WAL": _WAL,
    "device": _DEVICE,
    "wait": _WAIT,
    "process": _PROCESS,
    "run queue": _QUEUE,
}
_MOST = 3
"""Activities that are named; the table has the rest."""
_SMALL = 0.01
FAR_SECONDS = 2
"""Fewest seconds in which calls beyond a gap have to end: those of one second may be a single stall."""
_EXACT = ("script", "job")


@check("response-modes", "slow-calls")
def response_modes(case: Case) -> Iterator[Claim]:
    """Yields the measurement whose modes apart from the most frequent one have the largest share of time.
    Unless there is one, or the modes are scripts, yields the one with most time in slow calls that are too
    few for a mode."""
    modes = _worst(case, "response-modes", _modes)
    yield from modes
    if not modes or "script" in modes[0].slots["parts"]:
        yield from _worst(case, "slow-calls", _slow_calls)


def _worst(case: Case, id: str, ask: Callable[[Case, str], dict[str, Any]]) -> list[Claim]:
    candidates = [(values, cell) for cell in case.valid if (values := ask(case, cell["cell"]))]
    if not candidates:
        return []
    parts = max(candidates, key=lambda f: float(f[0]["time_share"]))[0]["parts"]
    return list(case.worst(id, candidates, "time_share", case=parts[-1] if parts else "", parts=parts))


@of_cell
def _modes(case: Case, cell: str) -> dict[str, Any]:
    """Returns values of the sentence; empty with one mode."""
    rows = case.table("response_modes", cell).sort("mode").to_dicts()
    known = [r for r in rows if r["status"] == "ok"]
    if len(known) < 2:
        return {}
    main = max(known, key=lambda r: int(r["calls"]))
    others = [r for r in known if r is not main]
    slow = max(others, key=lambda r: float(r["calls"] * r["middle_ns"]))
    values = {
        "modes": len(known),
        "main": main["middle_ns"],
        "others": listed([_mode(r) for r in others]),
        "time_share": sum(r["time_share"] for r in others),
        "slow": slow["middle_ns"],
        "every": slow["every_s"],
    }
    activities = case.table("mode_activities", cell).filter(mode=slow["mode"]).to_dicts()
    parts, more = _causes(case, activities)
    return values | more | {"parts": [*(["every"] if slow["every_s"] else []), *parts]}


@of_cell
def _slow_calls(case: Case, cell: str) -> dict[str, Any]:
    """Returns values of the sentence about slow calls apart from all others, which are no mode for sure;
    empty without any."""
    rows = case.table("response_modes", cell).sort("mode").to_dicts()
    few = [
        (before, r)
        for before, r in pairwise(rows)
        if r["status"] in (UNCERTAIN, FEW_SECONDS) or (r["status"] == FAR and r["seconds"] >= FAR_SECONDS)
    ]
    main = max(rows, key=lambda r: int(r["calls"]), default=None)
    few = [(before, r) for before, r in few if r["mode"] > main["mode"]] if main else []
    if not few:
        return {}
    before, slow = max(few, key=lambda pair: float(pair[1]["time_share"]))
    activities = case.table("mode_activities", cell).filter(mode=slow["mode"]).to_dicts()
    goes, more = _causes(case, activities)
    parts = ["every"] if slow["every_s"] else []
    parts += ["uncertain"] if slow["status"] in (UNCERTAIN, FAR) else []
    waits = [r for r in activities if r["kind"] == "wait" and r["during"]]
    if more.keys() & {"name", "kinds"}:
        parts += goes
    elif waits:
        longest = max(waits, key=lambda r: float(r["during"]))
        more = {"name": longest["name"], **_amounts(longest)}
        parts.append("wait")
    figures = {n: slow[n] for n in ("calls", "time_share", "seconds", "shortest_ns", "longest_ns")}
    return {
        **figures,
        "share": _share(slow["share"]),
        "slow": slow["middle_ns"],
        "next": before["longest_ns"],
        "every": slow["every_s"],
        **more,
        "parts": parts,
    }


def _mode(row: Row) -> str:
    """Names a mode: ``0.043 % about 296 ms (6 % of the time)``."""
    time = fmt.percent(row["time_share"])
    return f"{_share(row['share'])} about {format_ns(row['middle_ns'])} ({time} of the time)"


def _share(share: float) -> str:
    """Formats a share; a small one with two digits, as a tail has few calls."""
    return fmt.percent(share) if share >= _SMALL else f"{100 * share:.2g} %"


def _causes(case: Case, activities: list[Row]) -> tuple[list[str], dict[str, Any]]:
    """Returns the parts of the sentence about what goes with a mode, and their values."""
    exact = [r for r in activities if r["kind"] in _EXACT]
    if exact:
        return ["script"], {"kinds": listed([f"{r['kind']} {r['name']}" for r in exact])}
    goes = sorted((r for r in activities if r["goes"]), key=lambda r: (r["p"], _rank(case, r), -r["share"]))
    if goes:
        if any(r["kind"] == "checkpoint" for r in goes):  # the checkpointer's work is the same
            goes = [r for r in goes if r["kind"] == "checkpoint" or _rank(case, r) != _CHECKPOINT]
        first, *rest = sorted(goes[:_MOST], key=lambda r: _rank(case, r))
        values = {
            "name": _name(first),
            **_amounts(first),
            "goes_share": first["share"],
            "also": listed([_name(r) for r in rest]),
        }
        return ["goes", *(["also"] if rest else [])], values
    if not activities:
        return ["nothing"], {}
    if all(r["status"] == FEW_SECONDS for r in activities):
        return ["few"], {"fewest": association.FEWEST}
    return ["none"], {"looked": listed([_name(r) for r in activities], 8)}


def _rank(case: Case, row: Row) -> int:
    if row["kind"] == "process":
        helper = case.environment.server.helpers.get(row["name"])
        if helper is Helper.CHECKPOINT:
            return _CHECKPOINT
        return _CLEANUP if helper is Helper.CLEANUP else _PROCESS
    if row["kind"] == "wait" and families_of(case.tables).of(row["name"]) is Family.LOCK:
        return _LOCK
    return _RANKS.get(row["kind"], _REST)


def _amounts(row: Row) -> dict[str, str]:
    """Returns what an activity reaches in seconds in which calls of the mode ended, and otherwise."""
    during, otherwise = row["during"], row["otherwise"] or 0.0
    if row["kind"] != "wait":
        return {"during": _amount(during, row["unit"]), "otherwise": _amount(otherwise, row["unit"])}
    many = f"{format_average(during)} {noun('tasks')} waiting on average"
    return {"during": many, "otherwise": format_average(otherwise)}


def _amount(value: float, unit: str) -> str:
    """Writes ``4,100/s``, ``296 ms`` or ``2.03 s/s``."""
    if unit == DURATION:
        return format_ns(value)
    if unit == IMAGES:
        return f"{value:,.0f}/s"
    return f"{format_average(value)} {unit}"


def _name(row: Row) -> str:
    return _KINDS.get(row["kind"], "{}").format(row["name"])
