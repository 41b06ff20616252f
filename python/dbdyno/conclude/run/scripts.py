"""Concludes about scripts: which one takes the time, and which ones were retried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import TOGETHER
from dbdyno.model.schema.tables import empty

RETRIED = 0.01
"""Share of a script's calls from which on retries are reported."""
MOST = 0.5
"""Share of session time from which on one of several scripts is reported."""
_K = TypeVar("_K")


@check("retried", of="whole")
def retried(case: Case) -> Iterator[Claim]:
    """Yields retried scripts at the highest load of each variant."""
    several = len(case.plan.variants) > 1
    for row in _highest(case, "script_rates"):
        calls = row["calls"] + row["errors"]
        share = row["retried"] / calls if calls else 0.0
        if share < RETRIED:
            continue
        same = ("variant", "script")
        own = [c for c in _highest(case, "command_rates") if all(c[k] == row[k] for k in same)]
        worst = max(own, key=lambda c: c["retries"], default=None)
        values = {
            "share": share,
            "script": row["name"],
            "place": fmt.at_load(row["sessions"]),
            "tries": row["retries"] / row["retried"],
            "line": worst["line"] if worst else 0,
            "command": worst["text"] if worst else "",
        }
        subject = row["variant"] if several else ""
        yield claim("retried", values, share, parts=["line"] if worst else [], subject=subject)


@check("script-time", of="whole")
def most_time(case: Case) -> Iterator[Claim]:
    """Yields the script that takes most of session time at the highest load of each variant, if there are
    several."""
    several = len(case.plan.variants) > 1
    rows = [r for r in _highest(case, "script_ledger") if r["script"] is not None and r["share"] is not None]
    for variant in dict.fromkeys(r["variant"] for r in rows):
        own = [r for r in rows if r["variant"] == variant]
        whole = _sums((r["name"], r["share"]) for r in own if r["account"] == "all")
        script, share = max(whole.items(), key=lambda i: i[1])
        if len(whole) < 2 or share < MOST:
            continue
        of_script = [r for r in own if r["name"] == script]
        values = {"script": script, "share": share, "place": fmt.at_load(of_script[0]["sessions"])}
        where, most = _largest((_where(r), r["share"]) for r in of_script if r["account"] in _WHERE)
        line, top = _largest(((r["line"], r["text"]), r["share"]) for r in of_script if _is_statement(r))
        parts = [name for name, value in (("where", most), ("line", top)) if value >= MOST * share]
        values |= {"where": where, "most": most / share, "top": top / share}
        values |= dict(zip(("line", "command"), line or (0, ""), strict=True))
        yield claim("script-time", values, share, parts=parts, subject=variant if several else "")


_WHERE = {"run": "on a CPU", "runq": "in the run queue", "sleep": "asleep", "client": "at the client"}


def _where(row: Row) -> str:
    slept = row["account"] == "sleep" and row["detail"]
    return f"asleep in {row['detail']}" if slept else _WHERE[row["account"]]


def _is_statement(row: Row) -> bool:
    return row["account"] == "all" and row["command"] is not None


def _largest(pairs: Iterable[tuple[_K, float]]) -> tuple[_K | None, float]:
    return max(_sums(pairs).items(), key=lambda i: i[1], default=(None, 0.0))


def _sums(pairs: Iterable[tuple[_K, float]]) -> dict[_K, float]:
    sums: dict[_K, float] = {}
    for key, value in pairs:
        sums[key] = sums.get(key, 0.0) + value
    return sums


def _highest(case: Case, name: str) -> list[Row]:
    """Returns the rows of the highest load of each variant, over all its cells, or a single cell's own."""
    rows = case.tables.get(name, empty(name)).to_dicts()
    tops: dict[str, int] = {}
    for r in rows:
        tops[r["variant"]] = max(r["sessions"], tops.get(r["variant"], 0))
    top = [r for r in rows if r["sessions"] == tops[r["variant"]]]
    return [r for r in top if r["cell"] == TOGETHER] or top
