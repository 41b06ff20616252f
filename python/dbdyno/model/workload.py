"""A workload: what a session does over and over. Data (TOML and SQL files), never code.

``workloads/NAME.toml`` says what it is in words that hold for every engine; the engine's folder
(``engines/ENGINE/workloads/NAME.toml``) says how it is done there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Parameter(BaseModel):
    """A parameter of a workload, settable by ``--param name=value``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    doc: str
    type: Literal["int", "float", "choice", "bool"]
    default: str | int | float | bool
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


class Workload(BaseModel):
    """The engine-neutral half."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    doc: str
    work_unit: str  # plural noun: "logical reads", "iterations"
    work_short: str  # "LIO", "iterations": as in "LIO/s"
    work_constant: bool  # work units per call must be constant: checked, and a finding if not
    work_tolerance: float = 0.001  # relative: work per call that varies by no more is called nearly constant
    work_power: tuple[str, str] | None = None  # a call's work: the one parameter to the power of the other
    changes_with: str | None = None  # the parameter above 0 with which its calls change rows; else none does
    cached: bool | None = None  # promises to read from the cache alone; False: to read physically
    calibrated: bool  # has a size that is set so that a call takes the call target at one session
    parameters: dict[str, Parameter] = Field(default_factory=dict)

    def work_of(self, params: Mapping[str, object]) -> float | None:
        """Work units of a call where its parameters alone say so, and each call verifies them itself."""
        if self.work_power is None:
            return None
        base, exponent = (int(str(params[name])) for name in self.work_power)
        return float(base**exponent)


class Calibration(BaseModel):
    """How the size of a call was found, at one session. Recorded with the run."""

    model_config = ConfigDict(frozen=True)

    workload: str
    target_ns: int
    target_reason: str  # "--call-target" or why this default was chosen
    size: int  # e.g. ranges per call, loop iterations: what the engine's call takes as its first parameter
    size_unit: str
    measured_ns: int  # at that size: median of its calls
    basis: Literal["cpu", "wall"]  # CPU time of the backend where it can be read, else the driver's wall time
    work_per_call: float | None  # exact, where the engine can count it
    steps: tuple[tuple[int, int], ...]  # (size, measured_ns) of every step
    note: str = ""
