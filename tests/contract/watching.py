"""A real watch over a server's sessions, for tests of the engine's half of it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import polars as pl

from dbdyno import _core
from dbdyno.engines.postgres import PostgresServer
from dbdyno.model.plan.plan import Observation
from dbdyno.model.schema.tables import from_core


def watch_sessions(
    server: PostgresServer, chosen: Observation | None = None, seconds: float = 0.6
) -> tuple[pl.DataFrame, Mapping[str, tuple[str, str]]]:
    """Returns table ``samples``, and the watch's statuses of its sources."""
    spec = dict(server.observation_spec(chosen or Observation(), {})) | {"trace": "off", "host": False}
    watch = _core.Watch(json.dumps(spec))
    now = _core.now_ns()
    watch.start(now, now + round(seconds * 1e9))
    time.sleep(seconds)
    watch.stop()
    return from_core("samples", watch.tables()["samples"]), watch.source_status()
