"""Kinds of runs: each run is of one, and its sentences take their nouns from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.execution_cells import amdahl, made, threads

from dbdyno.conclude import checking, findings
from dbdyno.conclude.catalogue import claim, sentence, with_nouns
from dbdyno.conclude.run.case import Case
from dbdyno.model.plan import kinds
from dbdyno.model.results.claim import Claim
from dbdyno.model.text.nouns import OF_COMMANDS, OF_SESSIONS, nouns_of


def test_nouns_of_commands_replace_those_of_databases() -> None:
    text = "{~calls:capital} {~at} {n:#session}: {~db_time}"
    assert with_nouns(text, n=8) == "Calls at 8 sessions: DB time"
    with nouns_of(OF_COMMANDS):
        assert with_nouns(text, n=8) == "Executions with 8 jobs at once: task time"
        assert with_nouns(text, n=1) == "Executions with one job at a time: task time"
    assert with_nouns(text, n=1) == "Calls at 1 session: DB time"


def test_every_slot_of_databases_has_a_noun_of_commands() -> None:
    assert OF_COMMANDS.keys() == OF_SESSIONS.keys()


def test_a_third_kind_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs, nouns and checks follow from its registration."""
    nouns = {"calls": "messages", "session_time": "consumer time"}
    third = kinds.Kind("queue", lambda plan: plan.experiment.name == "queue", nouns)
    monkeypatch.setattr(kinds, "KINDS", [*kinds.KINDS, third])
    monkeypatch.setattr(checking, "_REGISTERED", [])

    @checking.check("session-time", kinds=("queue",))
    def told(_: Case) -> Iterator[Claim]:
        yield claim("session-time", {}, case="unknown")

    run = made(threads(1, 2), amdahl(0.1), ladder=(1,))
    plan = run.plan.model_copy(
        update={"experiment": run.plan.experiment.model_copy(update={"name": "queue"})}
    )
    assert kinds.kind_of(plan) is third and kinds.kind_of(run.plan).name == kinds.COMMANDS
    (only,) = findings.findings(plan, run.environment, run.tables, {}, {})
    assert only.text == "Where consumer time goes is unknown."
    assert findings.findings(run.plan, run.environment, run.tables, {}, {}) == ()
    assert sentence("session-time", {}, case="unknown") == "Where session time goes is unknown."
