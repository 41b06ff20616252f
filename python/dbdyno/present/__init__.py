"""Room ``present``: turns results into documents, and these into a terminal's text, HTML, Markdown,
exports, JSON.

It is pure except for the files it writes: no store, no engine, no driver. Modules that are slow to load
are loaded on the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from rich.text import Text

    from dbdyno.model.results.comparison import CostChange
    from dbdyno.model.results.memory_now import MemoryNow
    from dbdyno.model.results.results import Results
    from dbdyno.present.compare.compare import document as comparison
    from dbdyno.present.compare.compare import samples
    from dbdyno.present.compare.several import document as comparisons
    from dbdyno.present.compare.suite import brief as suite_brief
    from dbdyno.present.compare.suite import document as suite
    from dbdyno.present.compare.suite import record as suite_record
    from dbdyno.present.compare.trend import document as trend
    from dbdyno.present.compare.trend import record as trend_record
    from dbdyno.present.document.document import Row
    from dbdyno.present.document.files import write_atomic
    from dbdyno.present.exports import ENDINGS, FOLDERS, csv, export, write
    from dbdyno.present.figures.figures import throughput_work
    from dbdyno.present.figures.gate import gated
    from dbdyno.present.figures.gate import record as gate_record
    from dbdyno.present.figures.gate import summary as gate_summary
    from dbdyno.present.figures.jsondoc import comparison as comparison_document
    from dbdyno.present.figures.jsondoc import document
    from dbdyno.present.figures.jsondoc import machines as machines_document
    from dbdyno.present.figures.jsondoc import scaling as scaling_json
    from dbdyno.present.figures.selection import Pick, pick_at
    from dbdyno.present.junit import of_gate as gate_junit
    from dbdyno.present.machine.topology import facts as topology_facts
    from dbdyno.present.machine.topology import parsable as topology_parsable
    from dbdyno.present.machine.topology import table as topology_table
    from dbdyno.present.machine.topology_picture import ascii_only
    from dbdyno.present.machine.topology_picture import picture as topology_picture
    from dbdyno.present.machine.topology_picture import write as write_topology_svg
    from dbdyno.present.media.stored import dumped
    from dbdyno.present.media.stored import loaded as stored
    from dbdyno.present.media.text import Printed as printed
    from dbdyno.present.media.text import Running
    from dbdyno.present.memory.memory_screen import record as memory_record
    from dbdyno.present.observation.servers import place_in_words as server_place
    from dbdyno.present.observation.servers import record as servers_record
    from dbdyno.present.observation.servers_document import brief as servers_brief
    from dbdyno.present.observation.servers_document import document as servers
    from dbdyno.present.observation.span_comparison import sections as span_comparison
    from dbdyno.present.observation.span_document import LATE as LATE_OF_SPAN
    from dbdyno.present.observation.span_document import clock as span_clock
    from dbdyno.present.observation.span_document import extent as span_extent
    from dbdyno.present.observation.span_document import late as late_of_span
    from dbdyno.present.observation.span_document import sections as span_sections
    from dbdyno.present.observation.span_document import times as span_times
    from dbdyno.present.observation.span_document import title as span_title
    from dbdyno.present.observation.time_chart import data as time_chart
    from dbdyno.present.report import brief
    from dbdyno.present.report import document as run_document
    from dbdyno.present.run.growth import blocks as left_behind
    from dbdyno.present.run.in_progress import load_of_cell, waiting_calls
    from dbdyno.present.run.plan import closing_lines as plan_closing_lines
    from dbdyno.present.run.plan import document as plan_document
    from dbdyno.present.run.plan import lines as plan_lines
    from dbdyno.present.run.plan import load_words
    from dbdyno.present.run.plan import loads as plan_loads
    from dbdyno.present.scaling.scaling_document import claims
    from dbdyno.present.scaling.scaling_document import document as scaling
    from dbdyno.present.snapshots.interval_comparison import document as intervals
    from dbdyno.present.snapshots.interval_comparison import record as intervals_record
    from dbdyno.present.snapshots.load_chart import over_time as load_over_time
    from dbdyno.present.snapshots.snapshots import document as interval
    from dbdyno.present.snapshots.snapshots import record as interval_record
    from dbdyno.present.snapshots.time_model import object_use
    from dbdyno.present.snapshots.time_model import record as object_use_record

    Side = tuple[Results, Pick]


def write_report(results: Results, path: Path) -> Path:
    """Writes the run's document to a file; see :func:`write`."""
    from dbdyno.present import exports, report

    return exports.write(report.document(results), path)


