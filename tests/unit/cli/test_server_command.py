"""``dbdyno server`` where no embedded server runs: the next step stands below, and JSON stays JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from dbdyno.cli import server
from dbdyno.cli.app import app

STOPPED = SimpleNamespace(
    status=lambda: {"running": False, "data_dir": None},
    stop=lambda: {"stopped": False, "pid": None, "data_dir": None},
)


@pytest.mark.parametrize(("command", "exit_code"), [("status", 3), ("stop", 0)])
def test_the_next_step_stands_below_a_server_that_does_not_run(
    command: str, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "embedded", lambda: STOPPED)
    shown = CliRunner().invoke(app, ["server", command])
    assert shown.exit_code == exit_code
    assert shown.stdout.splitlines()[-1].endswith("dbdyno server start")
    as_json = CliRunner().invoke(app, ["server", command, "--json"])
    assert as_json.exit_code == exit_code
    assert json.loads(as_json.stdout) == getattr(STOPPED, command)()


def test_no_next_step_stands_below_a_server_that_runs_or_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for running in (True, None):
        one = SimpleNamespace(status=lambda running=running: {"running": running, "data_dir": "/x"})
        monkeypatch.setattr(server, "embedded", lambda one=one: one)
        assert "server start" not in CliRunner().invoke(app, ["server", "status"]).stdout
