"""Waiting for a condition: the time that it takes on a busy machine is no part of a test."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import psycopg


def eventually(what: Callable[[], Any], timeout_s: float = 120) -> Any:
    """Returns the first true value of ``what()``."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(psycopg.OperationalError):
            if value := what():
                return value
        time.sleep(0.05)
    raise AssertionError(f"did not come about within {timeout_s} s")
