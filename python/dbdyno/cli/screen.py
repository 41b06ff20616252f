"""Prints all that commands show apart from a run's own tables, and plain tables without a library."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno import conduct, present
from dbdyno.cli.config import is_quiet
from dbdyno.model.text.visible import one_line, shortened
from dbdyno.model.units import in_minutes as in_minutes

if TYPE_CHECKING:
    from rich.console import Console

    from dbdyno.model.errors import Interrupted
    from dbdyno.model.plan.plan import Plan, Workload
    from dbdyno.model.results.results import Results
    from dbdyno.store import Run


_BEGIN = "error: "
WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}
"""Options of :mod:`textwrap` for lines with paths and commands, which are to be copied."""
_ERROR, _ERROR_LINES = 2_000, 30  # characters and lines shown of a message


def out() -> Console:
    """Returns a console for results on standard output: plain text if that is not a terminal."""
    from dbdyno.cli.console import SafeConsole

    return SafeConsole(sys.stdout)


def err() -> Console:
    """Returns a console for progress and errors on standard error."""
    from dbdyno.cli.console import SafeConsole

    return SafeConsole(sys.stderr)


def say(text: str) -> None:
    out().print(text, soft_wrap=True)


def note(text: str) -> None:
    """Prints progress or a remark on standard error, unless ``--quiet``."""
    if not is_quiet():
        err().print(text, soft_wrap=True)


def error(message: str, cure: str | None = None) -> None:
    """Prints the message, shortened since part of it may come from a server, then the cure."""
    from rich.text import Text

    console = err()
    columns = console.width if console.is_terminal else None
    text = Text("\n".join(_wrapped(_BEGIN + shortened(message, _ERROR, _ERROR_LINES), "", columns)))
    text.stylize("red bold", 0, len(_BEGIN))
    console.print(text, soft_wrap=True)
    for line in () if cure is None else _wrapped(cure, "  ", columns):
        console.print(line, soft_wrap=True)


def _wrapped(text: str, indent: str, columns: int | None) -> Iterator[str]:
    """Yields lines of at most ``columns``, except for words that are longer; for None, the lines as they
    are. A line's own indentation stays."""
    for line in text.split("\n"):
        if columns is None or len(indent + line) <= columns:
            yield indent + line
            continue
        begin = indent + line[: len(line) - len(line.lstrip())]
        yield from textwrap.wrap(
            line.lstrip(),
            columns,
            initial_indent=begin,
            subsequent_indent=begin or "  ",
            **WHOLE_WORDS,
        )


def report_stop(end: Interrupted, before: str) -> None:
    """Prints that the user stopped the run. ``before``: the step that was not complete, if no run is kept."""
    if end.kept is None:
        error(f"stopped before {before}; nothing was kept")
    else:
        error("stopped while results were derived; all measurements are kept", f"dbdyno show {end.kept}")


def workloads_table(workloads: Mapping[str, Workload]) -> None:
    columns = width() or _COLUMNS
    for w in workloads.values():
        say(f"{w.name}: work is counted in {w.work_unit}")
        say(_paragraph(w.doc, columns, 2))
        for name, p in w.parameters.items():
            say(_paragraph(f"{name}={p.default}  {p.doc}", columns, 4))
        say("")
    say("Your own SQL, in pgbench's language: dbdyno run -f FILE; pgbench's own scripts: dbdyno run -b list")


def plan_lines(plan: Plan, *, every_choice: bool = False) -> list[str]:
    """Returns the lines of a plan; see :func:`dbdyno.present.plan_lines`."""
    from dbdyno.conclude.catalogue import worded

    return present.plan_lines(worded(plan), every_choice=every_choice)


def plan_table(plan: Plan) -> None:
    for line in plan_lines(plan, every_choice=True):
        say(line)
    table, left_out = present.plan_loads(plan)
    heads = [c.head for c in table.columns]
    rows = [[cell.text for cell in row.cells] for row in table.rows]
    for line in aligned(heads, rows, [c.number for c in table.columns], width()):
        say(line)
    for line in present.plan_closing_lines(plan, left_out):
        say(line)


def summary(results: Results) -> None:
    """Prints the summary of a run that has just ended."""
    out().print(present.summary(results, "last"))


def places(record: Run, results: Results, output: Path | None, *, quiet: bool) -> Path:
    """Prints the path of the page after writing it, which takes a while for a long run, and returns it.

    ``output``: also writes a report to this path, and prints that path instead.
    """
    page = path = conduct.reported(record, results)
    if output is not None:
        path = present.write_report(results, output)
    if not quiet:
        report_path(path)
    return path if path.suffix == page.suffix else page


def report_path(path: Path) -> None:
    """Prints the absolute path of a report, which can be clicked, or pasted in any directory."""
    say(f"report: {path.absolute()}")


def _paragraph(text: str, columns: int, indent: int) -> str:
    before = " " * indent
    return textwrap.fill(
        text, columns, initial_indent=before, subsequent_indent=f"{before}  ", break_on_hyphens=False
    )


_COLUMNS = 80  # where the output is not a terminal
_BETWEEN = "  "
_LEAST_WRAPPED = 12


def width() -> int | None:
    """Returns the columns of the terminal; None if standard output is not a terminal, and nothing is
    wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def aligned(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], columns: int | None = None
) -> list[str]:
    """Returns a line for the heads and one for each row; with ``columns``, the last cell is wrapped to
    fit."""
    table = [[one_line(cell) for cell in row] for row in (heads, *rows)]
    wide = [max(len(row[i]) for row in table) for i in range(len(heads))]
    room = None if columns is None else columns - sum(w + len(_BETWEEN) for w in wide[:-1])
    wraps = room is not None and _LEAST_WRAPPED <= room < wide[-1]
    lines = []
    for row in table:
        *cells, last = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, wide, right, strict=True))
        before = _BETWEEN.join([*cells, ""])
        parts = textwrap.wrap(last.strip(), room or 1) if wraps else [last]
        lines += [(before if n == 0 else " " * len(before)) + part for n, part in enumerate(parts or [""])]
    return [line.rstrip() for line in lines]


def records(heads: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> Iterator[str]:
    """Yields a block of lines for each row, with a name and its value on each line."""
    names = [one_line(head) for head in heads]
    wide = max(map(len, names), default=0)
    for number, row in enumerate(rows, start=1):
        yield f"-- {number} of {len(rows)}"
        for name, cell in zip(names, row, strict=True):
            room = max(_LEAST_WRAPPED, columns - wide - len(_BETWEEN))
            first, *more = textwrap.wrap(one_line(cell), room) or [""]
            yield f"{name:{wide}}{_BETWEEN}{first}".rstrip()
            yield from (" " * wide + _BETWEEN + part for part in more)
