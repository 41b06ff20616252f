"""The embedded server: a private PostgreSQL on a unix socket, started and stopped by us."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dbdyno.engines.postgres.embedded.account import Account, explained, server_account
from dbdyno.engines.postgres.embedded.defaults import Wish
from dbdyno.engines.postgres.embedded.instance import Instance
from dbdyno.engines.postgres.embedded.places import Places, find_places
from dbdyno.engines.postgres.embedded.programs import Programs, find_programs, reachable
from dbdyno.model.errors import DbdynoError, ServerBusy, TargetError, Unreachable

__all__ = ["Instance", "Wish", "client_argv", "instance_of", "open_instance", "start", "status", "stop"]


@explained()
def open_instance(bin_dir: Path | None, wish: Wish) -> Instance:
    """A running server. ``bin_dir=None``: one started to stay, if there is exactly one, else the wheel's.

    Call it on a thread that lives as long as the server shall: the kernel ends the server with it.
    """
    staying = [] if bin_dir else [i for i in _instances() if _stays(i)]
    if len(staying) == 1 and (last := staying[0].started()) is not None:
        instance, programs = staying[0], Programs(Path(last.bin_dir), last.version)
    else:
        instance, programs = instance_of(bin_dir)
    try:
        instance.open(programs, wish)
    except BaseException:
        instance.close()
        raise
    return instance


@explained()
def instance_of(bin_dir: Path | None, places: Places | None = None) -> tuple[Instance, Programs]:
    """The instance for the major version of these programs."""
    account = server_account()
    places = places or find_places(account)
    programs = reachable(find_programs(bin_dir), account, places.cache)
    return Instance(places, account, places.data / str(programs.major)), programs


@explained()
def start(
    bin_dir: Path | None = None,
    settings: Mapping[str, str] | None = None,
    max_connections: int | None = None,
    fresh: bool = False,
) -> dict[str, Any]:
    """Starts it to stay until :func:`stop`; its status."""
    instance, programs = instance_of(bin_dir)
    if instance.process() is not None and instance.has_owner():
        raise ServerBusy("the embedded server is in use by a run", "wait until that has ended")
    wish = Wish(settings or {}, max_connections=max_connections, fresh=fresh, stay=True)
    instance.open(programs, wish)
    return instance.facts()


@explained()
def stop() -> dict[str, Any]:
    """Stops every server of ours that no run uses; what was stopped. Raises :class:`ServerBusy`."""
    ended = [(i, p.pid) for i in _instances() if (p := i.stop()) is not None]
    return {
        "stopped": bool(ended),
        "pid": ended[0][1] if ended else None,
        "data_dir": ", ".join(str(i.data) for i, _ in ended) or None,
    }


@explained()
def status() -> dict[str, Any]:
    """Whether it runs and how to connect: the first that runs; ``others`` where there are more."""
    found = [i.facts() for i in _instances()]
    running = [f for f in found if f["running"]]
    if not running:
        unknown = [f for f in found if f["running"] is None]
        return unknown[0] if unknown else {"running": False, "data_dir": str(_places()[1].data)}
    others = [f["dsn"] for f in running[1:]]
    running[0] |= _in_force(running[0])
    return running[0] | ({"others": others} if others else {})


def _in_force(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as the server has them now: its file may have been changed since, and a run restarts it with
    others. Where it does not answer, those that it was started with."""
    import psycopg  # here: to look where there is no server needs none of these

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


@explained()
def client_argv() -> list[str]:
    """``psql DSN`` for the running server. Raises :class:`Unreachable`, or where there is no psql."""
    for instance in _instances():
        facts, last = instance.facts(), instance.started()
        if facts["running"] and last is not None:
            psql = Programs(Path(last.bin_dir), last.version).psql()
            if psql is None:
                raise TargetError("there is no psql", "install PostgreSQL's client programs")
            return [psql, facts["dsn"]]
    raise Unreachable("the embedded server does not run", "start it: dbdyno server start")


def _stays(instance: Instance) -> bool:
    last = instance.started()
    return last is not None and last.stay and instance.process() is not None


@explained()
def _instances() -> list[Instance]:
    """Those that have a directory, newest major version first."""
    account, places = _places()
    majors = sorted((int(d.name) for d in places.data.iterdir() if d.name.isdigit()), reverse=True)
    return [Instance(places, account, places.data / str(major)) for major in majors]


def _places() -> tuple[Account, Places]:
    """To look: no user is made for that."""
    account = server_account(make=False)
    return account, find_places(account)
