"""The environment of the gateway, and so of all processes of a cluster of dbdyno's own.

It contains only listed variables: the rest of this process's environment may hold secrets.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from dbdyno.remote.cluster import folder

_COMMON = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
    *("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE"),
)
_ACCESS = (
    *("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"),
    *("RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"),
)
"""Variables by which Ray authenticates itself at an existing cluster."""
TOKEN_FILE = "~/.ray/auth_token"
"""Ray's default place of the token."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "PYTHONUNBUFFERED": "1"}
_OWN = {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # makes 127.0.0.1 the address of this machine, and of all nodes
    "RAY_enable_worker_prestart": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",  # not 15, which an unprivileged user could not lower again
    "SPT_NOENV": "1",  # lets processes that change their title keep their environment, which identifies them
}


def gateway_environment(own: Path | None) -> Mapping[str, str]:
    """Returns the environment. ``own``: the folder of a cluster of dbdyno's own."""
    passed = _COMMON if own is not None else _COMMON + _ACCESS
    inherited = {name: os.environ[name] for name in passed if name in os.environ}
    if own is None:
        return _with_mode(inherited) | _QUIET
    place = {folder.VARIABLE: str(own), "TMPDIR": str(own), "RAY_AUTH_TOKEN_PATH": str(folder.token(own))}
    return inherited | _QUIET | _OWN | place


def _with_mode(inherited: dict[str, str]) -> dict[str, str]:
    """Enables token authentication if a token is set, as newer versions of Ray do by themselves."""
    named = any(inherited.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    with contextlib.suppress(RuntimeError):  # a user without a home
        named = named or Path(TOKEN_FILE).expanduser().is_file()
    return {"RAY_AUTH_MODE": "token"} | inherited if named else inherited
