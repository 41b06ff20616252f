"""Calls of scripts that were tried more than once."""

from __future__ import annotations

from collections.abc import Iterator

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.case import Case, Row
from dbdyno.conclude.catalogue import claim
from dbdyno.model.claim import Claim
from dbdyno.model.ledger_rows import TOGETHER
from dbdyno.model.tables import empty

RETRIED = 0.01
"""Share of a script's calls: less is no claim."""


def retried(case: Case) -> Iterator[Claim]:
    """At the highest load of each variant, each script by itself."""
    several = len(case.plan.variants) > 1
    for row in _highest(case, "script_rates"):
        calls = row["calls"] + row["errors"]
        share = row["retried"] / calls if calls else 0.0
        if share < RETRIED:
            continue
        same = ("variant", "script")
        own = [c for c in _highest(case, "command_rates") if all(c[k] == row[k] for k in same)]
        worst = max(own, key=lambda c: c["retries"], default=None)
        said = {
            "share": share,
            "script": row["name"],
            "place": f"at {fmt.load(row['sessions'])}",
            "tries": row["retries"] / row["retried"],
            "line": worst["line"] if worst else 0,
            "command": worst["text"] if worst else "",
        }
        subject = row["variant"] if several else ""
        yield claim("retried", said, share, parts=["line"] if worst else [], subject=subject)


def _highest(case: Case, name: str) -> list[Row]:
    """Rows of the highest load of each variant: of all its cells together, of one cell its own."""
    rows = case.tables.get(name, empty(name)).to_dicts()
    tops: dict[str, int] = {}
    for r in rows:
        tops[r["variant"]] = max(r["sessions"], tops.get(r["variant"], 0))
    top = [r for r in rows if r["sessions"] == tops[r["variant"]]]
    return [r for r in top if r["cell"] == TOGETHER] or top
