"""Checks whether a cluster requires a token, and accepts the one configured here. Only the gateway imports
this module.

With a wrong token, Ray itself tries for half a minute and then reports that it did not connect. If the
token's file cannot be read, Ray aborts its process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import grpc

from dbdyno.remote.cluster.environment import TOKEN_FILE

_METHODS = ("/ray.rpc.RayletDriver/ClusterInfo", "/ray.rpc.NodeInfoGcsService/GetClusterId")
"""Read-only methods of the server for clients (ray://), and of the global control server."""
_ANSWER_S = 20.0


class Refused(Exception):
    """The reason why the cluster is not used."""


def check(address: str) -> bool | None:
    """Returns whether the cluster requires a token; None if unknown.

    Raises :class:`Refused` if it requires one and does not accept the one configured here.
    """
    token = own_token()
    with _channel(address.removeprefix("ray://")) as channel:
        admitted = _admits(channel, None)
        if admitted is not False:
            return None if admitted is None else False
        if token is None:
            raise Refused("it asks for a token, and none is set here")
        if _admits(channel, token) is False:
            raise Refused("it does not take the token that is set here")
    return True


def own_token() -> str | None:
    """Returns the token as Ray finds it; None if Ray uses none. Raises :class:`Refused`."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return None
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or TOKEN_FILE
    try:
        token = Path(path).expanduser().read_text().strip()
    except (OSError, ValueError, RuntimeError) as e:
        raise Refused(f"the token cannot be read: {path}: {getattr(e, 'strerror', None) or e}") from e
    if not token:
        raise Refused(f"the token is empty: {path}")
    return token


def _admits(channel: grpc.Channel, token: str | None) -> bool | None:
    """Returns whether a call is admitted; None if nothing there answers like Ray."""
    metadata: Sequence[tuple[str, str]] = () if token is None else (("authorization", f"Bearer {token}"),)
    for method in _METHODS:
        try:
            channel.unary_unary(method)(b"", timeout=_ANSWER_S, metadata=metadata)
        except grpc.RpcError as e:
            if e.code() == grpc.StatusCode.UNAUTHENTICATED:
                return False
            if e.code() == grpc.StatusCode.UNIMPLEMENTED:
                continue
            if e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return None
        return True
    return None


def _channel(target: str) -> grpc.Channel:
    """Returns a channel, with TLS if Ray uses it."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return grpc.insecure_channel(target)
    chain, key, authorities = (
        Path(os.environ[f"RAY_TLS_{name}"]).read_bytes() for name in ("SERVER_CERT", "SERVER_KEY", "CA_CERT")
    )
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(authorities, key, chain))
