"""Commands on the store of runs: runs, label, rm."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any

import click

from dbdyno import conduct
from dbdyno.cli import completion
from dbdyno.cli.flags import Grouped, Option
from dbdyno.cli.options import (
    json_option,
    label_options,
    open_store,
    print_json,
    store_option,
)
from dbdyno.cli.screen import aligned, width
from dbdyno.model.errors import DbdynoError, UsageError, did_you_mean
from dbdyno.model.units import counted, format_ns
from dbdyno.store.listing import STATUSES, default_root
from dbdyno.store.overview import Overview, find_run, overviews

_COLUMNS = {
    "run": 0,
    "when": 1,
    "name": 0,
    "workload": 3,
    "sess": 4,
    "peak": 0,
    "target": 2,
    "status": 0,
    "server": 6,
    "lasted": 7,
    "tags": 5,
    "remark": 8,
}
"""Head -> rank: too long lines lose the highest rank first; rank 0 stays."""
_SHORTENED = ("name", "target", "tags", "remark", "workload")
_LONGEST, _LEAST = 40, 12  # characters of a text that is shortened; the least on a narrow terminal
_STAMP = len("20261121-104501-")  # the begin of an id; what was run follows

name_filter = click.option(
    "--name",
    metavar="NAME",
    shell_complete=completion.RUN_NAMES,
    help="Only runs of this name; * and ? are wildcards.",
)
tag_filter = click.option(
    "--tag", "tags", metavar="TAG", multiple=True, help="Only runs with this tag; repeatable."
)


_GROUPS = {"Which runs": ("workload", "name", "tags", "target", "status", "since", "limit")}
"""Heading of the help -> parameters."""


@click.command(cls=Grouped, groups=_GROUPS)
@click.option(
    "--workload",
    metavar="NAME",
    shell_complete=completion.WORKLOADS,
    help="Only runs of this workload, script, or 'observation'.",
)
@name_filter
@tag_filter
@click.option(
    "--target", metavar="TEXT", help="Only runs against a target that contains this: embedded, db1."
)
@click.option(
    "--status",
    metavar="STATUS",
    type=click.Choice(STATUSES),
    help=f"Only runs of this status: {', '.join(STATUSES)}.",
)
@click.option("--since", metavar="TIME", help="Only runs since then: 7d, 12h, or 2026-11-01.")
@click.option("--limit", cls=Option, type=click.IntRange(1), metavar="N", help="Only the newest N.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a Markdown table.")
@store_option
@json_option
def runs(store: Path | None, as_json: bool, as_csv: bool, as_markdown: bool, **wanted: Any) -> None:
    """List stored runs: peak, target, status; the newest at the end.

    The runs of a suite are one line, unless they are asked for by --workload, --name or --tag, or as JSON or
    CSV.

    \b
    Examples:
      dbdyno runs
      dbdyno runs --workload lio --since 7d
      dbdyno runs --tag nightly --status complete --limit 10
      dbdyno runs --json | jq -r '.[].id'
    """
    if as_json + as_csv + as_markdown > 1:
        raise UsageError("--json, --csv and --markdown exclude each other", "give one of them")
    root = default_root() if store is None else store
    all_runs = overviews(root)
    matching = conduct.select(all_runs, **wanted)
    if as_json:
        print_json([one.record() for one in matching])
    elif as_csv:
        _print_csv(matching)
    elif not all_runs:
        click.echo(f"no runs in {root}; make one: dbdyno run lio")
    elif not matching:
        click.echo(f"none of {counted(len(all_runs), 'run')} matches; {_suggestion(all_runs, wanted)}")
    else:
        by_itself = any(wanted[key] for key in ("workload", "name", "tags"))
        rows = [_row(one) for one in matching] if by_itself else _with_suites(matching)
        click.echo(_markdown(rows).rstrip() if as_markdown else "\n".join(_table(rows, width())))


def _suggestion(entries: Sequence[Overview], wanted: dict[str, Any]) -> str:
    """Suggests the nearest existing value for the first condition that no run meets."""
    existing = {
        "workload": {one.outline.workload for one in entries},
        "name": {one.run.document["name"] for one in entries},
        "tags": {tag for one in entries for tag in one.run.document["tags"]},
        "target": {one.outline.target for one in entries},
    }
    for key, values in existing.items():
        values_wanted = wanted[key] if key == "tags" else (wanted[key],)
        for word in values_wanted or ():
            if word is not None and not any(fnmatchcase(v, word) or word in v for v in values if v):
                option = key.removesuffix("s") if key == "tags" else key
                return f"--{option} {word}: {did_you_mean(word, filter(None, values))}"
    return "fewer conditions match more"


def _row(one: Overview) -> dict[str, str]:
    row = conduct.run_row(one)
    return {
        "run": row.id,
        "when": row.started,
        "name": row.name,
        "workload": row.workload,
        "sess": row.sessions,
        "peak": row.peak,
        "target": row.target,
        "status": row.status,
        "server": row.server,
        "lasted": row.lasted,
        "tags": ", ".join(row.tags),
        "remark": "; ".join(filter(None, (row.reason, row.note))),
    }


def _with_suites(matching: Sequence[Overview]) -> list[dict[str, str]]:
    """Returns a row for each run, but one for all runs of a suite, where its last run stands."""
    of_suite: dict[str, list[Overview]] = {}
    for one in matching:
        if one.run.document["benchmark"]:
            of_suite.setdefault(one.run.document["group"], []).append(one)
    last = {group: runs[-1] for group, runs in of_suite.items()}
    rows = []
    for one in matching:
        group = one.run.document["group"]
        if group not in of_suite:
            rows.append(_row(one))
        elif one is last[group]:
            rows.append(_suite_row(group, of_suite[group]))
    return rows


def _suite_row(group: str, runs: Sequence[Overview]) -> dict[str, str]:
    first, last = (conduct.run_row(one) for one in (runs[0], runs[-1]))
    statuses = [one.run.status for one in runs]
    status = next((s for s in statuses if s != "complete"), "complete")
    tag = first.tags[-2] if len(first.tags) > 1 else ""
    return _row(runs[-1]) | {
        "run": group,
        "when": first.started,
        "workload": tag.replace(":", " "),
        "sess": "",
        "peak": counted(len(runs), "benchmark"),
        "status": status,
        "lasted": format_ns((last.started_s - first.started_s + (last.lasted_s or 0.0)) * 1e9),
        "tags": tag,
        "remark": f"each by itself: dbdyno runs --tag {tag}",
    }


def _table(rows: Sequence[dict[str, str]], columns: int | None) -> list[str]:
    """Returns lines of at most ``columns`` characters, as far as columns can be shortened or left out."""
    heads = [h for h in _COLUMNS if any(row[h] for row in rows)]
    shown = [_lines(rows, heads, None)]
    if columns is not None and _longest(shown[-1]) > columns and (ends := _ends(rows)):
        rows = [
            row | {"run": end, "workload": row["workload"] or row["run"][_STAMP:].removesuffix(f"-{end}")}
            for row, end in zip(rows, ends, strict=True)
        ]
        shown.append(_lines(rows, heads, None))
    while columns is not None and _longest(shown[-1]) > columns:
        shown.append(_lines(rows, heads, max(_LEAST, columns // 6)))
        if _longest(shown[-1]) <= columns or not any(_COLUMNS[h] for h in heads):
            break
        heads.remove(max(heads, key=lambda h: _COLUMNS[h]))
        shown.append(_lines(rows, heads, None))
    left_out = [h for h in _COLUMNS if h not in heads and any(row[h] for row in rows)]
    return [*shown[-1], *([f"Not shown at this width: {', '.join(left_out)}."] if left_out else [])]


def _ends(rows: Sequence[dict[str, str]]) -> list[str]:
    """Returns the last part of each id, which names a run in all commands; empty if two runs share one."""
    ends = [row["run"].rpartition("-")[2] for row in rows]
    return ends if len(set(ends)) == len(ends) else []


def _lines(rows: Sequence[dict[str, str]], heads: Sequence[str], longest: int | None) -> list[str]:
    def cell(head: str, text: str) -> str:
        most = (longest or _LONGEST) if head in _SHORTENED else len(text)
        return text if len(text) <= most else f"{text[: most - 1]}…"

    return aligned(heads, [[cell(h, row[h]) for h in heads] for row in rows], [h == "peak" for h in heads])


def _longest(lines: Sequence[str]) -> int:
    return max(map(len, lines))


def _markdown(rows: Sequence[dict[str, str]]) -> str:
    from dbdyno.present.document.document import Document, texts
    from dbdyno.present.media import markdown

    return markdown.page(Document("Runs", [texts("", list(_COLUMNS), [list(r.values()) for r in rows])]))


def _print_csv(entries: Sequence[Overview]) -> None:
    from dbdyno.cli.sql import csv_cell

    writer = csv.writer(sys.stdout, lineterminator="\n")
    records = [one.record() for one in entries]
    heads = [h for h in (records[0] if records else ()) if h not in ("applied", "pid", "pid_start_ticks")]
    writer.writerow(heads)
    writer.writerows([csv_cell(record[h]) for h in heads] for record in records)


@click.command("label")
@click.argument("run", metavar="RUN", shell_complete=completion.RUNS)
@label_options
@click.option("--untag", "untags", metavar="TAG", multiple=True, help="Remove this tag; repeatable.")
@store_option
@json_option
def label(run: str, untags: tuple[str, ...], store: Path | None, as_json: bool, **given: Any) -> None:
    """Show or change a run's name, tags and note.

    An empty text removes the name or the note.

    \b
    Examples:
      dbdyno label last --name before-upgrade --tag nightly
      dbdyno label before-upgrade --note "huge pages on"
      dbdyno label last --untag nightly --name ""
    """
    info = conduct.relabelled(open_store(store).open(run), given, untags)
    labels = {"id": info.id, "name": info.name, "tags": list(info.tags), "note": info.note}
    if as_json:
        print_json(labels)
        return
    for key, value in labels.items():
        click.echo(f"{key:5} {', '.join(value) if isinstance(value, list) else value}".rstrip())


_MOST_NAMED = 20


@click.command("rm")
@click.argument("wanted", nargs=-1, metavar="[RUN]...", shell_complete=completion.RUNS)
@click.option("--older-than", metavar="TIME", help="Runs that started longer ago than this: 30d, 12h.")
@click.option("--keep", cls=Option, type=click.IntRange(0), metavar="N", help="All runs except the newest N.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_option
def remove(
    wanted: tuple[str, ...], older_than: str | None, keep: int | None, yes: bool, store: Path | None
) -> None:
    """Remove runs, after listing them with their size and asking.

    --older-than and --keep together remove the runs that both concern; neither touches a run in progress.
    If a run is a link, only the link is removed. The id of a suite names all its runs.

    \b
    Examples:
      dbdyno rm 20261121-104501-lio-3f9a
      dbdyno rm last last~1
      dbdyno rm --older-than 30d --keep 10 --yes
    """
    root = default_root() if store is None else store
    paths = _chosen(root, wanted, older_than, keep)
    if not paths:
        click.echo("no runs to remove")
        return
    if not yes and not _confirmed(paths):
        click.echo("nothing was removed")
        return
    failed: list[DbdynoError] = []
    for path in paths:
        try:
            click.echo(f"removed {open_store(root).remove(path.name)}")
        except DbdynoError as error:
            failed.append(error)
    for first in failed:
        raise first


def _chosen(root: Path, wanted: Sequence[str], older_than: str | None, keep: int | None) -> list[Path]:
    """Returns the paths of the runs to remove. Raises :class:`UsageError` if none was named,
    :class:`NoSuchRun`."""
    if wanted and (older_than is not None or keep is not None):
        raise UsageError("runs were named, and --older-than or --keep given", "one or the other")
    if wanted:
        named = (conduct.runs_of_suite(open_store(root), w) or [find_run(root, w)] for w in wanted)
        return list(dict.fromkeys(chain.from_iterable(named)))
    if older_than is None and keep is None:
        raise UsageError("no run was named", "dbdyno rm RUN, or --older-than 30d, or --keep 10; dbdyno runs")
    entries = overviews(root)
    if keep:
        entries = entries[:-keep]
    if older_than is not None:
        before = datetime.now(UTC) - conduct.age(older_than)
        entries = [one for one in entries if one.run.started < before]
    return [one.run.path for one in entries if one.run.status != "running"]


def _confirmed(paths: Sequence[Path]) -> bool:
    """Lists the runs and asks. Raises :class:`UsageError` if standard input is not a terminal."""
    if not sys.stdin.isatty():
        raise UsageError("rm asks before it removes, and standard input is no terminal", "add --yes")
    removal = conduct.removal(paths)
    rows = [[r.id, r.name, r.peak, r.status, size] for r, size in removal.runs[:_MOST_NAMED]]
    for line in aligned(("run", "name", "peak", "status", "size"), rows, [False] * 4 + [True]):
        click.echo(line)
    if len(paths) > _MOST_NAMED:
        click.echo(f"... and {len(paths) - _MOST_NAMED} more")
    return click.confirm(removal.question)
