"""A claim as a record of the JSON documents: docs/json.md says what each key means."""

from __future__ import annotations

from typing import Any

from dbdyno.model.claim import Claim
from dbdyno.present.plain import plain


def finding_record(claim: Claim) -> dict[str, Any]:
    """Of a claim of a whole run: its figure flat."""
    value = claim.value
    return {
        "id": claim.id,
        "severity": claim.severity,
        "subject": claim.subject,
        "claim": claim.text,
        "value": None if value is None else plain(value.value),
        "unit": "" if value is None else value.unit,
        "low": None if value is None else plain(value.low),
        "high": None if value is None else plain(value.high),
        "evidence": claim.evidence,
        "cure": claim.advice,
        "cells": list(claim.cells),
    }


def answer_record(claim: Claim) -> dict[str, Any]:
    """Of a claim of a ladder."""
    return {"id": claim.id, "claim": claim.text, "value": plain(claim.value), "evidence": claim.evidence}
