"""The tables of a run: their list, their rows by the page, and each as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dbdyno import present
from dbdyno.model.errors import UsageError
from dbdyno.present import stored_tables
from dbdyno.present.document.page import Html, el, join
from dbdyno.store import Run
from dbdyno.store.table_rows import Key, TableRows, row_counts, run_tables
from dbdyno.web.answers import Streamed
from dbdyno.web.app import Lab, Page
from dbdyno.web.evidence import run_address, table_address
from dbdyno.web.shell import SAVE, View

_ROWS = 100
"""Rows of a page."""


def routes(lab: Lab) -> Sequence[BaseRoute]:
    def tables(request: Request) -> View:
        record, saved = lab.store.open(request.path_params["run"]), SAVE in request.query_params
        counts = row_counts(record.path)
        listed = [
            stored_tables.Listed(
                name,
                run_tables()[name].holds,
                rows,
                [c.name for c in TableRows.columns_of(name)],
                "" if saved else table_address(record.id, name),
            )
            for name, rows in counts.items()
        ]
        return View(stored_tables.listed(record.id, listed), None if saved else _up(record.id))

    def rows(request: Request) -> View:
        record, name = lab.store.open(request.path_params["run"]), request.path_params["table"]
        cells, page = request.query_params.getlist("cell"), _page(request)
        table = TableRows(record.path, name, _keys(record, cells))
        first = (page - 1) * _ROWS
        columns = [stored_tables.Shown(c.name, c.unit, c.doc) for c in table.columns]
        frame = table.some(first, _ROWS)
        shown = stored_tables.Rows(
            name, table.holds, columns, frame, first, len(table), cells, table.left_out
        )
        document = stored_tables.some_rows(record.id, shown)
        around = None if SAVE in request.query_params else _around(record.id, name, cells, page, len(table))
        return View(document, around)

    def csv(request: Request) -> Response:
        record, name = lab.store.open(request.path_params["run"]), request.path_params["table"]
        table = TableRows(record.path, name, _keys(record, request.query_params.getlist("cell")))
        headers = {"Content-Disposition": f'attachment; filename="{record.id}-{table.name}.csv"'}
        return Streamed(_csv(table), media_type="text/csv", headers=headers)

    return [
        Page("/run/{run}/tables", tables, lab),
        Route("/run/{run}/table/{table}.csv", csv, methods=["GET"]),
        Page("/run/{run}/table/{table}", rows, lab),
    ]


def _csv(table: TableRows) -> Iterator[bytes]:
    for n, batch in enumerate(table.batches()):
        yield present.csv(batch, heads=n == 0)


def _keys(record: Run, cells: Sequence[str]) -> Mapping[str, Key]:
    """Returns the wanted measurements with their loads. Raises :class:`UsageError` for an unknown one."""
    known = {c.id: c for c in record.plan.cells} if cells else {}
    if cells and not known:  # the windows of an observation are planned by nobody
        known = {c: record.cell(c) for c in {*cells}.intersection(record.cells())}
    if missing := [c for c in cells if c not in known]:
        raise UsageError(f"the run has no measurement {missing[0]!r}", "the table windows lists them")
    return {c: (known[c].workload, known[c].variant, known[c].sessions) for c in cells}


def _page(request: Request) -> int:
    text = request.query_params.get("page", "1")
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text)):
        raise UsageError(f"page={text}: no number of a page", "page=1 is the first")
    return int(text)


def _up(run: str) -> Html:
    return el("p", el("a", f"Run {run}", href=run_address(run), class_="to"), class_="ways")


def _around(run: str, name: str, cells: Sequence[str], page: int, rows: int) -> Html:
    """Returns the links to other pages, to all tables, and to the table as CSV."""
    last = max(1, -(-rows // _ROWS))
    wanted = {"Previous rows": page - 1, "Next rows": page + 1, "Last rows": last}
    pages = [
        (words, table_address(run, name, cells, n))
        for words, n in wanted.items()
        if 1 <= n <= last and n != page and not (words == "Last rows" and n == page + 1)
    ]
    asked = f"?{urlencode([('cell', c) for c in cells])}" if cells else ""
    links = [
        *pages,
        *([("All measurements", table_address(run, name))] if cells else []),
        ("As CSV", f"{table_address(run, name)}.csv{asked}"),
        ("All tables", f"{run_address(run)}/tables"),
        (f"Run {run}", run_address(run)),
    ]
    return el("p", join(*(join(el("a", t, href=a, class_="to"), " ") for t, a in links)), class_="ways")
