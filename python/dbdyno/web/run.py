"""A run: its document, as ``report`` writes it, with links to what it rests on."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from dbdyno import conduct, present
from dbdyno.model.errors import DbdynoError
from dbdyno.model.plan.kinds import OBSERVATION, kind_of
from dbdyno.model.results.results import Results
from dbdyno.present.document.page import Html, el, join
from dbdyno.store import Run
from dbdyno.store.listing import run_before, stamp
from dbdyno.store.table_rows import tables_with_rows
from dbdyno.web import time_travel
from dbdyno.web.app import Lab
from dbdyno.web.evidence import pages_of, run_address
from dbdyno.web.kept import KeptPages
from dbdyno.web.shell import SAVE, SHOW, View, answer


def routes(lab: Lab) -> Sequence[BaseRoute]:
    kept = KeptPages()

    def run(request: Request) -> Response:
        record = lab.store.open(request.path_params["run"])
        if record.id != request.path_params["run"]:  # "last" is another run tomorrow
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"{run_address(record.id)}{query}", 303)
        before = _comparable(lab, record)

        def make() -> Response:
            only = None if SAVE in request.query_params else request.query_params.get(SHOW, "")
            return answer(request, _view(record, before, only), lab.places)

        return kept.page(request, (*state_of(record), before), make)

    return [Route("/run/{run}", run, methods=["GET"])]


def state_of(record: Run) -> tuple[Hashable, ...]:
    """Returns what a page of a run depends on: what was derived, and of a run that goes on its cells."""
    running = record.info.status == "running"
    return (record.id, stamp(record.path), record.info.status, tuple(record.cells()) if running else ())


def quiet(_: str) -> None:
    """Takes the progress of deriving, which has no place on a page."""


def _view(record: Run, before: str | None, only: str | None) -> View:
    """Returns the page with the details of one load, or the file to keep with those of all: ``only`` is
    None."""
    results = conduct.results_of(record, quiet)
    if only is None:
        return View(present.run_document(results))
    cells = results.tables["windows"]["cell"].to_list()
    pages = pages_of(record.id, cells, tables_with_rows(record.path))
    return View(present.run_document(results, pages, only), _ways(results, before))


def _comparable(lab: Lab, record: Run) -> str | None:
    """Returns the run before this one, if both have a load in common; no observations have one."""
    before = run_before(lab.store.root, record.id)
    if before is None:
        return None
    with contextlib.suppress(DbdynoError):
        loads, others = (
            {(c.sessions, c.rate_per_s) for c in run.plan.cells} for run in (record, lab.store.open(before))
        )
        return before if loads & others else None
    return before


def _ways(results: Results, before: str | None) -> Html:
    """Returns links to other pages about the run."""
    run = results.info.id
    links = [("Live", f"/live/{run}")] if results.info.status == "running" else []
    if kind_of(results.plan).among((OBSERVATION,)):
        links.append(("Time travel", time_travel.address(run)))
    if before is not None:
        asked = urlencode([("run", before), ("run", run)])
        links.append(("Compare with the run before it", f"/compare?{asked}"))
    if results.comparison is not None:
        links.append(("Compare its variants", f"/compare?{urlencode({'run': run})}"))
    links.append(("Tables", f"{run_address(run)}/tables"))
    return el("p", join(*(join(el("a", t, href=a, class_="to"), " ") for t, a in links)), class_="ways")
