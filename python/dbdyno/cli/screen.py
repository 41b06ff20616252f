"""What the commands print besides a run's own tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dbdyno import report
from dbdyno.model.plan import Plan
from dbdyno.model.results import Results, RunInfo
from dbdyno.model.units import format_ns
from dbdyno.model.workload import Workload

_LISTED_CELLS = 40


def out() -> Console:
    """Standard output: tables, results. Plain text where it is no terminal."""
    return Console(highlight=False)


def err() -> Console:
    """Standard error: progress, errors."""
    return Console(stderr=True, highlight=False)


def say(text: str) -> None:
    out().print(text, markup=False, soft_wrap=True)


def error(text: str) -> None:
    console = err()
    console.print("error: ", style="red bold", end="")
    console.print(text, markup=False, soft_wrap=True)


def runs_table(infos: Sequence[RunInfo], root: Path) -> None:
    if not infos:
        say(f"no runs in {root}; make one: dbdyno run lio")
        return
    table = _table("run", "started (UTC)", "lasted", "status")
    for i in infos:
        lasted = format_ns((i.ended - i.started).total_seconds() * 1e9) if i.ended else ""
        table.add_row(
            i.id, f"{i.started:%Y-%m-%d %H:%M:%S}", lasted, i.status + (f": {i.reason}" if i.reason else "")
        )
    out().print(table)


def workloads_table(known: Mapping[str, Workload]) -> None:
    table = _table("workload", "what a call does", "work unit", "parameters")
    for w in known.values():
        params = "\n".join(f"{n}={p.default}  {p.doc}" for n, p in w.parameters.items())
        table.add_row(w.name, w.doc, w.work_unit, params)
    out().print(table)
    say("Own SQL: dbdyno run --script FILE")


def plan_lines(plan: Plan) -> list[str]:
    """The plan in a few lines: what, how many cells, how long, and which defaults were chosen why."""
    e, rungs = plan.experiment, sorted({c.sessions for c in plan.cells})
    variants = sorted({c.variant for c in plan.cells})
    what = e.workload or f"script {e.script}"
    shown = ", ".join(map(str, rungs)) if len(rungs) <= 12 else f"{rungs[0]}, {rungs[1]} ... {rungs[-1]}"
    lines = [
        f"{what}: {len(plan.cells)} cells, sessions {shown}"
        + (f"; variants {', '.join(variants)}" if variants != ["base"] else "")
        + (f"; {e.repeats} repeats" if e.repeats > 1 else ""),
        f"settle {e.settle}, measure {e.measure} a cell; about {format_ns(plan.expected_ns)} in all",
    ]
    return lines + [f"{c.name} = {c.value}: {c.reason}" for c in plan.choices]


def plan_table(plan: Plan) -> None:
    for line in plan_lines(plan):
        say(line)
    table = _table("cell", "sessions", "variant", "repeat", "parameters")
    for c in plan.cells[:_LISTED_CELLS]:
        params = " ".join(f"{k}={v}" for k, v in c.params.items())
        table.add_row(c.id, str(c.sessions), c.variant, str(c.repeat), params)
    out().print(table)
    if len(plan.cells) > _LISTED_CELLS:
        say(f"... and {len(plan.cells) - _LISTED_CELLS} more; --json lists them all")
    say(f"digest {plan.digest}")


def finished(results: Results, run: Path, report_path: Path) -> None:
    """The summary at the end of a run, and where everything is."""
    console = out()
    console.print()
    console.print(report.summary(results))
    console.print()
    say(f"run:    {run}")
    say(f"report: {report_path}")


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table
