"""Compares what a store has: the variants of a run, two runs, and the machines behind them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from dbdyno.conclude import compare as comparing
from dbdyno.conclude.compare import Options as Options
from dbdyno.conduct import noise
from dbdyno.conduct.derive.rebuild import Say, derived_of, results_of, to_stderr
from dbdyno.model.errors import UsageError
from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import fill
from dbdyno.store import Run, RunStore

if TYPE_CHECKING:
    from dbdyno.conclude.noise_records import NoiseRecord
    from dbdyno.model.results.analyses import Ladder, Machines
    from dbdyno.model.results.comparison import Comparison

Pair = tuple[float, float]
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%?)\Z")


class Compared(NamedTuple):
    """A comparison and its sides. ``runs``: the baseline's first; one if its variants were compared."""

    comparison: Comparison | None
    machines: Sequence[Machines]
    runs: tuple[Results, ...]


@dataclass(frozen=True)
class MachineOptions:
    """Options about the two machines."""

    given: bool = False
    """Whether any of them was given, so that two machines are compared."""
    cores: Pair | None = None
    threads: Pair | None = None

    @staticmethod
    def from_options(machines: bool, cores: Pair | None, threads: Pair | None) -> MachineOptions:
        """Raises UsageError if a machine would have no core."""
        for option, pair in (("--cores", cores), ("--threads", threads)):
            if pair and min(pair) <= 0:
                raise UsageError(f"{option} {pair[0]:g} {pair[1]:g}", "numbers above 0")
        return MachineOptions(machines or bool(cores) or bool(threads), cores or None, threads or None)


UNASKED = MachineOptions()


def metrics() -> Sequence[tuple[str, str]]:
    """Returns the names of what is compared by default, with titles; costs have names beside these."""
    from dbdyno.conclude.compare.effects import METRICS

    return [(m.name, fill(m.title.replace("{work}", "work"))) for m in METRICS]


def parse_share(text: str) -> float:
    """Returns a share, written as ``2%`` or ``0.02``. Raises UsageError."""
    match = _SHARE.match(text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= value < 1:
        raise UsageError(f"{text!r} is no share", "write 2% or 0.02")
    return value


def compared_variants(store: RunStore, record: Run, options: Options, *, say: Say = to_stderr) -> Compared:
    """Compares the variants of a run; as it was stored, if the options are the default ones.

    ``say`` gets the progress if the run has to be derived again.
    """
    comparison = results_of(record, say).comparison if options == Options() else None
    derived = derived_of(record, say)
    comparison = comparison or comparing.compare_variants(derived, options)
    return Compared(noise.with_outlook(store, comparison, derived), (), (derived,))


def compared_runs(
    store: RunStore,
    one: Run,
    two: Run,
    options: Options,
    chosen: MachineOptions = UNASKED,
    *,
    say: Say = to_stderr,
) -> Compared:
    """Compares two runs, and their machines if these differ or options of machines were given.

    ``say`` as in :func:`compared_variants`. Raises UsageError if they have nothing in common.
    """
    if options.baseline is not None:
        raise UsageError(
            "--baseline names a variant of one run", "leave it out: the first of two runs is the baseline"
        )
    if one.id == two.id:
        raise UsageError(
            f"{one.id} twice: a run cannot differ from itself",
            f"its variants: dbdyno compare {one.id}; another run: dbdyno runs",
        )
    a, b = derived_of(one, say), derived_of(two, say)
    return Compared(*compared_results(a, b, options, chosen, noise.known(store)), (a, b))


def compared_results(
    a: Results,
    b: Results,
    options: Options,
    chosen: MachineOptions,
    records: Sequence[NoiseRecord] = (),
) -> tuple[Comparison | None, Sequence[Machines]]:
    """Does the same with what was derived of two runs.

    Ladders of two machines need no rung in common. If they have none, only the machines are compared.
    """
    machines: Sequence[Machines] = ()
    if chosen.given or hosts_differ(a, b):
        try:
            machines = machines_of_runs(a, b, chosen)
        except UsageError:
            if chosen.given:
                raise
    try:
        return comparing.compare_runs(a, b, options, records), machines
    except UsageError:
        if not machines:
            raise
        return None, machines


def machines_of_runs(a: Results, b: Results, chosen: MachineOptions) -> tuple[Machines, ...]:
    """Compares each ladder that both runs have. Raises UsageError if they have none in common."""
    from dbdyno.conclude.ladder.axis_ladders import with_axes
    from dbdyno.conclude.ladder.ladders import ladders_of

    return machines_of(with_axes(a, ladders_of(a)), with_axes(b, ladders_of(b)), ("A", "B"), chosen)


def machines_of(
    a: Sequence[Ladder],
    b: Sequence[Ladder],
    names: tuple[str, str],
    chosen: MachineOptions,
) -> tuple[Machines, ...]:
    """Compares each ladder that both sides have."""
    from dbdyno.conclude.machines.machines import machines, pairs

    return tuple(
        machines(_with_options(x, 0, chosen), _with_options(y, 1, chosen), names) for x, y in pairs(a, b)
    )


def hosts_differ(a: Results, b: Results) -> bool:
    """Returns whether the servers ran on hosts with different CPUs. The host of a remote server is
    unknown."""
    if not (a.environment.server.here and b.environment.server.here):
        return False
    cpu_a, cpu_b = (r.environment.host.cpu.model_copy(update={"max_mhz": None}) for r in (a, b))
    return cpu_a != cpu_b


def _with_options(ladder: Ladder, side: int, chosen: MachineOptions) -> Ladder:
    """Returns the ladder with cores and threads of its machine as the options have them."""
    machine = ladder.machine
    machine = replace(machine, cores=chosen.cores[side]) if chosen.cores else machine
    machine = replace(machine, cpus=chosen.threads[side]) if chosen.threads else machine
    return replace(ladder, machine=machine)
