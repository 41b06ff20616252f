"""What a run tells while it goes on. The command line draws it; a test records it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dbdyno.model.environment import Environment
from dbdyno.model.plan import Cell, Plan
from dbdyno.model.protocols import Progress
from dbdyno.model.results import Results
from dbdyno.model.workload import Calibration


@dataclass(frozen=True)
class Tick:
    """Live figures of the cell that runs."""

    cell: Cell
    number: int  # 1..cells
    phase: str  # "connecting" | "settling" | "measuring" | "last calls" | "closing"
    elapsed_s: float  # since the barrier
    progress: Progress
    shares: Mapping[str, float]  # where the sessions' time goes, of the latest samples
    left_s: float  # expected time to the end of the run


class ProgressListener(Protocol):
    def planned(self, plan: Plan, run_id: str) -> None: ...

    def preparing(self, what: str) -> None: ...

    def opened(self, environment: Environment) -> None: ...

    def calibrated(self, variant: str, calibration: Calibration) -> None: ...

    def tick(self, tick: Tick) -> None: ...

    def noted(self, words: str) -> None:
        """Something the user should know, in a line."""

    def measured(self, results: Results) -> None:
        """A cell was saved; ``results`` are of that cell alone."""


class NullProgressListener:
    """Tells nothing."""

    def planned(self, plan: Plan, run_id: str) -> None: ...

    def preparing(self, what: str) -> None: ...

    def opened(self, environment: Environment) -> None: ...

    def calibrated(self, variant: str, calibration: Calibration) -> None: ...

    def tick(self, tick: Tick) -> None: ...

    def measured(self, results: Results) -> None: ...

    def noted(self, words: str) -> None: ...
