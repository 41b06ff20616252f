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
    """Of the highest load, each script by itself."""
    for name, rungs in case.rungs():
        for row in _rows(case, rungs[-1], "script_rates") if rungs else ():
            calls = row["calls"] + row["errors"]
            share = row["retried"] / calls if calls else 0.0
            if share < RETRIED:
                continue
            commands = [
                c
                for c in _rows(case, rungs[-1], "command_rates")
                if c["script"] == row["script"] and c["retries"]
            ]
            worst = max(commands, key=lambda c: c["retries"], default=None)
            said = {
                "share": share,
                "script": row["name"],
                "place": f"at {fmt.load(row['sessions'])}",
                "tries": row["retries"] / row["retried"],
                "line": worst["line"] if worst else 0,
                "command": worst["text"] if worst else "",
            }
            yield claim("retried", said, share, parts=["line"] if worst else [], subject=name)


def _rows(case: Case, rung: Row, name: str) -> list[Row]:
    """All cells of a load together; of one cell its own rows."""
    rows = [
        r for r in case.tables.get(name, empty(name)).to_dicts()
        if all(r[c] == rung[c] for c in ("workload", "variant", "sessions"))
    ]  # fmt: skip
    return [r for r in rows if r["cell"] == TOGETHER] or rows
