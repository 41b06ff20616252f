"""Commands on one stored run: show, report, export, rebuild."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dbdyno import conduct, present
from dbdyno.cli import browser, completion, screen
from dbdyno.cli.flags import Grouped, Option
from dbdyno.cli.gate_options import Judged, fail_on_option, judged_run, judged_suite
from dbdyno.cli.options import (
    NUMBER,
    checked,
    json_option,
    open_store,
    print_json,
    run_argument,
    store_option,
)
from dbdyno.cli.outputs import show_outputs
from dbdyno.cli.suite_matrix import print_matrix, suite_named
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.units import counted
from dbdyno.present.show_options import CLAIMS, SHOW_OPTIONS

if TYPE_CHECKING:
    import polars as pl

    from dbdyno.model.results.results import Results
    from dbdyno.store import Run


_F = TypeVar("_F", bound=Callable[..., Any])


_FORMATS = (
    *("csv", "xlsx", "parquet", "json", "md", "folded", "pprof", "firefox"),
    *("bmf", "github-benchmark", "junit", "openmetrics"),
)  # as in present.exports, which takes long to load
WHICH = {"Which measurement": ("sessions", "variant", "window", "measurement")}
"""Heading of the help -> parameters of :func:`measurement_options`."""


def capture_option(f: _F) -> _F:
    return click.option("--capture", type=NUMBER, metavar="N", help="What action N of a trigger captured.")(f)


def measurement_options(f: _F) -> _F:
    f = click.option("--window", type=NUMBER, metavar="N", help="Window N of an observation.")(f)
    f = click.option(
        "--variant", metavar="NAME", help="Of this variant; at its highest load without --sessions."
    )(f)
    f = click.option("--sessions", type=NUMBER, metavar="N", help="At N sessions.")(f)
    return click.option("--measurement", metavar="ID", help="One measurement, by its id.")(f)


def chosen(
    results: Results, measurement: str | None, sessions: int | None, window: int | None, variant: str | None
) -> str | None:
    """Returns the id of the cell that the options select; None if they select none.

    If several repeats or variants match, returns the first valid one. Raises :class:`UsageError` that lists
    the possible values.
    """
    if sum(choice is not None for choice in (measurement, sessions, window)) > 1:
        raise UsageError("--measurement, --sessions and --window exclude each other", "give one of them")
    if variant is not None and (measurement, window) != (None, None):
        raise UsageError("--variant chooses a measurement by its load", "give --sessions with it, or nothing")
    import polars as pl

    windows = results.tables["windows"].sort("t0_ns").sort(pl.col("status") == "invalid", maintain_order=True)
    if variant is not None:
        if variant not in set(windows["variant"]):
            names = windows["variant"].unique(maintain_order=True).to_list()
            raise UsageError(f"the run has no variant {variant!r}", did_you_mean(variant, names))
        windows = windows.filter(pl.col("variant") == variant)
        sessions = max(windows["sessions"]) if sessions is None else sessions
    if sessions is not None:
        return _first(windows, "sessions", sessions, "measurement at", "sessions")
    if window is not None:
        return _first(windows.filter(pl.col("sessions") == 0), "repeat", window, "window", "")
    if measurement is not None and measurement not in set(windows["cell"]):
        raise UsageError(
            f"the run has no measurement {measurement!r}",
            f"there are {_enumeration(windows['cell'].to_list())}",
        )
    return measurement


def _first(windows: pl.DataFrame, column: str, wanted: int, before: str, after: str) -> str:
    cells = windows.filter(windows[column] == wanted)["cell"]
    if cells.is_empty():
        existing = sorted(set(windows[column].to_list()))
        raise UsageError(
            f"the run has no {before} {wanted} {after}".rstrip(), f"there are {_enumeration(existing)}"
        )
    return str(cells[0])


def _enumeration(values: list[Any]) -> str:
    if not values:
        return "none"
    shown = ", ".join(str(v) for v in values[:12])
    return shown if len(values) <= 12 else f"{shown} ... {values[-1]}"


def part_options(f: _F) -> _F:
    """Adds the options of ``show`` that each show one part of a run."""
    for name, help in reversed([*SHOW_OPTIONS.items()]):
        f = click.option(f"--{name.replace('_', '-')}", is_flag=True, help=help)(f)
    return f


def _tables_of(option: str) -> list[str]:
    """Returns the tables that an option of ``show`` shows."""
    from dbdyno.model.schema.tables import REGISTERED

    return [table.name for table in REGISTERED.values() if option in table.options]


@click.command(
    cls=Grouped,
    groups={
        "What to show": (*SHOW_OPTIONS, "objects", "output"),
        "Which measurement": (*WHICH["Which measurement"], "job", "capture"),
    },
)
@run_argument
@part_options
@click.option("--job", metavar="NAME", help="With --executions: of this job alone.")
@capture_option
@click.option(
    "--output", is_flag=True, help="What commands printed, where that was kept (run --keep-output)."
)
@click.option("--objects", is_flag=True, help="Tables and indexes: blocks, scans and rows per call.")
@measurement_options
@fail_on_option("comparison")
@store_option
@json_option
def show(
    run: str,
    fail_on: tuple[str, ...],
    output: bool,
    objects: bool,
    capture: int | None,
    job: str | None,
    measurement: str | None,
    sessions: int | None,
    window: int | None,
    variant: str | None,
    store: Path | None,
    as_json: bool,
    **parts: bool,
) -> None:
    """Show the results of a run: throughput, session time, claims.

    RUN is an id, the beginning of one, a name, or "last"; last~1 is the run before. Options select tables,
    for the highest number of sessions, for all windows of an observation, or for one measurement. Servers
    that were observed together are shown side by side, and each by itself by the id of its run; so are the
    benchmarks of a suite.

    \b
    Examples:
      dbdyno show last
      dbdyno show last --claims
      dbdyno show nightly --events --microstates
      dbdyno show last --profile --sessions 8
      dbdyno show last --costs --variant commit-off
      dbdyno show last --objects --sessions 8
      dbdyno show last --executions --job xz
      dbdyno show last --output
      dbdyno show last --captures
      dbdyno show last --capture 2
      dbdyno show last --profile --json | jq .top_events
      dbdyno show last --claims --fail-on claim:errors
      dbdyno show 20261121-1045 --json | jq .rungs
    """
    parts["executions"] |= job is not None
    wanted = [name for name in SHOW_OPTIONS if parts[name]]
    choices = (measurement, sessions, window, capture, variant)
    plain = all(choice is None for choice in choices) and not output
    if plain and not (wanted or objects) and _show_group(store, run, fail_on, as_json=as_json):
        return
    if plain and not (wanted or as_json or objects or fail_on):
        screen.out().print(present.printed(conduct.shown(store, run, screen.note)))
        return
    record = _run_or_capture(store, run, capture)
    results = conduct.results_of(record)
    judged = judged_run(fail_on, results)
    if plain and fail_on and not (wanted or as_json or objects or judged.alone):
        screen.out().print(present.summary(results, run))
    if capture is not None and not (wanted or as_json or objects):
        wanted = _show_capture(results)
    cell = chosen(results, measurement, sessions, window, variant)
    results = _of_job(results, job)
    if output:
        show_outputs(record, cell, as_json=as_json)
        judged.end(as_json=as_json)
        return
    used = conduct.object_use(record, results, cell) if objects else None
    if cell is not None and not wanted and not objects:
        wanted = [name for name in SHOW_OPTIONS if name != CLAIMS]
    if as_json:
        more = {} if used is None else {"objects": present.object_use_record(used)}
        print_json(judged.data({**_document(results, wanted, cell), **more}))
    elif used is not None:
        screen.out().print(present.printed([*present.object_use(used), *present.left_behind(results)]))
    for name in () if as_json or judged.alone else wanted:
        screen.out().print(present.details(results, name, cell))
    judged.end(as_json=as_json)


def _show_capture(results: Results) -> list[str]:
    """Prints what a trigger captured, and returns the options whose parts belong to it."""
    screen.summary(results)
    for of_sleep in (False, True):
        if results.tables["sleep_profile" if of_sleep else "cpu_profile"].height:
            screen.out().print(present.hot(results, "function", 20, off_cpu=of_sleep)[0])
    return [n for n in ("syscalls", "memory") if any(results.tables[t].height for t in _tables_of(n))]


def _show_group(store: Path | None, wanted: str, fail_on: tuple[str, ...], *, as_json: bool) -> bool:
    """Shows a suite, or servers that were observed together. Returns whether ``wanted`` names one of them."""
    if (matrix := suite_named(store, wanted)) is not None:
        judged = judged_suite(fail_on, matrix)
        print_matrix(matrix, judged, as_json=as_json)
        judged.end(as_json=as_json)
        return True
    several = [] if fail_on else _several(store, wanted)
    if not several:
        return False
    if as_json:
        print_json(present.servers_record(several))
    else:
        screen.out().print(present.printed(present.servers_brief(several)))
    return True


def _several(store: Path | None, wanted: str) -> list[Results]:
    """Returns the results of all servers if ``wanted`` names servers that were observed together."""
    from dbdyno.store import default_root, find_group

    if not find_group(default_root() if store is None else store, wanted):
        return []
    return [results for _, results in conduct.results_of_group(open_store(store), wanted)]


def _of_job(results: Results, job: str | None) -> Results:
    """Returns the results with the executions of this job alone. Raises :class:`UsageError` that lists the
    jobs."""
    if job is None:
        return results
    import polars as pl

    from dbdyno.model.results.results import Narrowed

    jobs = results.tables["execution_rates"]["job"].drop_nulls().unique(maintain_order=True).to_list()
    if job not in jobs:
        raise UsageError(f"the run has no job {job!r}", f"its jobs: {_enumeration(jobs)}")
    names = [n for n in _tables_of("executions") if "job" in results.tables[n].columns]
    narrowed = Narrowed(results.tables, dict.fromkeys(names, pl.col("job") == job))
    return dataclasses.replace(results, tables=narrowed)


def _run_or_capture(store: Path | None, run: str, capture: int | None) -> Run:
    """Returns a run, or the capture of one of its triggers. Raises :class:`UsageError`."""
    record = open_store(store).open(run)
    return record if capture is None else conduct.capture_of(record, capture)


def _document(results: Results, wanted: Sequence[str], cell: str | None) -> dict[str, Any]:
    """Returns the whole document of a run, or selected tables, restricted to a cell if one is given."""
    shown = {t: None for name in wanted for t in (("findings",) if name == CLAIMS else _tables_of(name))}
    whole = present.document(results, shown)
    rows = {table: whole[table] for table in shown}
    if cell is not None:
        rows = {n: [r for r in records if r.get("cell", cell) == cell] for n, records in rows.items()}
    return {"run": whole["run"], **rows} if wanted else whole


@click.command(
    "report", cls=Grouped, groups={"Which measurement of a run": (*WHICH["Which measurement"], "capture")}
)
@click.argument("run", metavar="[RUN|SNAPSHOT]", default="last", shell_complete=completion.RUNS)
@click.argument("until", metavar="[SNAPSHOT]", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File: .html, .md or .xlsx; of snapshots also .json.",
)
@click.option(
    "--top",
    cls=Option,
    metavar="N",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Of snapshots: rows of a table.",
)
@browser.open_option
@fail_on_option("claims")
@capture_option
@measurement_options
@store_option
@json_option
def report_command(
    run: str, until: str | None, output: Path | None, open_page: bool, top: int, fail_on: tuple[str, ...],
    capture: int | None,
    measurement: str | None, sessions: int | None, window: int | None, variant: str | None,
    store: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Write the report of a run, or of what happened between two snapshots.

    Of a run as HTML, Markdown or a workbook. Of two snapshots as text on the terminal, or as a file: load
    of each database, Top SQL, most accessed tables, indexes, I/O, WAL, what changed. A snapshot is named by
    its id or the beginning of it, its name, "last", "last~1", or a time: the nearest one. The HTML is one
    file that loads nothing. With --sessions, --measurement or --window: between the snapshots at the start
    and end of that measurement of a run.

    \b
    Examples:
      dbdyno report last -o lio.html
      dbdyno report last --sessions 64
      dbdyno report 20261121-104501-lio-3f9a
      dbdyno report last~1 last
      dbdyno report "yesterday 14:00" "yesterday 15:00" -o afternoon.html
      dbdyno report before..after --json
      dbdyno report before..after --fail-on claim:snapshot-deadlocks
    """
    from dbdyno.cli import snapshot_report

    wanted = snapshot_report.pair([run] if until is None else [run, until])
    of_measurement = (measurement, sessions, window, variant) != (None, None, None, None)
    open_page = open_page and not as_json
    if open_page and (output is not None or wanted is not None or of_measurement):
        output = browser.page_of(output, "snapshots")
    if wanted is not None:
        judged = snapshot_report.show(store, wanted, output, top, as_json, fail_on)
    elif of_measurement:
        record = _run_or_capture(store, run, capture)
        cell = chosen(conduct.results_of(record), measurement, sessions, window, variant)
        assert cell is not None
        judged = snapshot_report.show_measurement(record, cell, output, top, as_json, fail_on)
    else:
        judged = Judged()
        if fail_on:
            judged = judged_run(fail_on, conduct.results_of(_run_or_capture(store, run, capture)))
        output = _report_of_run(store, run, capture, output, as_json)
    if open_page and output is not None:
        browser.show_page(output)
    judged.end(output, as_json=as_json)


