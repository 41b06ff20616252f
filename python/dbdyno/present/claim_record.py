"""A claim as a record of the JSON documents: docs/json.md says what each key means."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from dbdyno.model.claim import Claim


def finding_record(claim: Claim) -> dict[str, Any]:
    """Of a claim of a whole run: its figure flat."""
    value = claim.value
    return {
        "id": claim.id,
        "severity": claim.severity,
        "subject": claim.subject,
        "claim": claim.text,
        "value": None if value is None else _finite(value.value),
        "unit": "" if value is None else value.unit,
        "low": None if value is None else _finite(value.low),
        "high": None if value is None else _finite(value.high),
        "evidence": claim.evidence,
        "cure": claim.advice,
        "cells": list(claim.cells),
    }


def answer_record(claim: Claim) -> dict[str, Any]:
    """Of a claim of a ladder."""
    value = None if claim.value is None else {k: _finite(v) for k, v in asdict(claim.value).items()}
    return {"id": claim.id, "claim": claim.text, "value": value, "evidence": claim.evidence}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
