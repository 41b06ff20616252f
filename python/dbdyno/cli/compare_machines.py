"""Two ladders from two machines: of runs whose hosts differ, or of two CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dbdyno.model.errors import UsageError

if TYPE_CHECKING:
    from dbdyno.model.machines import Machines
    from dbdyno.model.results import Results
    from dbdyno.model.scaling import Ladder

Pair = tuple[float, float]


@dataclass(frozen=True)
class Asked:
    """What the user says of the two machines."""

    told: bool
    """Anything at all, so that two machines are compared."""
    cores: Pair | None = None
    threads: Pair | None = None

    @staticmethod
    def of(machines: bool, cores: Pair | None, threads: Pair | None) -> Asked:
        """Raises UsageError where a machine would have no core."""
        for option, pair in (("--cores", cores), ("--threads", threads)):
            if pair and min(pair) <= 0:
                raise UsageError(f"{option} {pair[0]:g} {pair[1]:g}", "numbers above 0")
        return Asked(machines or bool(cores) or bool(threads), cores or None, threads or None)


def of_runs(a: Results, b: Results, asked: Asked) -> tuple[Machines, ...]:
    """One for each ladder that both runs have. Raises UsageError where there is none."""
    from dbdyno.conclude.answers import ladders_of

    return _compared(ladders_of(a), ladders_of(b), ("A", "B"), asked)


def of_files(paths: Sequence[Path], asked: Asked) -> tuple[Machines, ...]:
    """Of two CSV files with columns for sessions and throughput. Raises UsageError naming the line."""
    from dbdyno.store.ladder_csv import read_ladder

    a, b = (read_ladder(p) for p in paths)
    stems = paths[0].stem, paths[1].stem
    names = stems if stems[0] != stems[1] else (str(paths[0]), str(paths[1]))
    return _compared((a,), (b,), names, asked)


def are_ladders(paths: Sequence[Path]) -> bool:
    """Both files can be read as ladders: they have the columns, by their headings."""
    from dbdyno.store.ladder_csv import read_ladder

    try:
        return all(len(read_ladder(p).points) > 0 for p in paths)
    except UsageError:
        return False


def hosts_differ(a: Results, b: Results) -> bool:
    """The servers ran on hosts that are seen to be others. Of a server elsewhere the host is not known."""
    if not (a.environment.server.here and b.environment.server.here):
        return False
    mine, other = (r.environment.host.cpu.model_copy(update={"max_mhz": None}) for r in (a, b))
    return mine != other


def _compared(
    a: Sequence[Ladder],
    b: Sequence[Ladder],
    names: tuple[str, str],
    asked: Asked,
) -> tuple[Machines, ...]:
    from dbdyno.conclude.machines import machines, pairs

    return tuple(machines(_told(x, 0, asked), _told(y, 1, asked), names) for x, y in pairs(a, b))


def _told(ladder: Ladder, side: int, asked: Asked) -> Ladder:
    """With the machine as the user says it is."""
    machine = ladder.machine
    machine = replace(machine, cores=asked.cores[side]) if asked.cores else machine
    machine = replace(machine, cpus=asked.threads[side]) if asked.threads else machine
    return replace(ladder, machine=machine)
