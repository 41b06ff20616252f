"""Output of pg_test_timing, up to 18 and from 19 on."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dbdyno.engines.postgres.timing import kept_overhead, loop_times, timing_overhead

GOLDEN = Path(__file__).parents[2] / "golden" / "timing"

# Written by hand in the format of 19: each clock source has a block.
NINETEEN = """
System clock source: clock_gettime (CLOCK_MONOTONIC)
Testing timing overhead for 1 second.
Average loop time including overhead: 51.25 ns
Histogram of timing durations:
   <= ns   % of total  running %      count
      63     100.0000   100.0000         10

Clock source: RDTSCP
Average loop time including overhead: 40.50 ns

Fast clock source: RDTSC
Average loop time including overhead: 30.75 ns

TSC clock source will be used by default
"""


@pytest.mark.parametrize(("major", "ns"), [(15, 31.01), (18, 31.92)])
def test_up_to_version_18_there_is_one_figure(major: int, ns: float) -> None:
    text = (GOLDEN / f"pg_test_timing-{major}.txt").read_text()
    assert loop_times(text) == [("", ns)]


def test_from_version_19_on_each_clock_source_has_a_figure() -> None:
    assert loop_times(NINETEEN) == [
        ("clock_gettime (CLOCK_MONOTONIC)", 51.25),
        ("RDTSCP", 40.5),
        ("RDTSC", 30.75),
    ]


def program(directory: Path, body: str) -> Path:
    """Writes a shell script of that name, since the real program finds no fault with this machine's clock."""
    path = directory / "pg_test_timing"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return directory


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo 'Detected clock going backwards in time.' >&2; exit 1", "goes backwards"),
        ("echo 'no such option' >&2; exit 2", "exit 2): no such option"),
    ],
)
def test_an_output_without_a_figure_has_a_reason(tmp_path: Path, body: str, words: str) -> None:
    ns, reason = timing_overhead(program(tmp_path, body))
    assert ns is None
    assert words in reason


def test_a_missing_program_has_a_reason(tmp_path: Path) -> None:
    ns, reason = timing_overhead(tmp_path)
    assert ns is None
    assert "does not run" in reason


def counting(directory: Path) -> Path:
    """Returns the directory of a program that adds a line to a file whenever it runs."""
    return program(directory, f"echo >> {directory}/runs; echo 'Per loop time including overhead: 31.5 ns'")


def test_the_figure_is_measured_once_for_a_boot_and_clock_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bin_dir, runs = counting(tmp_path), tmp_path / "runs"
    for _ in range(2):
        assert kept_overhead(bin_dir, tmp_path, "tsc") == "31.5 ns a loop"
    assert runs.read_text() == "\n"
    kept_overhead(bin_dir, tmp_path, "hpet")
    assert runs.read_text() == "\n\n"


@pytest.mark.parametrize("spoil", ["old", "garbage", "closed"])
def test_a_kept_figure_that_cannot_be_used_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bin_dir, runs = counting(tmp_path), tmp_path / "runs"
    kept_overhead(bin_dir, tmp_path, "tsc")
    (kept,) = (tmp_path / "cache" / "dbdyno" / "clock").iterdir()
    match spoil:
        case "old":
            os.utime(kept, (0, 0))
        case "garbage":
            kept.write_text("31.5 ns a loop\x1b[2J")
        case "closed":
            kept.parent.chmod(0o777)  # others could replace it
    assert kept_overhead(bin_dir, tmp_path, "tsc") == "31.5 ns a loop"
    assert runs.read_text() == "\n\n"
