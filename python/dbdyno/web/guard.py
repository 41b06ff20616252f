"""Checks a request before it reaches a view: its host, its origin, its cookie."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbdyno.present.document.page import el, join
from dbdyno.web.address import Address
from dbdyno.web.door import Door
from dbdyno.web.shell import plain_page

TOKEN = "token"  # parameter of the printed address
_READING = frozenset({"GET", "HEAD"})
_MOST_BYTES = 1 << 20
"""Longest body of a request."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the rest of the policy is in each page
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer the Origin of a form would be null
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """ASGI middleware around the whole application.

    A request that has no cookie of ours sees nothing of the store, not even whether a page exists. One that
    changes something must come from our own page (Origin). See docs/web.md.
    """

    def __init__(self, app: ASGIApp, address: Address, door: Door, opened: Callable[[str], None]) -> None:
        """``opened`` gets the next address to print when a token was used."""
        self._app, self._address, self._door, self._opened = app, address, door, opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = Request(scope)
        refusal = self._refusal(request) or self._entrance(request)
        answer: ASGIApp = refusal if refusal is not None else self._app
        await answer(scope, _limited(receive), _with_headers(send))

    def _refusal(self, request: Request) -> Response | None:
        if not self._address.answers_to(request.headers.get("host", "")):
            return PlainTextResponse(f"421: this server is {self._address.url}\n", 421)
        if request.method in _READING:
            return None
        if request.method != "POST":
            return PlainTextResponse("405: GET or POST\n", 405, {"Allow": "GET, HEAD, POST"})
        if request.headers.get("origin", "").partition("://")[2] != request.headers["host"]:
            return PlainTextResponse("403: not from a page of this server\n", 403)
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > _MOST_BYTES:
            return PlainTextResponse("413: too long\n", 413)
        return None

    def _entrance(self, request: Request) -> Response | None:
        """Returns None for a browser that was let in before."""
        token = request.query_params.get(TOKEN, "")
        if token and request.method == "GET" and (value := self._door.open(token)) is not None:
            self._opened(f"{self._address.url}/?{TOKEN}={self._door.token}")
            answer = RedirectResponse(_here(request), 303)
            answer.set_cookie(
                self._door.cookie, value, httponly=True, samesite="strict", secure=bool(self._address.tls)
            )
            return answer
        if self._door.admits(request.cookies.get(self._door.cookie, "")):
            return RedirectResponse(_here(request), 303) if token else None
        return _closed(request)


def _here(request: HTTPConnection) -> str:
    """Returns the address without the token, on this server: //HOST/PATH would lead to that host."""
    query = urlencode([(k, v) for k, v in request.query_params.multi_items() if k != TOKEN])
    path = "/" + quote(request.scope["path"].lstrip("/\\"))
    return f"{path}?{query}" if query else path


def _closed(request: HTTPConnection) -> Response:
    """Returns the page for a browser without a cookie. From a link on another site it may have one, which
    browsers send only after a further click (SameSite=Strict)."""
    words = el("p", "Open the address that dbdyno web printed. It works once; the next one is printed then.")
    again = None
    if request.headers.get("sec-fetch-site") == "cross-site":
        again = el(
            "p", el("a", "Open it from here", href=_here(request)), " if this browser was let in before."
        )
    return HTMLResponse(plain_page("not open", join(el("h1", "This page is not open"), words, again)), 401)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def _limited(receive: Receive) -> Receive:
    """Ends a body without a stated length where it gets too long."""
    read = 0

    async def receiving() -> Message:
        nonlocal read
        message = await receive()
        if message["type"] == "http.request":
            read += len(message.get("body", b""))
            if read > _MOST_BYTES:
                return {"type": "http.disconnect"}
        return message

    return receiving
