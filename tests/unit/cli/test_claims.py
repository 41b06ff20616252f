"""Claims as they are stored and explained, and the catalogue of their texts."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter

from dbdyno.cli.app import app
from dbdyno.conclude import catalogue
from dbdyno.conclude.catalogue import Entry, claim, entries, entry
from dbdyno.conclude.catalogue.__main__ import page
from dbdyno.model.errors import UsageError
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.present.figures.jsondoc import finding as finding_record

STORED = TypeAdapter(tuple[Claim, ...])
FORBIDDEN = re.compile(r"^Of |cannot be told|not told|witness\b|somebody|\bmend\b|\bcells?\b")
OLDER = {
    "id": "cpu-wait", "severity": "note", "claim": "Sessions wait for CPU.", "value": 4.0, "unit": "sessions",
    "low": None, "high": 8.0, "evidence": "os tasks", "cure": "more CPUs", "cells": ["0001"],
}  # fmt: skip


def test_the_findings_of_older_runs_are_read() -> None:
    (claim,) = STORED.validate_json(json.dumps([OLDER]))
    assert claim == Claim(
        id="cpu-wait",
        text="Sessions wait for CPU.",
        value=Estimate("cpu-wait", 4.0, "sessions", None, 8.0),
        evidence="os tasks",
        advice="more CPUs",
        cells=("0001",),
    )
    assert finding_record(claim) == {**OLDER, "subject": ""}
    assert STORED.validate_json(json.dumps([{**OLDER, "value": None}]))[0].value is None


def test_a_claim_comes_back_as_it_was_stored() -> None:
    claims = (
        Claim(id="a", text="A."),
        Claim(id="b", text="B.", value=Estimate("b", 1.5, "s/s", 1.0, 2.0, "ledger"), severity="warning"),
    )
    assert STORED.validate_json(STORED.dump_json(claims)) == claims
    endless = Claim(id="c", text="C.", value=Estimate("c", float("inf")))
    assert STORED.validate_json(STORED.dump_json((endless,)))[0].value is None


def test_the_page_of_claims_is_up_to_date_with_the_catalogue() -> None:
    stored = Path(__file__).parents[3] / "docs" / "claims.md"
    assert stored.read_text(encoding="utf-8") == page(), (
        "python -m dbdyno.conclude.catalogue > docs/claims.md"
    )


PHRASES = ("activity", "growth-ends", "next-step", "rank", "regime", "truth")
"""Entries whose texts are clauses: put together to a sentence, or shown in a table."""


@pytest.mark.parametrize("entry", entries().values(), ids=lambda e: e.id)
def test_an_entry_answers_a_question_in_plain_words(entry: Entry) -> None:
    assert entry.question.endswith("?") and entry.when
    assert not entry.page or (Path(__file__).parents[3] / "docs" / entry.page).is_file()
    for text in (entry.question, entry.when, *entry.sentences(), *entry.advices()):
        assert not re.search(r"^Of |cannot be told|witness\b|somebody|\bmend\b|not told|\bcells?\b", text), (
            text
        )
    for text in entry.sentences():
        assert entry.id in PHRASES or text.endswith((".", "}"))
        assert not re.search(r"(?<!\{)\d+ \w+s?\(s\)", text)


def test_a_claim_is_its_entrys_sentence_with_values() -> None:
    values = {"share": 0.15, "place": "at 8 sessions", "measurements": "2 measurements", "limit": 0.01}
    steal = claim("steal", values, 0.15, cells=["0001"])
    assert steal.text == (
        "Steal: the hypervisor withheld 15 % of CPU time at 8 sessions (2 measurements above 1.0 %)."
    )
    assert (steal.severity, steal.value) == ("warning", Estimate("steal", 0.15, "of the machine"))
    assert steal.slots == values
    assert "within a window" in claim("one-repeat", {}).text
    work = {"work": "rows", "sessions": 1, "of_variant": "", "low": 2.0}
    assert claim("work-constant", work).text == "Rows per call is constant: 2 (1 session)."
    assert claim("work-constant", work, subject="scan, variant base").text.startswith(
        "scan, variant base: Rows"
    )


def test_the_entry_of_an_id_with_a_suffix_is_that_of_its_beginning() -> None:
    assert entry("errors-40001").id == "errors"
    with pytest.raises(UsageError) as error:
        entry("cpu-wiat")
    assert "'cpu-wait'" in (error.value.cure or "")


def test_explain_prints_an_entry_or_all_questions() -> None:
    run = CliRunner()
    questions = run.invoke(app, ["explain"])
    assert questions.exit_code == 0
    assert [line.split()[0] for line in questions.output.splitlines()] == [e.name for e in entries().values()]
    one = run.invoke(app, ["explain", "cpu-wait"])
    assert one.exit_code == 0 and entry("cpu-wait").question in one.output


def test_no_sentence_has_a_unit_twice() -> None:
    """Formats of durations, sizes and shares print their unit."""
    files = sorted(Path(catalogue.__file__).parent.glob("*.toml"))
    twice = re.compile(r":(?:seconds|ns|size|percent)\} (?:ns|us|ms|s|B|bytes|%)(?![a-zA-Z])")
    assert files and [f.name for f in files if twice.search(f.read_text())] == []
