"""The times at which calls become due, and the think times between calls."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from dbdyno.model.plan.literals import Arrivals as Arrivals


def _as_text(given: object) -> object:
    """Converts numbers and lists of numbers such as ``4`` and ``[1, 2, 4]`` to text, because these are
    natural in TOML."""
    numbers = given if isinstance(given, list) else [given]
    plain = numbers and all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
    return ",".join(f"{n}" for n in numbers) if plain else given


LadderText = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | float | list[float])]


class Strict(BaseModel):
    """A model that refuses unknown keys and cannot be changed. Docstrings below its fields go to the JSON
    schema."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Pacing(Strict):
    """The times at which calls become due, whether or not earlier ones have ended. All sessions share one
    arrival process."""

    rate_per_s: float = Field(gt=0)
    to_per_s: float | None = None  # where the rate changes evenly over the window: its end
    pieces: tuple[tuple[int, float, float], ...] = ()  # of phases: ns, rate at the begin, at the end
    arrivals: Arrivals = "poisson"
    latency_limit_ns: int | None = None  # a call due for longer than this is dropped


class Think(Strict):
    """The distribution of think times around their mean, which is the cell's ``think_ns``."""

    kind: Literal["exponential", "uniform"]
    low_ns: int = 0  # of uniform
    high_ns: int = 0
