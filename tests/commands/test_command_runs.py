"""Whole runs of real commands: as often as asked for, side by side, with set-up and clean-up, and with
hidden arguments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dbdyno.model.units import format_ns
from tests.in_process import dbdyno

RUN = ("--no-observe", "--no-memory")


def run(place: Path, *words: str, code: int = 0) -> str:
    """Returns the standard error of ``dbdyno run``."""
    env = {
        "XDG_DATA_HOME": str(place / "data"),
        "XDG_STATE_HOME": str(place / "state"),
        "PATH": os.environ["PATH"],
    }
    done = dbdyno(("run", *words, *RUN), env, place)
    assert done.returncode == code, done.stderr
    return done.stderr


def show(place: Path, *words: str) -> str:
    env = {
        "XDG_DATA_HOME": str(place / "data"),
        "XDG_STATE_HOME": str(place / "state"),
        "PATH": os.environ["PATH"],
    }
    return dbdyno(("show", *words), env, place).stdout


def raw(place: Path, table: str) -> pl.DataFrame:
    """Returns a raw table of all cells of the only run, with the cell's id."""
    files = sorted(place.glob(f"data/dbdyno/*/cells/*/{table}.parquet"))
    return pl.concat([pl.read_parquet(f).with_columns(cell=pl.lit(f.parent.name)) for f in files])


def meta(place: Path) -> list[dict[str, Any]]:
    return [json.loads(f.read_text()) for f in sorted(place.glob("data/dbdyno/*/cells/*/cell.json"))]


def test_each_job_runs_once_over_all_sessions(tmp_path: Path) -> None:
    jobs = [
        f'[[jobs]]\nname = "{n}"\ncommand = "sleep {t}"\n' for n, t in (("a", 0.3), ("b", 0.2), ("c", 0.1))
    ]
    (tmp_path / "set.toml").write_text("".join(jobs))
    run(tmp_path, "--jobs", "set.toml", "--once", "--sessions", "1,3")
    executions = raw(tmp_path, "executions")
    assert executions.filter(pl.col("outcome") != "ok").is_empty()
    assert executions.group_by("cell").agg(pl.col("job").sort())["job"].to_list() == [["a", "b", "c"]] * 2
    for cell in meta(tmp_path):
        of_cell = executions.filter(pl.col("cell") == cell["cell"]["id"])
        spans = of_cell["end_ns"] - of_cell["start_ns"]
        makespan_ns = cell["t1_ns"] - cell["t0_ns"]
        one = cell["cell"]["sessions"] == 1
        assert cell["status"] == "ok"
        assert makespan_ns >= (spans.sum() if one else spans.max())


def test_runs_are_counted_and_warm_up_is_not_measured(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write = f"echo {{session}} {{job}} >> {log}"
    run(tmp_path, "--command", write, "--shell", "sh", "--runs", "5", "--sessions", "2", "--warmup", "3")
    executions = raw(tmp_path, "executions")
    assert executions.height == 5
    assert executions["measured"].all()
    lines = log.read_text().split("\n")[:-1]
    assert len(lines) == 8
    assert {line.split()[1] for line in lines} == {"echo"}
    assert {int(line.split()[0]) for line in lines} <= {0, 1}


def test_each_variant_is_set_up_and_cleaned_up(tmp_path: Path) -> None:
    run(
        tmp_path,
        "--command",
        "cat {file}",
        "file=a,b",
        "--setup",
        "cp /etc/passwd {file}",
        "--cleanup",
        "rm {file}",
        "--work-bytes",
        "{file}",
        "--runs",
        "1",
        "--repeats",
        "1",
    )
    size = Path("/etc/passwd").stat().st_size
    assert raw(tmp_path, "executions")["work"].to_list() == [size, size]
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_hidden_arguments_are_nowhere_in_the_store(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        "--command",
        "sh -c 'exit {n}' SECRET {k}",
        "n=0,1",
        "k=SECRET",
        "--env",
        "A=SECRET",
        "--prepare",
        "echo SECRET",
        "--hide-args",
        "--runs",
        "2",
        "--repeats",
        "1",
    )
    kept = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert len(kept) > 5
    for file in kept:
        text = (
            str(pl.read_parquet(file).to_dicts())
            if file.suffix == ".parquet"
            else file.read_text(errors="replace")
        )
        assert "SECRET" not in text, file
    assert "SECRET" not in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--command", "no-such-program-here"), "there is no program no-such-program-here"),
        (("--command", "true", "--setup", "false"), "false"),
    ],
)
def test_a_job_that_cannot_be_run_leaves_no_run(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in run(tmp_path, *words, code=2 if "--setup" not in words else 3)
    assert not list(tmp_path.glob("data/dbdyno/*/run.json"))


def test_a_clean_up_that_fails_is_reported_and_the_run_is_whole(tmp_path: Path) -> None:
    output = run(tmp_path, "--command", "true", "--cleanup", "false", "--runs", "1")
    assert "! clean-up of variant base failed: false: exit code 1" in output


def test_the_shells_time_is_taken_off_everywhere(tmp_path: Path) -> None:
    """The stored plan holds the time that is taken off, so that all derived figures agree with the driver."""
    output = run(tmp_path, "--command", "sleep 0.1", "--shell", "sh", "--runs", "5")
    (plan,) = tmp_path.glob("data/dbdyno/*/plan.json")
    (job,) = json.loads(plan.read_text())["variants"][0]["jobs"]
    assert job["shell_ns"] > 0
    (folder,) = {p.parent for p in tmp_path.glob("data/dbdyno/*/plan.json")}
    rates = pl.read_parquet(next(folder.rglob("execution_rates.parquet")))
    assert rates["shell_ns"].to_list() == [job["shell_ns"]] * rates.height
    took = (raw(tmp_path, "executions")["end_ns"] - raw(tmp_path, "executions")["start_ns"]).mean()
    assert rates["mean_ns"][0] == pytest.approx(took - job["shell_ns"], abs=2)
    assert rates["mean_ns"][0] >= 100e6  # no less than the command itself takes
    mean = pl.read_parquet(next(folder.rglob("rungs.parquet")))["response_mean_ns"][0]
    assert mean == pytest.approx(rates["mean_ns"][0], rel=1e-6)
    assert format_ns(job["shell_ns"]) in output
    assert "By the start-up of its shell it may be up to" in show(tmp_path)


def test_processes_left_behind_are_in_the_result(tmp_path: Path) -> None:
    run(tmp_path, "--command", "sleep 5 & :", "--shell", "sh", "--runs", "2")
    (claim,) = (f for f in json.loads(show(tmp_path, "--json"))["findings"] if f["id"] == "left-behind")
    assert raw(tmp_path, "executions").height == 2
    assert (claim["value"], claim["unit"]) == (2, "executions") and "of sleep" in claim["claim"]
    for words in ((), ("--claims",)):
        assert claim["claim"] in " ".join(show(tmp_path, *words).split())
    assert "left 1 behind" in show(tmp_path, "--executions")


def test_a_run_whose_executions_all_failed_is_no_success(tmp_path: Path) -> None:
    run(tmp_path, "--command", "false", "--runs", "3", code=5)
    once = "test -e was || { touch was; exit 1; }"
    run(tmp_path, "--command", once, "--shell", "sh", "--runs", "3", "--warmup", "0")
