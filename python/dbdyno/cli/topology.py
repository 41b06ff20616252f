"""``dbdyno topology``: the machine's CPUs, which of them may be used, and why."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbdyno import observe, present
from dbdyno.cli.options import json_option, print_json
from dbdyno.model.errors import UsageError

if TYPE_CHECKING:
    from dbdyno.model.engine.topology import Topology

_WIDTH = 100  # columns if the output is not a terminal


@click.command()
@click.option(
    "--table", "as_table", is_flag=True, help="Print six lines: model, CPUs, sockets, siblings, cores."
)
@click.option("--parse", "as_parse", is_flag=True, help="Print as lscpu -p=CPU,CORE,SOCKET,NODE does.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write the topology as SVG.")
@json_option
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True),
    default=Path("/"),
    help="Recorded machine: a directory with its sys and proc, or a file from --record.  [default: /]",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Record the topology of this machine in a tar file.",
)
def topology(
    as_table: bool, as_parse: bool, svg: Path | None, as_json: bool, root: Path, record: Path | None
) -> None:
    """Show the machine: cores, threads, and which CPUs may be used.

    Sockets, NUMA nodes and caches, too, and the reason why a CPU may not be used.

    Needs no privileges and no server. Unknown values are listed with what would provide them.

    \b
    Examples:
      dbdyno topology
      dbdyno topology --table
      dbdyno topology --svg machine.svg
      dbdyno topology --json \\
          | jq -c '.cpus[] | select(.allowed) | [.cpu, .socket, .core]'
      dbdyno topology --record db1.tar.gz; dbdyno topology --root db1.tar.gz
    """
    if as_table + as_parse + as_json + (svg is not None) + (record is not None) > 1:
        raise UsageError(
            "--table, --parse, --json, --svg and --record exclude each other", "choose one of them"
        )
    if record is not None:
        click.echo(f"{record}: {observe.record(record, root)} files")
        return
    machine = _read(root)
    if as_json:
        print_json(machine.model_dump(mode="json"))
    elif svg is not None:
        click.echo(present.write_topology_svg(machine, svg))
    else:
        for line in _lines(machine, as_table, as_parse):
            click.echo(line)


def _read(root: Path) -> Topology:
    with observe.opened(root) as tree:
        machine = observe.topology(tree)
    if not machine.online:
        raise UsageError(
            f"{root} has no CPU information",
            "a recorded machine holds sys/devices/system/cpu or proc/cpuinfo; --record FILE makes one",
        )
    return machine


def _lines(machine: Topology, as_table: bool, as_parse: bool) -> list[str]:
    if as_table:
        return present.topology_table(machine)
    if as_parse:
        return present.topology_parsable(machine)
    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    lines = [*present.topology_facts(machine, width), "", *present.topology_picture(machine, width)]
    return lines if "utf" in (sys.stdout.encoding or "").lower() else present.ascii_only(lines)
