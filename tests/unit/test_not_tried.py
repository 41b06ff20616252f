"""The summary of skipped tests at the end of a test run."""

from __future__ import annotations

import pytest
from tests.not_tried import summary


def skipped(reason: str) -> pytest.TestReport:
    return pytest.TestReport(
        "t", ("t.py", 1, None), {}, "skipped", ("t.py", 1, f"Skipped: {reason}"), "setup"
    )


def test_skips_are_summed_up_by_cure_most_tests_first() -> None:
    reasons = ["no zsh here: apt-get install zsh"]
    reasons += [f"no PostgreSQL {v} here: name its programs in PG_BINS" for v in (17, 14, 17)]
    reasons += ["needs two CPUs", "needs two CPUs"]
    assert summary(map(skipped, reasons)) == [
        "3 tests: no PostgreSQL 14 here; no PostgreSQL 17 here: name its programs in PG_BINS",
        "2 tests: needs two CPUs",
        "1 test: no zsh here: apt-get install zsh",
    ]
