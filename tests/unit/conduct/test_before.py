"""Tests waiting before a run: readings of the CPUs and tickets of others are given, no time passes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbdyno import conduct
from dbdyno.conduct.before import QUIET_STEPS, Waiting, parse_quiet
from dbdyno.drive import Interrupt, Interrupted
from dbdyno.kernel.cpu_use import Process, Reading
from dbdyno.kernel.machine import HERE
from dbdyno.kernel.processes import Identity
from dbdyno.kernel.turns import Turn
from dbdyno.model.errors import MachineBusy, UsageError

S = 1_000_000_000


class Told(conduct.NullProgressListener):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[str] = []

    def noted(self, words: str) -> None:
        self.lines.append(words)

    def preparing(self, what: str) -> None:
        self.steps.append(what)


class Clock:
    """Time that passes only by sleeping; after ``stop_s`` the user presses Ctrl-C."""

    def __init__(self, interrupt: Interrupt, stop_s: float | None = None) -> None:
        self.now_s, self._interrupt, self._stop_s = 0.0, interrupt, stop_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self._stop_s is not None and self.now_s >= self._stop_s and not self._interrupt.stopping:
            self._interrupt.request()


def waiting(stop_s: float | None = None) -> tuple[Waiting, Told, Clock]:
    interrupt, told = Interrupt(), Told()
    clock = Clock(interrupt, stop_s)
    return Waiting(interrupt, told, clock.sleep, clock), told, clock


def readings(*shares: float) -> Iterator[Reading]:
    """Readings of two CPUs, of which cc1 uses these shares, second by second; the last one goes on."""
    busy_ns = 0
    for second, share in enumerate(itertools.chain([0.0], shares, itertools.repeat(shares[-1]))):
        busy_ns += int(share * 2 * S)
        processes = {Identity(2**22 + 1, 5): Process("cc1", 1, busy_ns, 0)}
        yield Reading(second * S, busy_ns, 0, 2, processes)


def test_the_option_is_a_share_and_may_have_a_limit() -> None:
    assert parse_quiet("5%") == (quiet := parse_quiet(" 5 % ,10min"))
    assert (quiet.share, quiet.limit_s) == (0.05, 600)
    assert parse_quiet("2.5%,30").limit_s == 30
    for wrong in ("", "5", "0%", "101%", "5%,", "5%,x", "5%;3s", "-5%"):
        with pytest.raises(UsageError):
            parse_quiet(wrong)


def test_a_quiet_machine_is_looked_at_for_some_seconds_and_nothing_is_told() -> None:
    wait, told, clock = waiting()
    wait.until_quiet(parse_quiet("5%"), HERE, readings(0.01).__next__)
    assert (round(clock.now_s), told.lines, told.steps) == (QUIET_STEPS, [], [])


def test_a_busy_machine_is_waited_for_and_who_uses_it_is_told_once() -> None:
    wait, told, clock = waiting()
    wait.until_quiet(parse_quiet("5%"), HERE, readings(*[0.9] * 10, 0.02).__next__)
    assert round(clock.now_s) == 10 + QUIET_STEPS, "all of the last seconds together are below the share"
    begun, ended = told.lines
    assert "cc1" in begun and "90 % of 2 CPUs" in begun and "10min" in begun
    assert "2.0 % of 2 CPUs" in ended
    assert len(told.steps) == 10


def test_a_short_pause_is_no_quiet_machine() -> None:
    wait, _, clock = waiting()
    wait.until_quiet(parse_quiet("20%"), HERE, readings(0.9, 0.0, 0.9, 0.0, 0.9, 0.0, 0.0, 0.0).__next__)
    assert round(clock.now_s) == 8


def test_after_the_limit_nothing_is_measured() -> None:
    wait, _, clock = waiting()
    with pytest.raises(MachineBusy) as error:
        wait.until_quiet(parse_quiet("5%,20s"), HERE, readings(0.5).__next__)
    assert round(clock.now_s) == 20
    assert error.value.exit_code == 2
    assert "cc1" in error.value.message and "50 % of 2 CPUs" in error.value.message


def test_another_machine_is_named() -> None:
    wait, told, _ = waiting()
    far: Any = SimpleNamespace(root=HERE.root, pid=HERE.pid, reached=SimpleNamespace(host="db1"))
    wait.until_quiet(parse_quiet("5%"), far, readings(*[0.9] * 4, 0.0).__next__)
    assert "of db1" in told.lines[0]


def test_unknown_use_of_the_cpus_is_no_quiet_machine() -> None:
    unknown = (r._replace(busy_ns=None) for r in readings(0.0))
    with pytest.raises(MachineBusy):
        waiting()[0].until_quiet(parse_quiet("5%"), HERE, unknown.__next__)


def test_the_user_ends_each_wait(tmp_path: Path) -> None:
    wait, _, clock = waiting(stop_s=7.0)
    with pytest.raises(Interrupted):
        wait.until_quiet(parse_quiet("5%"), HERE, readings(0.9).__next__)
    assert round(clock.now_s) == 7
    own, other = Turn("a", tmp_path), Turn("b", tmp_path)
    wait, _, _ = waiting(stop_s=5.0)
    with pytest.raises(Interrupted):
        wait.turn(own, wait=True)
    other.close()
    own.close()


def test_another_run_is_warned_of_or_waited_for(tmp_path: Path) -> None:
    other, own = Turn("cpu", tmp_path), Turn("lio", tmp_path)
    other.update(run="20261129-124424-cpu-e92e")
    wait, told, clock = waiting()
    wait.turn(own, wait=False)
    (line,) = told.lines
    assert "20261129-124424-cpu-e92e" in line and "--wait" in line and clock.now_s == 0
    assert not own.ticket.waiting

    class Ends(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.now_s > 30:
                other.close()

    told, ends = Told(), Ends(wait.interrupt)
    Waiting(wait.interrupt, told, ends.sleep, ends).turn(own, wait=True)
    assert 30 < ends.now_s < 32
    assert len(told.lines) == 1 and "20261129-124424-cpu-e92e" in told.lines[0]
    assert not own.ticket.waiting, "others wait for it now"
    own.close()


def test_alone_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for choice in (False, True):
        wait, told, clock = waiting()
        with conduct.alone("lio", wait, wait=choice) as turn:
            assert turn.ticket.what == "lio"
        assert (told.lines, told.steps, clock.now_s) == ([], [], 0)
    assert list((tmp_path / "dbdyno-runs").iterdir()) == []


def test_a_limit_below_the_time_of_looking_does_not_refuse_a_quiet_machine() -> None:
    wait, told, clock = waiting()
    wait.until_quiet(parse_quiet("5%,1s"), HERE, readings(0.01).__next__)
    assert (round(clock.now_s), told.lines) == (QUIET_STEPS, [])
