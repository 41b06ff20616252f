"""``dbdyno memory``: where the memory pages of a running server and its machine are."""

from __future__ import annotations

import click

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.options import engine_option, json_option, print_json, running_dsn_option, server_ssh_options
from dbdyno.engines import DEFAULT


@click.command()
@running_dsn_option
@server_ssh_options
@click.option("--all", "every", is_flag=True, help="All relations, not only the first ten.")
@engine_option("System to look at.")
@json_option
def memory(
    engine: str | None,
    dsn: str | None,
    server_ssh: str | None,
    ssh_command: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """Show where the memory of a server and its machine is.

    The machine's memory in parts that add up; pages of each table and index in the server's cache, in the
    page cache, and in both; memory and page tables of processes; huge pages, swap, NUMA nodes, control
    group. Nothing is changed on the server. Unknown figures are listed with the reason. The exit code is 3
    if the server cannot be reached. dbdyno help memory explains the figures.

    \b
    Examples:
      dbdyno memory
      dbdyno memory --dsn "host=/run/postgresql dbname=app user=monitor"
      dbdyno memory --dsn host=db1 --server-ssh dba@db1
      dbdyno memory --all
      dbdyno memory --json | jq '.memory_parts[] | {part, bytes}'
    """
    name = engine or DEFAULT
    with conduct.server_machine(server_ssh, ssh_command) as machine:
        here = machine.reached is None
        target = conduct.memory_target(name, dsn) if here else conduct.observed_target(name, dsn, machine)
        read = conduct.memory_of(name, target)
    if as_json:
        print_json(present.memory_record(read))
    else:
        screen.out().print(present.memory_now(read, every=every))
