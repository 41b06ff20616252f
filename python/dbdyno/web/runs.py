"""All runs of the store: filtered, sorted, compared, labelled, removed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dbdyno import conduct
from dbdyno.model.errors import DbdynoError, NoSuchRun, UsageError
from dbdyno.model.text.visible import shortened, visible
from dbdyno.present.document.document import Document
from dbdyno.store.listing import has_run
from dbdyno.web.answers import Action, json_answer, text_of, texts_of
from dbdyno.web.app import Lab, Page
from dbdyno.web.run_list import Curves, Listing, RunList
from dbdyno.web.runs_markup import runs_markup
from dbdyno.web.shell import SAVE, View, noting_unknown

DATA = "run-list"
"""The id of the element with the rows."""
_PARAMETERS = ("q", "workload", "status", "tag", "sort")
"""Of the address, which assets/runs.js reads."""
_SCRIPTS = ("ask.js", "run_curves.js", "runs.js", "run_changes.js")
_FIRST = 100
"""Rows whose curves a saved page has, besides those that were drawn lately."""
_MOST_ASKED, _MOST_REMOVED, _MOST_TAGS = 100, 200, 50


def routes(lab: Lab) -> Sequence[BaseRoute]:
    root = lab.store.root
    listed, drawn, changing = RunList(root), Curves(root), threading.Lock()

    def runs(request: Request) -> View:
        listing = listed.listing()
        data = _rows(listing)
        if SAVE in request.query_params:
            data |= {"asked": dict(request.query_params), "curves": _saved(drawn, listing)}
        document = noting_unknown(Document("Runs", [], about=[("Store", str(root))]), request, _PARAMETERS)
        missing = None if root.is_dir() else root
        return View(document, runs_markup(missing), _SCRIPTS, ("lab.css", "runs.css"), {DATA: data}, "/")

    def rows(request: Request) -> Response:
        listing = listed.listing()
        headers = {"ETag": f'"{listing.tag}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return json_answer(_rows(listing), headers=headers)

    def curves(request: Request) -> Response:
        return json_answer(drawn.of(_asked(request, _MOST_ASKED, listed)))

    def sizes(request: Request) -> Response:
        asked = _asked(request, _MOST_REMOVED, listed)
        removal = conduct.removal([root / run for run in asked])
        records = [{**_brief(row), "size": size} for row, size in removal.runs]
        return json_answer({"runs": records, "question": removal.question})

    def label(body: Mapping[str, Any]) -> Any:
        given: dict[str, Any] = {key: text_of(body, key) for key in ("name", "note")}
        given |= {"tags": tuple(texts_of(body, "tags", _MOST_TAGS))}
        if not (wanted := text_of(body, "run")):
            raise UsageError("no run was named")
        with changing:
            record = lab.store.open(_existing(root, wanted, _seen(listed)))
            info = conduct.relabelled(record, given, texts_of(body, "untags", _MOST_TAGS))
        return {"id": info.id, "name": info.name, "tags": list(info.tags), "note": info.note}

    def remove(body: Mapping[str, Any]) -> Any:
        wanted = texts_of(body, "runs", _MOST_REMOVED)
        if not wanted:
            raise UsageError("no run was named")
        seen, results = _seen(listed), []
        for run in wanted:
            with changing:  # for each by itself: many take a while
                results.append(_removed(lab, run, seen))
        return {"runs": results}

    return [
        Page("/", runs, lab),
        Route("/runs.json", rows, methods=["GET"]),
        Route("/curves", curves, methods=["GET"]),
        Route("/sizes", sizes, methods=["GET"]),
        Action("/label", label),
        Action("/remove", remove),
    ]


def _rows(listing: Listing) -> dict[str, Any]:
    return {"tag": listing.tag, "columns": conduct.RunRow._fields, "rows": listing.rows}


def _saved(drawn: Curves, listing: Listing) -> dict[str, conduct.Curve | None]:
    runs = [row.id for row in listing.rows]
    return drawn.of(runs[:_FIRST]) | drawn.known(runs[_FIRST:])


def _asked(request: Request, most: int, listed: RunList) -> list[str]:
    """Returns the runs that a request names, as far as they are there."""
    asked = dict.fromkeys(request.query_params.getlist("run"))
    if len(asked) > most:
        raise UsageError(f"{len(asked):,} runs", f"at most {most} at a time")
    seen = _seen(listed)
    return [seen[run] for run in asked if run in seen]


def _seen(listed: RunList) -> dict[str, str]:
    """Returns the real ids of the runs by those that pages show: the name of a damaged run may have bytes
    that no text has. Runs that look the same are left out, for it is unknown which one was meant."""
    ids = [row.id for row in listed.listing().rows]
    looks = Counter(map(visible, ids))
    return {visible(id): id for id in ids if looks[visible(id)] == 1}


def _existing(root: Path, run: str, seen: Mapping[str, str]) -> str:
    """Returns the id of a run. Raises :class:`NoSuchRun`, also for a name or a part of an id: what is changed
    is the row that was seen."""
    id = seen.get(run, "")
    if not has_run(root, id):
        raise NoSuchRun(f"run {shortened(run, 200)} is no longer in {root}")
    return id


def _removed(lab: Lab, run: str, seen: Mapping[str, str]) -> dict[str, Any]:
    """Removes a run, and returns the error and its cure if it cannot be. ``gone``: it is no longer there."""
    try:
        lab.store.remove(_existing(lab.store.root, run, seen))
    except DbdynoError as error:
        gone = isinstance(error, NoSuchRun)
        return {"id": run, "gone": gone, "error": error.message, "cure": error.cure or ""}
    return {"id": run, "gone": True, "error": "", "cure": ""}


def _brief(row: conduct.RunRow) -> dict[str, str]:
    return {"id": row.id, "name": row.name, "peak": row.peak, "status": row.status}