def summary(results: Results, run: str = "") -> printed:
    """Returns the output at the end of ``dbdyno run`` and ``dbdyno show``, as wide as the console.

    ``run`` is the name by which commands refer to the run.
    """
    from dbdyno.present import report
    from dbdyno.present.media.text import Printed

    return Printed(report.brief(results, run))


def details(results: Results, name: str, cell: str | None = None) -> printed:
    """Returns an option's part of the output of ``dbdyno show``: ``profile``, ``events``, ``claims`` and
    others.

    Without ``cell`` it is about the top load, or all windows of an observation. Raises UsageError if the
    run has no such cell.
    """
    from dbdyno.present import report
    from dbdyno.present.media.text import Printed

    return Printed(report.details(results, name, cell))


def memory_now(read: MemoryNow, *, every: bool = False) -> printed:
    """Returns where the memory of a running server is; ``every`` lists all relations."""
    from dbdyno.present.media.text import Printed
    from dbdyno.present.memory import memory_screen

    return Printed(memory_screen.now(read, None) if every else memory_screen.now(read))


def memory_lines(read: MemoryNow, width: int) -> list[Text]:
    """Returns the same as lines of that width."""
    from dbdyno.present.media import text
    from dbdyno.present.memory import memory_screen

    return [line.printed() for line in text.lines(memory_screen.now(read), width)]


def hot(
    results: Results, by: str, most: int, cell: str | None = None, off_cpu: bool = False
) -> tuple[printed, list[dict[str, Any]]]:
    """Returns the CPU profile of a measurement by one of ``cpu_profile.KINDS``, as text and as rows.

    ``off_cpu`` selects sleep instead of CPU time. Without ``cell`` it is the top load, or all windows of
    an observation.
    """
    from dbdyno.present.media.text import Printed
    from dbdyno.present.run import cpu_profile

    profile = cpu_profile.SLEEP if off_cpu else cpu_profile.CPU
    pick = cpu_profile.pick_of(results, cell, profile)
    return Printed(cpu_profile.hot(results, pick, by, most, profile)), cpu_profile.hot_rows(
        results, pick, by, profile
    )


def hot_change(change: CostChange, most: int) -> printed:
    """Returns as text why a unit of work takes more CPU."""
    from dbdyno.present.document.document import Document
    from dbdyno.present.media.text import Printed
    from dbdyno.present.run import cpu_profile

    return Printed(Document("", cpu_profile.cost_tables(change, most)))


def write_flame(
    results: Results,
    path: Path,
    cell: str | None = None,
    only: Mapping[str, str] | None = None,
    off_cpu: bool = False,
) -> Path:
    """Writes the flame graph as a page, or as SVG if ``path`` ends in .svg; see :func:`hot`.

    ``only`` restricts the samples to a wait event and a statement.
    """
    from dbdyno.present import exports
    from dbdyno.present.charts import flame
    from dbdyno.present.document import files
    from dbdyno.present.run import cpu_profile

    profile = cpu_profile.SLEEP if off_cpu else cpu_profile.CPU
    pick = cpu_profile.pick_of(results, cell, profile)
    if path.suffix == ".svg":
        return files.write_atomic(path, flame.svg(cpu_profile.picture(results, pick, only, profile)).encode())
    return exports.write(cpu_profile.page(results, pick, only, profile), path)


def write_flame_change(
    sides: tuple[Side, Side], change: CostChange, path: Path, only: Mapping[str, str] | None = None
) -> Path:
    """Writes the differential flame graph of the second side against the first; see :func:`write_flame`."""
    from dbdyno.present import exports
    from dbdyno.present.charts import flame
    from dbdyno.present.document import files
    from dbdyno.present.document.document import Flame
    from dbdyno.present.run import cpu_profile

    (a, first), (b, second) = sides
    shown = cpu_profile.difference(b, second, a, first, change, only)
    if path.suffix == ".svg":
        return files.write_atomic(
            path, flame.svg(next(p for p in shown.blocks if isinstance(p, Flame))).encode()
        )
    return exports.write(shown, path)


def running_rungs(
    work: str, width: int, paced: bool = False, results: Results | None = None
) -> tuple[Running, Callable[[Mapping[str, Any]], Row]]:
    """Returns the table of rungs for lines that are printed one by one, and the function from a rung to
    its row.

    ``results`` is the run whose kind has its own nouns for calls and sessions.
    """
    from dbdyno.present.media.text import Running
    from dbdyno.present.run import rungs

    columns, row = rungs.running(work, paced, results)
    return Running(columns, width), row


def marks_of_rungs(results: Results) -> list[str]:
    """Returns the meaning of the marks on the rungs of a run."""
    from dbdyno.model.plan.kinds import kind_of, speaking_of
    from dbdyno.present.run import rungs

    with speaking_of(kind_of(results.plan)):
        return rungs.marks(results)


lazy(__name__)
