"""Typical mistakes with commands on the command line: the message and the cure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.in_process import dbdyno

SET = '[[jobs]]\nname = "a"\ncommand = "a {threads}"\n[[jobs]]\nname = "b"\ncommand = "b {threads}"\n'


def output_of(words: str, tmp_path: Path, *more: str) -> str:
    (tmp_path / "set.toml").write_text(SET)
    env = {"XDG_DATA_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = dbdyno(("run", *more, *words.split(), "--dry-run"), env, tmp_path)
    return done.stderr if done.returncode else done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--dsn dbname=x", "--dsn with a command\n  a command has no connection"),
        ("-f a.sql", "-f with a command"),
        ("-b tpcb-like", "-b with a command"),
        ("--setting work_mem=1MB", "--setting with a command"),
        ("--reset each", "--reset with a command"),
        ("--expect disk", "--expect with a command"),
        ("-M simple", "-M with a command"),
        ("-D scale=1", "-D with a command"),
        ("--limit pool=3", "--limit pool with a command"),
        ("--call-target 1ms", "--call-target with a command"),
        ("--once --measure 5s", "--measure with --once\n  each job runs to its end"),
        ("--once --settle 5s", "--settle with --once"),
        ("--once --rate 5", "--rate with --once"),
        ("--runs 3 --sessions auto", "--sessions auto with --runs"),
        ("--once --sessions 1,2", "2 sessions, and 1 execution"),
        ("lio", "'lio' is neither a parameter nor part of a command"),
        ("-L n 1,2", "-L n: -L is --latency-limit"),
        ("-P n 1 2", "neither a parameter"),
        ("n=1,2", "no command has the placeholder {n}"),
        ("--orders seriel", "did you mean 'serial'?"),
        ("--orders serial", "there is one job"),
        ("--env A", "--env A: not of the form NAME=VALUE"),
        ("--command-name a --command-name b", "2 --command-name, 1 --command"),
        ("--keep-output lots", "not a size"),
        ("--timeout soon", "--timeout"),
        ("--work-regex a(", "--work-regex a("),
        ("--parameter-step-size 2", "there is no --parameter-scan"),
        ("--engine postgres", "the engine postgres runs no commands"),
        ("--jobs set.toml", "both --command and --jobs"),
    ],
)
def test_options_that_do_not_go_with_a_command_are_refused(words: str, message: str, tmp_path: Path) -> None:
    assert message in output_of(words, tmp_path, "--command", "sleep 1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lio --once", "--once without a command"),
        ("lio --timeout 5s", "--timeout without a command"),
        ("lio --hide-args", "--hide-args without a command"),
        ("--engine command", "nothing to run"),
        ("lio --engine command", "the engine command runs commands, and lio is a workload"),
        ("--jobs no.toml", "cannot read the job list no.toml"),
        ("--jobs set.toml", "{threads} has no value"),
        ("--jobs set.toml --orders both threads=1", "how many threads a job has"),
        ("-b tpcb-like -j 0", "-j 0: not from 1 to 256"),
    ],
)
def test_options_of_commands_are_refused_without_a_command(words: str, message: str, tmp_path: Path) -> None:
    assert message in output_of(words, tmp_path)


def test_a_plan_of_commands_reads_well(tmp_path: Path) -> None:
    lines = output_of("--runs 20 --env A=1", tmp_path, "--command", "gzip -k x", "--command", "zstd -k x")
    assert lines.startswith("commands gzip, zstd: 10 measurements, jobs at once 1; 5 repeats\n")
    assert "no warm-up, each measurement 20 executions; dbdyno itself about" in lines
    assert "variant zstd  zstd -k x\n" in lines
    assert "connection" not in lines


def test_parameters_are_given_as_for_hyperfine(tmp_path: Path) -> None:
    words = "--parameter-scan n 0.5 1 --parameter-step-size 0.25 --parameter-list f a,b --json"
    plan = json.loads(output_of(words, tmp_path, "--command", "x {n} {f}"))
    assert len(plan["variants"]) == 6
    assert plan["variants"][1]["jobs"][0]["argv"] == ["x", "0.75", "a"]
    assert plan["experiment"]["axes"] == {"f": ["a", "b"], "n": [0.5, 0.75, 1]}


def test_options_of_a_job_are_those_of_all_jobs_of_a_list(tmp_path: Path) -> None:
    words = "--jobs set.toml --orders serial,both threads=1,8 --timeout 5s --env A=1 --prepare sync --json"
    plan = json.loads(output_of(words, tmp_path))
    jobs = [j for v in plan["variants"] for j in v["jobs"]]
    assert [(j["timeout_ns"], j["env"], j["prepare"]) for j in jobs] == [
        (5 * 10**9, {"A": "1"}, ["sync"])
    ] * 4
    assert {c["sessions"] for c in plan["cells"]} == {1, 2}
