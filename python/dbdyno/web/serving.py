"""Runs the server until it is stopped."""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from starlette.routing import BaseRoute

from dbdyno.store import RunStore
from dbdyno.web import compare, explain, live, run, runs, snapshots, start, tables, time_travel, trend
from dbdyno.web.address import Address
from dbdyno.web.app import Lab, application
from dbdyno.web.connections import MOST, connection_class
from dbdyno.web.door import Door
from dbdyno.web.forms import CommandLine
from dbdyno.web.guard import TOKEN, Guard
from dbdyno.web.shell import Place
from dbdyno.web.started import Starts

_GRACE_S = 2  # for answers under way when it is stopped

ROOMS: tuple[Callable[[Lab], Sequence[BaseRoute]], ...] = (
    runs.routes,
    run.routes,
    tables.routes,
    explain.routes,
    compare.routes,
    trend.routes,
    live.routes,
    time_travel.routes,
    snapshots.routes,
    start.routes,
)
"""The views, a module each."""
PLACES = (
    Place("Runs", "/"),
    Place("Compare", "/compare"),
    Place("Trend", "/trend"),
    Place("Live", "/live"),
    Place("Snapshots", "/snapshots"),
    Place("Start", "/start"),
)
"""The links of every page."""


def server_of(
    address: Address,
    store: Path | None,
    say: Callable[[str], None],
    commands: CommandLine | None = None,
) -> uvicorn.Server:
    """``say`` gets the address to open, and another one each time one was used. ``commands``: what may be
    started from the browser."""
    run_store = RunStore(store)
    starts = None if commands is None else Starts(run_store)
    lab = Lab(run_store, PLACES, commands, starts)
    door = Door(address.port)
    app = Guard(application(lab, [r for views in ROOMS for r in views(lab)]), address, door, say)
    cert, key = address.tls or (None, None)
    config = uvicorn.Config(
        app,
        http=connection_class(),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=2 * MOST,  # answers under way, which no newer connection ends
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    # whoever can connect could make it print warnings, and move the address out of sight
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    say(f"{address.url}/?{TOKEN}={door.token}")
    return _Server(config, lab)


class _Server(uvicorn.Server):
    """Ends answers that go on before it waits for the others."""

    def __init__(self, config: uvicorn.Config, lab: Lab) -> None:
        super().__init__(config)
        self._lab = lab

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for close in self._lab.closing:
            close()
        await super().shutdown(sockets)


def serve(
    address: Address,
    store: Path | None,
    say: Callable[[str], None],
    commands: CommandLine | None = None,
) -> None:
    """Serves until Ctrl-C or SIGTERM."""
    server = server_of(address, store, say, commands)
    gc.freeze()  # collections during a page would visit the objects of all modules
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[*address.sockets])
