"""The progress of a run or an observation: reports, remaining time, result."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import polars as pl

from dbdyno import observe
from dbdyno.conduct.beside import LiveBeside
from dbdyno.conduct.measure.cell import OnTick
from dbdyno.conduct.memory.memory_beside import MemoryBeside
from dbdyno.drive import Interrupted
from dbdyno.model.engine.environment import Environment
from dbdyno.model.engine.protocols import Clock, Progress, Server, Watch
from dbdyno.model.errors import DbdynoError, StoreFull, TargetError
from dbdyno.model.plan.plan import Calibration, Cell, Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources import TRACED
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.wait_families import WaitFamilies
from dbdyno.model.units import NS_PER_S
from dbdyno.observe.glance import NEEDED
from dbdyno.plan import begins, cell_expected_ns, deriving_ns
from dbdyno.store import Run


@dataclass(frozen=True)
class Tick:
    """Live figures of the cell in progress."""

    cell: Cell
    number: int  # 1..cells
    phase: str  # "connecting" | "settling" | "measuring" | "last calls" | "closing"
    elapsed_s: float  # since the barrier
    progress: Progress
    shares: Mapping[str, float]  # of the sessions' time, by the latest samples
    left_s: float  # expected time to the end of the run


class Pace(NamedTuple):
    calls_per_s: float
    response_mean_ns: float | None  # None if no call ended


def pace(tick: Tick, before: Tick | None) -> Pace | None:
    """Returns the pace since ``before``; None if that is not an earlier tick of the same cell."""
    if before is None or before.cell.id != tick.cell.id or tick.elapsed_s <= before.elapsed_s:
        return None
    calls = tick.progress.calls - before.progress.calls
    in_call_ns = tick.progress.in_call_ns - before.progress.in_call_ns
    return Pace(calls / (tick.elapsed_s - before.elapsed_s), in_call_ns / calls if calls > 0 else None)


class ProgressListener(Protocol):
    def planned(self, plan: Plan, run_id: str) -> None: ...

    def preparing(self, what: str) -> None: ...

    def opened(self, environment: Environment) -> None: ...

    def calibrated(self, variant: str, calibration: Calibration, unit: str) -> None: ...

    def tick(self, tick: Tick) -> None: ...

    def noted(self, words: str) -> None:
        """Receives a line for the user."""

    def measured(self, results: Results) -> None:
        """Reports a saved cell; ``results`` are of that cell alone."""


class NullProgressListener:
    """A listener that ignores everything."""

    def planned(self, plan: Plan, run_id: str) -> None: ...

    def preparing(self, what: str) -> None: ...

    def opened(self, environment: Environment) -> None: ...

    def calibrated(self, variant: str, calibration: Calibration, unit: str) -> None: ...

    def tick(self, tick: Tick) -> None: ...

    def measured(self, results: Results) -> None: ...

    def noted(self, words: str) -> None: ...


BACKENDS_NS = 5 * NS_PER_S  # least interval of reading names of sessions


def backends_of(server: Server) -> pl.DataFrame:
    """Returns the table ``backends``; empty if the engine does not list processes."""
    return empty("backends") if server.listing is None else server.listing.backends()


class Names:
    """The connected processes, as last read."""

    def __init__(self, server: Server, clock: Clock) -> None:
        self._server, self._clock = server, clock
        self._frame = empty("backends")
        self._asked_ns: int | None = None

    def keep(self, frame: pl.DataFrame) -> None:
        """Keeps a list that was read for another purpose."""
        self._frame, self._asked_ns = frame, self._clock.now_ns()

    def frame(self) -> pl.DataFrame:
        """Returns the table ``backends``, at most a few seconds old, or an older one while the server does
        not answer."""
        now_ns = self._clock.now_ns()
        if self._asked_ns is None or now_ns - self._asked_ns > BACKENDS_NS:
            self._asked_ns = now_ns
            try:
                self._frame = backends_of(self._server)
            except TargetError:
                return self._frame
        return self._frame


def _join(table: str, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Joins the rows of two watches. Sums since a watch began cannot be joined: the new watch's are used
    once they span a second."""
    if table not in TRACED:
        return pl.concat([old, new])
    span_ns = new.select(pl.col("after_ns").max() - pl.col("after_ns").min()).item() or 0
    return new if span_ns >= NS_PER_S or old.is_empty() else old


@dataclass(frozen=True)
class Look:
    """The window in progress, for a live view."""

    stored: int  # number of saved windows
    since_start_s: float
    left_s: float | None  # None if it goes on until stopped
    watch: Watch
    before: Watch | None  # of the previous window
    names: Names
    clock: Clock
    families: WaitFamilies
    memory: MemoryBeside | None = None
    live: LiveBeside | None = None  # None if the engine has no live figures
    helpers: Collection[int] = ()  # processes that work for dbdyno beside this one

    def recent(self, seconds: float) -> dict[str, pl.DataFrame]:
        """Returns rows of the last ``seconds``, including those of the previous window's watch: the tables
        and columns of a glance, and who blocks whom."""
        since_ns, names = self.clock.now_ns() - int(seconds * NS_PER_S), (*NEEDED, "blocked")
        now = observe.recent_frames(self.watch, since_ns, names, NEEDED)
        if self.before is None:
            return now
        old = observe.recent_frames(self.before, since_ns, names, NEEDED)
        return {name: _join(name, old[name], frame) for name, frame in now.items()}

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        return self.watch.source_status()


