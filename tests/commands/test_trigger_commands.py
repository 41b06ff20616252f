"""Commands of triggers with real children that try to outlive them, and the environment that they get."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dbdyno import conduct, observe
from dbdyno.conduct.captures.trigger_actions import Around, command
from dbdyno.conduct.measure.cell import MachineClock
from dbdyno.kernel import processes
from dbdyno.model.engine.protocols import Target
from dbdyno.model.errors import ServerLost
from dbdyno.model.plan.triggers import Fired
from dbdyno.observe.watch import NoWatch
from dbdyno.plan.triggers import parse_action
from dbdyno.store import RunStore
from dbdyno.store.journal import left_over
from tests.fake_engine import FakeServer
from tests.fakery import WITH_ENGINES
from tests.waiting import eventually

PROGRAM = Path(sysconfig.get_path("scripts"), "dbdyno")
FIRED = Fired(
    number=1,
    trigger=1,
    condition="sessions = 1",
    matched="sessions = 1",
    values={},
    at_ns=1,
    noticed_ns=2,
    action="exec x",
)
CHILDREN = {
    "in a session of its own": "setsid sh {child} &",
    "forked twice": "(setsid sh -c '(setsid sh {child} &) &' &);",
    "without its environment": 'env -i PATH="$PATH" setsid sh {child} &',
    "a daemon": "setsid sh {child} </dev/null >/dev/null 2>&1 &",
    "that keeps its output open": "sh {child} &",
    "that ignores SIGTERM": "(trap '' TERM HUP INT; exec setsid sh {child}) &",
}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def around(tmp_path: Path) -> Around:
    experiment = conduct.observation_of({"engine": "fake"}, duration="10s", window="5s")
    plan = conduct.observation_plan(experiment, observe.host())
    record = RunStore(tmp_path / "store").create(plan)
    return Around(FakeServer(Target()), plan, record, MachineClock(), Target, lambda _how: NoWatch())


def outcome_of(
    around: Around, text: str, stop: Callable[[], bool] = lambda: False, secrets: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Steps through the action as triggers do and returns its outcome. ``stop`` returns whether the
    measurement has ended."""
    work = command(around, parse_action(text)._replace(secrets=secrets), FIRED)
    deadline = time.monotonic() + 120
    try:
        next(work)
        while time.monotonic() < deadline:
            time.sleep(0.01)
            work.send(stop())
    except StopIteration as end:
        return dict(end.value)
    raise AssertionError("it did not end")


def child(kind: str, mark: Path) -> str:
    """Returns a command that starts such a child, which writes its number to ``mark``, and goes on when
    that is written."""
    script = mark.with_name("child")
    script.write_text(f"echo $$ >{mark}.new; mv {mark}.new {mark}; while :; do sleep 1; done")
    return f"{CHILDREN[kind].format(child=script)} while ! [ -e {mark} ]; do sleep 0.01; done"


def is_gone(mark: Path) -> bool:
    """Returns whether the child has ended. It has at once, as the action waits for it."""
    return processes.identity(int(mark.read_text())) is None


