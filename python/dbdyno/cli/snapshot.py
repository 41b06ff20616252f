"""``dbdyno snapshot``: stores a server's statistics at one moment, to be compared with other moments."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dbdyno.cli import completion
from dbdyno.cli.app import Commands
from dbdyno.cli.cluster_options import server_cluster_options
from dbdyno.cli.flags import Grouped, Option
from dbdyno.cli.options import (
    engine_option,
    json_option,
    print_json,
    running_dsn_option,
    server_ssh_options,
    store_option,
)
from dbdyno.cli.screen import aligned, note, width
from dbdyno.cli.snapshot_lines import Lines, print_some, reasons, record_of, remarks, row
from dbdyno.model.errors import EXIT_INTERRUPTED, UsageError
from dbdyno.model.plan.flags import SERVER
from dbdyno.model.units import NS_PER_S, counted, format_ns, parse_duration_ns
from dbdyno.store.listing import default_root

if TYPE_CHECKING:
    from dbdyno.model.engine.protocols import Target
    from dbdyno.model.engine.snapshot import Snapshot, SnapshotInfo
    from dbdyno.store import SnapshotStore
    from dbdyno.store.snapshot_catalog import Entry

_SHORTEST_S = 1.0


class _Snapshots(Grouped, Commands):
    """A group of commands whose own options are grouped, too."""


_GROUPS = {
    "What to read": ("databases", "all_databases", "name"),
    "A series": ("every", "duration", "keep"),
    SERVER: ("dsn", "server_ssh", "ssh_command", "cluster", "server_node", "engine"),
}
"""Heading of the help -> parameters."""


@click.group("snapshot", cls=_Snapshots, groups=_GROUPS, invoke_without_command=True)
@click.option("--name", metavar="NAME", help="A name; it works wherever a snapshot is asked for.")
@running_dsn_option
@server_ssh_options
@server_cluster_options(several=False)
@click.option(
    "--database", "databases", metavar="NAME", multiple=True, help="Read this database; repeatable."
)
@click.option("--all-databases", is_flag=True, help="Read all databases that may be connected to.")
@click.option("--every", metavar="TIME", help="Take one every so often, at full minutes or hours: 10min, 1h.")
@click.option("--for", "duration", metavar="TIME", help="End --every after this time.  [default: never]")
@click.option("--keep", metavar="TIME", help="With --every: remove snapshots older than this: 30d.")
@engine_option("System to read.")
@store_option
@json_option
def snapshot(**options: Any) -> None:
    """Take a snapshot of a server's statistics: tables, indexes, statements, I/O, WAL, settings.

    Nothing is changed on the server: one read-only transaction in each database, with timeouts. A role that
    may monitor is enough; what may not be read is listed with the remedy.

    With --every it continues until Ctrl-C or SIGTERM, waits while the server is unavailable, and marks the
    gap.

    \b
    Examples:
      dbdyno snapshot
      dbdyno snapshot --dsn service=prod --all-databases \\
          --name "before the release"
      dbdyno snapshot --dsn service=prod --every 10min --keep 30d
      dbdyno snapshot --dsn "host=db1 user=monitor" --cluster ray://head:10001
      dbdyno snapshot list
      dbdyno snapshot --every 1min --for 1h --json | jq -c '[.id, .seconds]'
    """
    if (context := click.get_current_context()).invoked_subcommand is not None:
        _refuse_others(context)
        return
    name = _checked_name(options["name"])
    if options["databases"] and options["all_databases"]:
        raise UsageError("--database and --all-databases exclude each other", "give one of them")
    every_s = _seconds(options["every"], "--every")
    if every_s is None and (lone := next((o for o in ("duration", "keep") if options[o]), None)):
        option = {"duration": "--for", "keep": "--keep"}[lone]
        raise UsageError(f"{option} belongs to --every", "dbdyno snapshot --every 10min")
    if every_s is not None and every_s < _SHORTEST_S:
        raise UsageError(f"--every {options['every']}: shorter than 1 s", "dbdyno observe looks more often")
    _take(options, name, every_s)


def _take(options: Mapping[str, Any], name: str | None, every_s: float | None) -> None:
    from dbdyno import conduct
    from dbdyno.engines import checked

    engine = checked(options["engine"])
    nodes, ssh = (() if (word := options[n]) is None else (word,) for n in ("server_node", "server_ssh"))
    hosts = conduct.ServerHosts(options["cluster"], nodes, ssh, options["ssh_command"])
    with conduct.server_machines(engine, [options["dsn"]], hosts, note) as (machine,):
        # resolved once: a series must not move to another server
        target = conduct.observed_target(engine, options["dsn"], machine)
        _take_from(options, target, name, every_s)


def _take_from(options: Mapping[str, Any], target: Target, name: str | None, every_s: float | None) -> None:
    from dbdyno import conduct, drive
    from dbdyno.engines import checked

    store, engine = _open(options["store"]), checked(options["engine"])
    databases = () if options["all_databases"] else options["databases"] or None

    def take() -> Snapshot:
        return conduct.take_snapshot(engine, target, store, name, databases, every_s)

    def end(_count: int) -> None:
        raise drive.Interrupted

    lines = Lines(as_json=options["as_json"], series=every_s is not None)
    duration_s, keep_s = _seconds(options["duration"], "--for"), _seconds(options["keep"], "--keep")
    keep = None if keep_s is None else timedelta(seconds=keep_s)
    with drive.Interrupt(end).caught() as interrupt:
        try:
            if every_s is None:
                lines.taken(take())
            else:
                conduct.take_series(take, store, every_s, interrupt, lines, duration_s, keep)
        except drive.Interrupted:
            if every_s is None or duration_s is not None:  # interrupted before its end
                raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


@snapshot.command("list")
@click.option("--limit", cls=Option, type=click.IntRange(1), metavar="N", help="Only the newest N.")
@store_option
@json_option
def list_command(limit: int | None, store: Path | None, as_json: bool) -> None:
    """List snapshots, the newest at the end; gaps of a series are marked.

    \b
    Examples:
      dbdyno snapshot list
      dbdyno snapshot list --limit 20
      dbdyno snapshot list --json | jq -r '.[].id'
    """
    from dbdyno.store.snapshot_catalog import DIRECTORY, Catalog

    root = _root(store)
    catalog = Catalog(root / DIRECTORY)
    entries = catalog.every()
    for reason in catalog.damaged.values():
        click.echo(f"warning: left out: {reason}", err=True)
    listed = list(zip(entries, remarks([e.info for e in entries]), strict=True))[-(limit or 0) :]
    if as_json:
        print_json([record_of(e.info, e.rows) | {"remark": remark} for e, remark in listed])
    elif not listed:
        click.echo(f"no snapshots in {root}; take one: dbdyno snapshot")
    else:
        rows = [row(entry, remark) for entry, remark in listed]
        heads = ("snapshot", "taken", "name", "tables", "statements", "server", "remark")
        numbers = [h in ("tables", "statements") for h in heads]
        used = [i for i in range(len(heads)) if any(row[i] for row in rows)]
        picked = ([[row[i] for i in used] for row in rows], [numbers[i] for i in used])
        click.echo("\n".join(aligned([heads[i] for i in used], *picked, width())))


@snapshot.command()
@click.argument("wanted", metavar="[SNAPSHOT]", default="last", shell_complete=completion.SNAPSHOTS)
@store_option
@json_option
def show(wanted: str, store: Path | None, as_json: bool) -> None:
    """Show what a snapshot contains, and what is missing and why.

    SNAPSHOT is an id, the beginning of one, a name, "last", or a time: 14:00, "yesterday 14:00", "2h ago",
    "2026-11-22 14:00"; last~1 is the one before.

    \b
    Examples:
      dbdyno snapshot show
      dbdyno snapshot show "before the release"
      dbdyno snapshot show "yesterday 14:00" --json
    """
    catalog = _open(store)
    entry = _find(catalog, [wanted])[0]
    record = record_of(entry.info, entry.rows)
    if as_json:
        print_json(record)
        return
    info = entry.info
    when = f"{info.taken.astimezone():%Y-%m-%d %H:%M:%S %z}, read in {format_ns(info.took_s * NS_PER_S)}"
    started = "unknown" if info.started is None else f"{info.started.astimezone():%Y-%m-%d %H:%M:%S}"
    facts = {
        "snapshot": info.id,
        "name": info.name or "",
        "taken": when,
        "series": "" if info.every_s is None else f"every {format_ns(info.every_s * NS_PER_S)}",
        "server": f"{info.engine} {info.version}, {info.address}{', standby' if info.standby else ''}",
        "started": started,
        "role": info.role,
        "databases": ", ".join(info.databases),
        "rows": ", ".join(f"{table} {rows:,}" for table, rows in entry.rows.items() if rows),
    }
    for key, value in facts.items():
        click.echo(f"{key:9} {value}") if value else None
    for line in reasons(info.missing, len(info.missing)):
        click.echo(f"{'missing':9} {line}")


@snapshot.command("rm")
@click.argument("wanted", nargs=-1, metavar="SNAPSHOT...", shell_complete=completion.SNAPSHOTS)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_option
def remove(wanted: tuple[str, ...], yes: bool, store: Path | None) -> None:
    """Remove snapshots, after listing them and asking.

    \b
    Examples:
      dbdyno snapshot rm last
      dbdyno snapshot rm 20261122-140000-3f9a "before the release" --yes
    """
    if not wanted:
        raise UsageError("no snapshot was named", "dbdyno snapshot rm SNAPSHOT; dbdyno snapshot list")
    catalog = _open(store)
    chosen = {e.info.id: e for e in _find(catalog, wanted, exact=True)}
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("rm asks before it removes, and standard input is no terminal", "add --yes")
        print_some(list(chosen.values()))
        if not click.confirm(f"Remove {counted(len(chosen), 'snapshot')}?"):
            click.echo("nothing was removed")
            return
    catalog.remove(chosen)
    for identity in chosen:
        click.echo(f"removed {identity}")


@snapshot.command()
@click.option("--keep", required=True, metavar="TIME", help="Remove those older than this: 30d, 12h.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@store_option
@json_option
def prune(keep: str, dry_run: bool, store: Path | None, as_json: bool) -> None:
    """Remove snapshots older than a time, and texts of statements that no other needs.

    It asks nothing, so cron can run it. A snapshot that is being read can be read to its end.

    \b
    Examples:
      dbdyno snapshot prune --keep 30d
      dbdyno snapshot prune --keep 12h --dry-run
    """
    catalog, age = _open(store), timedelta(seconds=_seconds(keep, "--keep") or 0)
    entries = catalog.entries()
    now = datetime.now(UTC)
    old = {i.id for i in catalog.older_than(age, now)}
    removed = [e for e in entries if e.info.id in old]
    if removed and not dry_run:
        catalog.remove(old)
    left = len(entries) - len(removed)
    if as_json:
        print_json({"removed": [e.info.id for e in removed], "dry_run": dry_run, "left": left})
        return
    if dry_run:
        print_some(removed)
    words = "would be removed" if dry_run else "removed"
    click.echo(f"{words}: {counted(len(removed), 'snapshot')}; {left:,} left")


def _open(store: Path | None) -> SnapshotStore:
    from dbdyno.store import SnapshotStore  # here, since a list needs no Polars

    return SnapshotStore(_root(store))


def _root(store: Path | None) -> Path:
    """Returns the store's folder. ``--store`` may also stand before the subcommand."""
    context = click.get_current_context()
    above = context.parent
    own = context.get_parameter_source("store") is ParameterSource.COMMANDLINE
    if not own and above is not None and above.get_parameter_source("store") is ParameterSource.COMMANDLINE:
        store = above.params["store"]
    return default_root() if store is None else store


