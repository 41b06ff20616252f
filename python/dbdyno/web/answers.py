"""Answers in JSON to scripts of the pages, and the requests by which these change something."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from dbdyno.model.errors import StoreError, UsageError
from dbdyno.model.text.visible import visible_json

Acting = Callable[[Mapping[str, Any]], Any]


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Returns ``value`` as JSON, in which characters that would mislead the reader are visible."""
    return Response(visible_json(value), status, headers, "application/json")


def wants_json(request: Request) -> bool:
    """Returns whether a script asks, and not the browser for a page."""
    return "application/json" in request.headers.get("accept", "")


class Streamed(StreamingResponse):
    """An answer that is made while it is sent. If the store fails, the connection ends before the answer
    does, so that the browser does not take a part for the whole."""

    async def stream_response(self, send: Send) -> None:
        with suppress(StoreError):
            await super().stream_response(send)


async def body_of(request: Request) -> bytes:
    """Raises :class:`UsageError` for a body that the guard or the browser ended early."""
    try:
        return await request.body()
    except ClientDisconnect:
        raise UsageError("the request is incomplete, or too long") from None


class Action(Route):
    """A route that changes something: the JSON object of a POST goes to ``act``, in a thread, and its
    result comes back as JSON."""

    def __init__(self, path: str, act: Acting) -> None:
        async def endpoint(request: Request) -> Response:
            content = await body_of(request)
            try:
                body = json.loads(content)
            except (ValueError, RecursionError):
                body = None
            if not isinstance(body, dict):
                raise UsageError("the request is no JSON object")
            return json_answer(await run_in_threadpool(act, body))

        super().__init__(path, endpoint, methods=["POST"])


def text_of(body: Mapping[str, Any], key: str) -> str | None:
    """Returns a text of the request; None without one. Raises :class:`UsageError` for anything else."""
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{key} is no text")
    return value


def texts_of(body: Mapping[str, Any], key: str, most: int) -> list[str]:
    """Returns the different texts of a list, which may be absent. Raises :class:`UsageError`."""
    values = body.get(key) or []
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise UsageError(f"{key} is no list of texts")
    if len(values) > most:
        raise UsageError(f"{len(values):,} {key}", f"at most {most:,} at a time")
    return list(dict.fromkeys(values))