@pytest.mark.parametrize("kind", CHILDREN)
def test_no_child_outlives_a_command_that_ends(around: Around, tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "pid"
    outcome = outcome_of(around, f"exec {child(kind, mark)}; echo done")
    assert (outcome["status"], outcome["lines"]) == ("ok", ("done",))
    assert is_gone(mark)
    assert left_over().dead == left_over().alive == []


@pytest.mark.parametrize("kind", CHILDREN)
def test_no_child_outlives_the_measurement(around: Around, tmp_path: Path, kind: str) -> None:
    """The command, which ignores SIGTERM itself, does not either."""
    mark = tmp_path / "pid"
    outcome = outcome_of(
        around, f"exec trap '' TERM; echo begun; {child(kind, mark)}; sleep 1000; sleep 1000", mark.exists
    )
    assert (outcome["status"], outcome["detail"]) == ("short", "the measurement ended first")
    assert outcome["lines"][:1] == ("begun",)
    assert is_gone(mark)


@pytest.mark.parametrize("end", ["sleep 1000", "exec >&- 2>&- <&-; sleep 1000", "exec setsid -w sleep 1000"])
def test_a_command_that_takes_too_long_is_ended(around: Around, tmp_path: Path, end: str) -> None:
    mark = tmp_path / "pid"
    outcome = outcome_of(around, f"exec 2s {child('without its environment', mark)}; {end}")
    assert (outcome["status"], outcome["detail"]) == ("failed", "ended after 2.00 s")
    assert not mark.exists() or is_gone(mark)  # it may not have begun on a busy machine


def test_a_command_that_kills_its_parent_outlives_nothing(around: Around, tmp_path: Path) -> None:
    """Either its end or the launcher's is noticed first. Triggers take the launcher's for a failure."""
    mark = tmp_path / "pid"
    text = f"exec {child('in a session of its own', mark)}; kill -9 $PPID; sleep 1000"
    try:
        status = outcome_of(around, text)["status"]
    except ServerLost as error:
        assert "launcher of commands has ended (signal 9)" in str(error)
        status = "failed"
    assert status == "failed"
    assert is_gone(mark)


SECRETS = {
    "PGPASSWORD": "hunter2",
    "PGPASSFILE": "/secret/pgpass",
    "PGSERVICEFILE": "/secret/service",
    "DATABASE_URL": "postgresql://app:hunter2@db/app",
    "APP_DSN": "host=db user=app password=hunter2",
    "SSHPASS": "hunter2",
    "DBDYNO_SSH_COMMAND": "sshpass -p hunter2 ssh",
}


def test_a_command_does_not_get_what_dbdyno_connects_by(
    around: Around, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**SECRETS, "OWN_TOKEN": "kept", "PGHOST": "db"}.items():
        monkeypatch.setenv(name, value)
    seen = tmp_path / "environment"
    text = f"exec env >{seen}; tr '\\0' '\\n' </proc/$PPID/environ >>{seen}"
    assert outcome_of(around, text)["status"] == "ok"
    lines = seen.read_text()
    assert "hunter2" not in lines and "/secret/" not in lines
    assert "OWN_TOKEN=kept\n" in lines and "PGHOST=db\n" in lines and "PATH=" in lines
    asked = outcome_of(around, "exec echo $PGPASSWORD-$PGPASSFILE-{session}-{job}", secrets=("PGPASSWORD",))
    assert asked["lines"] == ("hunter2--{session}-{job}",)


def test_what_dbdyno_connects_by_is_asked_for_by_name(tmp_path: Path) -> None:
    """``--trigger-secret`` at a real run passes it on. Without an exec the option is an error."""
    env = os.environ | SECRETS | {"XDG_DATA_HOME": str(tmp_path), "PYTHONPATH": WITH_ENGINES}
    text = f"exec env >{tmp_path}/asked"
    words = [
        "--command",
        "sleep 0.1",
        "--measure",
        "3s",
        "--sessions",
        "1",
        "--when",
        "sessions >= 1",
        "--do",
    ]
    run = [PROGRAM, "run", *words, text, "--trigger-secret", "PGPASSWORD"]
    done = subprocess.run(run, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "asked").read_text()
    assert "PGPASSWORD=hunter2\n" in lines and "PGPASSFILE" not in lines
    wrong = subprocess.run(
        [*run[:-3], "snapshot", *run[-2:]], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2 and "--trigger-secret is for exec" in wrong.stderr


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_child_outlives_a_run_that_is_ended(tmp_path: Path, sign: signal.Signals) -> None:
    mark = tmp_path / "pid"
    text = f"exec 60s {child('without its environment', mark)}; sleep 1000"
    words = [
        "--command",
        "sleep 0.1",
        "--measure",
        "60s",
        "--sessions",
        "1",
        "--when",
        "sessions >= 1",
        "--do",
        text,
    ]
    env = os.environ | {"XDG_DATA_HOME": str(tmp_path), "PYTHONPATH": WITH_ENGINES}
    with subprocess.Popen(
        [PROGRAM, "run", *words], env=env, cwd=tmp_path, stdout=-1, stderr=-1, start_new_session=True
    ) as run:
        try:
            eventually(mark.exists)
            assert not is_gone(mark)
            run.send_signal(sign)
            run.communicate(timeout=120)
        finally:
            if run.poll() is None:
                run.kill()
    eventually(lambda: is_gone(mark), timeout_s=30 if sign == signal.SIGKILL else 1)
