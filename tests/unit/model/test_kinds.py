"""Kinds of runs: each run is of one, and its sentences take their nouns from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.execution_cells import amdahl, run_of_jobs, threads

import dbdyno
from dbdyno.conclude import checking, findings
from dbdyno.conclude.catalogue import claim, sentence, with_nouns
from dbdyno.conclude.run.case import Case
from dbdyno.model.plan import kinds
from dbdyno.model.results.claim import Claim
from dbdyno.model.text.nouns import OF_COMMANDS, OF_SESSIONS, nouns_of
from dbdyno.present import report
from dbdyno.present.document.document import Chart, Section, Table, walk


def test_nouns_of_commands_replace_those_of_databases() -> None:
    text = "{~calls:capital} {~at} {n:#session}: {~db_time}"
    assert with_nouns(text, n=8) == "Calls at 8 sessions: DB time"
    with nouns_of(OF_COMMANDS):
        assert with_nouns(text, n=8) == "Executions with 8 jobs at once: task time"
        assert with_nouns(text, n=1) == "Executions with one job at a time: task time"
    assert with_nouns(text, n=1) == "Calls at 1 session: DB time"


def test_every_slot_of_databases_has_a_noun_of_commands() -> None:
    assert OF_COMMANDS.keys() == OF_SESSIONS.keys()


def test_every_slot_in_the_sources_has_a_noun() -> None:
    root = Path(dbdyno.__file__).parent
    texts = (path.read_text("utf-8") for path in root.rglob("*") if path.suffix in (".py", ".toml"))
    slots = {a or b for text in texts for a, b in re.findall(r"\{~(\w+)|\bnoun\([\"'](\w+)[\"']\)", text)}
    assert len(slots) > 30 and slots <= OF_SESSIONS.keys()


def test_the_nearest_tag_of_a_kind_decides() -> None:
    phases = kinds.kind_named(kinds.PHASES)
    options = {kinds.DATABASE: "database", kinds.PACED: "paced"}
    assert phases.choice(options, "other") == "paced"
    assert kinds.kind_named(kinds.COMMANDS).choice(options, "other") == "other"
    assert phases.among((kinds.DATABASE,)) and phases.among(()) and not phases.among((kinds.COMMANDS,))


def test_a_third_kind_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, nouns and checks of a kind follow from its registration."""
    nouns = {"calls": "messages", "session_time": "consumer time"}
    third = kinds.Kind("queue", lambda plan: plan.experiment.name == "queue", nouns)
    monkeypatch.setattr(kinds, "KINDS", [*kinds.KINDS, third])
    monkeypatch.setattr(checking, "_REGISTERED", [])

    @checking.check("session-time", kinds=("queue",))
    def check(_: Case) -> Iterator[Claim]:
        yield claim("session-time", {}, case="unknown")

    run = run_of_jobs(threads(1, 2), amdahl(0.1), ladder=(1,))
    plan = run.plan.model_copy(
        update={"experiment": run.plan.experiment.model_copy(update={"name": "queue"})}
    )
    assert kinds.kind_of(plan) is third and kinds.kind_of(run.plan).name == kinds.COMMANDS
    (only,) = findings.findings(plan, run.environment, run.tables, {}, {})
    assert only.text == "Where consumer time goes is unknown."
    assert findings.findings(run.plan, run.environment, run.tables, {}, {}) == ()
    assert sentence("session-time", {}, case="unknown") == "Where session time goes is unknown."


def test_the_page_of_a_third_kind_has_the_common_parts_in_its_nouns(monkeypatch: pytest.MonkeyPatch) -> None:
    nouns = {"calls": "messages", "at_once": "consumers", "engine": "broker"}
    third = kinds.Kind("queue", lambda _: True, nouns)
    monkeypatch.setattr(kinds, "KINDS", [*kinds.KINDS, third])
    shown = report.document(run_of_jobs(threads(1, 2), amdahl(0.1), ladder=(1, 2)))
    sections = [b.title for b in walk(shown.blocks) if isinstance(b, Section)]
    assert {"Throughput, and where the time went", "Response time in detail", "Consumers"} <= {*sections}
    assert "Throughput by number of consumers" in sections
    assert not {"Commands", "Load profile"} & {*sections}  # of commands, and of what a server serves
    titles = " ".join(b.title for b in walk(shown.blocks) if isinstance(b, Chart | Table))
    assert "Throughput, messages/s" in titles and "Broker" in titles
