"""Waits before a run begins, for the end of other runs and for a quiet machine.

It does not wait between measurements: pauses of minutes would change what is in caches and
how far the server's own work got. What others used during each measurement is a claim of the run.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from dbdyno.drive import Interrupt
from dbdyno.kernel import cpu_use, processes
from dbdyno.kernel.machine import HERE
from dbdyno.kernel.turns import Ticket, Turn, turn
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.machine_facts import Busy
from dbdyno.model.errors import MachineBusy, UsageError
from dbdyno.model.units import (
    NS_PER_S,
    counted,
    format_given,
    format_ns,
    format_percent,
    parse_duration_ns,
    shown_duration,
)

STEP_S = 1.0
QUIET_STEPS = 3
"""The machine is quiet if others used less than the share over this many steps together."""
LIMIT = "10min"
_QUIET = re.compile(r"\s*(?P<share>\d{1,3}(\.\d+)?)\s*%\s*(,(?P<limit>.+))?", re.DOTALL)
_SHOWN = 3


@dataclass(frozen=True)
class Quiet:
    """Wait until others use less than ``share`` of the CPUs, but not longer than ``limit``."""

    share: float
    limit: str
    limit_s: float

    @property
    def words(self) -> str:
        return f"less than {format_given(100 * self.share)} %"


def parse_quiet(text: str, option: str = "--wait-quiet") -> Quiet:
    """Reads ``5%`` or ``5%,30min``. Raises :class:`UsageError`."""
    match = _QUIET.fullmatch(text)
    share = 0.0 if match is None else float(match["share"]) / 100
    if match is None or not 0 < share <= 1:
        raise UsageError(
            f"{option} {text}: not a share of the CPUs",
            "write 5%, or 5%,30min to wait at most 30 minutes",
        )
    limit = shown_duration((match["limit"] or LIMIT).strip())
    return Quiet(share, limit, parse_duration_ns(limit, option) / NS_PER_S)


class WaitListener(Protocol):
    """Follows the waits before a run, as :class:`ProgressListener` does."""

    def preparing(self, what: str) -> None: ...

    def noted(self, words: str) -> None: ...


@dataclass(frozen=True)
class Waiting:
    """Shows the listener what a run waits for, and ends when the user stops it."""

    interrupt: Interrupt
    listener: WaitListener
    sleep: Callable[[float], None] = time.sleep
    clock_s: Callable[[], float] = field(default=time.monotonic)

    def rest(self) -> None:
        """Raises :class:`Interrupted` if the user stops the run."""
        self.interrupt.rest(STEP_S, self.sleep)

    def turn(self, own: Turn, *, wait: bool) -> None:
        """Warns of other runs, or waits until they have ended."""
        if not wait:
            if others := own.measuring():
                which, them = ("another run is", "it") if len(others) == 1 else ("other runs are", "them")
                self.listener.noted(
                    f"! {which} in progress on this machine, and the runs disturb each other: "
                    f"{_listed(others)}; with --wait this one starts after {them}"
                )
            return
        own.update(waiting=True)
        named: list[Ticket] = []
        while others := own.ahead():
            if [t.pid for t in others] != [t.pid for t in named]:
                self.listener.noted(f"waiting for {_listed(others)} to end")
                named = others
            self.listener.preparing(f"waiting for {_listed(others)} to end")
            self.rest()
        own.update(waiting=False, since_s=time.time())

    def quiet(self, quiet: Quiet, machine: Machine = HERE) -> None:
        """Waits until others use less CPU. Raises :class:`MachineBusy` after the limit, and if nothing is
        known of the CPUs."""
        cpus = processes.cpus_allowed(machine.pid, machine.root)
        self.until_quiet(quiet, machine, partial(cpu_use.read, machine.root, cpus))

    def until_quiet(self, quiet: Quiet, machine: Machine, read: Callable[[], cpu_use.Reading]) -> None:
        begin_s, limit_s, noted = self.clock_s(), quiet.limit_s, False
        where = "" if machine.reached is None else f" of {machine.reached.host}"
        readings = deque([read()], maxlen=QUIET_STEPS + 1)
        while True:
            self.rest()
            readings.append(read())
            busy = cpu_use.busy_between(readings[0], readings[-1], [machine.pid], machine.root)
            if busy is None:
                raise MachineBusy(
                    "--wait-quiet: /proc/stat does not show what is used of the CPUs", "run without it"
                )
            waited_s = self.clock_s() - begin_s
            whole = len(readings) > QUIET_STEPS
            if whole and busy.share < quiet.share:
                if noted:
                    self.listener.noted(
                        f"{_used(busy, where)}, after {format_ns(waited_s * NS_PER_S)} of waiting"
                    )
                return
            if whole and waited_s >= limit_s:
                raise MachineBusy(
                    f"after {quiet.limit} of waiting, {_used(busy, where)}, not {quiet.words}: {_who(busy)}",
                    "try again when these have ended, or wait longer: --wait-quiet 5%,1h; without "
                    "--wait-quiet the run starts at once and records what other processes use",
                )
            if whole and not noted:
                self.listener.noted(
                    f"{_used(busy, where)}; waiting until they use {quiet.words} (at most {quiet.limit}): "
                    f"{_who(busy)}"
                )
                noted = True
            if noted:
                self.listener.preparing(f"{_used(busy, where)}; waiting until they use {quiet.words}")


_DISTURBING = 0.05
"""Share of the CPUs from which on other processes are named before a measurement of noise."""


def others_now(machine: Machine = HERE) -> str:
    """Returns what other processes use of the machine's CPUs now; "" if that is little or unknown."""
    cpus = processes.cpus_allowed(machine.pid, machine.root)
    before = cpu_use.read(machine.root, cpus)
    time.sleep(STEP_S)
    busy = cpu_use.busy_between(before, cpu_use.read(machine.root, cpus), [machine.pid], machine.root)
    if busy is None or busy.share < _DISTURBING:
        return ""
    where = "" if machine.reached is None else f" of {machine.reached.host}"
    return f"{_used(busy, where)}: {_who(busy)}"


def _listed(others: list[Ticket]) -> str:
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return "; ".join(t.words for t in others[:_SHOWN]) + more


def _used(busy: Busy, where: str) -> str:
    return f"other processes use {format_percent(busy.share)} of {counted(busy.cpus, 'CPU')}{where}"


def _who(busy: Busy) -> str:
    return "; ".join(filter(None, (busy.names, busy.hidden))) or "the processes are not visible"


@contextmanager
def alone(
    what: str, waiting: Waiting, *, wait: bool, quiet: Quiet | None = None, machine: Machine = HERE
) -> Iterator[Turn]:
    """Yields the turn of a run once the others have ended if it is to ``wait``, else at once with a warning,
    and once this machine and the server's ``machine`` are ``quiet``.

    Raises :class:`Interrupted` if the user stops the run, and :class:`MachineBusy`.
    """
    with turn(what) as own:
        waiting.turn(own, wait=wait)
        if quiet is not None:
            waiting.quiet(quiet)
            if machine.reached is not None:
                waiting.quiet(quiet, machine)
        yield own
