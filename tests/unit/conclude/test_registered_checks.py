"""The registry of checks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit import report_results

import dbdyno.conclude.findings  # noqa: F401 registers all checks
from dbdyno.conclude import checking
from dbdyno.conclude.catalogue import entries
from dbdyno.conclude.run.case import Case
from dbdyno.model.plan.kinds import COMMANDS, kind_named
from dbdyno.model.results.claim import Claim


def test_checks_stand_in_the_order_of_the_catalogue_and_name_its_claims() -> None:
    place = list(entries())
    registered = [c.claims for c in checking.checks(kind_named("database"))]
    assert len(registered) > 60 and {id for claims in registered for id in claims} <= set(place)
    first = [place.index(claims[0]) for claims in registered]
    assert first == sorted(first)


def test_a_check_is_of_the_kinds_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_REGISTERED", [])

    @checking.check("steal", kinds=(COMMANDS,))
    def check(case: Case) -> Iterator[Claim]:
        yield Claim(id="steal", text=case.plan.experiment.name)

    assert [c.function for c in checking.checks(kind_named("commands"))] == [check]
    assert checking.checks(kind_named("database")) == []


def test_states_that_servers_name_are_no_subject_of_commands() -> None:
    names = {c.claims[0] for c in checking.checks(kind_named("database"))} - {
        c.claims[0] for c in checking.checks(kind_named("commands"))
    }
    assert names == {"naive-cpu", "idle-busy", "hidden-run-queue", "errors", "littles-law-violated"}


def test_an_error_in_a_check_becomes_a_claim_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_REGISTERED", [])
    monkeypatch.setattr(checking, "RAISES", False)
    run = report_results.results()

    @checking.check("lock-bound")
    def check(case: Case) -> Iterator[Claim]:
        yield Claim(id="lock-bound", text="Sessions wait.")
        raise TypeError(f"no such figure of {case.plan.experiment.engine}")

    (one,) = checking.checks(kind_named("database"))
    sound, failed = one.drawn(Case(run.plan, run.environment, run.tables, {}))
    assert (sound.text, failed.id) == ("Sessions wait.", "claim-failed-lock-bound")
    assert failed.text.startswith("Claim lock-bound could not be drawn: TypeError: no such figure of")
