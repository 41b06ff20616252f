"""Progress of a run: a line for each finished rung, and below them one that shows the measurement in
progress and the time left.

On a terminal all of it is replaced by the results at the end; in a log it stays.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from dbdyno import present
from dbdyno.cli import screen
from dbdyno.cli.config import is_quiet, is_verbose
from dbdyno.cli.console import live
from dbdyno.conduct import NullProgressListener
from dbdyno.conduct.measure.progress import Tick, pace
from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import Calibration, Plan
from dbdyno.model.results.results import Results
from dbdyno.model.text.visible import visible
from dbdyno.model.units import format_ns, format_rate

if TYPE_CHECKING:
    from dbdyno.present.document.document import Row
    from dbdyno.present.media.text import Running

_BAR = 20
_SHARES = 3


class LiveProgress(NullProgressListener):
    """Redraws on a terminal. Elsewhere (pipe, log) prints the same lines without the one in progress."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan, self._console = plan, console
        self._live = (
            live(console, refresh_per_second=4, transient=True)
            if console.is_terminal and not (console.is_dumb_terminal or console.quiet)
            else None
        )
        self._lines: list[Text] = []  # above the line in progress
        self._table: tuple[Running, Callable[[Mapping[str, Any]], Row]] | None = None
        self._first: dict[str, Mapping[str, Any]] = {}  # by variant
        self._marks: set[str] = set()  # whose meaning has been printed
        self._last: Tick | None = None
        self._last_step = ""
        self._begun_s = time.monotonic()

    def __enter__(self) -> LiveProgress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, _t: type[BaseException] | None, _v: BaseException | None, _tb: TracebackType | None
    ) -> None:
        if self._live:
            self._live.update(Text(""))
            self._live.stop()

    def on_signal(self, count: int) -> None:
        """Reports the first signal."""
        if count == 1 and self._last is None:
            self._print("stopping before the first measurement; Ctrl-C again ends at once", "yellow")
        elif count == 1:
            self._print(
                "stopping: calls in flight end, what was measured is kept; Ctrl-C again ends at once",
                "yellow",
            )

    def planned(self, plan: Plan, run_id: str) -> None:
        self._print(f"run {run_id}", "bold")
        for line in screen.plan_lines(plan, every_choice=is_verbose()):
            self._print(line)

    def preparing(self, what: str) -> None:
        self._step(what)
        self._status(Text(f"{what} ...", style="dim"))

    def opened(self, environment: Environment) -> None:
        server = environment.server
        if (not self._plan.jobs or is_verbose()) and not self._plan.servers:
            place = "embedded" if server.embedded and not is_verbose() else f"at {server.where}"
            self._print(f"{server.name}, {place}")
        if server.doubt:
            self._print(server.doubt, "yellow")
        for name, words in server.clock.items():
            self._print(f"{name}: {words}")
        if server.reached is not None:
            self._print(f"server's host: {server.reached.words}")
        if not server.here:
            self._print(f"server not on this host: {server.here_detail}", "yellow")

    def calibrated(self, variant: str, calibration: Calibration, unit: str) -> None:
        """Prints the work and the duration of a call."""
        c = calibration
        work = f"{c.size:,} {c.size_unit}" if c.work_per_call is None else f"{c.work_per_call:,.0f} {unit}"
        time = "of CPU time" if c.basis == "cpu" else "of elapsed time"
        label = "" if variant == "base" else f"{variant}: "
        earlier = "" if c.steps else ", as in earlier runs,"
        self._print(f"{label}A call of {work}{earlier} takes {format_ns(c.measured_ns)} {time}")

    def noted(self, words: str) -> None:
        """Prints a remark above the lines; it stays."""
        self._console.print(words)

    def tick(self, tick: Tick) -> None:
        if self._live:
            self._status(_status_line(self._plan, tick, self._last, self._console.width - 1))
        self._step(f"measurement {tick.cell.id}: {tick.phase}")
        last = self._last
        if last is None or last.cell.id != tick.cell.id or tick.elapsed_s - last.elapsed_s >= 1:
            self._last = tick

    def measured(self, results: Results) -> None:
        row = self._with_scaling(results.tables["rungs"].to_dicts()[0])
        if self._table is None:
            work = present.throughput_work(results, row["workload"])
            room = min(self._console.width, 120) - len(self._variant("variant"))
            self._table = present.running_rungs(work, room, row["rate_per_s"] is not None, results)
            self._add(self._variant("variant") + self._table[0].head().printed())
        table, line = self._table
        self._add(self._variant(row["variant"]) + table.row(line(row)).printed())
        for mark in present.marks_of_rungs(results):
            if mark not in self._marks:
                self._print(mark, "dim")
                self._marks.add(mark)

    def _variant(self, name: str) -> Text:
        """Returns a cell of the column of variants; empty if there is one variant."""
        wide = max((len(v.name) for v in self._plan.variants), default=0)
        several = len(self._plan.variants) > 1
        name = "phase" if name == "variant" and self._plan.experiment.phases else name
        return Text(f"{name:{max(wide, len('variant'))}}  " if several else "", no_wrap=True)

    def _with_scaling(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Adds the scaling against the first rung measured of the same variant."""
        first = self._first.setdefault(row["variant"], row)
        base, rate = first["calls_per_s"], row["calls_per_s"]
        scaling = None if not base or rate is None else rate / row["sessions"] / (base / first["sessions"])
        return {**row, "scaling": scaling}

    def _print(self, text: str, style: str = "") -> None:
        width = self._console.width if self._live else sys.maxsize
        for line in textwrap.wrap(visible(text), width, break_on_hyphens=False):
            self._add(Text(line, style, no_wrap=True))

    def _add(self, line: Text) -> None:
        """Adds a line below the others: redrawn together with them on a terminal, else printed."""
        self._lines.append(line)
        if self._live is None:
            self._console.print(line, soft_wrap=True)

    def _step(self, what: str) -> None:
        """With ``--verbose``, prints a new step and the time since the start."""
        if is_verbose() and what != self._last_step:
            self._last_step = what
            self._print(f"{time.monotonic() - self._begun_s:6.1f} s  {what}", "dim")

    def _status(self, text: Text) -> None:
        """Redraws ``text`` below the last lines that fit on the screen."""
        if self._live:
            room = max(1, self._console.height - 2)
            self._live.update(Text("\n", no_wrap=True, overflow="crop").join([*self._lines[-room:], text]))


def _status_line(plan: Plan, tick: Tick, before: Tick | None, width: int) -> Text:
    """Returns ``[3/4] 8 sessions measuring ####.... 12.3 calls/s CPU WAIT 93 % 80 s left``.

    If the line is too long, the shares of time are left out first, then the bar; number and time left are
    kept longest.
    """
    cell = tick.cell
    filled = round(_BAR * min(1.0, tick.elapsed_s / ((cell.settle_ns + cell.measure_ns) / 1e9)))
    of, most = (f"/{len(plan.cells)}", "") if plan.adaptive is None else ("", "at most ")
    shares = sorted(tick.shares.items(), key=lambda s: -s[1])[:_SHARES]
    parts = [  # rank (the highest is left out first), text, style
        (0, f"[{tick.number}{of}]", "cyan"),
        (3, cell.variant if len(plan.variants) > 1 else "", "cyan"),
        (1, present.load_of_cell(cell), "cyan"),
        (2, tick.phase, ""),
        (5, "#" * filled + "." * (_BAR - filled), "green"),
        (4, _rates(tick, before), ""),
        (6, "  ".join(f"{name} {share:.0%}" for name, share in shares), "dim"),
        (0, f"{most}{screen.in_minutes(tick.left_s * 1e9)} left", ""),
    ]
    for last in range(6, -1, -1):
        line = Text("  ").join(Text(words, style) for rank, words, style in parts if words and rank <= last)
        if line.cell_len <= width:
            break
    return line


def _rates(tick: Tick, before: Tick | None) -> str:
    """Returns rate and mean response time since ``before``, a tick that is replaced once a second."""
    since = pace(tick, before)
    if since is None:
        return ""
    rate = f"{format_rate(since.calls_per_s)} calls/s"
    if tick.cell.rate_per_s is not None:
        words = present.waiting_calls(tick.phase, tick.progress.waiting, tick.progress.oldest_ns)
        return f"{rate}, {words}" if words else rate
    mean_ns = since.response_mean_ns
    return rate + ("" if mean_ns is None else f", {format_ns(mean_ns)} each")


def progress(plan: Plan, *, as_json: bool) -> LiveProgress:
    """Returns a progress display on standard error; silent with ``--quiet``, and with ``--json`` unless that
    is a terminal."""
    console = screen.err()
    console.quiet = is_quiet() or not (console.is_terminal or is_verbose() or not as_json)
    return LiveProgress(plan, console)
