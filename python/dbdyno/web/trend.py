"""A figure over runs, or over snapshots, with its changes: what ``dbdyno trend`` shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.routing import BaseRoute

from dbdyno import conduct, present
from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.results.trend import FIGURES
from dbdyno.model.text.visible import one_line, with_stop
from dbdyno.present.document.document import Document, Paragraph
from dbdyno.present.document.page import Html, el
from dbdyno.store.listing import STATUSES
from dbdyno.store.overview import overviews
from dbdyno.web.app import Lab, Page
from dbdyno.web.shell import SAVE, View, noting_unknown

_LIMIT, _MOST = 100, 500
"""Runs by default, and at most."""
_TEXTS = ("workload", "name", "target", "status", "since")
_OBJECT, _OBJECT_NAME = "of", "object"
_OTHERS = ("figure", "sessions", "variant", "machine", "tag", "q", "limit", _OBJECT, _OBJECT_NAME)
_PARAMETERS = (*_TEXTS, *_OTHERS)


def routes(lab: Lab) -> Sequence[BaseRoute]:
    def trend(request: Request) -> View:
        asked = {key: value.strip() for key, value in request.query_params.items() if value.strip()}
        status = 200
        try:
            question = _question(asked)
            shown = present.trend(conduct.stored_trend(lab.store.root, question, lambda _: None))
            if "workload" not in asked and _OBJECT not in asked:
                shown = replace(shown, lead=[*shown.lead, *_taken(lab, question, asked)])
        except UsageError as error:
            shown, status = _refusal(error), 400
        form = None if SAVE in asked else _form(lab, asked)
        shown = noting_unknown(shown, request, _PARAMETERS)
        return View(shown, form, ("trend.js",), ("lab.css", "runs.css"), place="/trend", status=status)

    return [Page("/trend", trend, lab)]


def _taken(lab: Lab, question: conduct.TrendQuestion, asked: Mapping[str, str]) -> list[Paragraph]:
    """Returns a line on the workload that was taken, with the address that goes on showing it."""
    workload = conduct.newest_workload(overviews(lab.store.root), question.runs)
    if workload is None:
        return []
    text = f"No workload is asked for, so this is {one_line(workload)}, the newest run's."
    if SAVE in asked:
        return [Paragraph(text)]
    stays, address = "An address that stays with it", urlencode({**asked, "workload": workload})
    return [Paragraph(f"{text} {stays}.", links=[(stays, f"/trend?{address}")])]


def _refusal(error: DbdynoError) -> Document:
    cure = [Paragraph(f"What to do: {with_stop(error.cure)}")] if error.cure else []
    return Document("Trend", [], lead=[Paragraph(error.message, "warning"), *cure])


def _question(asked: Mapping[str, str]) -> conduct.TrendQuestion:
    """Returns the question of an address. Raises :class:`UsageError`."""
    runs: dict[str, Any] = {key: asked.get(key) for key in _TEXTS}
    runs |= {"tags": [asked["tag"]] if "tag" in asked else [], "words": asked.get("q")}
    limit = _number(asked, "limit")
    runs["limit"] = _LIMIT if limit is None else min(limit, _MOST)
    objects = {}
    if (kind := asked.get(_OBJECT)) is not None:
        if kind not in conduct.TREND_OBJECTS:
            raise UsageError(f"no kind of object {kind!r}", ", ".join(conduct.TREND_OBJECTS))
        if _OBJECT_NAME not in asked:
            raise UsageError(f"no {kind} is named", "give its name, or for the server one of its figures")
        objects = {kind: asked[_OBJECT_NAME]}
    return conduct.TrendQuestion(
        asked.get("figure"),
        _number(asked, "sessions"),
        asked.get("variant"),
        asked.get("machine"),
        objects,
        runs,
    )


def _number(asked: Mapping[str, str], key: str) -> int | None:
    text = asked.get(key)
    if text is None:
        return None
    if re.fullmatch(r"[1-9][0-9]{0,8}", text) is None:
        raise UsageError(f"{key} {text[:80]}: no number", "give a number from 1 on")
    return int(text)


def _form(lab: Lab, asked: Mapping[str, str]) -> Html:
    """Returns the form whose address describes the view; its values are those of the address."""
    entries = overviews(lab.store.root)
    workloads = sorted({one.outline.workload for one in entries} - {"", "observation"})
    tags = sorted({tag for one in entries for tag in one.run.document["tags"]})
    return el(
        "form",
        el(
            "div",
            _choice("figure", "Figure", [(name, f.title) for name, f in FIGURES.items()], asked),
            _choice("workload", "Workload", _same(workloads), asked, "of the newest run"),
            _entry("sessions", "Sessions", asked, "at the peak", type="number", min=1),
            _entry("variant", "Variant", asked, "the first"),
            _choice("tag", "Tag", _same(tags), asked, "any"),
            _entry("since", "Since", asked, "30d, 2026-11-01"),
            class_="asked",
        ),
        el(
            "details",
            el("summary", "More conditions, and snapshots"),
            el("div", *_more(asked), class_="asked"),
            open=any(key in asked for key in _FOLDED),
        ),
        el("button", "Show"),
        action="/trend",
        method="get",
        aria_label="What is shown over time",
    )


_FOLDED = ("name", "machine", "target", "status", "q", "limit", _OBJECT, _OBJECT_NAME)


def _more(asked: Mapping[str, str]) -> Iterator[Html]:
    yield _entry("name", "Name", asked, "nightly*")
    yield _entry("machine", "Machine", asked, "EPYC, 8 CPUs")
    yield _entry("target", "Target", asked, "embedded, db1")
    yield _choice("status", "Status", _same(STATUSES), asked, "any")
    yield _entry("q", "Words", asked, "in any column")
    yield _entry("limit", "Newest", asked, str(_LIMIT), type="number", min=1, max=_MOST)
    yield _choice(_OBJECT, "Snapshots of", _same(conduct.TREND_OBJECTS), asked, "none, but runs")
    yield _entry(_OBJECT_NAME, "Its name", asked, "orders")


def _same(values: Sequence[str]) -> list[tuple[str, str]]:
    return [(value, value) for value in values]


def _choice(
    key: str, text: str, values: Sequence[tuple[str, str]], asked: Mapping[str, str], without: str = ""
) -> Html:
    """Returns a selection. A value of the address that is none of them stays, to be seen with its error."""
    wanted = asked.get(key, "")
    foreign = [(wanted, wanted)] if wanted and wanted not in dict(values) else []
    options = [*([("", without)] if without else []), *values, *foreign]
    chosen = (el("option", shown, value=value, selected=value == wanted) for value, shown in options)
    return el("label", f"{text} ", el("select", *chosen, name=key))


def _entry(key: str, text: str, asked: Mapping[str, str], hint: str, **attributes: str | int) -> Html:
    field = el("input", name=key, value=asked.get(key, ""), placeholder=hint, **attributes)
    return el("label", f"{text} ", field)
