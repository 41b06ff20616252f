"""The embedded server: a private PostgreSQL on a unix socket that dbdyno starts and stops."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dbdyno.engines.postgres.embedded import cached
from dbdyno.engines.postgres.embedded.account import Account, explain_os_errors, server_account
from dbdyno.engines.postgres.embedded.defaults import StartOptions
from dbdyno.engines.postgres.embedded.installed import programs_to_start
from dbdyno.engines.postgres.embedded.instance import Instance
from dbdyno.engines.postgres.embedded.places import Places, find_places
from dbdyno.engines.postgres.embedded.programs import Programs, make_reachable
from dbdyno.model.errors import DbdynoError, ServerBusy, TargetError, Unreachable

_DIRECTORY = re.compile(r"\d+(-[0-9a-f]{8})?")
"""Name of a directory of a server: the major version; and the programs' directory where a run compares
servers."""

__all__ = [
    "Instance",
    "StartOptions",
    "client_argv",
    "has_data",
    "instance_of",
    "instance_of_programs",
    "open_instance",
    "remove_unused",
    "start",
    "status",
    "stop",
]


@explain_os_errors()
def open_instance(bin_dir: Path | None, options: StartOptions) -> Instance:
    """Returns a running server. ``bin_dir=None`` takes the one server started to stay, if there is exactly
    one, else starts one with the programs of the wheel.

    Call it on a thread that lives as long as the server is needed: the kernel ends the server when that
    thread ends (PR_SET_PDEATHSIG).
    """
    permanent = None if bin_dir else _only_permanent()
    if permanent is not None and (last := permanent.started()) is not None:
        instance, programs = permanent, Programs(Path(last.bin_dir), last.version)
    else:
        instance, programs = instance_of(bin_dir)
    try:
        instance.open(programs, options)
    except BaseException:
        instance.close()
        raise
    return instance


@explain_os_errors()
def has_data(bin_dir: Path | None) -> bool:
    """Returns whether there is a data directory for :func:`open_instance` to use. Makes nothing. Raises
    :class:`UsageError` if ``bin_dir`` holds no server."""
    if bin_dir is None:
        if not any(i.data.exists() for i in _instances() if not i.of_programs):
            return False
        if _only_permanent() is not None:
            return True
    major = programs_to_start(bin_dir).major
    return any(i.data.exists() for i in _instances() if i.directory.name == str(major))


@explain_os_errors()
def instance_of(bin_dir: Path | None, places: Places | None = None) -> tuple[Instance, Programs]:
    """Returns the instance for the major version of these programs, and the programs."""
    account = server_account()
    places = places or find_places(account)
    programs = make_reachable(programs_to_start(bin_dir), account, places.cache)
    return Instance(places, account, places.data / str(programs.major)), programs


@explain_os_errors()
def instance_of_programs(programs: Programs) -> tuple[Instance, Programs]:
    """Returns the instance that these programs alone use, and the programs as its server's user can execute
    them. Its data directory is named after the major version and their directory."""
    account = server_account()
    places = find_places(account)
    directory = hashlib.sha256(os.fsencode(programs.bin_dir.resolve())).hexdigest()[:8]
    reachable = make_reachable(programs, account, places.cache)
    return Instance(places, account, places.data / f"{programs.major}-{directory}"), reachable


@explain_os_errors()
def start(
    bin_dir: Path | None = None,
    settings: Mapping[str, str] | None = None,
    max_connections: int | None = None,
    fresh: bool = False,
) -> dict[str, Any]:
    """Starts the server so that it runs until :func:`stop`. Returns its status. Raises :class:`ServerBusy`
    while a run uses it."""
    instance, programs = instance_of(bin_dir)
    if instance.process() is not None and instance.has_owner():
        raise ServerBusy("the embedded server is in use by a run", "wait until that has ended")
    options = StartOptions(settings or {}, max_connections=max_connections, fresh=fresh, stay=True)
    instance.open(programs, options)
    return instance.facts()


@explain_os_errors()
def stop() -> dict[str, Any]:
    """Stops every embedded server that no run uses. Returns the stopped servers. Raises
    :class:`ServerBusy`."""
    instances = _instances()
    ended = [(i, p.pid) for i in instances if (p := i.stop()) is not None]
    for instance in instances:
        instance.sweep()
    return {
        "stopped": bool(ended),
        "pid": ended[0][1] if ended else None,
        "data_dir": ", ".join(str(i.data) for i, _ in ended) or None,
    }


@explain_os_errors()
def status() -> dict[str, Any]:
    """Returns whether a server runs and how to connect to the first that does. ``others`` lists further ones,
    ``of_variants`` the data directories of servers that variants of runs named."""
    states = [i.facts() for i in _instances()]
    kept = [str(i.data) for i in _instances() if i.of_programs and i.data.exists()]
    of_variants = {"of_variants": kept} if kept else {}
    running = [f for f in states if f["running"]]
    if not running:
        unknown = [f for f in states if f["running"] is None]
        none = {"running": False, "data_dir": str(_existing_places()[1].data)}
        return (unknown[0] if unknown else none) | of_variants
    others = [f["dsn"] for f in running[1:]]
    running[0] |= _current_settings(running[0])
    return running[0] | ({"others": others} if others else {}) | of_variants


def remove_unused() -> Iterator[str]:
    """Ends the servers that variants of killed runs named. Removes the data directories of all that variants
    named, templates of new ones, and what killed runs left unfinished, unless a run uses them. Needs no room
    on the disk. Yields what was done, in words; raises the first error at the end."""
    instances, places = _instances(), _existing_places()[1]
    steps: list[Callable[[], list[str]]] = [i.remove for i in instances if i.of_programs and i.data.exists()]
    steps += [*(i.remove_unfinished for i in instances), partial(cached.remove, places)]
    errors: list[DbdynoError] = []
    for step in steps:
        try:
            with explain_os_errors():
                done = step()
        except DbdynoError as e:
            errors.append(e)
        else:
            yield from done
    if errors:
        raise errors[0]


def _current_settings(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings in force: since the start, the file may have been edited, and a run may have
    restarted the server with other settings. If it does not answer, returns the settings of its start."""
    import psycopg  # not at the top: not needed if no server runs, and slow to import

    from dbdyno.engines.postgres.connect import connect

    names = ["max_connections", *facts["settings"]]
    asking = "select name, current_setting(name) from pg_catalog.pg_settings where lower(name) = any(%s)"
    try:
        with connect(facts["dsn"]) as connection:
            rows = connection.execute(asking, [[n.lower() for n in names]]).fetchall()
    except (DbdynoError, psycopg.Error) as e:
        return {"detail": f"settings as it was started: {e}"}
    now = {name.lower(): value for name, value in rows}
    settings = {name: now.get(name.lower(), value) for name, value in facts["settings"].items()}
    return {"max_connections": int(now["max_connections"]), "settings": settings}


