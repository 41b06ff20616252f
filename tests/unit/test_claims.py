"""One type for all conclusions."""

import json

from pydantic import TypeAdapter

from dbdyno.model.claim import Claim
from dbdyno.model.estimate import Estimate
from dbdyno.present.claim_record import finding_record

STORED = TypeAdapter(tuple[Claim, ...])
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
