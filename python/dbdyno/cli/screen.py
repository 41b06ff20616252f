"""Prints all that commands show apart from a run's own tables, and plain tables without a library."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno import conduct, present
from dbdyno.cli.config import is_quiet
from dbdyno.model.plan.kinds import kind_of
from dbdyno.model.plan.literals import ALL_CPUS, INTERLEAVED
from dbdyno.model.text.visible import one_line, shortened
from dbdyno.model.units import counted, format_given, format_ns, shown_duration
from dbdyno.model.units import in_minutes as in_minutes

if TYPE_CHECKING:
    from rich.console import Console

    from dbdyno.model.errors import Interrupted
    from dbdyno.model.plan.plan import Adaptive, Choice, Plan, Workload
    from dbdyno.model.results.results import Results
    from dbdyno.store import Run


_LISTED_LOADS = 40
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
    """Returns the plan in a few lines: load, number of measurements, duration, CPUs, variants, and what was
    chosen for the user. ``every_choice``: with all defaults and their reasons."""
    from dbdyno.conclude.catalogue import worded

    e, rungs = plan.experiment, sorted({c.sessions for c in plan.cells})
    what = load_words(plan)
    shown = ", ".join(map(str, rungs)) if len(rungs) <= 12 else f"{rungs[0]}, {rungs[1]} ... {rungs[-1]}"
    repeats = max((c.repeat for c in plan.cells), default=1)
    again = f"; {repeats} repeats" if repeats > 1 else ""
    paced = sorted({c.rate_per_s for c in plan.cells if c.rate_per_s is not None})
    rates = f"rate{'s' if len(paced) > 1 else ''} {', '.join(map(format_given, paced))}/s, " if paced else ""
    loads = f"{kind_of(plan).noun('at_once')} {shown}{again}"
    cells, about = f"{counted(len(plan.cells), 'measurement')}, {rates}{loads}", "about"
    if plan.adaptive is not None:
        cells, about = _auto_words(plan, plan.adaptive), "at most"
    each = f"measurement {shown_duration(e.measure)} each"
    total = f"{about} {in_minutes(plan.expected_ns)} in total"
    warm_up = f"warm-up {shown_duration(e.settle)}"
    if plan.jobs and e.settle == "0s":
        warm_up = f"warm-up {counted(e.warmup, 'execution')} of each job" if e.warmup else "no warm-up"
    if any(c.once for c in plan.cells):
        each = f"each measurement {_executions(plan)}"
        total = f"dbdyno itself {about} {in_minutes(plan.expected_ns)}"
    if e.phases:
        cells = f"one measurement in {counted(len(e.phases), 'phase')}, {loads}"
        each = f"phases {format_ns(sum(c.measure_ns for c in plan.cells if c.repeat == 1))}"
    cpus = "" if every_choice else f"; {format_given(plan.cpus)} CPU{'' if plan.cpus == 1 else 's'}"
    lines = [
        f"{what}: {cells}",
        f"{warm_up}, {each}; {total}{cpus}",
    ]
    choices = worded(plan).choices
    if every_choice:
        chosen = [f"{c.name} = {c.value}: {c.reason}" for c in choices]
    else:
        chosen = [line for c in choices if (line := _choice_line(c))]
    return [*lines, *_variant_lines(plan), *chosen]


def _choice_line(choice: Choice) -> str:
    """Returns what the user needs to know of a choice before the run; empty for one that is nothing special:
    the other lines of the plan have it, or it is what everybody expects."""
    if choice.says or choice.name == "sessions" or choice.reason in (ALL_CPUS, INTERLEAVED):
        return ""
    if choice.name == "call target":
        return f"A call is sized to {choice.value}, {choice.reason} (--call-target)."
    return f"{choice.name} {choice.value}: {choice.reason}"


def load_words(plan: Plan) -> str:
    """Returns ``lio``, ``script q.sql`` or ``command gzip``."""
    return plan.experiment.workload or (_commands(plan) if plan.jobs else _scripts(plan))


def _commands(plan: Plan) -> str:
    """Returns ``command gzip`` or ``jobs httpd, mysql``."""
    names = [j.name for j in plan.jobs]
    side_by_side = any(len(v.jobs) > 1 for v in plan.variants)
    kind = "job" if side_by_side else "command"
    return f"{kind}{'' if len(names) == 1 else 's'} {', '.join(names)}"


def _executions(plan: Plan) -> str:
    """Returns ``one execution`` or ``10 executions of each of 5 jobs``."""
    runs, jobs = plan.cells[0].runs, max(len(v.jobs) for v in plan.variants)
    return counted(runs, "execution") + (f" of each of {jobs} jobs" if jobs > 1 else "")


def _scripts(plan: Plan) -> str:
    """Returns ``scripts a.sql (weight 2), b.sql``: weights only if there are several scripts."""
    mix = plan.scripts
    names = [s.name if len(mix) == 1 or s.weight == 1 else f"{s.name} (weight {s.weight})" for s in mix]
    return f"script{'' if len(mix) == 1 else 's'} {', '.join(names)}"


def _auto_words(plan: Plan, rule: Adaptive) -> str:
    """Describes an adaptive ladder, whose measurements are not known in advance."""
    around = "the knee" if rule.goal is None else rule.goal.text
    again = "" if rule.repeats == 1 else f"; {rule.repeats} repeats"
    again += " of the load levels beside it" if again and rule.goal is not None else ""
    several = f", each under {len(plan.variants)} variants" if len(plan.variants) > 1 else ""
    unit = "/s" if rule.by == "rate" else " sessions"
    most = f"at most {rule.most_rungs} load levels up to {rule.top}{unit}"
    return f"{'search of rates' if unit == '/s' else 'auto ladder'} around {around}, {most}{several}{again}"


def _variant_lines(plan: Plan) -> list[str]:
    """Returns a line for each variant with what it changes."""
    if len(plan.variants) < 2 and not any(v.words() for v in plan.variants):
        return []
    wide = max(len(v.name) for v in plan.variants)
    if plan.experiment.phases:
        return [f"phase {v.name:{wide}}  {v.doc}" for v in plan.variants]
    named = plan.experiment.params.keys() | {n for s in plan.experiment.variants.values() for n in s.params}
    lines = []
    for v in plan.variants:
        params = ", ".join(f"{n}={v.params[n]}" for n in sorted(named) if n in v.params)
        if v.jobs and not params:
            params = "; ".join(j.shown for j in v.jobs)
        changes = ", ".join(filter(None, (v.words(), params))) or "nothing changed"
        lines.append(f"variant {v.name:{wide}}  {changes}" + (f"  ({v.doc})" if v.doc else ""))
    return lines


def plan_table(plan: Plan) -> None:
    for line in plan_lines(plan, every_choice=True):
        say(line)
    rates = ["" if c.rate_per_s is None else f"{format_given(c.rate_per_s)}/s" for c in plan.cells]
    repeats = Counter(
        (c.variant, str(c.sessions), rate, " ".join(f"{k}={v}" for k, v in c.params.items()))
        for c, rate in zip(plan.cells, rates, strict=True)
    )
    rows = [
        (variant, sessions, rate, str(count), params)
        for (variant, sessions, rate, params), count in list(repeats.items())[:_LISTED_LOADS]
    ]
    heads = ("variant", "sessions", "rate", "measurements", "parameters")
    shown = [n for n, head in enumerate(heads) if head != "rate" or any(rates)]
    picked = [[row[n] for n in shown] for row in (heads, *rows)]
    for line in aligned(picked[0], picked[1:], [0 < n < len(heads) - 1 for n in shown], width()):
        say(line)
    if len(repeats) > _LISTED_LOADS:
        say(f"... and {len(repeats) - _LISTED_LOADS} more; --json lists all measurements")
    if plan.adaptive is not None:
        say("further measurements depend on these results")
    say(f"digest of the plan: {plan.digest[:12]}; runs of the same plan have the same")


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
