"""A run: its document, as ``report`` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.routing import BaseRoute

from dbdyno import conduct, present
from dbdyno.web.app import Lab, Page
from dbdyno.web.shell import View


def routes(lab: Lab) -> Sequence[BaseRoute]:
    def run(request: Request) -> View:
        record = lab.store.open(request.path_params["run"])
        return View(present.run_document(conduct.results_of(record)))

    return [Page("/run/{run}", run, lab)]
