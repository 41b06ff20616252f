"""Which pages of the lab have more about a claim: its explanation, and the tables that it rests on."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from urllib.parse import quote, urlencode

from dbdyno.model.results.claim import Claim
from dbdyno.present.document.document import PageLink

_WORD = re.compile(r"[a-z_]+")
_EACH = "windows"
"""The table of figures by measurement, for a claim whose evidence names no table."""


def explain_address(claim: str) -> str:
    return f"/explain/{quote(claim, safe='')}"


def run_address(run: str) -> str:
    return f"/run/{quote(run, safe='')}"


def table_address(run: str, table: str, cells: Collection[str] = (), page: int = 1) -> str:
    asked = [("cell", c) for c in cells] + ([("page", str(page))] if page > 1 else [])
    return f"{run_address(run)}/table/{quote(table, safe='')}" + (f"?{urlencode(asked)}" if asked else "")


def pages_of(
    run: str, every: Collection[str], tables: Collection[str]
) -> Callable[[Claim], Sequence[PageLink]]:
    """Returns a function from a claim to pages about it.

    ``every``: all measurements. ``tables``: those that have rows.
    """

    def pages(claim: Claim) -> Sequence[PageLink]:
        cells = () if set(every) <= set(claim.cells) else claim.cells
        named = [n for n in dict.fromkeys(_WORD.findall(claim.evidence)) if n in tables]
        shown = named or ([_EACH] if claim.cells else [])
        links = [PageLink("Tables", n.replace("_", " "), table_address(run, n, cells)) for n in shown]
        return [PageLink("Explained", claim.id.replace("-", " "), explain_address(claim.id)), *links]

    return pages
