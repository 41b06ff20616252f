"""The application: addresses and their views, and what an error looks like."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dbdyno.model.errors import DbdynoError, NoSuchRun, StoreError, UsageError
from dbdyno.model.text.visible import with_stop
from dbdyno.present.document.document import Document, Paragraph
from dbdyno.store import RunStore
from dbdyno.web.answers import json_answer, wants_json
from dbdyno.web.forms import CommandLine, NotAllowed
from dbdyno.web.shell import Place, View, answer
from dbdyno.web.started import Starts

_THREADS = 4
"""Views that are made at a time; further ones wait."""
_STATUS: tuple[tuple[type[DbdynoError], int], ...] = (
    (NoSuchRun, 404),
    (NotAllowed, 403),
    (UsageError, 400),
    (StoreError, 409),
)
Viewing = Callable[[Request], View]


@dataclass(frozen=True)
class Lab:
    """The knowledge of all views: the store, and what may be started from the browser.

    ``closing``: called in the event loop when the server is stopped, by answers that would not end.
    """

    store: RunStore
    places: tuple[Place, ...] = ()
    commands: CommandLine | None = None
    """The commands that may be started; None if nothing may."""
    starts: Starts | None = None
    """The started processes, if something may be started."""
    closing: list[Callable[[], None]] = field(default_factory=list)


class Page(Route):
    """A route to a view, which is made in a thread."""

    def __init__(self, path: str, viewing: Viewing, lab: Lab) -> None:
        def endpoint(request: Request) -> Response:
            return answer(request, viewing(request), lab.places)

        super().__init__(path, endpoint, methods=["GET"])


def application(lab: Lab, routes: Sequence[BaseRoute]) -> Starlette:
    async def failed(request: Request, error: Exception) -> Response:
        return _failure(request, error, lab)

    handlers: dict[Any, Any] = dict.fromkeys((DbdynoError, HTTPException, Exception), failed)
    return Starlette(routes=[*routes], exception_handlers=handlers, lifespan=_few_threads)


@asynccontextmanager
async def _few_threads(_: Starlette) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
    yield


def _failure(request: Request, error: Exception, lab: Lab) -> Response:
    """Returns the error in a sentence, with its cure, as a page or as JSON.

    Of an error inside dbdyno the browser gets nothing; uvicorn prints it.
    """
    message, cure = "An error inside dbdyno; its terminal shows more.", ""
    status = 500
    if isinstance(error, DbdynoError):
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        message, cure = error.message, error.cure or ""
    elif isinstance(error, HTTPException):
        status = error.status_code
        message = "There is no such page." if status == 404 else error.detail
    if wants_json(request):
        return json_answer({"error": message, "cure": cure}, status)
    lead = [Paragraph(message, "warning"), *([Paragraph(f"What to do: {with_stop(cure)}")] if cure else [])]
    return answer(
        request, View(Document("This page cannot be shown", [], lead=lead), status=status), lab.places
    )
