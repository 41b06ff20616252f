"""`dbdyno demo`: what it runs, for how long, and that what it offers next exists."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.unit.report_machine import environment

from dbdyno import conduct
from dbdyno.cli import demo
from dbdyno.cli.app import app
from dbdyno.conduct.request.patch import Patch
from dbdyno.conduct.request.request import Request

MINUTE_NS = 60_000_000_000


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Options of `dbdyno run`, which measures nothing."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(demo.run, "callback", lambda **options: calls.append(options))
    return calls


@pytest.mark.parametrize("cpus", [1, 2, 4, 8, 64, 192])
def test_the_demo_takes_less_than_a_minute_on_machines_of_any_size(
    cpus: int, ran: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(cpus)))
    done = CliRunner().invoke(app, ["demo"], catch_exceptions=False)
    assert done.exit_code == 0
    (options,) = ran
    fields = {name: options[name] for name in ("measure", "sessions") if options[name]}
    plan, _ = conduct.planned(
        Request(None, options["recipe"], Patch(fields)), environment(cpus, os_tasks=True).host
    )
    assert plan.expected_ns < MINUTE_NS
    assert plan.top >= min(2 * cpus, 128)
    assert plan.cells[0].sessions == 1


def test_the_demo_needs_no_server_of_the_user(ran: list[dict[str, Any]], tmp_path: Path) -> None:
    CliRunner().invoke(app, ["demo", "--store", str(tmp_path)], catch_exceptions=False)
    (options,) = ran
    assert (options["dsn"], options["workload"], options["store"]) == (None, None, tmp_path)


def test_the_commands_that_it_offers_next_exist(ran: list[dict[str, Any]]) -> None:
    output = CliRunner().invoke(app, ["demo"], catch_exceptions=False).output
    assert ran
    for line, _ in demo._NEXT:
        assert line in output
        program, name, *words = shlex.split(line)
        parent = click.Context(app, **app.context_settings)  # a command keeps the first context's -h
        command = app.get_command(parent, name)
        assert program == "dbdyno" and command is not None
        command.make_context(name, words, parent=parent)
