"""Concludes which activity of lock holders makes sessions wait: the states of the roots of lock waits."""

from __future__ import annotations

from collections.abc import Iterator

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import together_at
from dbdyno.model.schema.tables import empty

LOCK_SHARE = 0.05
"""Share of DB time from which on lock waits are reported."""
LEAST_SAMPLES = 10
"""Samples with a session waiting for a lock that the claim needs."""
_NAMED = 4
_ROUNDED = 0.005


@check("wait-chains", "deadlocks", of="whole")
def roots(case: Case) -> Iterator[Claim]:
    """Yields the roots of lock waits at the highest load, or over all windows of an observation."""
    for name, rungs in case.rungs():
        if not rungs:
            continue
        top = rungs[-1]
        rows = rows_at(case, top)
        doing = [r for r in rows if r["by"] == "doing"]
        waited = sum(r["share"] or 0.0 for r in doing)
        if waited < LOCK_SHARE or sum(r["samples"] for r in doing) < LEAST_SAMPLES:
            continue
        first = {by: next(r for r in rows if r["by"] == by) for by in ("object", "chain")}
        named = [r for r in doing if r["lock_share"] >= _ROUNDED][:_NAMED]
        place = "" if case.observed else f" {fmt.at_load(top['sessions'])}"
        values = {
            "share": waited,
            "roots": ", ".join(f"{fmt.percent(r['lock_share'])} {r['name']}" for r in named),
            "locked": first["object"]["name"],
            "locked_share": first["object"]["lock_share"],
            "root": named[0]["name"],
            "low": named[0]["low"] / named[0]["seconds"] * named[0]["lock_share"],
            "high": named[0]["high"] / named[0]["seconds"] * named[0]["lock_share"],
            "place": place,
        }
        yield claim("wait-chains", values, waited, subject=name)
        if cycle := [r for r in doing if r["name"].startswith("deadlock")]:
            yield claim("deadlocks", {"seconds": cycle[0]["seconds"], "place": place}, cycle[0]["seconds"])


def rows_at(case: Case, rung: Row) -> list[Row]:
    """Returns the rows over all cells of a load, or a single cell's own rows."""
    table = case.tables.get("wait_chains", empty("wait_chains"))
    rows = [
        r
        for r in table.sort("by", "rank").to_dicts()
        if all(r[c] == rung[c] for c in ("workload", "variant", "sessions"))
    ]
    return [r for r in rows if r["cell"] == together_at(rung["rate_per_s"])] or rows