def _refuse_others(context: click.Context) -> None:
    """Raises UsageError if options of taking a snapshot stand before a subcommand."""
    for name in context.params:
        on_command_line = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if on_command_line and name != "store":
            option = next(p.opts[0] for p in context.command.params if p.name == name)
            raise UsageError(
                f"{option} stands before {context.invoked_subcommand}",
                f"dbdyno snapshot {context.invoked_subcommand} --help",
            )


def _checked_name(name: str | None) -> str | None:
    """Raises :class:`UsageError` for a name that could be taken for a time."""
    from dbdyno import conduct
    from dbdyno.store.snapshot_times import moment_of  # here, since help does not need it

    checked = conduct.labels_of({"name": name, "note": None, "tags": ()}).get("name") or None
    if checked is not None and moment_of(checked, datetime.now(UTC)) is not None:
        raise UsageError(f"--name {checked!r} could be taken for a time", "give it another name")
    return checked


def _seconds(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    if option == "--keep":
        from dbdyno import conduct

        conduct.check_has_unit(text)
    seconds = parse_duration_ns(text, option) / NS_PER_S
    if seconds > timedelta.max.total_seconds() / 1e3:
        raise UsageError(f"{option} {text}: too long a time", "write a number and a unit: 30d, 12h")
    return seconds


def _find(catalog: SnapshotStore, wanted: Sequence[str], *, exact: bool = False) -> list[Entry]:
    """Finds the snapshots. ``exact``: refuses times. Raises :class:`NoSuchSnapshot`, :class:`UsageError`."""
    from dbdyno.store.snapshot_times import nearest, remark

    entries, now = catalog.entries(), datetime.now(UTC)
    infos, chosen = [e.info for e in entries], []
    for word in wanted:
        info = nearest(word, infos, now)
        if exact and _is_time(word, info, now):
            raise UsageError(f"{word!r} is a time", f"name the snapshot: {info.id}")
        if (line := remark(word, info, infos, now)) is not None:
            note(line)
        chosen.append(next(e for e in entries if e.info.id == info.id))
    return chosen


def _is_time(word: str, info: SnapshotInfo, now: datetime) -> bool:
    from dbdyno.store.snapshot_times import moment_of

    return info.name != word and not info.id.startswith(word) and moment_of(word, now) is not None
