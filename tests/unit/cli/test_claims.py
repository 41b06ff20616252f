"""One type for all conclusions."""

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
    (found,) = STORED.validate_json(json.dumps([OLDER]))
    assert found == Claim(
        id="cpu-wait",
        text="Sessions wait for CPU.",
        value=Estimate("cpu-wait", 4.0, "sessions", None, 8.0),
        evidence="os tasks",
        advice="more CPUs",
        cells=("0001",),
    )
    assert finding_record(found) == {**OLDER, "subject": ""}
    assert STORED.validate_json(json.dumps([{**OLDER, "value": None}]))[0].value is None


def test_a_claim_comes_back_as_it_was_stored() -> None:
    claims = (
        Claim(id="a", text="A."),
        Claim(id="b", text="B.", value=Estimate("b", 1.5, "s/s", 1.0, 2.0, "ledger"), severity="warning"),
    )
    assert STORED.validate_json(STORED.dump_json(claims)) == claims
    endless = Claim(id="c", text="C.", value=Estimate("c", float("inf")))
    assert STORED.validate_json(STORED.dump_json((endless,)))[0].value is None


def test_the_page_of_claims_is_the_catalogues() -> None:
    stored = Path(__file__).parents[3] / "docs" / "claims.md"
    assert stored.read_text(encoding="utf-8") == page(), (
        "python -m dbdyno.conclude.catalogue > docs/claims.md"
    )


PHRASES = ("activity", "growth-ends", "next-step", "regime", "truth")
"""Entries whose texts are clauses: put together to a sentence, or shown in a table."""


@pytest.mark.parametrize("found", entries().values(), ids=lambda e: e.id)
def test_an_entry_answers_a_question_in_plain_words(found: Entry) -> None:
    assert found.question.endswith("?") and found.when
    assert not found.page or (Path(__file__).parents[3] / "docs" / found.page).is_file()
    for text in (found.question, found.when, *found.sentences(), *found.advices()):
        assert not re.search(r"^Of |cannot be told|witness\b|somebody|\bmend\b|not told|\bcells?\b", text), (
            text
        )
    for text in found.sentences():
        assert found.id in PHRASES or text.endswith((".", "}"))
        assert not re.search(r"(?<!\{)\d+ \w+s?\(s\)", text)


def test_a_claim_is_its_entrys_sentence_with_values() -> None:
    said = {"share": 0.15, "place": "at 8 sessions", "measurements": "2 measurements", "limit": 0.01}
    made = claim("steal", said, 0.15, cells=["0001"])
    assert made.text == (
        "Steal: the hypervisor withheld 15 % of CPU time at 8 sessions (2 measurements above 1.0 %)."
    )
    assert (made.severity, made.value) == ("warning", Estimate("steal", 0.15, "of the machine"))
    assert made.said == said
    assert claim("one-repeat", {}).text == "n=1: no confidence intervals."
    work = {"work": "rows", "sessions": 1, "variant": "base", "low": 2.0}
    assert claim("work-constant", work).text == "Rows per call is constant in 1 session of base: 2."
    assert claim("work-constant", work, subject="scan, variant base").text.startswith(
        "scan, variant base: Rows"
    )


def test_an_id_with_an_end_of_its_own_is_found() -> None:
    assert entry("errors-40001").id == "errors"
    with pytest.raises(UsageError) as error:
        entry("cpu-wiat")
    assert "'cpu-wait'" in (error.value.cure or "")


def test_explain_prints_an_entry_or_all_questions() -> None:
    run = CliRunner()
    all_of_them = run.invoke(app, ["explain"])
    assert all_of_them.exit_code == 0
    assert [line.split()[0] for line in all_of_them.output.splitlines()] == [
        e.name for e in entries().values()
    ]
    one = run.invoke(app, ["explain", "cpu-wait"])
    assert one.exit_code == 0 and entry("cpu-wait").question in one.output


def test_no_unit_is_said_twice() -> None:
    """A format of a duration, a size or a share has its unit."""
    files = sorted(Path(catalogue.__file__).parent.glob("*.toml"))
    twice = re.compile(r":(?:seconds|ns|size|percent)\} (?:ns|us|ms|s|B|bytes|%)(?![a-zA-Z])")
    assert files and [f.name for f in files if twice.search(f.read_text())] == []
