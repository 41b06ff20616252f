"""``--cluster`` and ``--server-node`` of commands that only read servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dbdyno.cli.flags import Option
from dbdyno.model.plan.flags import CLUSTER

_F = TypeVar("_F", bound=Callable[..., Any])


def server_cluster_options(several: bool) -> Callable[[_F], _F]:
    """Adds ``--cluster`` and ``--server-node``. ``several``: ``--server-node`` is given once per server."""

    def add(f: _F) -> _F:
        f = click.option(
            "--server-node",
            cls=Option,
            group=CLUSTER,
            metavar="NODE",
            multiple=several,
            help="Node of the server, by address or host name"
            f"{'; of several servers once for each --dsn' if several else ''}.  "
            "[default: found by the DSN's address]",
        )(f)
        return click.option(
            "--cluster",
            cls=Option,
            group=CLUSTER,
            metavar="ADDRESS",
            help="Read the server's host by an agent on its node of a Ray cluster: ray://HOST:10001, auto, "
            "or local:3 (dbdyno help cluster; needs dbdyno[cluster]).",
        )(f)

    return add
