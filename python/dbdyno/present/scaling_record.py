"""What ladders say of scaling, as one JSON document: docs/analyze.md says what each key means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dbdyno.model.analyses import Scaling
from dbdyno.present.claim_record import answer_record
from dbdyno.present.plain import plain
from dbdyno.present.regression import regression_json

FORMAT = 1
"""Raised when a key changes its meaning or goes; new keys do not raise it."""


def document(scalings: Sequence[Scaling]) -> dict[str, Any]:
    """Unknown is ``None``, and so is what is not finite."""
    return {"format": FORMAT, "scalings": [record_of(s) for s in scalings]}


def record_of(scaling: Scaling) -> dict[str, Any]:
    """One ladder: its points, all fits (the best first), the curve, the residuals, the answers."""
    ladder = scaling.ladder
    record: dict[str, Any] = plain(
        {
            "name": ladder.name,
            "load_unit": ladder.load_unit,
            "throughput_unit": ladder.throughput_unit,
            "machine": ladder.machine,
            "think_s": ladder.think_s,
            "best": scaling.best.model if scaling.best else None,
            "fits": scaling.fits,
            "answers": [answer_record(a) for a in scaling.answers],
            "regressions": regression_json(scaling.regressions)["regressions"],
            "refused": list(scaling.refused),
            "notes": [*ladder.notes, *scaling.notes],
            "points": ladder.points,
            "residuals": scaling.residuals,
            "curve": scaling.curve,
        }
    )
    return record
