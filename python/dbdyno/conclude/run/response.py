"""Reports separate modes of response time, and what goes with the slow ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, listed, of_cell
from dbdyno.model.results.claim import Claim
from dbdyno.model.units import format_ns
from dbdyno.stats import association

_KINDS = {"wait": "waits for {}", "process": "work of {}"}
"""How an activity is named in a sentence, by its kind; others by their name alone."""
_SMALL = 0.01
_EXACT = ("script", "job")


@check("response-modes")
def response_modes(case: Case) -> Iterator[Claim]:
    """Yields the measurement whose modes apart from the most frequent one have the largest share of calls."""
    candidates = [(values, cell) for cell in case.valid if (values := _modes(case, cell["cell"]))]
    if candidates:
        values, _ = max(candidates, key=lambda f: float(f[0]["share"]))
        parts = values["parts"]
        yield from case.worst("response-modes", candidates, "share", case=parts[-1], parts=parts)


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
        "share": sum(r["share"] for r in others),
        "slow": slow["middle_ns"],
        "every": slow["every_s"],
    }
    activities = case.table("mode_activities", cell).filter(mode=slow["mode"]).to_dicts()
    parts, more = _causes(activities)
    return values | more | {"parts": [*(["every"] if slow["every_s"] else []), *parts]}


def _mode(row: Row) -> str:
    """Names a mode: ``0.043 % about 296 ms (6 % of the time)``."""
    time = fmt.percent(row["time_share"])
    return f"{_share(row['share'])} about {format_ns(row['middle_ns'])} ({time} of the time)"


def _share(share: float) -> str:
    """Formats a share; a small one with two digits, as a tail has few calls."""
    return fmt.percent(share) if share >= _SMALL else f"{100 * share:.2g} %"


def _causes(activities: list[Row]) -> tuple[list[str], dict[str, Any]]:
    """Returns the parts of the sentence about what goes with a mode, and their values."""
    exact = [r for r in activities if r["kind"] in _EXACT]
    if exact:
        return ["script"], {"kinds": listed([f"{r['kind']} {r['name']}" for r in exact])}
    goes = sorted((r for r in activities if r["goes"]), key=lambda r: (r["p"], -r["share"]))
    if goes:
        first, *rest = goes
        values = {
            "name": _name(first),
            "during": first["during"],
            "otherwise": first["otherwise"] or 0.0,
            "goes_share": first["share"],
            "also": listed([_name(r) for r in rest]),
        }
        return ["goes", *(["also"] if rest else [])], values
    if not activities:
        return ["nothing"], {}
    if all(r["status"] == "too few seconds" for r in activities):
        return ["few"], {"fewest": association.FEWEST}
    return ["none"], {"looked": listed([_name(r) for r in activities], 8)}


def _name(row: Row) -> str:
    return _KINDS.get(row["kind"], "{}").format(row["name"])