class ObservationListener(Protocol):
    def planned(self, plan: Plan, run_id: str) -> None: ...

    def opened(self, environment: Environment) -> None: ...

    def notice(self, text: str) -> None:
        """Receives an event: no session matches, the server is lost, it is back."""

    def tick(self, look: Look) -> None: ...

    def saved(self, window: RawCell) -> None:
        """Reports a saved window. Deriving it completely costs too much beside a load: see
        ``observe.glance``."""


class NullObservationListener:
    """A listener that ignores everything."""

    def planned(self, plan: Plan, run_id: str) -> None: ...

    def opened(self, environment: Environment) -> None: ...

    def notice(self, text: str) -> None: ...

    def tick(self, look: Look) -> None: ...

    def saved(self, window: RawCell) -> None: ...


class Progressing:
    """Turns a cell's ticks into ticks of the run.

    The expected time besides settling and measuring is scaled by that of completed cells, from the end of one
    to the end of the next: a busy machine connects slowly, and what is done between cells takes its time.
    """

    def __init__(self, plan: Plan, listener: ProgressListener, clock: Clock) -> None:
        self._plan, self._listener, self._clock = plan, listener, clock
        self._planned_ns = self._expected_ns(plan)
        self._left_ns = dict(self._planned_ns)
        expected_ns = plan.expected_ns if plan.adaptive is not None else 0
        # upper bound for the cells that an auto ladder may still add
        self._to_come_ns = max(0, expected_ns - sum(self._left_ns.values()))
        self._since_ns = clock.now_ns()
        self._last: tuple[str, int] | None = None  # the last completed cell: its variant, and when it ended
        self._beside_ns, self._beside_expected_ns = 0, 0  # of completed cells

    @staticmethod
    def _expected_ns(plan: Plan) -> dict[str, int]:
        expected_ns: dict[str, int] = {}
        for before, cell in zip((None, *plan.cells), plan.cells, strict=False):
            reset_ns = plan.reset.each_ns if begins(plan, before, cell) else 0
            expected_ns[cell.id] = reset_ns + cell_expected_ns(cell, plan.call_target_ns, plan.cpus)
        return expected_ns

    def grown(self, plan: Plan) -> None:
        """Replaces the plan by one to which an auto ladder has added cells."""
        more = {c: ns for c, ns in self._expected_ns(plan).items() if c not in self._left_ns}
        self._plan = plan
        self._planned_ns |= more
        self._left_ns |= more
        self._to_come_ns = max(0, self._to_come_ns - sum(more.values()))

    def of(self, cell: Cell) -> OnTick:
        """Returns the function that takes a cell's ticks.

        It is called when the cell begins and its data are reset; the cell's time counts from here.
        """
        self._left_ns[cell.id] = cell_expected_ns(cell, self._plan.call_target_ns, self._plan.cpus)
        number = self._plan.cells.index(cell) + 1
        self._since_ns = self._clock.now_ns()

        def on_tick(phase: str, elapsed_s: float, progress: Progress, shares: Mapping[str, float]) -> None:
            left_s = self._left_s(cell, elapsed_s)
            self._listener.tick(Tick(cell, number, phase, elapsed_s, Progress(*progress), shares, left_s))

        return on_tick

    def _left_s(self, cell: Cell, elapsed_s: float) -> float:
        own_ns = max(0.0, self._left_ns[cell.id] - elapsed_s * NS_PER_S)
        others = [c for c in self._plan.cells if c.id != cell.id and self._left_ns[c.id]]
        others_ns = sum(self._left_ns[c.id] for c in others) + self._more() * sum(
            self._overhead_ns(c, self._left_ns[c.id]) for c in others
        )
        return (own_ns + others_ns + self._to_come_ns + deriving_ns(len(self._plan.cells))) / NS_PER_S

    def _more(self) -> float:
        """Returns the factor, less one, by which the time besides settling and measuring exceeds what was
        expected."""
        expected_ns = self._beside_expected_ns
        return max(0.0, self._beside_ns / expected_ns - 1) if expected_ns else 0.0

    @staticmethod
    def _overhead_ns(cell: Cell, ns: int) -> int:
        known_ns = 0 if cell.once else cell.settle_ns + cell.measure_ns
        return max(0, ns - known_ns)

    def done(self, cell: Cell) -> None:
        """Counts a cell as done; called when it is saved.

        Its time counts from the end of the cell before, unless the server was set up for another variant
        between them, which most cells are not.
        """
        now_ns, since_ns, expected_ns = self._clock.now_ns(), self._since_ns, self._left_ns[cell.id]
        if self._last is not None and self._last[0] == cell.variant:
            since_ns, expected_ns = self._last[1], self._planned_ns[cell.id]
        self._beside_ns += self._overhead_ns(cell, now_ns - since_ns)
        self._beside_expected_ns += self._overhead_ns(cell, expected_ns)
        self._last = cell.variant, now_ns
        self._left_ns[cell.id] = 0


@contextlib.contextmanager
def ending(record: Run) -> Iterator[None]:
    """Writes how the run ended into its run.json; deletes a run without a cell."""
    try:
        yield
    except (DbdynoError, Interrupted) as e:
        if not record.cells():
            record.discard()
            raise
        with contextlib.suppress(StoreFull):
            record.finish("cut short", getattr(e, "message", str(e)))
        if isinstance(e, StoreFull):
            raise
    except BaseException as e:
        with contextlib.suppress(StoreFull):
            record.finish("cut short", f"{type(e).__name__}: {e}")
        raise
    else:
        record.finish("complete", record.info.reason)
