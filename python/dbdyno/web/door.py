"""Lets browsers in: a token opens once and is replaced, and the browser gets a cookie for the time after."""

from __future__ import annotations

import hmac
import secrets

_BYTES = 32


class Door:
    """The secrets of one server. They are kept in memory only, so that they end with it.

    ``cookie``: its name, which differs between servers on one host, since browsers send it to all ports.
    """

    def __init__(self, port: int) -> None:
        self.cookie = f"dbdyno-{port}"
        self.token = secrets.token_urlsafe(_BYTES)
        """Opens once."""
        self._admitted: set[bytes] = set()

    def open(self, token: str) -> str | None:
        """Returns the value of a new cookie, and replaces the token; None if the token is wrong."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self.token = secrets.token_urlsafe(_BYTES)
        value = secrets.token_urlsafe(_BYTES)
        self._admitted.add(value.encode())
        return value

    def admits(self, value: str) -> bool:
        """Returns whether a cookie has the value of one that was given out."""
        given = value.encode()
        return any(hmac.compare_digest(given, one) for one in self._admitted)
