"""Addresses of clusters: ``ray://HOST:10001``, ``HOST:PORT``, ``auto``, ``local:N``."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

from dbdyno.kernel.numbers import number
from dbdyno.model.errors import Unreachable, UsageError

CURE = (
    "ray status, run on the head, says whether the cluster is up; ray://HOST:10001 reaches it from "
    "elsewhere, auto is the one that this machine is part of; both need the same versions of Ray and Python, "
    "and RAY_USE_TLS with its certificates where the cluster has them"
)
_FORMS = "ray://HOST:10001, auto, or local:3"
_REACH_S = 10.0
_MOST_BYTES = 300
_MOST_NODES = 64
_MOST_PORT = 65_535


def check_address(address: str) -> None:
    """Raises :class:`UsageError`."""
    kind, _, rest = address.partition(":")
    if kind == "local" and not 1 <= (number(rest) or 0) <= _MOST_NODES:
        raise UsageError(f"cluster {address!r} is none", "local:3 is a cluster of 3 nodes on this machine")
    if not address:
        raise UsageError("the address of the cluster is empty", _FORMS)


def is_own(address: str) -> bool:
    """Returns whether it is a cluster of dbdyno's own, which dbdyno starts and ends."""
    return address.startswith("local:")


def resolved(address: str) -> str:
    """Returns the address of the cluster that ``auto`` means, the one this machine is part of; other
    addresses unchanged.

    Ray itself would accept any process that claims to be that cluster's server, whoever started it, and an
    address that any user of this machine may have written. Raises :class:`Unreachable`.
    """
    if address != "auto":
        return address
    if named := os.environ.get("RAY_ADDRESS"):
        return named
    note = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp", "ray/ray_current_cluster")
    try:
        descriptor = os.open(note, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        raise Unreachable(f"cluster auto: this machine is part of none: {note}: {e.strerror}", CURE) from e
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        safe = facts.st_uid in (0, os.geteuid()) and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not (safe and stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1):
            raise Unreachable(
                f"cluster auto: {note} is not used: another user may have written it (uid {facts.st_uid})",
                "name the cluster: ray://HOST:10001, HOST:6379, or RAY_ADDRESS",
            )
        return file.read(_MOST_BYTES).decode(errors="replace").strip()


def check_reached(address: str) -> None:
    """Connects once, since Ray would try for minutes. Raises :class:`Unreachable`, :class:`UsageError`."""
    host, _, text = address.removeprefix("ray://").rpartition(":")
    port = number(text)
    if not host or port is None:
        return  # a form that only Ray can resolve
    if not 0 < port <= _MOST_PORT:
        raise UsageError(f"cluster {address!r}: no port {port}", _FORMS)
    try:
        with contextlib.closing(socket.create_connection((host.strip("[]"), port), _REACH_S)):
            pass
    except UnicodeError:
        raise UsageError(f"cluster {address!r}: no name of a host", _FORMS) from None
    except OSError as e:
        raise Unreachable(f"cluster {address}: {e.strerror or e}", CURE) from e
