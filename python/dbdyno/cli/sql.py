"""``dbdyno sql``: a query over the tables of all runs."""

from __future__ import annotations

import csv
import json
import math
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbdyno.cli.options import json_option, print_json, store_option
from dbdyno.cli.screen import aligned, records, width
from dbdyno.model.errors import NoSuchRun, UsageError, did_you_mean
from dbdyno.model.text.spreadsheet import FORMULA_STARTS

if TYPE_CHECKING:
    from dbdyno.store.listing import Listed
    from dbdyno.store.sql import Answer

_MOST_ROWS = 1_000  # printed as a table; --csv and --json have no limit


@click.command()
@click.argument("query", nargs=-1)
@click.option("--run", "wanted", multiple=True, metavar="RUN", help="Only this run; may be repeated.")
@click.option("--tables", is_flag=True, help="List tables with columns, types and units, or those named.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table.")
@store_option
@json_option
def sql(
    query: tuple[str, ...],
    wanted: tuple[str, ...],
    tables: bool,
    as_csv: bool,
    store: Path | None,
    as_json: bool,
) -> None:
    """Query the tables of all stored runs with SQL.

    QUERY is a SELECT in DuckDB's dialect, the name of a file that holds one, or "-" for standard input. Each
    table begins with the columns run_id, started and title; those of snapshots with snapshot_id and taken.
    SQL only reads, and only the tables of the store.

    \b
    Examples:
      dbdyno sql "select run_id, sessions, calls_per_s from rungs order by 1, 2"
      dbdyno sql "select account, aas from ledger where scope = 'rung'" --run last
      dbdyno sql "select run_id, claim from claims where severity = 'warning'"
      dbdyno sql "select taken, relation, rows_inserted from snapshot_relations"
      dbdyno sql --csv "from events where sleep > 0.1" > io.csv
      dbdyno sql --json - < slowest.sql
      dbdyno sql --tables rungs
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json were both given", "give one of them")
    if tables:
        _list_tables(query, as_json)
        return
    from dbdyno.store.sql import check_installed
    from dbdyno.store.sql import query as ask

    text = _text(query)
    check_installed()
    runs, warnings, roots = _runs(store, wanted)
    answer = ask(text, runs, warnings, roots)
    for warning in answer.warnings:
        click.echo(f"warning: {warning}", err=True)
    (_print_csv if as_csv else _print_json if as_json else _print_table)(answer)


def _text(arguments: tuple[str, ...]) -> str:
    """Returns the query, given as an argument, as a file, or on standard input."""
    from dbdyno.store.files import MOST_TEXT_BYTES, decoded, read_limited

    if len(arguments) != 1:
        cure = 'put the query in quotes: dbdyno sql "select run_id, status from runs"'
        raise UsageError("no query was given" if not arguments else "the query is more than one word", cure)
    word = arguments[0]
    if word != "-" and len(word.split()) != 1:
        return word
    try:
        content = (
            sys.stdin.buffer.read(MOST_TEXT_BYTES + 1) if word == "-" else read_limited(Path(word.strip()))
        )
        return decoded(content, "standard input" if word == "-" else word.strip())
    except UsageError as e:
        raise UsageError(f"cannot read the query from {e.message}", e.cure) from e
    except OSError as e:
        raise UsageError(
            f"cannot read the query from {word}: {e.strerror}", 'a file, "-", or SQL in quotes: "from runs"'
        ) from e


def _runs(store: Path | None, wanted: tuple[str, ...]) -> tuple[list[Listed], list[str], list[Path]]:
    """Returns the readable runs (or those of ``wanted``), a warning for each broken one, and the directories
    with snapshots.

    Snapshots that belong to no run are left out if runs are wanted.
    """
    from dbdyno.store.listing import default_root, list_run, list_runs
    from dbdyno.store.overview import find_run

    root = default_root() if store is None else store
    listed = [list_run(find_run(root, w)) for w in wanted] if wanted else list_runs(root)
    if not listed and not (root / "snapshots").is_dir():
        raise NoSuchRun(f"no runs in {root}", "make one: dbdyno run lio")
    distinct = {run.id: run for run in listed}.values()
    broken = [f"run {run.id} is left out: {run.reason}" for run in distinct if run.status == "broken"]
    roots = [*([] if wanted else [root]), *(run.path for run in distinct)]
    return [run for run in distinct if run.status != "broken"], broken, roots


def _list_tables(names: tuple[str, ...], as_json: bool) -> None:
    from dbdyno.store.view_files import views

    all_views = views()
    for name in names:
        if name not in all_views:
            raise UsageError(f"no table {name!r}", did_you_mean(name, all_views))
    chosen = {name: view for name, view in all_views.items() if not names or name in names}
    if as_json:
        print_json({name: [c._asdict() for c in view.columns] for name, view in chosen.items()})
        return
    for name, view in chosen.items():
        click.echo(f"{name}: {view.holds}")
        rows = [(f"  {c.name}", c.type, c.unit, c.doc) for c in view.columns]
        for line in aligned(("  column", "type", "unit", "meaning"), rows, [False] * 4, width()):
            click.echo(line)
        click.echo()


def _print_table(answer: Answer) -> None:
    """Prints an aligned table, or one block per record if the terminal is too narrow."""
    first_rows = list(islice(answer.rows, _MOST_ROWS + 1))
    rows = [[_cell_text(value) for value in row] for row in first_rows[:_MOST_ROWS]]
    columns = width()
    lines = aligned(answer.names, rows, answer.is_number)
    if columns is not None and max(map(len, lines)) > columns:
        lines = list(records(answer.names, rows, columns))
    for line in lines:
        click.echo(line)
    if len(first_rows) > _MOST_ROWS:
        click.echo(f"... the first {_MOST_ROWS:,} rows; --csv and --json print all")
    elif not rows:
        click.echo("no rows")


def _print_csv(answer: Answer) -> None:
    """Prints NULL as nothing, and an apostrophe before a text that a spreadsheet would take for a formula."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.names)
    writer.writerows([csv_cell(value) for value in row] for row in answer.rows)


def _print_json(answer: Answer) -> None:
    """Prints a list with an object for each row, as the rows arrive."""
    click.echo("[", nl=False)
    for number, row in enumerate(answer.rows):
        pairs = zip(answer.names, map(_plain, row), strict=True)
        click.echo((",\n " if number else "\n ") + json.dumps(dict(pairs), allow_nan=False), nl=False)
    click.echo("\n]")


def _cell_text(value: Any) -> str:
    """Returns a cell of the table; numbers with six digits."""
    plain = _plain(value)
    if plain is None:
        return "NULL"
    if isinstance(plain, float):
        return f"{plain:.0f}" if 1e6 <= abs(plain) < 1e15 else f"{plain:.6g}"
    if isinstance(plain, list | dict):
        return json.dumps(plain, ensure_ascii=False)
    return str(plain).lower() if isinstance(plain, bool) else str(plain)


def csv_cell(value: Any) -> Any:
    plain = _plain(value)
    if isinstance(plain, str):
        return f"'{plain}" if plain.startswith(FORMULA_STARTS) else plain
    return "" if plain is None else _cell_text(plain) if isinstance(plain, bool | list | dict) else plain


def _plain(value: Any) -> Any:
    """Returns a value that JSON can hold; None for NaN and infinity."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime | date | time):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return str(value)


__all__ = ["sql"]
