"""``dbdyno server`` controls the embedded server; ``dbdyno clean`` undoes what killed runs left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct, limits, store
from dbdyno.cli.app import Commands
from dbdyno.cli.flags import Option
from dbdyno.cli.options import SETTING, bin_dir_option, dsn_option, engine_option, json_option, print_json
from dbdyno.engines import DEFAULT, embedded, has_data, open_server, put_back, remove_unused
from dbdyno.model.errors import DbdynoError, StoreError, TargetError
from dbdyno.model.units import format_ns

if TYPE_CHECKING:
    from dbdyno.model.engine.protocols import Undo


_NEXT = "start it: dbdyno server start"


@click.group(cls=Commands)
def server() -> None:
    """Start, stop and inspect the embedded PostgreSQL."""


@server.command()
@bin_dir_option
@click.option(
    "--max-connections",
    cls=Option,
    metavar="N",
    type=click.IntRange(10, 10_000),
    help="Maximum connections.  [default: 100 or more]",
)
@click.option(
    "--setting", "settings", metavar="NAME=VALUE", multiple=True, help="Server setting; repeatable."
)
@click.option("--fresh", is_flag=True, help="Use a new data directory; the old one is removed.")
@json_option
def start(
    bin_dir: Path | None, max_connections: int | None, settings: tuple[str, ...], fresh: bool, as_json: bool
) -> None:
    """Start it and leave it running.

    It runs until `dbdyno server stop`; `dbdyno run` uses it.

    \b
    Examples:
      dbdyno server start
      dbdyno server start --setting shared_buffers=2GB --max-connections 500
      dbdyno server start --pg-bin /usr/lib/postgresql/15/bin
    """
    from dbdyno.plan import parse_params  # here, since the other commands do not need it

    chosen = {k: str(v) for k, v in parse_params(settings, *SETTING).items()}
    _print(
        embedded().start(bin_dir=bin_dir, settings=chosen, max_connections=max_connections, fresh=fresh),
        as_json,
    )


@server.command()
@json_option
def stop(as_json: bool) -> None:
    """Stop it.

    \b
    Examples:
      dbdyno server stop
    """
    facts = embedded().stop()
    _print(facts, as_json)
    if not (facts.get("stopped") or as_json):
        click.echo(f"none was running; {_NEXT}")


@server.command()
@json_option
def status(as_json: bool) -> None:
    """Show whether it runs and how to connect. Exit code 3 if it does not run.

    \b
    Examples:
      dbdyno server status
      psql "$(dbdyno server status --json | jq -r .dsn)"
    """
    facts = embedded().status()
    _print(facts, as_json)
    if facts.get("running") is False and not as_json:
        click.echo(_NEXT)
    if not facts.get("running"):
        raise click.exceptions.Exit(3)


@server.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def psql(arguments: tuple[str, ...]) -> None:
    """Open psql on it; further arguments go to psql.

    \b
    Examples:
      dbdyno server psql
      dbdyno server psql -c 'select version()'
    """
    argv = [*embedded().client_argv(), *arguments]
    os.execv(argv[0], argv)


def _print(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(dict(facts))
        return
    for key, value in facts.items():
        if value is not None or key == "running":
            click.echo(f"{key.removesuffix('_s').replace('_', ' '):16} {_in_words(key, value)}")


def _in_words(key: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "unknown"}[value]
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={v}" for name, v in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return format_ns(value * 1e9) if key.endswith("_s") else str(value)


_OF_SYSTEM, _OF_SERVER = ("group", "affinity"), ("settings", "pooler", "login trace")
_OF_ENGINES, _OF_CLUSTERS = ("commands",), ("cluster",)
_ANOTHER = "it is another server's or database's: name that one with --dsn"


@click.command()
@engine_option("System to clean.")
@dsn_option
@bin_dir_option
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="End what killed runs left on this Ray cluster instead: ray://HOST:10001, or auto.",
)
def clean(engine: str | None, dsn: str | None, bin_dir: Path | None, cluster: str | None) -> None:
    """Restore what killed runs changed; drop dbdyno's schema.

    A run restores everything when it ends, also after an error or Ctrl-C. A run that was killed leaves a
    journal. clean ends the commands and the clusters on this machine (--cluster local:N) in it, restores
    control groups and affinities, and the settings, poolers and login traces of the named server. Then it
    removes from the database dbdyno's schema, its contents, and a login trace whose command has ended, and
    nothing else. Without --dsn it first removes the data directories of servers that variants named
    (--servers), and the template that new ones are copied from. Runs in progress are not affected.

    With --cluster it stops only the actors of runs that no longer respond. They also end by themselves after
    15 s.

    \b
    Examples:
      dbdyno clean
      dbdyno clean --dsn postgresql://app@db1/prod
      dbdyno clean --cluster ray://head:10001
    """
    from dbdyno.model.engine.protocols import Target

    if cluster is not None:
        for line in conduct.clean_cluster(cluster) or ["nothing to remove"]:
            click.echo(line)
        return

    work = _Work(store.left_over())
    work.put_back(_OF_ENGINES, put_back)  # first, since a control group with processes cannot be removed
    work.put_back(_OF_CLUSTERS, conduct.end_own_cluster)
    work.put_back(_OF_SYSTEM, limits.undo)
    if dsn is None:
        # before a server starts, which takes room on the disk
        work.say_each(remove_unused(engine or DEFAULT))
        work.put_back(_OF_SERVER, put_back)
    try:
        if dsn is not None or has_data(engine or DEFAULT, bin_dir):
            with open_server(engine or DEFAULT, Target(dsn=dsn, bin_dir=bin_dir)) as server:
                if server.settings is not None:
                    work.put_back(_OF_SERVER, server.settings.put_back)
                work.say_what_stays(_ANOTHER)
                for line in server.clean():
                    work.say(f"removed {line}")
        else:
            work.say_what_stays(_ANOTHER)
    except TargetError as error:
        work.say_what_stays("the server cannot be reached")
        if engine or dsn or not work.all_back:
            raise
        work.say(f"no server was cleaned: {error.message}")
    work.end()


class _Work:
    """Undoes the changes in journals, with a line for each."""

    def __init__(self, left_over: store.LeftOver) -> None:
        self._dead, self._damaged = left_over.dead, left_over.damaged
        self._failed: dict[str, DbdynoError] = {}  # by key of the change that could not be undone
        self._silent, self._undone = True, False
        for one in left_over.alive:
            self.say(f"run {one.run} is under way (process {one.owner_pid}): left alone")
        for error in self._damaged[1:]:
            self.say(error.message)

    @property
    def all_back(self) -> bool:
        """Whether something was undone and nothing is left to undo."""
        return self._undone and not any(one.undos for one in self._dead)

    def say(self, line: str) -> None:
        click.echo(line)
        self._silent = False

    def say_each(self, lines: Iterable[str]) -> None:
        """An error stops nothing else."""
        try:
            for line in lines:
                self.say(line)
        except DbdynoError as error:
            self._failed["removal"] = error

    def put_back(self, kinds: Collection[str], how: Callable[[Undo], str | None]) -> None:
        """Undoes the last change first. A change that cannot be undone stays in its journal and stops no
        other."""
        for one in self._dead:
            for undo in reversed([u for u in one.undos if u.kind in kinds]):
                try:
                    if (line := how(undo)) is not None:
                        one.forget(undo.key)
                        self._undone = True
                        self.say(f"run {one.run}: {line}")
                except DbdynoError as error:
                    self._failed[undo.key] = error
                except (LookupError, TypeError, ValueError) as error:
                    self._failed[undo.key] = StoreError(f"its journal {one.path} is damaged: {error!r}")

    def say_what_stays(self, why: str) -> None:
        for one in self._dead:
            for undo in one.undos:
                self.say(f"run {one.run}: not put back: {undo.what}; {self._failed.get(undo.key, why)}")

    def end(self) -> None:
        """Raises the first error."""
        for error in (*self._failed.values(), *self._damaged):
            raise error
        if self._silent:
            click.echo("nothing to remove")
