"""Keeps pages that were answered lately, since a page of a run costs much and changes seldom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

from starlette.requests import Request
from starlette.responses import Response

_MOST_BYTES = 16 << 20
"""Most bytes of all kept pages; each has 1 to 3 MB, of which the code of the charts is 1 MB."""


class KeptPages:
    """Pages by their address and by a stamp of everything that they depend on."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._pages: OrderedDict[Hashable, Response] = OrderedDict()
        self._bytes, self._most = 0, most_bytes
        self._lock = Lock()

    def page(self, request: Request, stamp: Hashable, make: Callable[[], Response]) -> Response:
        """Returns the kept page, or the one that ``make`` returns, which is then kept."""
        key = (request.url.path, request.url.query, stamp)
        with self._lock:
            if (kept := self._pages.get(key)) is not None:
                self._pages.move_to_end(key)
                return kept
        page = make()
        with self._lock:
            if key not in self._pages and len(page.body) <= self._most:
                self._pages[key] = page
                self._bytes += len(page.body)
            while self._bytes > self._most:
                self._bytes -= len(self._pages.popitem(last=False)[1].body)
        return page