def _report_of_run(
    store: Path | None, run: str, capture: int | None, output: Path | None, as_json: bool
) -> Path:
    """Writes the report of a run, or of servers that were observed together; prints and returns its path."""
    if as_json:
        raise UsageError("--json is for two snapshots", f"of a run: dbdyno show {run} --json")
    if output is not None:
        checked(output)
    if capture is None and (matrix := suite_named(store, run)):
        path = conduct.report_suite(open_store(store), matrix, output)
    elif capture is None and (runs := conduct.results_of_group(open_store(store), run)):
        path = conduct.report_group(runs, output)
    else:
        record = _run_or_capture(store, run, capture)
        path = output if output is not None else record.path / "report.html"
        path = present.write_report(conduct.results_of(record), path)
    click.echo(path.absolute())
    return path


@click.command()
@run_argument
@click.option(
    "--to",
    "kind",
    required=True,
    metavar="FORMAT",
    type=click.Choice(_FORMATS),
    help=f"Format: {', '.join(_FORMATS)}.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File or folder.  [default: RUN.KIND here]"
)
@click.option("--full", is_flag=True, help="With the raw tables: samples, calls, counters ...")
@click.option("--off-cpu", is_flag=True, help="folded, pprof, firefox: stacks of sleep in place of CPU time.")
@store_option
def export(run: str, kind: str, output: Path | None, full: bool, off_cpu: bool, store: Path | None) -> None:
    """Write a run's tables as CSV, Excel, Parquet, JSON, Markdown; its profile or figures for other programs.

    csv and parquet: a folder with a file for each table. xlsx: the answer, rungs and charts first, then the
    derived tables, times in ms. json: what show --json prints. md: the report as text. folded, pprof,
    firefox: stacks of the CPU profile, for flamegraph.pl, go tool pprof and profiler.firefox.com. bmf,
    github-benchmark, junit, openmetrics: figures with intervals for programs that follow them over builds
    (dbdyno help gates).

    \b
    Examples:
      dbdyno export last --to xlsx
      dbdyno export last --to csv -o tables/
      dbdyno export last --to json --full
      dbdyno export last --to md -o report.md
      dbdyno export last --to bmf -o results.json
    """
    record = open_store(store).open(run)
    results = conduct.results_of(record)
    several = kind in present.FOLDERS
    default = record.id if several else f"{record.id}.{present.ENDINGS.get(kind, kind)}"
    path = Path(default) if output is None else output
    written = present.export(results, conduct.raw_tables(record) if full else None, kind, path, off_cpu)
    click.echo(f"{path}: {counted(len(written), 'file')}" if several else path)


@click.command()
@run_argument
@store_option
@json_option
def rebuild(run: str, store: Path | None, as_json: bool) -> None:
    """Derive the results of a run again from its raw data.

    Windows, ledger, claims and report are replaced.

    \b
    Examples:
      dbdyno rebuild last
    """
    results, path = conduct.rebuild(open_store(store).open(run))
    if as_json:
        print_json(present.document(results))
    else:
        screen.out().print(present.summary(results))
        screen.report_path(path)
