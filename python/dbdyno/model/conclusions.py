"""What follows from a run's tables beside its findings, as it is stored with them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from dbdyno.model.claim import Claim
from dbdyno.model.column import DERIVED_VERSION
from dbdyno.model.comparison import Comparison
from dbdyno.model.regression import Regression
from dbdyno.model.scaling import Scaling

VERSION = DERIVED_VERSION
"""Conclusions of another are drawn anew."""


class Conclusions(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    version: int = VERSION
    scaling: tuple[Scaling, ...] = ()
    answers: tuple[Claim, ...] = ()
    comparison: Comparison | None = None


Conclusions.model_rebuild(_types_namespace={"Regression": Regression})
