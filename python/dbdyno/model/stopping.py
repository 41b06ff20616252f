"""A request to end: made by a signal, heeded by whoever waits for a server. Signals belong to the process,
so this does, too."""

from __future__ import annotations

from dbdyno.model.errors import ServerLost


class Interrupted(Exception):
    """The user asked for an end."""

    def __init__(self, *_: object) -> None:
        super().__init__("stopped by the user")


class Abandoned(ServerLost, Interrupted):
    """The user asked for an end while the server was yet to answer: its connection is not used any more."""

    def __init__(self) -> None:
        ServerLost.__init__(self, "stopped by the user")


class _Requests:
    count = 0


_requests = _Requests()


def request() -> None:
    """One more signal."""
    _requests.count += 1


def reset() -> None:
    """Whatever is begun now has not been asked to end."""
    _requests.count = 0


def requests() -> int:
    """How many signals there have been; what is begun after one puts things back, or reads a last time."""
    return _requests.count
