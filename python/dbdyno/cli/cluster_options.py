"""Options that let the nodes of a cluster drive the load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

import click

from dbdyno.model.plan.spread import Spread

_F = TypeVar("_F", bound=Callable[..., Any])
_KEYS = {"cluster": "address", "drivers": "drivers", "per_driver": "per_driver", "spread": "spread"}
_KEYS |= {"server_node": "server_node", "degrade": "degrade"}


def cluster_options(f: _F) -> _F:
    for option in reversed(
        (
            click.option(
                "--cluster",
                metavar="ADDRESS",
                help="Drive from the nodes of a Ray cluster: ray://HOST:10001, auto, or local:3 "
                "(docs/cluster.md; needs dbdyno[cluster]).",
            ),
            click.option(
                "--drivers",
                type=click.IntRange(1, 10_000),
                help="Nodes that drive.  [default: all with the resource driver, or all but the server's]",
            ),
            click.option(
                "--per-driver", type=click.IntRange(1, 1_000_000), help="Most sessions of a driver."
            ),
            click.option(
                "--spread",
                type=click.Choice(get_args(Spread)),
                help="Sessions of each driver: the same number, in proportion to its CPUs, or each full "
                "(--per-driver) before the next.  [default: even]",
            ),
            click.option(
                "--server-node",
                metavar="NODE",
                help="Node of the server, by address or host name.  [default: found by the DSN's address]",
            ),
            click.option(
                "--degrade",
                is_flag=True,
                default=None,
                help="Go on with the drivers that are left when one is lost.",
            ),
        )
    ):
        f = option(f)
    return f


def server_cluster_options(several: bool) -> Callable[[_F], _F]:
    """``--cluster``, ``--server-node`` of a command that only looks at a server, or at ``several``."""

    def add(f: _F) -> _F:
        f = click.option(
            "--server-node",
            metavar="NODE",
            multiple=several,
            help="Node of the server, by address or host name"
            f"{'; of several servers once for each --dsn' if several else ''}.  "
            "[default: found by the DSN's address]",
        )(f)
        return click.option(
            "--cluster",
            metavar="ADDRESS",
            help="Read the server's host by an agent on its node of a Ray cluster: ray://HOST:10001, auto, "
            "or local:3 (docs/cluster.md; needs dbdyno[cluster]).",
        )(f)

    return add


def cluster_given(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Keys of the table ``cluster`` of a recipe; None: none was given."""
    return {key: options[name] for name, key in _KEYS.items() if options[name] is not None} or None