@explain_os_errors()
def client_argv() -> list[str]:
    """Returns ``psql DSN`` for the running server. Raises :class:`Unreachable` if none runs, and
    :class:`TargetError` without psql."""
    for instance in _instances():
        facts, last = instance.facts(), instance.started()
        if facts["running"] and last is not None:
            psql = Programs(Path(last.bin_dir), last.version).psql()
            if psql is None:
                raise TargetError("there is no psql", "install PostgreSQL's client programs")
            return [psql, facts["dsn"]]
    raise Unreachable("the embedded server does not run", "start it: dbdyno server start")


def _only_permanent() -> Instance | None:
    """Returns the server that was started to stay and runs, if there is exactly one."""
    permanent = [i for i in _instances() if _is_permanent(i)]
    return permanent[0] if len(permanent) == 1 else None


def _is_permanent(instance: Instance) -> bool:
    last = instance.started()
    return last is not None and last.stay and instance.process() is not None


@explain_os_errors()
def _instances() -> list[Instance]:
    """Returns an instance per data directory, the newest major version first."""
    account, places = _existing_places()
    there = places.data.iterdir() if places.data.exists() else ()
    names = [d.name for d in there if _DIRECTORY.fullmatch(d.name)]
    newest = sorted(names, key=lambda name: (-int(name.partition("-")[0]), name))
    return [Instance(places, account, places.data / name) for name in newest]


def _existing_places() -> tuple[Account, Places]:
    """Returns account and places without creating a user or a directory."""
    account = server_account(make=False)
    return account, find_places(account, make=False)
