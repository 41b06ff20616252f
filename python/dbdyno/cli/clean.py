"""``dbdyno clean``: puts back what killed runs changed, and removes what dbdyno made in a database."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbdyno import limits, store
from dbdyno.cli.options import bin_dir_option, dsn_option, engine_option
from dbdyno.engines import DEFAULT, open_server
from dbdyno.model.errors import DbdynoError, StoreError, TargetError

if TYPE_CHECKING:
    from dbdyno.model.undo import Undo

_OF_SYSTEM, _OF_SERVER = ("group", "affinity"), ("settings", "pooler")


@click.command()
@engine_option("System to clean.")
@dsn_option
@bin_dir_option
def clean(engine: str | None, dsn: str | None, bin_dir: Path | None) -> None:
    """Restore what killed runs changed, and remove dbdyno's schema from a database.

    A run restores everything when it ends, also after an error or Ctrl-C. A run that was killed leaves a
    journal. clean restores the control groups and affinities in it, and the settings and poolers of the
    named server. Then it removes dbdyno's schema and its contents from the database, and nothing else.
    Runs in progress are not affected.

    \b
    Examples:
      dbdyno clean
      dbdyno clean --dsn postgresql://app@db1/prod
    """
    from dbdyno.model.protocols import Target

    work = _Work(store.left_over())
    work.put_back(_OF_SYSTEM, limits.undo)
    try:
        with open_server(engine or DEFAULT, Target(dsn=dsn, bin_dir=bin_dir)) as server:
            if server.settings is not None:
                work.put_back(_OF_SERVER, server.settings.put_back)
            work.say_what_stays("it is another server's: name that one with --dsn")
            for line in server.clean():
                work.say(line)
    except TargetError:
        work.say_what_stays("the server cannot be reached")
        raise
    work.end()


class _Work:
    """Putting back what journals name, a line for each thing."""

    def __init__(self, found: store.LeftOver) -> None:
        self._dead, self._damaged = found.dead, found.damaged
        self._failed: dict[str, DbdynoError] = {}  # by key of what could not be put back
        self._silent = True
        for one in found.alive:
            self.say(f"run {one.run} is under way (process {one.owner_pid}): left alone")
        for error in self._damaged[1:]:
            self.say(error.message)

    def say(self, line: str) -> None:
        click.echo(line)
        self._silent = False

    def put_back(self, kinds: Collection[str], how: Callable[[Undo], str | None]) -> None:
        """What was changed last comes first. What fails stays in its journal and hinders nothing else."""
        for one in self._dead:
            for undo in reversed([u for u in one.undos if u.kind in kinds]):
                try:
                    if (done := how(undo)) is not None:
                        one.forget(undo.key)
                        self.say(f"run {one.run}: {done}")
                except DbdynoError as error:
                    self._failed[undo.key] = error
                except (LookupError, TypeError, ValueError) as error:
                    self._failed[undo.key] = StoreError(f"its journal {one.path} is damaged: {error!r}")

    def say_what_stays(self, why: str) -> None:
        for one in self._dead:
            for undo in one.undos:
                self.say(f"run {one.run}: not put back: {undo.what}; {self._failed.get(undo.key, why)}")

    def end(self) -> None:
        """Raises the first of what failed."""
        for error in (*self._failed.values(), *self._damaged):
            raise error
        if self._silent:
            click.echo("nothing to remove")
