"""Criteria of claims quote the constants that decide."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

from dbdyno.cli.app import app
from dbdyno.conclude.catalogue import Entry, entries, entry
from dbdyno.conclude.catalogue.__main__ import page
from dbdyno.conclude.run import locks
from dbdyno.conclude.thresholds import criterion, filled
from dbdyno.model.errors import DbdynoError
from dbdyno.stats import significance

NUMBER = re.compile(
    r"\d|\b(?:twice|thrice|double[ds]?|triple|\w+fold|half|halves|(?:third|quarter|fifth|tenth|twentieth)s?"
    r"|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|hundred|thousand|million)\b"
)
NO_THRESHOLDS = {
    "executions-failed": "code than 0",
    "execution-outliers": "(1993)",
    "repeat-outlier": "(Rosner 1983)",
    "sample-outlier": "(Rosner 1983)",
    "third-knee": "three knees",
    "drift": "first half",
    "verdict-note": "excludes 1",
    "no-ratio": "by 0 or be 0",
    "regression-note": "differ from 0",
    "alone-and-many": "below 1 at one end of the ladder and above 1 at",
    "crossover": "passes 1",
}
"""Claim -> words of its criterion whose number is no choice of ours: a year, an exit code, equality."""
SLOT = re.compile(r"\{[^}]*\}")


@pytest.mark.parametrize("claim", entries().values(), ids=lambda e: e.id)
def test_numbers_of_a_criterion_are_constants(claim: Entry) -> None:
    allowed = NO_THRESHOLDS.get(claim.id, "")
    assert allowed in claim.when
    rest = SLOT.sub("", claim.when).replace(allowed, "")
    assert NUMBER.findall(rest) == [], f"{claim.name}: write {{module.CONSTANT:format}}"
    assert SLOT.search(criterion(claim)) is None


def test_words_of_an_exception_are_not_left_over() -> None:
    assert NO_THRESHOLDS.keys() <= entries().keys()
    assert all(NUMBER.search(words) for words in NO_THRESHOLDS.values())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{locks.BOUND:percent}", "25 %"),
        ("{counting.CACHED:percent}", "0.1 %"),
        ("{locks.GROWS:number} times", "1.1 times"),
        ("{growth.LEAST_DEAD:#row}", "1,000 rows"),
        ("{catalogue.criteria.LOG_RECORD:#byte}", "24 bytes"),
        ("{memory.LEAST_TABLES:size}", "64 MiB"),
        ("{coverage.LATE_NS:ns}", "100 ms"),
        ("{compare.intervals.NOTABLE_S:seconds}/s", "1 ms/s"),
        ("{stats.cliff.LEVEL:percent}", "1 %"),
        ("{model.results.session_time.STARVED:percent}", "5 %"),
    ],
)
def test_a_slot_is_filled_without_digits_of_precision(text: str, shown: str) -> None:
    assert filled(text, "a test") == shown


@pytest.mark.parametrize(
    ("slot", "problem"),
    [
        ("{lokcs.BOUND:percent}", "no module 'lokcs'"),
        ("{locks.BUOND:percent}", "no constant 'BUOND'"),
        ("{locks._end:percent}", "no constant '_end'"),
        ("{locks.lock_bound:percent}", "is not a number"),
        ("{locks.BOUND.real:percent}", "no module 'locks.BOUND'"),
        ("{BOUND:percent}", "no module ''"),
        ("{locks.BOUND:percents}", "unknown format"),
        ("{locks.BOUND:.2f}", "unknown format"),
        ("{locks.BOUND}", "unknown format"),
        ("{locks.BOUND!r:percent}", "unknown format"),
    ],
)
def test_a_slot_that_names_something_missing_is_an_error_of_its_claim(slot: str, problem: str) -> None:
    wrong = replace(entry("lock-bound"), when=f"one lock takes more than {slot} of DB time")
    with pytest.raises(DbdynoError) as error:
        criterion(wrong)
    message = error.value.message
    assert "claim lock-bound" in message and problem in message
    assert slot.strip("{}").partition(":")[0] in message


def test_a_broken_slot_is_an_error_of_its_claim() -> None:
    with pytest.raises(DbdynoError, match="claim lock-bound"):
        criterion(replace(entry("lock-bound"), when="more than {locks.BOUND:percent"))


def test_a_changed_constant_changes_the_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    def explanation() -> str:
        return CliRunner().invoke(app, ["explain", "lock-bound"], catch_exceptions=False).output

    assert "at least 25 % of DB time" in explanation()
    monkeypatch.setattr(locks, "BOUND", 0.375)
    assert "at least 37.5 % of DB time" in explanation()


def test_the_page_of_claims_follows_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BOUND", 0.375)
    monkeypatch.setattr(significance, "FALSE_ALARMS", 0.02)
    assert "at least 37.5 % of DB time" in page()
    assert "false-alarm rate of 2 %" in page()
