"""Jobs that come with dbdyno run, check themselves, and are named by their program."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbdyno.conduct.request import job_specs
from dbdyno.engines import jobs
from dbdyno.engines.command.shipped import cache, texts
from dbdyno.model.errors import NotAvailable
from dbdyno.model.plan.jobs import JobSpec
from dbdyno.model.plan.plan import Experiment

JOBS = jobs("command")
SMALL = {"rounds": 1, "size": 1, "threads": 2}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place))
        yield place


def run(job: JobSpec, command: str | None = None) -> subprocess.CompletedProcess[str]:
    words = shlex.split((command or job.command).replace("{session}", "3"))
    return subprocess.run(words, env=os.environ | job.env, capture_output=True, check=False, text=True)


@pytest.mark.parametrize("name", ["loop", "python-loop", "sort"])
def test_a_job_succeeds_and_says_what_it_did(name: str) -> None:
    job = JOBS[name].resolve(SMALL)
    assert job.name == name
    done = run(job)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if name == "sort" else "done 1000000 rounds\n")


def test_the_compressor_that_is_installed_is_the_jobs_name() -> None:
    job = JOBS["compress"].resolve(SMALL)
    assert job.name in ("pbzip2", "xz", "zstd", "python-bz2")
    assert Path(job.work_bytes or "").stat().st_size == 1 << 20
    words = shlex.split(job.command)
    assert subprocess.run(words, capture_output=True, check=True).stdout[:2] in (
        b"BZ",
        b"\xfd7",
        b"(\xb5",
        b"",
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_work_is_shared_and_a_serial_part_is_done_first(threads: int) -> None:
    job = JOBS["loop"].resolve({"rounds": 3, "threads": threads, "serial": 40})
    assert run(job).stdout == "done 3000000 rounds\n"


def test_wrong_arguments_of_a_shipped_job_are_refused() -> None:
    program = shlex.split(JOBS["loop"].resolve({}).command)[0]
    done = subprocess.run([program, "0"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "loop: 0 is not a number from 1 to 4096\n")


def test_a_build_makes_its_program_from_nothing_each_time() -> None:
    job = JOBS["build-uneven"].resolve({"threads": 2})
    assert job.prepare and job.verify
    for _ in range(2):
        assert run(job, job.prepare).returncode == 0
        assert run(job, f"test -e {job.verify}").returncode
        assert run(job).stderr == ""
        assert run(job, job.verify).returncode == 0


def test_without_tools_the_job_is_python_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, fallback in (("loop", "python-loop"), ("compress", "python-bz2"), ("sort", "python-sort")):
        cases = {**SMALL, "rounds": 100}
        job = JOBS[name].resolve(cases)
        assert job.name == fallback
        assert run(job).returncode == 0
    with pytest.raises(NotAvailable, match="make is not installed"):
        JOBS["build-chain"].resolve({})
    with pytest.raises(NotAvailable, match="zstd is not installed"):
        JOBS["compress"].resolve({"tool": "zstd", "size": 1})


def test_the_text_for_compression_is_always_the_same() -> None:
    content = texts.text(1).read_bytes()
    assert len(content) == 1 << 20
    assert (
        hashlib.sha256(content).hexdigest()
        == "7e13c41a7d9e072a1e44cdfcea5725a56528bf98b179335e4d0a1fbcd9bd3059"
    )


def test_cached_files_of_jobs_can_be_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.remove_all() == []
    texts.text(1)
    (words,) = cache.remove_all()
    assert str(tmp_path) in words
    assert list((tmp_path / "dbdyno").iterdir()) == []


def test_beside_jobs_of_other_units_the_work_of_a_shipped_job_is_a_run() -> None:
    def work(*names: str) -> set[str]:
        jobs = tuple(JobSpec(command=f"@{n}") for n in names)
        experiment = Experiment(engine="command", jobs=jobs, params={"rounds": 1, "size": 1})
        return {j.work_unit for j in job_specs.commands(experiment)["base"].jobs}

    assert work("loop", "python-loop") == {"rounds"}
    assert work("loop", "sort") == {"runs"}
