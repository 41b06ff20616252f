"""``dbdyno cluster status``: the nodes of a Ray cluster, and whether each can drive load."""

from __future__ import annotations

import click

from dbdyno import conduct
from dbdyno.cli import screen
from dbdyno.cli.app import Commands
from dbdyno.cli.options import dsn_option, engine_option, json_option, print_json

_UNUSABLE = 3  # exit code, the same as for a server that cannot be reached


@click.group(cls=Commands)
def cluster() -> None:
    """Look at a Ray cluster whose nodes can drive the load.

    \b
    Examples:
      dbdyno cluster status
      dbdyno cluster status ray://head:10001 --dsn postgresql://app@db1/prod
    """


@cluster.command("status")
@click.argument("address", default="auto")
@engine_option("System whose server the nodes are to reach.")
@dsn_option
@json_option
@click.pass_context
def status(context: click.Context, address: str, engine: str | None, dsn: str | None, as_json: bool) -> None:
    """Show the nodes of a cluster and what dbdyno finds on each.

    ADDRESS is ray://HOST:10001, auto (the cluster that this machine is part of, the default), or local:N (a
    cluster of N nodes on this machine, for trying it out). An agent is started on each node for a moment.

    For each node: roles, free CPUs, the offset of its clock and the uncertainty of that, the round trip from
    here, with --dsn the time to connect to the server from there, and what prevents its use. The exit code
    is 3 if a node cannot be used. dbdyno help cluster explains the set-up.

    \b
    Examples:
      dbdyno cluster status
      dbdyno cluster status ray://head:10001 --dsn postgresql://app@db1/prod
      dbdyno cluster status --json | jq '.nodes[] | {address, clock_bound_ns}'
    """
    from dbdyno.present.observation import cluster as shown  # here, since help does not need it

    cluster_status = conduct.cluster_status(engine or "", address, dsn)
    if as_json:
        print_json(cluster_status.model_dump(mode="json"))
    else:
        screen.say(shown.headline(cluster_status))
        for line in screen.aligned(shown.HEADS, shown.rows(cluster_status), shown.RIGHT, screen.width()):
            screen.say(line)
        for remark in shown.remarks(cluster_status):
            screen.say(remark)
    if any(n.problem for n in cluster_status.nodes):
        context.exit(_UNUSABLE)
