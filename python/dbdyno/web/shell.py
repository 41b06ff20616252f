"""The frame of every page: links to the others, and the same page as one file that works offline."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib.resources import files as resources
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dbdyno.model.text.visible import one_line
from dbdyno.present.document.document import Document, Paragraph
from dbdyno.present.document.page import Html, bundled, el, page
from dbdyno.present.media import html

SAVE = "save"
"""Parameter of an address: the page as a file to keep."""
SHOW = "show"
"""Parameter of an address: the chosen load, window or database."""
_OF_EVERY_PAGE = (SAVE, SHOW, "theme")
"""Parameters that :func:`answer` and the page's own script know."""
_MOST_NAMED = 3
_MOST_NAME = 80
"""Characters in the name of a file."""


class Place(NamedTuple):
    """A page that every page links to."""

    name: str
    path: str


class View(NamedTuple):
    """A page of the lab.

    ``above``: markup before the document's blocks. ``scripts`` and ``styles``: names for :func:`asset`.
    ``data``: what scripts read, by the id of its element. ``place``: the path of the link that is marked as
    current. A script that speaks to the server leaves that out in a saved page, whose ``<html>`` has no
    attribute ``data-served``.
    """

    shown: Document
    above: Html | None = None
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ("lab.css",)
    data: Mapping[str, Any] = MappingProxyType({})
    place: str = ""
    status: int = 200


def answer(request: Request, view: View, places: tuple[Place, ...]) -> Response:
    """Returns the page, or the file to keep if the address asks for it."""
    saved = SAVE in request.query_params
    frame = html.Frame(
        None if saved else _links(request, view, places),
        view.above,
        [asset(name) for name in view.scripts],
        "".join(asset(name) for name in view.styles),
        view.data,
        show=request.query_params.get(SHOW, ""),
        served=not saved,
    )
    text = html.page(view.shown, frame)
    headers = (
        {"Content-Disposition": f'attachment; filename="{file_name(view.shown.title)}"'} if saved else None
    )
    return HTMLResponse(text, view.status, headers)


def file_name(title: str) -> str:
    """Returns the name of a page as a file: the first whole words of its title."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-") or "dbdyno"
    if len(words) > _MOST_NAME:
        words = words[: _MOST_NAME + 1].rpartition("-")[0] or words[:_MOST_NAME]
    return f"{words}.html"


def _links(request: Request, view: View, places: tuple[Place, ...]) -> Html:
    links = [
        el("li", el("a", p.name, href=p.path, aria_current="page" if p.path == view.place else None))
        for p in places
    ]
    if request.method != "GET":  # its address alone does not make this page
        return el("ul", *links, class_="pages")
    asked = [(k, v) for k, v in request.query_params.multi_items() if k != SAVE]
    keep = el(
        "a", "Save this page", href=f"?{urlencode([*asked, (SAVE, '1')])}", download=True, class_="keep"
    )
    return el("ul", *links, el("li", keep), class_="pages")


def noting_unknown(shown: Document, request: Request, known: Collection[str]) -> Document:
    """Returns the document with a line on what its address has beside the parameters ``known``."""
    every = dict.fromkeys(request.query_params)
    unknown = [one_line(name)[:40] for name in every if name not in known and name not in _OF_EVERY_PAGE]
    if not unknown:
        return shown
    names = ", ".join(unknown[:_MOST_NAMED]) + (" and others" if len(unknown) > _MOST_NAMED else "")
    known_names = f"what it may have: {', '.join(known)}"
    line = Paragraph(f"The address has {names}, which means nothing here; {known_names}.", "warning")
    return replace(shown, lead=[*shown.lead, line])


def plain_page(title: str, body: Html) -> str:
    """Returns a page without links, for who has not been let in."""
    return page(title, el("main", body))


_BUNDLED = ("uplot.js", "uplot.css")
TIMELINE_SCRIPTS, TIMELINE_STYLES = ("uplot.js", "timeline.js"), ("uplot.css", "timeline.css")
"""The chart over time, ``window.labTimeline``: see timeline.js. It says so if it was not bundled."""


def asset(name: str) -> str:
    """Returns the text of a file in the folder assets of this room, or of what the build bundles."""
    if name in _BUNDLED:
        return bundled(name)
    return resources("dbdyno.web").joinpath("assets", name).read_text("utf-8")
