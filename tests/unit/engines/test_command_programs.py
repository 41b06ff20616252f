"""Programs that cannot be started are refused with a cure before anything is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dbdyno.engines.command import programs
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.jobs import PlannedJob


def job(*argv: str, **more: Any) -> PlannedJob:
    return PlannedJob(name="build", argv=argv, shown="x", **more)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, text, mode in (
        ("run", "#!/bin/sh\n", 0o755),
        ("data", "text\n", 0o644),
        ("bare", "true\n", 0o755),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    (tmp_path / "dir").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("no-such-program",), "no program no-such-program in PATH"),
        (("cd", "/"), "command of shells: --shell sh"),
        (("./missing",), "there is no program ./missing"),
        (("./data",), "chmod +x"),
        (("./bare",), "neither a program nor a script"),
        (("./dir",), "is a directory"),
        ((), "without a program"),
        (("",), "without a program"),
        (("a\0b",), "NUL"),
    ],
)
def test_what_cannot_be_started_is_refused(place: Path, argv: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        programs.check(job(*argv, directory=str(place)))
    assert words in str(caught.value) and "job build" in caught.value.message


def test_what_goes_with_a_job_is_checked_too(place: Path) -> None:
    programs.check(job("./run", directory=str(place), input="data"))
    for more in ({"verify": ("./missing",)}, {"input": "missing"}, {"env": {"A=B": "c"}}, {"env": {"": "c"}}):
        with pytest.raises(UsageError):
            programs.check(job("./run", directory=str(place), **more))
    with pytest.raises(UsageError, match="no directory"):
        programs.check(job("true", directory=str(place / "missing")))


def test_programs_are_looked_for_in_the_job_s_own_path(place: Path) -> None:
    programs.check(job("run", env={"PATH": str(place)}))
    programs.check(job("run", env={"PATH": "."}, directory=str(place)))
    with pytest.raises(UsageError, match="in PATH"):
        programs.check(job("run"))


def test_what_is_known_only_at_the_start_is_not_checked_before() -> None:
    programs.check(job("{session}/bin/program"))
    programs.check(job("true", input="in{session}", directory="/"))
