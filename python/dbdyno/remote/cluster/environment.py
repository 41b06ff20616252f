"""The environment of the gateway, and with it of all processes of a cluster of dbdyno's own.

It is a list of what may pass: the rest of this process's environment may hold secrets.
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
"""By which Ray reaches a cluster of others."""
TOKEN_FILE = "~/.ray/auth_token"
"""Where Ray looks for a token that the environment does not name."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "PYTHONUNBUFFERED": "1"}
_OWN = {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # makes 127.0.0.1 the address of this machine, and of all nodes
    "RAY_enable_worker_prestart": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",  # not 15, which a user without rights could not take back
    "SPT_NOENV": "1",  # processes that change their title keep their environment, by which they are known
}


def gateway_environment(own: Path | None) -> Mapping[str, str]:
    """Returns it; ``own``: the folder of a cluster of dbdyno's own."""
    passed = _COMMON if own is not None else _COMMON + _ACCESS
    inherited = {name: os.environ[name] for name in passed if name in os.environ}
    if own is None:
        return _with_mode(inherited) | _QUIET
    place = {folder.VARIABLE: str(own), "TMPDIR": str(own), "RAY_AUTH_TOKEN_PATH": str(folder.token(own))}
    return inherited | _QUIET | _OWN | place


def _with_mode(inherited: dict[str, str]) -> dict[str, str]:
    """A token that is set is used, as Ray does from some version on."""
    named = any(inherited.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    with contextlib.suppress(RuntimeError):  # a user without a home
        named = named or Path(TOKEN_FILE).expanduser().is_file()
    return {"RAY_AUTH_MODE": "token"} | inherited if named else inherited
